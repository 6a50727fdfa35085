// SPDX-License-Identifier: Apache-2.0
/* The token that fills up samples behind their last document. */
#ifndef TSR_DATA_PADDING_TOKEN_H
#define TSR_DATA_PADDING_TOKEN_H
#include "data/tokenizer.h"

/* The pad_token that the tokenizer's folder names (NULL: it has none), else its eos_token; -1: it
 * has neither. */
bool tsr_padding_token(
    tsr_arena *arena, const char *folder, const tsr_tokenizer *tokenizer, int32_t *ret_token,
    tsr_diags *diags);

/* Whether the tokenizer puts that token behind every text. transformers takes the last token that
 * is no padding for a text's last one, and so scores the classes of a document by the token before.
 */
bool tsr_padding_ends_texts(const tsr_tokenizer *tokenizer, int64_t token);

#endif
