// SPDX-License-Identifier: Apache-2.0
/* What a tokenizer does with texts and llama.cpp does not. */
#ifndef TSR_CHECKPOINT_GGUF_TOKENIZER_WARNINGS_H
#define TSR_CHECKPOINT_GGUF_TOKENIZER_WARNINGS_H
#include "base/json.h"
#include "checkpoint/gguf_tokens.h"
#include "tokenizer/subword.h"

/* Warns of added tokens that take the white space around them or stand alone (lstrip, rstrip,
 * single_word) and of those that are ordinary ones among `tokens`, by name, and of a template with
 * several tokens on one side of a text. `file` is what warnings name. */
void tsr_gguf_tokenizer_warn(
    const char *file, const cJSON *json, const tsr_subword *subword, const tsr_gguf_tokens *tokens,
    tsr_diags *diags);

/* Warns where the tokenizer's template puts a token before a text and llama.cpp (`bos`) does not,
 * or the other way round, and where llama.cpp puts one behind a text (`eos`). */
void tsr_gguf_tokenizer_warn_of_ends(
    const char *file, const tsr_subword *subword, bool bos, bool eos, tsr_diags *diags);

/* The same for the space that llama.cpp puts (`prefix`) before a text, before one that begins with
 * a space, and behind a special token. */
void tsr_gguf_tokenizer_warn_of_prefix(
    tsr_arena *arena, const char *file, const cJSON *json, const tsr_subword *subword, bool prefix,
    tsr_diags *diags);

/* Warns where not every byte is a token of SentencePiece's BPE: llama.cpp's process ends at a
 * character for which it has no tokens. */
void tsr_gguf_tokenizer_warn_of_bytes(
    const char *file, const tsr_gguf_tokens *tokens, tsr_diags *diags);

/* Warns where llama.cpp takes the model for a Phi-3 by its general.name, and refuses the file
 * because it does not have Phi-3's tokens. */
void tsr_gguf_tokenizer_warn_of_name(
    const char *name, const tsr_gguf_tokens *tokens, tsr_diags *diags);

#endif
