// SPDX-License-Identifier: Apache-2.0
/* tt-train's files of tokens: a YAML map with the list `tokens` and `tokenizer_vocab_size`. */
#ifndef TSR_DATA_TT_TRAIN_TOKENS_H
#define TSR_DATA_TT_TRAIN_TOKENS_H
#include "data/token_files.h"

/* Reads all tokens into the arena, 4 bytes each. Other keys are skipped. Errors are located in the
 * file: no YAML, no such map, a token that is no integer in [0, tokenizer_vocab_size). */
bool tsr_tt_train_tokens_read(
    tsr_arena *arena, const char *path, tsr_location location, tsr_token_file *ret_file,
    tsr_diags *diags);

#endif
