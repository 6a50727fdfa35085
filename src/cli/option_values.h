// SPDX-License-Identifier: Apache-2.0
/* Values of options: errors are what is wrong with a text. A text that is NULL or empty leaves the
 * value as it is. */
#ifndef TSR_CLI_OPTION_VALUES_H
#define TSR_CLI_OPTION_VALUES_H
#include "base/diag.h"
#include <stdint.h>

/* Words that commas divide, each one of `known_words`. */
void option_check_list(
    const char *option_word, const char *list, const char *const *known_words, int count,
    tsr_diags *diags);
/* An integer from `least` to what an int holds. */
void option_check_number(
    const char *option_word, const char *text, int64_t least, int64_t *ret_value, tsr_diags *diags);
/* A time, such as 5400, 90m or 1h30m. */
void option_check_duration(
    const char *option_word, const char *text, double *ret_seconds, tsr_diags *diags);

#endif
