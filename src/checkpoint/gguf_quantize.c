// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_quantize.h"
#include "checkpoint/gguf_quantize_k.h"
#include <math.h>
#include <string.h>

enum { BLOCK = 32 };

static void put_half(const tsr_kernels *kernels, float x, uint8_t *ret) {
  uint16_t half;
  kernels->f32_to_fp16(&half, &x, 0, 1);
  ret[0] = (uint8_t)(half & 0xff);
  ret[1] = (uint8_t)(half >> 8);
}

static void quantize_q8_0(const tsr_kernels *kernels, const float *x, uint8_t *ret) {
  float largest = 0;
  for (int i = 0; i < BLOCK; i++) largest = fmaxf(largest, fabsf(x[i]));
  float scale = largest / 127, inverse = scale != 0 ? 1.0f / scale : 0;
  put_half(kernels, scale, ret);
  for (int i = 0; i < BLOCK; i++) ret[2 + i] = (uint8_t)(int8_t)roundf(x[i] * inverse);
}

/* Four bytes of fifth bits, then element i beside element 16 + i. */
static void pack_five_bits(const uint8_t *q, uint8_t *ret) {
  memset(ret, 0, 4);
  for (int i = 0; i < BLOCK; i++) ret[i / 8] = (uint8_t)(ret[i / 8] | q[i] >> 4 << i % 8);
  for (int i = 0; i < BLOCK / 2; i++)
    ret[4 + i] = (uint8_t)((q[i] & 15) | (q[i + BLOCK / 2] & 15) << 4);
}

static void quantize_q5_0(const tsr_kernels *kernels, const float *x, uint8_t *ret) {
  float largest = 0, magnitude = 0;
  uint8_t q[BLOCK];
  for (int i = 0; i < BLOCK; i++)
    if (fabsf(x[i]) > magnitude) magnitude = fabsf(x[i]), largest = x[i];
  float scale = largest / -16, inverse = scale != 0 ? 1.0f / scale : 0;
  put_half(kernels, scale, ret);
  for (int i = 0; i < BLOCK; i++) {
    int rounded = (int)(x[i] * inverse + 16.5f);
    q[i] = (uint8_t)(rounded < 31 ? rounded : 31);
  }
  pack_five_bits(q, ret + 2);
}

static void quantize_q5_1(const tsr_kernels *kernels, const float *x, uint8_t *ret) {
  float least = x[0], most = x[0];
  uint8_t q[BLOCK];
  for (int i = 0; i < BLOCK; i++) least = fminf(least, x[i]), most = fmaxf(most, x[i]);
  float scale = (most - least) / 31, inverse = scale != 0 ? 1.0f / scale : 0;
  put_half(kernels, scale, ret);
  put_half(kernels, least, ret + 2);
  for (int i = 0; i < BLOCK; i++) q[i] = (uint8_t)((x[i] - least) * inverse + 0.5f);
  pack_five_bits(q, ret + 4);
}

typedef void quantize_block(const tsr_kernels *kernels, const float *x, uint8_t *ret);

static const struct {
  tsr_gguf_type type;
  quantize_block *quantize;
  float steps; /* the largest magnitude by the scale, at least */
} quantizers[] = {
    {TSR_GGUF_Q8_0, quantize_q8_0, 127},        {TSR_GGUF_Q5_0, quantize_q5_0, 16},
    {TSR_GGUF_Q5_1, quantize_q5_1, 1},          {TSR_GGUF_Q4_K, tsr_gguf_quantize_q4_k, 1},
    {TSR_GGUF_Q5_K, tsr_gguf_quantize_q5_k, 1}, {TSR_GGUF_Q6_K, tsr_gguf_quantize_q6_k, 1}};

static void quantize_blocks(
    const tsr_kernels *kernels, tsr_gguf_type type, const float *x, int64_t count, uint8_t *ret,
    int64_t *ret_overflows) {
  static const float half_max = 65504;
  int64_t elements = tsr_gguf_block_elements(type), bytes = tsr_gguf_block_bytes(type);
  int k = 0, overflows = 0;
  while (quantizers[k].type != type) k++;
  for (int64_t i = 0; i < count; i++) overflows += !(fabsf(x[i]) <= half_max * quantizers[k].steps);
  *ret_overflows += overflows;
  for (int64_t i = 0; !overflows && i < count / elements; i++)
    quantizers[k].quantize(kernels, x + i * elements, ret + i * bytes);
}

static int64_t
count_overflows(const float *x, const uint16_t *half, uint16_t infinity, int64_t count) {
  int64_t overflows = 0;
  for (int64_t i = 0; i < count; i++) overflows += (half[i] & 0x7fff) == infinity && isfinite(x[i]);
  return overflows;
}

void tsr_gguf_quantize(
    const tsr_kernels *kernels, tsr_gguf_type type, const float *x, int64_t count, void *ret,
    int64_t *ret_overflows) {
  switch (type) {
  case TSR_GGUF_F32:
    memcpy(ret, x, (size_t)count * sizeof *x);
    break;
  case TSR_GGUF_F16:
    kernels->f32_to_fp16(ret, x, 0, count);
    *ret_overflows += count_overflows(x, ret, 0x7c00, count);
    break;
  case TSR_GGUF_BF16:
    kernels->f32_to_bf16(ret, x, 0, count);
    *ret_overflows += count_overflows(x, ret, 0x7f80, count);
    break;
  default:
    quantize_blocks(kernels, type, x, count, ret, ret_overflows);
    break;
  }
}
