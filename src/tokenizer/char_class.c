// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/char_class.h"
#include "base/utf8.h"
#include <assert.h>
#include <oniguruma.h>
#include <pthread.h>
#include <string.h>
#include <utf8proc.h>

static uint16_t classes[TSR_UTF8_CODES];

typedef struct {
  uint32_t first, last;
  int32_t value;
} char_range;

static void mark(uint32_t first, uint32_t last, unsigned bits) {
  for (uint32_t code = first; code <= last && code < TSR_UTF8_CODES; code++)
    classes[code] |= (uint16_t)bits;
}

/* Oniguruma's own ranges, so that the matchers of known patterns agree with it by construction. */
static void mark_property(const char *name, unsigned bits) {
  const OnigUChar *begin = (const OnigUChar *)name, *end = begin + strlen(name);
  OnigEncoding utf8 = ONIG_ENCODING_UTF8;
  const OnigCodePoint *ranges = NULL; /* a count, then the first and the last of each range */
  OnigCodePoint first_outside;
  int property = utf8->property_name_to_ctype(
      utf8, (OnigUChar *)(uintptr_t)begin, (OnigUChar *)(uintptr_t)end);
  assert(property >= 0);
  int status = utf8->get_ctype_code_range((OnigCtype)property, &first_outside, &ranges);
  assert(!status && ranges);
  for (OnigCodePoint i = 0; !status && i < ranges[0]; i++)
    mark(ranges[1 + 2 * i], ranges[2 + 2 * i], bits);
}

static void make_classes(void) {
  static const char_range listed[] = {
#define CLASS(name, first, last) {first, last, TSR_CHAR_##name},
#define PUNCTUATION(first, last) CLASS(PUNCTUATION, first, last)
#define NUMERIC(first, last) CLASS(NUMERIC, first, last)
#define MARK(first, last) CLASS(MARK, first, last)
#define NONSPACING(first, last) CLASS(NONSPACING, first, last)
#define CONTROL(first, last) CLASS(CONTROL, first, last)
#define WORD(first, last) CLASS(WORD, first, last)
#define LOWER(first, last, step)
#include "tokenizer/char_classes.def"
#undef LOWER
  };
  for (size_t i = 0; i < sizeof listed / sizeof *listed; i++)
    mark(listed[i].first, listed[i].last, (unsigned)listed[i].value);
  for (uint32_t code = 0; code < 0x3001; code++)
    if (tsr_utf8_is_space(code)) classes[code] |= TSR_CHAR_SPACE;
  onig_initialize((OnigEncoding[]){ONIG_ENCODING_UTF8}, 1);
  mark_property("L", TSR_CHAR_LETTER);
  mark_property("N", TSR_CHAR_NUMBER);
  mark_property("Lu", TSR_CHAR_UPPER);
  mark_property("Lt", TSR_CHAR_UPPER);
  mark_property("Lm", TSR_CHAR_UPPER | TSR_CHAR_LOWER);
  mark_property("Lo", TSR_CHAR_UPPER | TSR_CHAR_LOWER);
  mark_property("M", TSR_CHAR_UPPER | TSR_CHAR_LOWER);
  mark_property("Ll", TSR_CHAR_LOWER);
  classes['\n'] |= TSR_CHAR_LINE_END;
  classes['\r'] |= TSR_CHAR_LINE_END;
}

const uint16_t *tsr_char_classes(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_classes);
  return classes;
}

/* The value of the range that has the code, or `none`. Ranges rise. */
static int32_t find_range(const char_range *ranges, size_t count, uint32_t code, int32_t none) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (ranges[middle].last < code) low = middle + 1;
    else high = middle;
  }
  return low < count && ranges[low].first <= code ? ranges[low].value : none;
}

int tsr_char_lower(uint32_t code, uint32_t ret_codes[2]) {
  static const char_range newer[] = {
#undef PUNCTUATION
#undef NUMERIC
#undef MARK
#undef NONSPACING
#undef CONTROL
#undef WORD
#define PUNCTUATION(first, last)
#define NUMERIC(first, last)
#define MARK(first, last)
#define NONSPACING(first, last)
#define CONTROL(first, last)
#define WORD(first, last)
#define LOWER(first, last, step) {first, last, step},
#include "tokenizer/char_classes.def"
  };
  if (code < 0x80) {
    ret_codes[0] = code >= 'A' && code <= 'Z' ? code + 32 : code;
    return 1;
  }
  if (code == 0x130) {
    ret_codes[0] = 'i', ret_codes[1] = 0x307;
    return 2;
  }
  int32_t step = find_range(newer, sizeof newer / sizeof *newer, code, 0);
  ret_codes[0] =
      step ? (uint32_t)((int32_t)code + step) : (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
  return 1;
}

int tsr_char_script(uint32_t code) {
  static const char_range scripts[] = {
#define SCRIPT(first, last, number) {first, last, number},
#include "tokenizer/char_scripts.def"
  };
  return find_range(scripts, sizeof scripts / sizeof *scripts, code, 0);
}
