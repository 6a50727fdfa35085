// SPDX-License-Identifier: Apache-2.0
#include "data/nfc.h"
#include "data/nfc_table.h"
#include "base/utf8.h"
#include <stdlib.h>
#include <string.h>

/* Hangul syllables are computed: L + V + T (Unicode, section 3.12). */
enum {
  HANGUL = 0xac00,
  HANGUL_L = 0x1100,
  HANGUL_V = 0x1161,
  HANGUL_T = 0x11a7,
  L_COUNT = 19,
  V_COUNT = 21,
  T_COUNT = 28,
  HANGUL_COUNT = L_COUNT * V_COUNT * T_COUNT,
};

/* A code point in a text that is being ordered: class << 56 | place << 21 | code, so that sorting
 * the numbers is the stable sort by class. */
static uint32_t code_of(uint64_t item) { return item & 0x1fffff; }
static unsigned class_of(uint64_t item) { return (unsigned)(item >> 56); }

/* Whether the code point may change or join what stands before it. All others end what is
 * normalized together. */
static bool is_touched(uint32_t code) {
  if (code < 0x300 || code >= 0x30000) return false;
  return tsr_nfc_bits[tsr_nfc_index[code >> 8]][code >> 6 & 3] >> (code & 63) & 1;
}

static unsigned find_class(uint32_t code) {
  int low = 0, high = tsr_nfc_classes_count;
  while (low < high) { /* the first run that begins behind the code */
    int middle = (low + high) / 2;
    if (tsr_nfc_classes[middle] >> 15 <= code) low = middle + 1;
    else high = middle;
  }
  if (!low) return 0;
  uint32_t run = tsr_nfc_classes[low - 1];
  return code - (run >> 15) <= (run >> 8 & 0x7f) ? run & 0xff : 0;
}

static uint64_t find_decomposition(uint32_t code) {
  int low = 0, high = tsr_nfc_decompositions_count;
  while (low < high) {
    int middle = (low + high) / 2;
    if (tsr_nfc_decompositions[middle] >> 42 < code) low = middle + 1;
    else high = middle;
  }
  bool is_found = low < tsr_nfc_decompositions_count && tsr_nfc_decompositions[low] >> 42 == code;
  return is_found ? tsr_nfc_decompositions[low] : 0;
}

/* The code point that two make, or 0. */
static uint32_t compose(uint32_t first, uint32_t second) {
  if (first - HANGUL_L < L_COUNT && second - HANGUL_V < V_COUNT)
    return HANGUL + ((first - HANGUL_L) * V_COUNT + (second - HANGUL_V)) * T_COUNT;
  bool is_lv = first - HANGUL < HANGUL_COUNT && (first - HANGUL) % T_COUNT == 0;
  if (is_lv && second - HANGUL_T - 1 < T_COUNT - 1) return first + (second - HANGUL_T);
  uint64_t pair = (uint64_t)first << 21 | second, pair_bits = ((uint64_t)1 << 42) - 1;
  int low = 0, high = tsr_nfc_compositions_count;
  while (low < high) {
    int middle = (low + high) / 2;
    uint64_t entry = tsr_nfc_decompositions[tsr_nfc_compositions[middle]];
    if ((entry & pair_bits) == pair) return (uint32_t)(entry >> 42);
    if ((entry & pair_bits) < pair) low = middle + 1;
    else high = middle;
  }
  return 0;
}

static void add_item(tsr_nfc_scratch *s, size_t *count, uint32_t code) {
  if (*count == s->capacity) {
    size_t grown = s->capacity ? s->capacity * 2 : 256;
    uint64_t *items = tsr_arena_array(s->arena, uint64_t, grown);
    if (*count) memcpy(items, s->items, *count * sizeof *items);
    s->items = items;
    s->capacity = grown;
  }
  s->items[*count] = (uint64_t)find_class(code) << 56 | (uint64_t)*count << 21 | code;
  (*count)++;
}

/* A pair's first part may itself have a decomposition, its second never: depth is 4 at most. */
static void decompose(tsr_nfc_scratch *s, size_t *count, uint32_t code) {
  if (code - HANGUL < HANGUL_COUNT) {
    uint32_t index = code - HANGUL;
    add_item(s, count, HANGUL_L + index / (V_COUNT * T_COUNT));
    add_item(s, count, HANGUL_V + index / T_COUNT % V_COUNT);
    if (index % T_COUNT) add_item(s, count, HANGUL_T + index % T_COUNT);
    return;
  }
  uint64_t entry = find_decomposition(code);
  if (!entry) {
    add_item(s, count, code);
    return;
  }
  decompose(s, count, entry >> 21 & 0x1fffff);
  if (entry & 0x1fffff) decompose(s, count, entry & 0x1fffff);
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
    qsort(items + begin, end - begin, sizeof *items, compare_items);
  }
}

/* Joins each code point to the last starter (class 0) unless something of its class or above, or
 * another starter, stands between; returns how many remain. */
static size_t compose_all(uint64_t *items, size_t count) {
  size_t kept = 0, starter = 0;
  bool has_starter = false;
  for (size_t i = 0; i < count; i++) {
    unsigned class = class_of(items[i]);
    bool is_next = has_starter && starter + 1 == kept;
    bool is_blocked = !has_starter || (!is_next && class_of(items[kept - 1]) >= class);
    uint32_t made = is_blocked ? 0 : compose(code_of(items[starter]), code_of(items[i]));
    if (made) {
      items[starter] = made;
      continue;
    }
    if (!class) starter = kept, has_starter = true;
    items[kept++] = items[i];
  }
  return kept;
}

bool tsr_nfc_is_plain(const char *text, size_t length) {
  for (size_t at = 0; at < length;) {
    if ((unsigned char)text[at] < 0xcc) { /* below U+0300; also bytes inside a character */
      at++;
      continue;
    }
    uint32_t code;
    int bytes = tsr_utf8_next(text + at, length - at, &code);
    if (!bytes || is_touched(code)) return false;
    at += (size_t)bytes;
  }
  return true;
}

/* From the text at `at`: the first code point and all touched ones behind it, normalized. */
static size_t
normalize_part(tsr_nfc_scratch *s, const char *text, size_t length, size_t *at, char *to) {
  size_t count = 0;
  do {
    uint32_t code = 0;
    *at += (size_t)tsr_utf8_next(text + *at, length - *at, &code);
    decompose(s, &count, code);
    uint32_t next = 0;
    if (*at < length) tsr_utf8_next(text + *at, length - *at, &next);
    if (!is_touched(next)) break;
  } while (*at < length);
  order_marks(s->items, count);
  count = compose_all(s->items, count);
  size_t put = 0;
  for (size_t i = 0; i < count; i++) put += (size_t)tsr_utf8_put(code_of(s->items[i]), to + put);
  return put;
}

size_t tsr_nfc(tsr_nfc_scratch *s, const char *text, size_t length, char *ret_text) {
  size_t put = 0, last = 0; /* where the last character begins that may join with what follows */
  for (size_t at = 0; at < length;) {
    uint32_t code = (unsigned char)text[at];
    int bytes = code < 0x80 ? 1 : tsr_utf8_next(text + at, length - at, &code);
    if (!is_touched(code)) {
      memcpy(ret_text + put, text + at, (size_t)bytes);
      last = at;
      at += (size_t)bytes;
      put += (size_t)bytes;
      continue;
    }
    put -= at - last; /* it is written again, with its marks */
    at = last;
    put += normalize_part(s, text, length, &at, ret_text + put);
    last = at;
  }
  return put;
}
