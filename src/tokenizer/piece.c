// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/internal.h"
#include <string.h>

void tsr_piece_reserve(tsr_piece_buffer *b, size_t length) {
  if (b->length + length <= b->capacity) return;
  size_t capacity = 2 * (b->length + length) + 64;
  char *bytes = tsr_arena_alloc(b->arena, capacity);
  size_t *from = tsr_arena_array(b->arena, size_t, capacity);
  if (b->length) {
    memcpy(bytes, b->bytes, b->length);
    memcpy(from, b->from, b->length * sizeof *from);
  }
  b->bytes = bytes;
  b->from = from;
  b->capacity = capacity;
}

void tsr_piece_add(tsr_piece_buffer *b, const char *bytes, size_t length, size_t from) {
  tsr_piece_reserve(b, length);
  for (size_t i = 0; i < length; i++) {
    b->bytes[b->length] = bytes[i];
    b->from[b->length++] = from;
  }
}

void tsr_piece_copy(tsr_piece_buffer *b, const tsr_piece *piece, size_t begin, size_t end) {
  tsr_piece_reserve(b, end - begin);
  memcpy(b->bytes + b->length, piece->text + begin, end - begin);
  for (size_t i = begin; i < end; i++) b->from[b->length++] = tsr_piece_source(piece, i);
}

tsr_piece tsr_piece_of(const tsr_piece_buffer *b) {
  return (tsr_piece){.text = b->bytes ? b->bytes : "", .length = b->length, .from = b->from};
}
