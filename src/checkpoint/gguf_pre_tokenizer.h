// SPDX-License-Identifier: Apache-2.0
/* What llama.cpp calls the way in which a tokenizer.json cuts texts: tokenizer.ggml.pre. */
#ifndef TSR_CHECKPOINT_GGUF_PRE_TOKENIZER_H
#define TSR_CHECKPOINT_GGUF_PRE_TOKENIZER_H
#include "base/json.h"
#include "tokenizer/subword.h"

typedef struct {
  const char *name;
  bool is_known; /* the tokenizer itself is, by the tokens of a text; else only its patterns are */
} tsr_gguf_pre_tokenizer;

/* `table`: configs/gguf/pre_tokenizers.yaml. `json` is the tokenizer.json that `bpe` was read from,
 * `file` its name in errors. Errors: neither is in the table; the message has the hash. */
bool tsr_gguf_pre_tokenizer_find(
    tsr_arena *arena, const char *table, const tsr_subword *bpe, const cJSON *json,
    const char *file, tsr_gguf_pre_tokenizer *ret, tsr_diags *diags);

#endif
