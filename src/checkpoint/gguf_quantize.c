// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_quantize.h"
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

static int64_t
count_overflows(const float *x, const uint16_t *half, uint16_t infinity, int64_t count) {
  int64_t overflows = 0;
  for (int64_t i = 0; i < count; i++) overflows += (half[i] & 0x7fff) == infinity && isfinite(x[i]);
  return overflows;
}

void tsr_gguf_quantize(
    const tsr_kernels *kernels, tsr_gguf_type type, const float *x, int64_t count, void *ret,
    int64_t *ret_overflows) {
  int64_t elements = tsr_gguf_block_elements(type), bytes = tsr_gguf_block_bytes(type);
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
  case TSR_GGUF_Q8_0:
    for (int64_t i = 0; i < count / elements; i++)
      quantize_q8_0(kernels, x + i * elements, (uint8_t *)ret + i * bytes);
    break;
    break;
  }
}
