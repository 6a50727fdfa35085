// SPDX-License-Identifier: Apache-2.0
/* Lines of JSON as samples for fine-tuning: tokens, and which of them are trained.
 *
 * A line is an object of one of these shapes; other keys are ignored.
 *   {"messages": [{"role": …, "content": …}, …], "tools": […]}
 *   {"prompt": …, "completion": …, "tools": […]}     both texts, or both lists of messages
 *   {"instruction": …, "input": …, "output": …}       Alpaca; "input" and "system" are optional
 *   {"conversations": [{"from": …, "value": …}, …]}   ShareGPT; "system" and "tools" are optional
 *   {"question": …, "answer": …}                      GSM8K: prompt and completion
 * "chat_template_kwargs" may have further variables of the template.
 *
 * Conversations are rendered with the chat template, and the text is tokenized once, with its
 * special tokens. The assistant's text is what the template marks with {% generation %}. Without
 * such marks it is what follows the prompt that generation would have: the text of messages[:i]
 * with a generation prompt is a prefix of the text of messages[:i + 1]. Where the template changes
 * earlier text in a longer conversation (Qwen3 drops the reasoning of earlier turns), the turn is
 * found in the final text by what surrounds it; if that is not unique, the line is refused.
 * End-of-turn tokens that only a longer conversation has behind a turn belong to it; other text
 * that the template writes there before the next message makes the line refused.
 * Of a prompt and a completion the completion is trained. Two texts need no template: they are
 * joined, and the end-of-sequence token follows (trl's format).
 *
 * A token is trained if it overlaps the trained text (as in return_assistant_tokens_mask). */
#ifndef TSR_DATA_CONVERSATION_H
#define TSR_DATA_CONVERSATION_H
#include "data/chat_template.h"

typedef enum {
  TSR_TRAIN_ON_ASSISTANT,      /* all turns of the assistant; of prompt and completion the latter */
  TSR_TRAIN_ON_LAST_ASSISTANT, /* its last turn */
  TSR_TRAIN_ON_ALL             /* every token */
} tsr_train_on;
extern const char *const tsr_train_on_names[]; /* "assistant", "last_assistant", "all", NULL */

/* How lines become tokens. Many threads may use one. */
typedef struct {
  const tsr_chat_template *template;
  tsr_tokenizer tokenizer;
  tsr_train_on train_on;
} tsr_conversation_format;

typedef struct {
  const char *text; /* the rendered text */
  int64_t length;   /* of the text, in bytes */
  int64_t count;    /* of tokens */
  int32_t *tokens;  /* (count) */
  uint8_t *trained; /* (count) 1: the token is a target of the loss, 0: it is context only */
  int64_t *begins;  /* (count + 1) token i is bytes [begins[i], begins[i + 1]) of the text */
} tsr_conversation;

/* The line at [offset, offset + length) of a file of JSONL. All results are in the arena. A line
 * that is no conversation, cannot be rendered, or whose trained text cannot be determined is an
 * error at its location. `scratch` may be NULL; it belongs to one thread. Nothing trained is no
 * error. */
bool tsr_conversation_read(
    tsr_arena *arena, const tsr_conversation_format *format, tsr_subword_scratch *scratch,
    const tsr_text_file *file, size_t offset, size_t length, tsr_conversation *ret_conversation,
    tsr_diags *diags);

/* The conversation in a file of `generate --chat`: a list of messages, or an object {"messages": …,
 * "tools": …, "chat_template_kwargs": …}. */
bool tsr_conversation_chat(
    tsr_arena *arena, const tsr_text_file *file, tsr_chat *ret_chat, tsr_diags *diags);

#endif
