// SPDX-License-Identifier: Apache-2.0
/* Normalization forms by utf8proc: it has the parts of a character, the classes of marks, and what
 * composes. Marks are put in order here, because utf8proc takes quadratic time for many on one
 * letter, and characters that stay as they are are passed over. */
#include "tokenizer/normal_form.h"
#include "base/utf8.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum {
  PARTS_MAX = 32,     /* of one character; U+FDFA has 18 */
  CODES_MAX = 0x30000 /* none above has parts, a class, or something to compose with */
};

const char *const tsr_normal_form_names[] = {"NFC", "NFD", "NFKC", "NFKD", NULL};

struct tsr_normalizer {
  tsr_normal_form form;
  unsigned char touched_lead;       /* the first byte of the lowest touched character */
  uint64_t touched[CODES_MAX / 64]; /* may change, or join what stands before it */
  uint64_t seconds[CODES_MAX / 64]; /* may join */
};

/* What has parts or a class since Unicode 10, up to 18. The tokenizers package has Unicode 9, and
 * its ids are what counts: these neither change nor join. */
static const struct {
  uint32_t first, last;
} newer[] = {
    {0x558, 0x558},     {0x58b, 0x58c},     {0x5c8, 0x5c9},     {0x7fd, 0x7fd},
    {0x897, 0x8d3},     {0x9fe, 0x9fe},     {0xc3c, 0xc3c},     {0xd3b, 0xd3c},
    {0xeba, 0xeba},     {0x1715, 0x1715},   {0x1abf, 0x1af0},   {0x1df6, 0x1dfa},
    {0x209d, 0x209f},   {0x32ff, 0x32ff},   {0xa7f1, 0xa7f4},   {0xa82c, 0xa82c},
    {0xab69, 0xab69},   {0x105c9, 0x107bf}, {0x10d24, 0x10f85}, {0x11070, 0x11070},
    {0x1133b, 0x1133b}, {0x11382, 0x113d0}, {0x1145e, 0x1145e}, {0x11839, 0x11a99},
    {0x11d42, 0x1612f}, {0x16d63, 0x1b126}, {0x1ccd6, 0x1d128}, {0x1d250, 0x1d281},
    {0x1d6a6, 0x1d6a6}, {0x1df95, 0x1dfff}, {0x1e030, 0x1e6f5}, {0x1f16c, 0x1f16c},
    {0x1fbf0, 0x1fbf9},
};

static bool is_newer(uint32_t code) {
  size_t count = sizeof newer / sizeof *newer, i = 0;
  while (i < count && newer[i].last < code) i++;
  return i < count && newer[i].first <= code;
}

static bool has(const uint64_t bits[CODES_MAX / 64], uint32_t code) {
  return code < CODES_MAX && bits[code >> 6] >> (code & 63) & 1;
}

static bool is_touched(const tsr_normalizer *n, uint32_t code) { return has(n->touched, code); }

static void touch(tsr_normalizer *n, uint32_t code) {
  n->touched[code >> 6] |= (uint64_t)1 << (code & 63);
}

/* A code point in a text that is being ordered: class << 56 | place << 21 | code, so that sorting
 * the numbers is the stable sort by class. */
static uint32_t code_of(uint64_t item) { return item & 0x1fffff; }
static unsigned class_of(uint64_t item) { return (unsigned)(item >> 56); }

static void grow(tsr_normalize_scratch *s, size_t count) {
  size_t capacity = s->capacity ? s->capacity * 2 : 256;
  uint64_t *items = tsr_arena_array(s->arena, uint64_t, capacity);
  if (count) memcpy(items, s->items, count * sizeof *items);
  s->items = items;
  s->codes = tsr_arena_array(s->arena, int32_t, capacity);
  s->capacity = capacity;
}

/* The parts of a character; returns how many. */
static size_t
decompose(tsr_normal_form form, uint32_t code, utf8proc_int32_t parts[static PARTS_MAX]) {
  int boundary, options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
  if (form & TSR_NFKC) options |= UTF8PROC_COMPAT;
  utf8proc_ssize_t count = utf8proc_decompose_char(
      (utf8proc_int32_t)code, parts, PARTS_MAX, (utf8proc_option_t)options, &boundary);
  assert(count > 0 && count <= PARTS_MAX);
  return (size_t)count;
}

/* Appends them to s->items. */
static void
add_parts(const tsr_normalizer *n, tsr_normalize_scratch *s, size_t *count, uint32_t code) {
  utf8proc_int32_t parts[PARTS_MAX];
  size_t parts_count = decompose(n->form, code, parts);
  if (*count + parts_count > s->capacity) grow(s, *count);
  for (size_t i = 0; i < parts_count; i++, (*count)++) {
    uint64_t class = (uint64_t)utf8proc_get_property(parts[i])->combining_class;
    s->items[*count] = class << 56 | (uint64_t)*count << 21 | (uint32_t)parts[i];
  }
}

