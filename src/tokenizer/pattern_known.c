// SPDX-License-Identifier: Apache-2.0
/* The split patterns that most models have, matched without a regex engine. Each is known by its
 * exact text. Oniguruma finds the same: that is tested (tests/data/test_bpe_pattern.c). */
#include "base/utf8.h"
#include "tokenizer/char_class.h"
#include "tokenizer/pattern.h"
#include <string.h>

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LETTERS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define UPPER "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"

enum { GPT2, LLAMA3, QWEN, O200K, DIGIT, DIGITS, THREE_DIGITS, KNOWN_COUNT };

static const char *const known[KNOWN_COUNT] = {
    /* ByteLevel has it in itself */
    [GPT2] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    /* cl100k too */
    [LLAMA3] = CONTRACTIONS LETTERS "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES,
    /* Qwen 2 and 3 */
    [QWEN] = CONTRACTIONS LETTERS "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES,
    /* Llama 4 too */
    [O200K] = "[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]*[" LOWER "]+" CONTRACTIONS "?|"
              "[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]+[" LOWER "]*" CONTRACTIONS "?|"
              "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES,
    /* Digits of SmolLM, each by itself and not; the first of DeepSeek's */
    [DIGIT] = "\\p{N}",
    [DIGITS] = "\\p{N}+",
    [THREE_DIGITS] = "\\p{N}{1,3}",
};

struct tsr_known_pattern {
  int which;
  const uint16_t *classes;
};

/* A text to match in. */
typedef struct {
  const char *text;
  size_t length;
  const uint16_t *classes;
} reader;

/* The class of the character at `at`, 0 behind the end, and its bytes. */
static inline unsigned look(const reader *r, size_t at, size_t *ret_bytes) {
  *ret_bytes = 1;
  if (at >= r->length) return 0;
  unsigned char byte = (unsigned char)r->text[at];
  if (byte < 0x80) return r->classes[byte];
  uint32_t code = 0;
  *ret_bytes = (size_t)tsr_utf8_next(r->text + at, r->length - at, &code);
  return r->classes[code];
}

/* Where the characters end that have any of the bits. */
static inline size_t run_of(const reader *r, size_t at, unsigned bits) {
  size_t bytes;
  while (look(r, at, &bytes) & bits) at += bytes;
  return at;
}

/* Where the characters end that are neither space nor letter nor number. */
static size_t run_of_others(const reader *r, size_t at) {
  static const unsigned not = TSR_CHAR_SPACE | TSR_CHAR_LETTER | TSR_CHAR_NUMBER;
  size_t bytes;
  while (at < r->length && !(look(r, at, &bytes) & not )) at += bytes;
  return at;
}

static size_t numbers(const reader *r, size_t at, int most) {
  size_t bytes;
  for (int i = 0; i < most && look(r, at, &bytes) & TSR_CHAR_NUMBER; i++) at += bytes;
  return at;
}

