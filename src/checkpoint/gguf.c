// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf.h"
#include <string.h>

enum { VERSION = 3, ALIGNMENT = 32 };
enum { U32 = 4, I32 = 5, F32 = 6, BOOL = 7, TEXT = 8, ARRAY = 9 }; /* types of values */

/* ---- sizes ---- */

static const struct {
  tsr_gguf_type type;
  int elements, bytes; /* of a block */
} blocks[] = {{TSR_GGUF_F32, 1, 4},      {TSR_GGUF_F16, 1, 2},      {TSR_GGUF_BF16, 1, 2},
              {TSR_GGUF_Q5_0, 32, 22},   {TSR_GGUF_Q5_1, 32, 24},   {TSR_GGUF_Q8_0, 32, 34},
              {TSR_GGUF_Q4_K, 256, 144}, {TSR_GGUF_Q5_K, 256, 176}, {TSR_GGUF_Q6_K, 256, 210}};

static int block_of(tsr_gguf_type type) {
  int i = 0;
  while (blocks[i].type != type) i++;
  return i;
}

int64_t tsr_gguf_block_elements(tsr_gguf_type type) { return blocks[block_of(type)].elements; }

int64_t tsr_gguf_block_bytes(tsr_gguf_type type) { return blocks[block_of(type)].bytes; }

int64_t tsr_gguf_row(const tsr_gguf_tensor *tensor) { return tensor->shape[tensor->ndim - 1]; }

int64_t tsr_gguf_rows(const tsr_gguf_tensor *tensor) {
  int64_t rows = 1;
  for (int d = 0; d < tensor->ndim - 1; d++) rows *= tensor->shape[d];
  return rows;
}

int64_t tsr_gguf_bytes(const tsr_gguf_tensor *tensor) {
  int64_t row = tsr_gguf_row(tensor) / tsr_gguf_block_elements(tensor->type);
  return tsr_gguf_rows(tensor) * row * tsr_gguf_block_bytes(tensor->type);
}

int64_t tsr_gguf_padding(int64_t bytes) { return (ALIGNMENT - bytes % ALIGNMENT) % ALIGNMENT; }

/* ---- values ---- */

static void add_number(tsr_text *text, uint64_t value, int bytes) {
  char little[8];
  for (int i = 0; i < bytes; i++) little[i] = (char)(value >> 8 * i & 0xff);
  tsr_text_add_bytes(text, little, (size_t)bytes);
}

static void add_bytes(tsr_text *text, const char *bytes, size_t length) {
  add_number(text, length, 8);
  tsr_text_add_bytes(text, bytes, length);
}

static void begin(tsr_gguf_metadata *m, const char *key, int type) {
  m->count++;
  add_bytes(&m->text, key, strlen(key));
  add_number(&m->text, (uint64_t)type, 4);
}

void tsr_gguf_put_u32(tsr_gguf_metadata *m, uint32_t value) { add_number(&m->text, value, 4); }

void tsr_gguf_put_f32(tsr_gguf_metadata *m, float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  add_number(&m->text, bits, 4);
}

void tsr_gguf_put_bool(tsr_gguf_metadata *m, bool value) { add_number(&m->text, value, 1); }

void tsr_gguf_put_text(tsr_gguf_metadata *m, const char *bytes, size_t length) {
  add_bytes(&m->text, bytes, length);
}

void tsr_gguf_add_u32(tsr_gguf_metadata *m, const char *key, uint32_t value) {
  begin(m, key, U32);
  tsr_gguf_put_u32(m, value);
}

void tsr_gguf_add_i32(tsr_gguf_metadata *m, const char *key, int32_t value) {
  begin(m, key, I32);
  tsr_gguf_put_u32(m, (uint32_t)value);
}

void tsr_gguf_add_f32(tsr_gguf_metadata *m, const char *key, float value) {
  begin(m, key, F32);
  tsr_gguf_put_f32(m, value);
}

void tsr_gguf_add_bool(tsr_gguf_metadata *m, const char *key, bool value) {
  begin(m, key, BOOL);
  tsr_gguf_put_bool(m, value);
}

void tsr_gguf_add_text(tsr_gguf_metadata *m, const char *key, const char *text) {
  begin(m, key, TEXT);
  add_bytes(&m->text, text, strlen(text));
}

void tsr_gguf_add_array(
    tsr_gguf_metadata *m, const char *key, tsr_gguf_array kind, uint64_t count) {
  begin(m, key, ARRAY);
  add_number(&m->text, (uint64_t)kind, 4);
  add_number(&m->text, count, 8);
}

/* ---- the file ---- */

static void add_tensor(tsr_text *text, const tsr_gguf_tensor *t, int64_t offset) {
  add_bytes(text, t->name, strlen(t->name));
  add_number(text, (uint64_t)t->ndim, 4);
  for (int d = t->ndim - 1; d >= 0; d--) add_number(text, (uint64_t)t->shape[d], 8);
  add_number(text, t->type, 4);
  add_number(text, (uint64_t)offset, 8);
}

void tsr_gguf_header(
    const tsr_gguf_metadata *m, const tsr_gguf_tensor *tensors, int count, tsr_text *text) {
  static const char zeros[ALIGNMENT];
  tsr_text_add_bytes(text, "GGUF", 4);
  add_number(text, VERSION, 4);
  add_number(text, (uint64_t)count, 8);
  add_number(text, m->count, 8);
  tsr_text_add_bytes(text, m->text.data, m->text.length);
  int64_t offset = 0;
  for (int i = 0; i < count; i++) {
    add_tensor(text, &tensors[i], offset);
    int64_t bytes = tsr_gguf_bytes(&tensors[i]);
    offset += bytes + tsr_gguf_padding(bytes);
  }
  tsr_text_add_bytes(text, zeros, (size_t)tsr_gguf_padding((int64_t)text->length));
}