static int compare_items(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* Every run of marks (class above 0) in the order of their classes. */
static void order_marks(uint64_t *items, size_t count) {
  for (size_t begin = 0, end; begin < count; begin = end) {
    end = begin + 1;
    if (!class_of(items[begin])) continue;
    while (end < count && class_of(items[end])) end++;
    if (end - begin > 1) qsort(items + begin, end - begin, sizeof *items, compare_items);
  }
}

/* From parts to s->codes; returns how many. */
static size_t compose(tsr_normal_form form, tsr_normalize_scratch *s, size_t count) {
  order_marks(s->items, count);
  for (size_t i = 0; i < count; i++) s->codes[i] = (int32_t)code_of(s->items[i]);
  if (form & TSR_NFD) return count;
  int options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
  return (size_t)utf8proc_normalize_utf32(
      s->codes, (utf8proc_ssize_t)count, (utf8proc_option_t)options);
}

/* ---- which characters are touched ---- */

/* What may compose with the character before it is a canonical part of some character, and not the
 * first. */
static void touch_seconds(tsr_normalizer *n) {
  for (uint32_t code = 0; code < CODES_MAX; code++) {
    utf8proc_int32_t parts[PARTS_MAX];
    size_t count = is_newer(code) ? 0 : decompose(TSR_NFD, code, parts);
    for (size_t i = 1; i < count; i++) touch(n, (uint32_t)parts[i]);
  }
  memcpy(n->seconds, n->touched, sizeof n->seconds);
}

static bool changes(const tsr_normalizer *n, tsr_normalize_scratch *s, uint32_t code) {
  size_t count = 0;
  add_parts(n, s, &count, code);
  uint64_t first = s->items[0];
  if (class_of(first) || is_touched(n, code_of(first))) return true;
  return compose(n->form, s, count) != 1 || s->codes[0] != (int32_t)code;
}

tsr_normalizer *tsr_normalizer_new(tsr_arena *arena, tsr_normal_form form) {
  tsr_normalizer *n = tsr_arena_array(arena, tsr_normalizer, 1);
  tsr_normalize_scratch scratch = {.arena = arena};
  n->form = form;
  if (!(form & TSR_NFD)) touch_seconds(n);
  for (uint32_t code = CODES_MAX;
       code-- > 0x80;) { /* the lowest is the last; no ASCII is touched */
    if (is_newer(code) || (!is_touched(n, code) && !changes(n, &scratch, code))) continue;
    char bytes[TSR_UTF8_BYTES_MAX];
    tsr_utf8_put(code, bytes);
    n->touched_lead = (unsigned char)bytes[0];
    touch(n, code);
  }
  return n;
}

tsr_normal_form tsr_normalizer_form(const tsr_normalizer *n) { return n->form; }

/* UAX #15, "Detecting Normalization Forms": the largest are U+0390 in 3, U+FDFA in 33 bytes. */
int tsr_normalizer_growth(const tsr_normalizer *n) { return n->form & TSR_NFKC ? 11 : 3; }

/* Where the next touched character begins, or a byte that is none of a character; or `length`. */
static size_t next_touched(const tsr_normalizer *n, const char *text, size_t length, size_t at) {
  while (at < length) {
    if ((unsigned char)text[at] < n->touched_lead) { /* also bytes inside a character */
      at++;
      continue;
    }
    uint32_t code;
    int bytes = tsr_utf8_next(text + at, length - at, &code);
    if (!bytes || is_touched(n, code)) break;
    at += (size_t)bytes;
  }
  return at;
}

bool tsr_normalizer_is_plain(const tsr_normalizer *n, const char *text, size_t length) {
  return next_touched(n, text, length, 0) == length;
}

/* ---- texts ---- */

/* Whether nothing before these parts joins or is ordered with them. */
static bool starts_anew(const tsr_normalizer *n, uint64_t first) {
  return !class_of(first) && !has(n->seconds, code_of(first));
}

/* From the text at `at`: the first code point and those behind it that may join, normalized.
 * `ret_kept`: the bytes of the first one, if it stays as it is and joins with none; else 0. */
static size_t normalize_part(
    const tsr_normalizer *n, tsr_normalize_scratch *s, const char *text, size_t length, size_t *at,
    char *to, size_t *ret_kept) {
  size_t count = 0, begin = *at;
  for (uint32_t code = 0; *at < length;) {
    size_t bytes = (size_t)tsr_utf8_next(text + *at, length - *at, &code), before = count;
    if (before && !is_touched(n, code)) break;
    add_parts(n, s, &count, code);
    if (before && starts_anew(n, s->items[before])) {
      count = before;
      break;
    }
    *at += bytes;
  }
  count = compose(n->form, s, count);
  size_t put = 0;
  for (size_t i = 0; i < count; i++) put += (size_t)tsr_utf8_put((uint32_t)s->codes[i], to + put);
  uint32_t first = 0;
  size_t bytes = (size_t)tsr_utf8_next(text + begin, length - begin, &first);
  *ret_kept = count && s->codes[0] == (int32_t)first ? bytes : 0;
  return put;
}

/* Where the last character before `at` begins, or `at` if it joins with nothing. */
static size_t joining(const char *text, size_t at) {
  size_t begin = at;
  uint32_t code = 0;
  do begin--;
  while (((unsigned char)text[begin] & 0xc0) == 0x80);
  tsr_utf8_next(text + begin, at - begin, &code);
  return is_newer(code) ? at : begin;
}

size_t tsr_normalize(
    const tsr_normalizer *n, tsr_normalize_scratch *s, const char *text, size_t length,
    char *ret_text, size_t *ret_from) {
  size_t put = 0;
  for (size_t at = 0; at < length;) {
    size_t next = next_touched(n, text, length, at);
    size_t end = next > at && next < length ? joining(text, next) : next;
    memcpy(ret_text + put, text + at, end - at);
    for (size_t i = at; ret_from && i < end; i++) ret_from[put + i - at] = i;
    put += end - at;
    at = end;
    if (at == length) break;
    size_t kept, part = normalize_part(n, s, text, length, &at, ret_text + put, &kept);
    for (size_t i = 0; ret_from && i < part; i++) ret_from[put + i] = end + (i < kept ? 0 : kept);
    put += part;
  }
  if (ret_from) ret_from[put] = length;
  return put;
}
