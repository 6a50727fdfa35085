// SPDX-License-Identifier: Apache-2.0
#include "cli/option_values.h"
#include "base/text.h"
#include "config/config.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

void option_check_list(
    const char *option_word, const char *list, const char *const *known_words, int count,
    tsr_diags *diags) {
  for (const char *at = list; at && *at;) {
    char word[32];
    size_t length = strcspn(at, ",");
    snprintf(word, sizeof word, "%.*s", (int)(length < 31 ? length : 31), at);
    bool known = false;
    for (int i = 0; i < count; i++) known |= !strcmp(word, known_words[i]);
    if (!known) {
      tsr_diag_error(diags, TSR_NOWHERE, "%s: there is nothing called '%s'", option_word, word);
      tsr_diag_nearest(diags, word, known_words, count);
    }
    at += length + (at[length] == ',');
  }
}

void option_check_number(
    const char *option_word, const char *text, int64_t least, int64_t *ret_value,
    tsr_diags *diags) {
  char *end;
  if (!text || !*text) return;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  bool octal = text[0] == '0' && text[1]; /* in the configuration */
  bool whole = *end == 0 && *text >= '0' && *text <= '9' && !octal;
  if (whole && !errno && value >= least && value <= INT_MAX) *ret_value = value;
  else
    tsr_diag_error(
        diags, TSR_NOWHERE, "%s: '%s' is no integer from %lld to %d", option_word, text,
        (long long)least, INT_MAX);
}

void option_check_duration(
    const char *option_word, const char *text, double *ret_seconds, tsr_diags *diags) {
  if (text && *text && !tsr_config_duration(text, ret_seconds))
    tsr_diag_error(
        diags, TSR_NOWHERE, "%s: '%s' is no time such as 5400, 90m or 1h30m", option_word, text);
}
