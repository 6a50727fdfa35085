// SPDX-License-Identifier: Apache-2.0
/* The tokens of a vocabulary as llama.cpp's converter lists them: texts, types, and for
 * SentencePiece scores. */
#ifndef TSR_CHECKPOINT_GGUF_TOKENS_H
#define TSR_CHECKPOINT_GGUF_TOKENS_H
#include "base/json.h"
#include "checkpoint/gguf.h"
#include "checkpoint/sentencepiece_model.h"

typedef struct tsr_gguf_token tsr_gguf_token;
typedef struct {
  tsr_gguf_token *items; /* (count) */
  int64_t count;         /* of the model's vocabulary */
  bool has_scores;
} tsr_gguf_tokens;

/* `json` is tokenizer.json, at `path`, and `config` tokenizer_config.json; a NULL has nothing. Ids
 * that no token has become "[PAD17]". Errors: an id outside the vocabulary. */

/* Of byte-level BPE. */
bool tsr_gguf_tokens_bpe(
    tsr_arena *arena, const char *path, const cJSON *json, int64_t vocab_size, tsr_gguf_tokens *ret,
    tsr_diags *diags);

/* Of a tokenizer.model: its pieces, over them added_tokens_decoder of the configuration, and
 * `added` (the added_tokens of a tokenizer.json, or NULL). `looks`: what looks like a control token
 * is one, and a ▁ is a space. Error: a piece that the vocabulary of tokenizer.json has
 * otherwise. */
bool tsr_gguf_tokens_pieces(
    tsr_arena *arena, const char *path, const tsr_sentencepiece_model *model, const cJSON *json,
    const cJSON *config, const cJSON *added, bool looks, int64_t vocab_size, tsr_gguf_tokens *ret,
    tsr_diags *diags);

/* Of BPE with byte fallback without a tokenizer.model: every score is -1000, and control tokens are
 * those that the configuration names. */
bool tsr_gguf_tokens_byte_fallback(
    tsr_arena *arena, const char *path, const cJSON *json, const cJSON *config, int64_t vocab_size,
    tsr_gguf_tokens *ret, tsr_diags *diags);

/* Whether llama.cpp finds the token in a text only where its merges lead to it. */
bool tsr_gguf_tokens_is_normal(const tsr_gguf_tokens *tokens, int64_t id);

bool tsr_gguf_tokens_has(const tsr_gguf_tokens *tokens, const char *text);

/* How many tokens are those of a byte, as "<0xE2>". */
int tsr_gguf_tokens_bytes(const tsr_gguf_tokens *tokens);

/* Appends tokens, scores and types. */
void tsr_gguf_tokens_add(const tsr_gguf_tokens *tokens, tsr_gguf_metadata *metadata);

#endif
