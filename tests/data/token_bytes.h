// SPDX-License-Identifier: Apache-2.0
/* Token files as other programs write them, byte by byte. */
#ifndef TSR_TESTS_DATA_TOKEN_BYTES_H
#define TSR_TESTS_DATA_TOKEN_BYTES_H
#include "tests/data/scratch.h"
#include <stdint.h>

typedef struct {
  unsigned char bytes[1 << 16];
  size_t length;
} byte_file;

static inline void put(byte_file *f, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) f->bytes[f->length++] = (unsigned char)(value >> 8 * i);
}

static inline void put_at(byte_file *f, size_t at, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) f->bytes[at + (size_t)i] = (unsigned char)(value >> 8 * i);
}

/* The tokens first, first + 1, … */
static inline void put_tokens(byte_file *f, int first, int count, int width) {
  for (int i = 0; i < count; i++) put(f, (uint64_t)(first + i), width);
}

static inline void llmc_file(byte_file *f, int first, int count, int width) {
  f->length = 0;
  put(f, width == 2 ? 20240520 : 20240801, 4);
  put(f, width == 2 ? 1 : 7, 4);
  put(f, (uint64_t)count, 4);
  while (f->length < 1024) put(f, 0, 4);
  put_tokens(f, first, count, width);
}

static inline void index_header(byte_file *f, int code, int sequences, int entries) {
  f->length = 0;
  memcpy(f->bytes, "MMIDIDX\0\0", 9);
  f->length = 9;
  put(f, 1, 8);
  put(f, (uint64_t)code, 1);
  put(f, (uint64_t)sequences, 8);
  put(f, (uint64_t)entries, 8);
}

/* Sequences of these lengths, of which each is a document. */
static inline void index_file(byte_file *f, int code, int width, const int *lengths, int count) {
  int64_t at = 0;
  index_header(f, code, count, count + 1);
  for (int i = 0; i < count; i++) put(f, (uint64_t)lengths[i], 4);
  for (int i = 0; i < count; at += lengths[i++] * width) put(f, (uint64_t)at, 8);
  for (int i = 0; i <= count; i++) put(f, (uint64_t)i, 8);
}

static inline void write_file(const char *name, const byte_file *f) {
  scratch_write(name, f->bytes, f->length);
}

#endif
