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

#endif
