// SPDX-License-Identifier: Apache-2.0
/* GGUF files, version 3 (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): "GGUF", u32
 * version, u64 tensors, u64 metadata, the metadata, the descriptions of tensors, zeros up to a
 * multiple of 32, and the tensors' bytes, each padded with zeros to a multiple of 32. All numbers
 * are little-endian; a text is a u64 length and its bytes. */
#ifndef TSR_CHECKPOINT_GGUF_H
#define TSR_CHECKPOINT_GGUF_H
#include "base/text.h"

/* ggml_type */
typedef enum {
  TSR_GGUF_F32 = 0,
  TSR_GGUF_F16 = 1,
  TSR_GGUF_Q5_0 = 6,
  TSR_GGUF_Q5_1 = 7,
  TSR_GGUF_Q8_0 = 8,
  TSR_GGUF_Q4_K = 12,
  TSR_GGUF_Q5_K = 13,
  TSR_GGUF_Q6_K = 14,
  TSR_GGUF_BF16 = 30
} tsr_gguf_type;

enum { TSR_GGUF_DIMS_MAX = 4 };

typedef struct {
  const char *name;
  int ndim;
  int64_t shape[TSR_GGUF_DIMS_MAX]; /* row-major: the last dimension is that of rows */
  tsr_gguf_type type;
} tsr_gguf_tensor;

/* What a block of elements takes: a row is a whole number of blocks. */
int64_t tsr_gguf_block_elements(tsr_gguf_type type);
int64_t tsr_gguf_block_bytes(tsr_gguf_type type);
int64_t tsr_gguf_row(const tsr_gguf_tensor *tensor);  /* elements of a row */
int64_t tsr_gguf_rows(const tsr_gguf_tensor *tensor); /* of all matrices */
int64_t tsr_gguf_bytes(const tsr_gguf_tensor *tensor);
int64_t tsr_gguf_padding(int64_t bytes); /* zeros up to the next multiple of 32 */

/* Metadata as bytes; start with {0}, free `text`. */
typedef struct {
  tsr_text text;
  uint64_t count;
} tsr_gguf_metadata;

void tsr_gguf_add_u32(tsr_gguf_metadata *metadata, const char *key, uint32_t value);
void tsr_gguf_add_i32(tsr_gguf_metadata *metadata, const char *key, int32_t value);
void tsr_gguf_add_f32(tsr_gguf_metadata *metadata, const char *key, float value);
void tsr_gguf_add_bool(tsr_gguf_metadata *metadata, const char *key, bool value);
void tsr_gguf_add_text(tsr_gguf_metadata *metadata, const char *key, const char *text);

/* An array: its key and how many values it has, which must follow. */
typedef enum {
  TSR_GGUF_ARRAY_U32 = 4,
  TSR_GGUF_ARRAY_I32 = 5,
  TSR_GGUF_ARRAY_F32 = 6,
  TSR_GGUF_ARRAY_BOOL = 7,
  TSR_GGUF_ARRAY_TEXT = 8
} tsr_gguf_array;
void tsr_gguf_add_array(
    tsr_gguf_metadata *metadata, const char *key, tsr_gguf_array kind, uint64_t count);
void tsr_gguf_put_u32(tsr_gguf_metadata *metadata, uint32_t value); /* and an i32's bits */
void tsr_gguf_put_f32(tsr_gguf_metadata *metadata, float value);
void tsr_gguf_put_bool(tsr_gguf_metadata *metadata, bool value);
void tsr_gguf_put_text(tsr_gguf_metadata *metadata, const char *bytes, size_t length);

/* Appends everything before the tensors' bytes, which lie in this order. */
void tsr_gguf_header(
    const tsr_gguf_metadata *metadata, const tsr_gguf_tensor *tensors, int count, tsr_text *text);

#endif
