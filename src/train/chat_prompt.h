// SPDX-License-Identifier: Apache-2.0
/* A conversation in a file, as the tokens that a model of it was trained on. */
#ifndef TSR_TRAIN_CHAT_PROMPT_H
#define TSR_TRAIN_CHAT_PROMPT_H
#include "data/tokenizer.h"

typedef enum { TSR_ROLE_SYSTEM, TSR_ROLE_USER, TSR_ROLE_ASSISTANT } tsr_chat_role;
typedef struct {
  tsr_chat_role role;
  const char *content;
} tsr_chat_message;

typedef struct {
  const tsr_chat_message *messages;
  int count;
} tsr_chat;

/* Reads [{"role": "system", "content": "…"}, {"role": "user", "content": "…"}, …]: a system message
 * may come first, then user and assistant by turns, and the user has the last word. All mistakes of
 * a file are told in one call. */
bool tsr_chat_read(
    tsr_arena *arena, const char *path, tsr_location location, tsr_chat *ret_chat,
    tsr_diags *diags);
bool tsr_chat_parse(
    tsr_arena *arena, const char *file, const char *text, size_t length, tsr_chat *ret_chat,
    tsr_diags *diags);

/* How turns are marked; the tokenizer's special tokens tell. */
typedef enum {
  TSR_CHAT_NONE,
  TSR_CHAT_ML,      /* <|im_start|>: Qwen, SmolLM2 */
  TSR_CHAT_LLAMA3,  /* <|start_header_id|> */
  TSR_CHAT_MISTRAL, /* [INST]: of byte-level tokenizers (Tekken) */
} tsr_chat_format;
tsr_chat_format tsr_chat_format_of(const tsr_tokenizer *tokenizer);

/* The conversation up to where the assistant begins to speak. No other system message is generated
 * where there is none. An error names the formats when the tokenizer has none of them. */
bool tsr_chat_render(
    const tsr_chat *chat, tsr_chat_format format, tsr_text *text, tsr_diags *diags);
/* The same as tokens, in `arena`. */
bool tsr_chat_tokens(
    tsr_arena *arena, const tsr_chat *chat, const tsr_tokenizer *tokenizer,
    const int32_t **ret_tokens, int64_t *ret_count, tsr_diags *diags);

/* The special tokens that end a text or a turn, as far as the tokenizer has them; how many. */
enum { TSR_CHAT_STOPS_MAX = 8 };
int tsr_chat_stops(const tsr_tokenizer *tokenizer, int32_t ret_stops[TSR_CHAT_STOPS_MAX]);

#endif
