// SPDX-License-Identifier: Apache-2.0
/* sentencepiece's precompiled map of characters: a double-array trie (darts-clone) from byte
 * strings to offsets in a text of replacements that each end in a NUL. In base64: the bytes of the
 * trie (uint32, little endian), its units (uint32 each), the text. */
#include "base/utf8.h"
#include "tokenizer/internal.h"
#include <string.h>
#include <utf8proc.h>

enum { GRAPHEME_MAX = 6 }; /* longer ones are looked up character by character */

struct tsr_charsmap {
  uint32_t *units;
  size_t units_count;
  const char *text; /* ends in a NUL */
  size_t text_length;
};

static int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Strict: whole groups of four with padding. Returns NULL where it is no base64. */
static unsigned char *decode_base64(tsr_arena *arena, const char *text, size_t *ret_length) {
  size_t length = strlen(text), put = 0;
  if (length % 4) return NULL;
  unsigned char *bytes = tsr_arena_alloc(arena, length / 4 * 3 + 1);
  for (size_t i = 0; i < length; i += 4) {
    bool is_last = i + 4 == length;
    int padding = is_last && text[i + 3] == '=' ? text[i + 2] == '=' ? 2 : 1 : 0;
    uint32_t group = 0;
    for (int k = 0; k < 4; k++) {
      int value = k >= 4 - padding ? 0 : base64_value(text[i + (size_t)k]);
      if (value < 0) return NULL;
      group = group << 6 | (uint32_t)value;
    }
    for (int k = 0; k < 3 - padding; k++) bytes[put++] = (unsigned char)(group >> (16 - 8 * k));
  }
  *ret_length = put;
  return bytes;
}

static uint32_t read_u32(const unsigned char *b) {
  return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

bool tsr_charsmap_parse(
    tsr_arena *arena, const char *base64, const char *file, const tsr_charsmap **ret,
    tsr_diags *diags) {
  tsr_location location = {.file = file};
  size_t length = 0;
  const unsigned char *bytes = decode_base64(arena, base64, &length);
  if (!bytes)
    return tsr_diag_error(diags, location, "precompiled_charsmap of Precompiled is no base64");
  uint32_t trie_bytes = length >= 4 ? read_u32(bytes) : 0;
  if (trie_bytes < 4 || trie_bytes % 4 || trie_bytes > length - 4)
    return tsr_diag_error(
        diags, location, "precompiled_charsmap of Precompiled: its trie has %u bytes of %zu",
        trie_bytes, length);
  tsr_charsmap *map = tsr_arena_array(arena, tsr_charsmap, 1);
  map->units_count = trie_bytes / 4;
  map->units = tsr_arena_array(arena, uint32_t, map->units_count);
  for (size_t i = 0; i < map->units_count; i++) map->units[i] = read_u32(bytes + 4 + 4 * i);
  map->text_length = length - 4 - trie_bytes;
  map->text = tsr_arena_strndup(arena, (const char *)bytes + 4 + trie_bytes, map->text_length);
  if (tsr_utf8_valid(map->text, map->text_length) < map->text_length)
    return tsr_diag_error(
        diags, location, "precompiled_charsmap of Precompiled: its replacements are no UTF-8");
  *ret = map;
  return true;
}

/* ---- the trie: darts-clone's layout of a unit ---- */

static size_t unit_offset(uint32_t unit) { return (size_t)(unit >> 10) << ((unit & 0x200) >> 6); }

/* The replacement of the shortest prefix that has one: so it is in the package. NULL: none. */
static const char *find_replacement(const tsr_charsmap *map, const char *key, size_t length) {
  size_t node = unit_offset(map->units[0]);
  for (size_t i = 0; i < length && key[i]; i++) {
    unsigned char byte = (unsigned char)key[i];
    node ^= byte;
    if (node >= map->units_count) return NULL;
    uint32_t unit = map->units[node];
    if ((unit & 0x800000ffu) != byte) return NULL;
    node ^= unit_offset(unit);
    if (!(unit & 0x100)) continue; /* nothing ends here */
    if (node >= map->units_count) return NULL;
    size_t at = map->units[node] & 0x7fffffff;
    /* In the middle of a character there is no text. */
    bool is_text = at <= map->text_length && ((unsigned char)map->text[at] & 0xc0) != 0x80;
    return is_text ? map->text + at : NULL;
  }
  return NULL;
}

/* ---- texts ---- */

static size_t grapheme_end(const tsr_piece *piece, size_t at) {
  uint32_t code = 0, next = 0;
  utf8proc_int32_t state = 0;
  at += (size_t)tsr_utf8_next(piece->text + at, piece->length - at, &code);
  while (at < piece->length) {
    size_t bytes = (size_t)tsr_utf8_next(piece->text + at, piece->length - at, &next);
    if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)code, (utf8proc_int32_t)next, &state))
      break;
    at += bytes;
    code = next;
  }
  return at;
}

static bool replace(
    const tsr_charsmap *map, const tsr_piece *piece, size_t begin, size_t end,
    tsr_piece_buffer *ret) {
  const char *with = find_replacement(map, piece->text + begin, end - begin);
  if (with) tsr_piece_add(ret, with, strlen(with), tsr_piece_source(piece, begin));
  return with;
}

void tsr_charsmap_apply(const tsr_charsmap *map, const tsr_piece *piece, tsr_piece_buffer *ret) {
  for (size_t at = 0, end; at < piece->length; at = end) {
    end = grapheme_end(piece, at);
    if (end - at < GRAPHEME_MAX && replace(map, piece, at, end, ret)) continue;
    for (size_t next; at < end; at = next) {
      uint32_t code;
      next = at + (size_t)tsr_utf8_next(piece->text + at, end - at, &code);
      if (!replace(map, piece, at, next, ret)) tsr_piece_copy(ret, piece, at, next);
    }
  }
  /* What is left out at the begin belongs to the first character: so it is in the package. */
  uint32_t code;
  int first = tsr_utf8_next(ret->bytes, ret->length, &code);
  for (int i = 0; i < first; i++) ret->from[i] = tsr_piece_source(piece, 0);
}
