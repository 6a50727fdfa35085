// SPDX-License-Identifier: Apache-2.0
/* Split patterns. Oniguruma defines what they mean, as it does in the tokenizers package. */
#include "tokenizer/pattern.h"
#include <limits.h>
#include <oniguruma.h>
#include <pthread.h>
#include <string.h>

struct tsr_pattern {
  OnigRegex regex;
  tsr_known_pattern *known; /* finds the same faster; NULL: none */
};

struct tsr_match {
  OnigMatchParam *param; /* NULL: no memory */
  OnigRegion region;
  const char *failure;
  OnigUChar reason[ONIG_MAX_ERROR_MESSAGE_LEN];
};

enum {
  /* What Oniguruma, and so the package, allows at one place of the text. All places together may
   * take any number there; here it grows with the text at most. */
  STEPS_MAX = 10000000,
  STEPS_PER_BYTE_MAX = 64,
  /* Characters of one repetition, 256 MB. There the machine's memory is the limit. */
  STACK_MAX = 1 << 23,
};

static void start_oniguruma(void) { onig_initialize((OnigEncoding[]){ONIG_ENCODING_UTF8}, 1); }

static void free_pattern(void *object) {
  tsr_pattern *pattern = object;
  onig_free(pattern->regex);
}

bool tsr_pattern_compile(
    tsr_arena *arena, const char *text, bool is_plain, const char *file, tsr_pattern **ret,
    tsr_diags *diags) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, start_oniguruma);
  const OnigUChar *begin = (const OnigUChar *)text, *end = begin + strlen(text);
  tsr_pattern *pattern = tsr_arena_array(arena, tsr_pattern, 1);
  OnigErrorInfo info;
  int status = onig_new(
      &pattern->regex, begin, end, ONIG_OPTION_NONE, ONIG_ENCODING_UTF8,
      is_plain ? ONIG_SYNTAX_ASIS : ONIG_SYNTAX_DEFAULT, &info);
  if (status != ONIG_NORMAL) {
    OnigUChar reason[ONIG_MAX_ERROR_MESSAGE_LEN];
    onig_error_code_to_str(reason, status, &info);
    return tsr_diag_error(
        diags, (tsr_location){.file = file}, "the pattern '%s' is not right: %s", text,
        (const char *)reason);
  }
  if (!is_plain) pattern->known = tsr_known_pattern_find(arena, text);
  tsr_arena_on_free(arena, free_pattern, pattern);
  *ret = pattern;
  return true;
}

const tsr_known_pattern *tsr_pattern_known(const tsr_pattern *pattern) { return pattern->known; }

tsr_match *tsr_match_new(tsr_arena *arena) {
  tsr_match *match = tsr_arena_array(arena, tsr_match, 1);
  match->param = onig_new_match_param();
  if (match->param) {
    onig_set_retry_limit_in_match_of_match_param(match->param, STEPS_MAX);
    onig_set_match_stack_limit_size_of_match_param(match->param, STACK_MAX);
  }
  onig_region_init(&match->region);
  return match;
}

void tsr_match_free(tsr_match *match) {
  if (match->param) onig_free_match_param(match->param);
  onig_region_free(&match->region, 0);
}

const char *tsr_match_failure(const tsr_match *match) { return match->failure; }

static int fail(tsr_match *match, const char *reason) {
  match->failure = reason;
  return -1;
}

static int
search(const tsr_pattern *pattern, tsr_match *match, const char *text, size_t length, size_t at) {
  const OnigUChar *begin = (const OnigUChar *)text, *end = begin + length;
  onig_set_retry_limit_in_search_of_match_param(
      match->param, STEPS_MAX + STEPS_PER_BYTE_MAX * (length - at));
  return onig_search_with_param(
      pattern->regex, begin, end, begin + at, end, &match->region, ONIG_OPTION_NONE, match->param);
}

int tsr_pattern_find(
    const tsr_pattern *pattern, tsr_match *match, const char *text, size_t length, size_t at,
    size_t *ret_begin, size_t *ret_end) {
  if (pattern->known)
    return tsr_known_pattern_match(pattern->known, text, length, at, ret_begin, ret_end);
  if (!match->param) return fail(match, "out of memory");
  if (length > INT_MAX) return fail(match, "it has more than 2 GiB"); /* Oniguruma counts in int */
  int status = search(pattern, match, text, length, at);
  if (status == ONIG_MISMATCH) return 0;
  if (status < 0) {
    onig_error_code_to_str(match->reason, status);
    return fail(match, (const char *)match->reason);
  }
  *ret_begin = (size_t)match->region.beg[0];
  *ret_end = (size_t)match->region.end[0];
  if (*ret_begin >= at && *ret_end >= *ret_begin) return 1;
  return fail(match, "\\K in a look-behind puts the begin of a match before the last one's end");
}
