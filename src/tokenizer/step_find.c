// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"
#include "tokenizer/char_class.h"
#include "tokenizer/internal.h"

static int find_character(
    const tsr_step *step, const char *text, size_t length, size_t at, size_t *ret_begin,
    size_t *ret_end) {
  const uint16_t *classes = tsr_char_classes();
  for (uint32_t code = 0; at < length;) {
    size_t bytes = (size_t)tsr_utf8_next(text + at, length - at, &code);
    if (step->classes ? classes[code] & step->classes : code == step->character) {
      *ret_begin = at;
      *ret_end = at + bytes;
      return 1;
    }
    at += bytes;
  }
  return 0;
}

int tsr_step_find(
    const tsr_step *step, tsr_match *match, const char *text, size_t length, size_t at,
    size_t *ret_begin, size_t *ret_end) {
  return step->pattern
             ? tsr_pattern_find(step->pattern, match, text, length, at, ret_begin, ret_end)
             : find_character(step, text, length, at, ret_begin, ret_end);
}

bool tsr_step_segments(
    const tsr_step *step, tsr_match *match, const char *text, size_t length,
    tsr_segment_function segment, void *context) {
  size_t done = 0, at = 0, begin, end;
  bool has_matched = false;
  while (at <= length) {
    int found = tsr_step_find(step, match, text, length, at, &begin, &end);
    if (found < 0) return false;
    if (!found) break;
    if (begin == end && has_matched && end == done) {
      at = end + 1;
      while (at < length && ((unsigned char)text[at] & 0xc0) == 0x80) at++;
      continue;
    }
    if (begin > done && !segment(context, done, begin, false)) return false;
    if (!segment(context, begin, end, true)) return false;
    at = done = end;
    has_matched = true;
  }
  return done == length || segment(context, done, length, false);
}