/* "'s" and its like; the long s is an s where case does not count. Returns its bytes or 0. */
static size_t contraction(const reader *r, size_t at, bool any_case) {
  const unsigned char *text = (const unsigned char *)r->text + at;
  size_t left = r->length - at;
  if (left < 2 || text[0] != '\'') return 0;
  unsigned fold = any_case ? 0x20 : 0, a = text[1] | fold, b = left > 2 ? text[2] | fold : 0;
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if (((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l')) return 3;
  return any_case && left > 2 && text[1] == 0xc5 && text[2] == 0xbf ? 3 : 0;
}

/* \s+(?!\S)|\s+, with \s*[\r\n]+ before it or not. */
static size_t spaces(const reader *r, size_t at, bool ends_lines) {
  size_t end = at, last = at, line_end = 0, bytes;
  for (unsigned class; (class = look(r, end, &bytes)) & TSR_CHAR_SPACE; end += bytes) {
    last = end;
    if (class & TSR_CHAR_LINE_END) line_end = end + 1;
  }
  if (ends_lines && line_end) return line_end;
  return end == r->length || last == at ? end : last; /* the last space belongs to what follows */
}

static size_t match_gpt2(const reader *r, size_t at) {
  size_t bytes, short_form = contraction(r, at, false);
  if (short_form) return at + short_form;
  size_t begin = at + (r->text[at] == ' ');
  unsigned class = look(r, begin, &bytes);
  if (class & TSR_CHAR_LETTER) return run_of(r, begin + bytes, TSR_CHAR_LETTER);
  if (class & TSR_CHAR_NUMBER) return run_of(r, begin + bytes, TSR_CHAR_NUMBER);
  size_t end = run_of_others(r, begin);
  return end > begin ? end : spaces(r, at, false);
}

/* What is alike in Llama 3, Qwen and o200k: everything but words. */
static size_t match_rest(const reader *r, size_t at, int digits, unsigned char tail) {
  size_t end = numbers(r, at, digits);
  if (end > at) return end;
  size_t begin = at + (r->text[at] == ' ');
  end = run_of_others(r, begin);
  if (end == begin) return spaces(r, at, true);
  while (end < r->length && (r->text[end] == '\r' || r->text[end] == '\n' || r->text[end] == tail))
    end++;
  return end;
}

static size_t match_llama3(const reader *r, size_t at, int digits) {
  size_t bytes, next_bytes, short_form = contraction(r, at, true);
  if (short_form) return at + short_form;
  unsigned class = look(r, at, &bytes);
  if (class & TSR_CHAR_LETTER) return run_of(r, at + bytes, TSR_CHAR_LETTER);
  if (!(class & (TSR_CHAR_NUMBER | TSR_CHAR_LINE_END)) &&
      look(r, at + bytes, &next_bytes) & TSR_CHAR_LETTER)
    return run_of(r, at + bytes + next_bytes, TSR_CHAR_LETTER);
  return match_rest(r, at, digits, '\n');
}

/* [UPPER]*[LOWER]+ from `at`, as backtracking finds it, or `at` where it does not match. What is of
 * both classes may end the run of the first; of one that is all upper case nothing matches. */
static size_t lower_word(const reader *r, size_t at) {
  size_t end = at, last = at, bytes; /* last: behind the last of the run that is of both classes */
  for (unsigned class; (class = look(r, end, &bytes)) & TSR_CHAR_UPPER;) {
    end += bytes;
    if (class & TSR_CHAR_LOWER) last = end;
  }
  size_t lower = run_of(r, end, TSR_CHAR_LOWER);
  return lower > end ? lower : last;
}

static size_t match_o200k(const reader *r, size_t at) {
  size_t bytes, end;
  unsigned class = look(r, at, &bytes);
  bool has_first = !(
      class & (TSR_CHAR_LINE_END | TSR_CHAR_LETTER | TSR_CHAR_NUMBER)); /* the class before words */
  size_t behind = at + bytes;
  if (has_first && (end = lower_word(r, behind)) > behind) return end + contraction(r, end, true);
  if ((end = lower_word(r, at)) > at) return end + contraction(r, end, true);
  if (has_first && (end = run_of(r, behind, TSR_CHAR_UPPER)) > behind)
    return end + contraction(r, end, true);
  if ((end = run_of(r, at, TSR_CHAR_UPPER)) > at) return end + contraction(r, end, true);
  return match_rest(r, at, 3, '/');
}

static size_t find_number(const reader *r, size_t at) {
  size_t bytes;
  while (at < r->length && !(look(r, at, &bytes) & TSR_CHAR_NUMBER)) at += bytes;
  return at;
}

tsr_known_pattern *tsr_known_pattern_find(tsr_arena *arena, const char *text) {
  int which = 0;
  while (which < KNOWN_COUNT && strcmp(text, known[which]) != 0) which++;
  if (which == KNOWN_COUNT) return NULL;
  tsr_known_pattern *pattern = tsr_arena_array(arena, tsr_known_pattern, 1);
  *pattern = (tsr_known_pattern){which, tsr_char_classes()};
  return pattern;
}

bool tsr_known_pattern_match(
    const tsr_known_pattern *pattern, const char *text, size_t length, size_t at, size_t *ret_begin,
    size_t *ret_end) {
  reader r = {text, length, pattern->classes};
  if (pattern->which >= DIGIT) at = find_number(&r, at);
  if (at >= length) return false;
  *ret_begin = at;
  switch (pattern->which) {
  case GPT2:
    *ret_end = match_gpt2(&r, at);
    break;
  case LLAMA3:
    *ret_end = match_llama3(&r, at, 3);
    break;
  case QWEN:
    *ret_end = match_llama3(&r, at, 1);
    break;
  case O200K:
    *ret_end = match_o200k(&r, at);
    break;
  case DIGITS:
    *ret_end = run_of(&r, at, TSR_CHAR_NUMBER);
    break;
  default:
    *ret_end = numbers(&r, at, pattern->which == DIGIT ? 1 : 3);
  }
  return true;
}

bool tsr_known_pattern_covers(const tsr_known_pattern *pattern) { return pattern->which < DIGIT; }

int tsr_known_pattern_ends(
    const tsr_known_pattern *pattern, const char *text, size_t length, size_t at, int most,
    size_t *ret_ends) {
  reader r = {text, length, pattern->classes};
  int count = 0;
  switch (pattern->which) {
  case GPT2:
    for (; count < most && at < length; at = ret_ends[count++])
      ret_ends[count] = match_gpt2(&r, at);
    break;
  case LLAMA3:
    for (; count < most && at < length; at = ret_ends[count++])
      ret_ends[count] = match_llama3(&r, at, 3);
    break;
  case QWEN:
    for (; count < most && at < length; at = ret_ends[count++])
      ret_ends[count] = match_llama3(&r, at, 1);
    break;
  default:
    for (; count < most && at < length; at = ret_ends[count++])
      ret_ends[count] = match_o200k(&r, at);
  }
  return count;
}
