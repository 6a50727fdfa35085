// SPDX-License-Identifier: Apache-2.0
/* The texts that scripts/make_tokenizers had encoded: 64 KiB of pieces drawn from fragments.txt and
 * from ranges of characters, with bytes among them that are no UTF-8. The script draws the same. */
#ifndef TSR_TESTS_DATA_MIXED_TEXT_H
#define TSR_TESTS_DATA_MIXED_TEXT_H
#include "base/arena.h"
#include "base/utf8.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIXED_BYTES = 1 << 16, MIXED_ROOM = MIXED_BYTES + 256, MIXED_FRAGMENTS_MAX = 256 };

typedef struct {
  char text[160];
  size_t length;
} mixed_fragment;

typedef struct {
  mixed_fragment items[MIXED_FRAGMENTS_MAX];
  int count;
} mixed_fragments;

static inline size_t mixed_unescape(const char *line, char *to) {
  size_t put = 0;
  for (; *line && *line != '\n'; line++) {
    if (*line != '\\') {
      to[put++] = *line;
    } else if (*++line == 'x') {
      to[put++] = (char)strtol((char[]){line[1], line[2], 0}, NULL, 16);
      line += 2;
    } else {
      to[put++] = (char)(*line == 'n' ? '\n' : *line == 'r' ? '\r' : *line == 't' ? '\t' : *line);
    }
  }
  return put;
}

static inline void mixed_read(const char *path, mixed_fragments *ret) {
  FILE *file = fopen(path, "rb");
  assert(file);
  char line[512];
  ret->count = 0;
  while (fgets(line, sizeof line, file)) {
    assert(ret->count < MIXED_FRAGMENTS_MAX && strlen(line) < sizeof ret->items[0].text);
    mixed_fragment *fragment = &ret->items[ret->count++];
    fragment->length = mixed_unescape(line, fragment->text);
  }
  fclose(file);
}

static inline uint64_t mixed_draw(uint64_t *state, uint64_t count) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (*state >> 33) % count;
}

static inline size_t mixed_repeat(char *to, char byte, uint64_t count) {
  memset(to, byte, count);
  return count;
}

static inline size_t
mixed_any_of(uint64_t *state, char *to, int low, uint64_t range, uint64_t most) {
  uint64_t count = 1 + mixed_draw(state, most);
  for (uint64_t i = 0; i < count; i++) to[i] = (char)(low + (int)mixed_draw(state, range));
  return count;
}

static inline size_t mixed_characters(uint64_t *state, char *to) {
  static const uint32_t ranges[12][2] = {{0x20, 0x7f},     {0xa0, 0x250},    {0x300, 0x370},
                                         {0x370, 0x600},   {0x900, 0xa00},   {0x1100, 0x1200},
                                         {0x1e00, 0x2000}, {0x2000, 0x2070}, {0x3040, 0x3100},
                                         {0x4e00, 0x9fa6}, {0xac00, 0xd7a4}, {0x1f300, 0x1f650}};
  const uint32_t *range = ranges[mixed_draw(state, 12)];
  size_t put = 0;
  uint64_t count = 1 + mixed_draw(state, 8);
  for (uint64_t i = 0; i < count; i++) {
    uint32_t code = range[0] + (uint32_t)mixed_draw(state, range[1] - range[0]);
    put += (size_t)tsr_utf8_put(code, to + put);
  }
  return put;
}

static inline size_t mixed_piece(uint64_t *state, const mixed_fragments *fragments, char *to) {
  uint64_t kind = mixed_draw(state, 16);
  if (kind < 10) {
    const mixed_fragment *f = &fragments->items[mixed_draw(state, (uint64_t)fragments->count)];
    memcpy(to, f->text, f->length);
    return f->length;
  }
  if (kind == 10) return mixed_repeat(to, ' ', 1 + mixed_draw(state, 40));
  if (kind == 11) return mixed_any_of(state, to, '0', 10, 12);
  if (kind == 12) return mixed_characters(state, to);
  if (kind == 13) return mixed_any_of(state, to, 128, 128, 4);
  if (kind == 14) return mixed_any_of(state, to, 'a', 26, 12);
  return mixed_repeat(to, '\n', 1 + mixed_draw(state, 3));
}

/* Writes text number `seed` into MIXED_ROOM bytes and returns its length. */
static inline size_t mixed_text(uint64_t seed, const mixed_fragments *fragments, char *to) {
  uint64_t state = seed;
  size_t put = 0;
  while (put < MIXED_BYTES) {
    put += mixed_piece(&state, fragments, to + put);
    if (mixed_draw(&state, 2)) to[put++] = ' ';
  }
  return put;
}

static inline uint64_t mixed_hash(const int32_t *tokens, int64_t count) {
  uint64_t value = UINT64_C(0xcbf29ce484222325);
  for (int64_t i = 0; i < count; i++)
    for (int byte = 0; byte < 4; byte++)
      value = (value ^ ((uint32_t)tokens[i] >> 8 * byte & 0xff)) * UINT64_C(0x100000001b3);
  return value;
}

#endif
