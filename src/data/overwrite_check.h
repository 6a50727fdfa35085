// SPDX-License-Identifier: Apache-2.0
/* Whether existing token files may be replaced: only what tells by itself that it is such a
 * file, because tokens without a header look like any other data. */
#ifndef TSR_DATA_OVERWRITE_CHECK_H
#define TSR_DATA_OVERWRITE_CHECK_H
#include "data/token_writer.h"

/* Of llm.c: the header counts the file's tokens. Of Megatron: the index ends where the tokens do.
 * Of nanoGPT nothing can be told. Empty and missing files may be replaced. `idx`: NULL but for
 * Megatron. Errors name the file, and --overwrite. */
bool tsr_tokens_check_replaced(
    const char *bin, const char *idx, tsr_tokens_as as, tsr_diags *diags);

/* The same of a list of characters, which rise and stand behind each other. */
bool tsr_chars_check_replaced(const char *path, tsr_diags *diags);

#endif
