// SPDX-License-Identifier: Apache-2.0
/* Chat templates of models that come without one, and the tokens that end the assistant's turn. */
#ifndef TSR_DATA_CHAT_TEMPLATE_BUILTIN_H
#define TSR_DATA_CHAT_TEMPLATE_BUILTIN_H
#include "data/tokenizer.h"

/* The template of the format that the tokenizer's special tokens tell: <|im_start|> (ChatML),
 * <|start_header_id|> (Llama 3), [INST] (Mistral, of byte-level tokenizers). NULL: none of them. */
const char *tsr_chat_template_builtin(const tsr_tokenizer *tokenizer);

/* The special tokens that end a text or a turn, as far as the tokenizer has them; how many. */
enum { TSR_CHAT_STOPS_MAX = 8 };
int tsr_chat_stops(const tsr_tokenizer *tokenizer, int32_t ret_stops[TSR_CHAT_STOPS_MAX]);

#endif
