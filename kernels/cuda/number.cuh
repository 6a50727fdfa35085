// SPDX-License-Identifier: Apache-2.0
/* The types that arrays may have, and how elements come and go: always through f32, W neighbours at
 * a time, in loads of 16 bytes where that can be. */
#ifndef TSR_KERNELS_CUDA_NUMBER_CUH
#define TSR_KERNELS_CUDA_NUMBER_CUH
#include "kernels/cuda/launch_shape.h"
#if !defined(TSR_EMULATED)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

static __device__ inline float bits_float(uint32_t bits) { return __uint_as_float(bits); }
static __device__ inline uint32_t float_bits(float x) { return __float_as_uint(x); }

/* bf16 by its bits: truncated to 16 after adding `up`, 0..0xFFFF, below the last bit that stays. An
 * infinity has nothing below, so it passes; a NaN is truncated alone, lest it overflow into another
 * number. */
static __device__ inline uint16_t bf16_truncate(float x, uint32_t up) {
  uint32_t bits = float_bits(x);
  bool nan = (bits & 0x7FFFFFFF) > 0x7F800000;
  return (uint16_t)((nan ? bits | 0x00400000 : bits + up) >> 16);
}
static __device__ inline uint16_t bf16_nearest(float x) {
  return bf16_truncate(x, 0x7FFF + (float_bits(x) >> 16 & 1));
}
static __device__ inline float bf16_value(uint16_t x) { return bits_float((uint32_t)x << 16); }

#if defined(TSR_EMULATED)

struct tsr_bf16 {
  uint16_t bits;
};
struct tsr_f16 {
  uint16_t bits;
};

static inline float number_float(tsr_bf16 x) { return bf16_value(x.bits); }

/* 1 sign, 5 exponent bits of bias 15, 10 of fraction */
static inline float number_float(tsr_f16 x) {
  int exponent = x.bits >> 10 & 31, fraction = x.bits & 0x3FF;
  float size = exponent == 31 ? (fraction ? NAN : INFINITY)
               : exponent     ? ldexpf((float)(1024 + fraction), exponent - 25)
                              : ldexpf((float)fraction, -24);
  return x.bits & 0x8000 ? -size : size;
}

static inline void number_set(tsr_bf16 *to, float x) { to->bits = bf16_nearest(x); }

/* The step between neighbours is 2^(exponent - 10), of the smallest ones 2^-24. */
static inline void number_set(tsr_f16 *to, float x) {
  uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  float size = fabsf(x);
  int exponent = size < 0x1p-14f || !std::isfinite(x) ? -14 : ilogbf(size);
  float steps = rintf(ldexpf(size, 10 - exponent)); /* the default rounding: to even */
  uint32_t code = std::isnan(x)   ? 0x7E00
                  : std::isinf(x) ? 0x7C00
                                  : (uint32_t)(exponent + 14) * 1024 + (uint32_t)steps;
  to->bits = (uint16_t)(sign | (code < 0x7C00 || std::isnan(x) ? code : 0x7C00));
}

#else

typedef __nv_bfloat16 tsr_bf16;
typedef __half tsr_f16;

static __device__ inline float number_float(tsr_bf16 x) { return __bfloat162float(x); }
static __device__ inline float number_float(tsr_f16 x) { return __half2float(x); }
static __device__ inline void number_set(tsr_bf16 *to, float x) { *to = __float2bfloat16_rn(x); }
static __device__ inline void number_set(tsr_f16 *to, float x) { *to = __float2half_rn(x); }

#endif

static __device__ inline float number_float(float x) { return x; }
static __device__ inline void number_set(float *to, float x) { *to = x; }

/* One element. */
template <typename T> static __device__ inline float number_load(const T *from) {
  return number_float(*from);
}
template <typename T> static __device__ inline void number_store(T *to, float x) {
  number_set(to, x);
}

/* Elements of a load of 16 bytes. */
template <typename T> struct pack_of { static const int width = (int)(16 / sizeof(T)); };

template <typename T, int W> struct alignas(W * sizeof(T) < 16 ? W * sizeof(T) : 16) number_pack {
  T v[W];
};

/* Elements [c, c + W) of a row of C. `packed`: the row and c are aligned to W elements, or to 16
 * bytes. Behind the row there is `fill`. Which element a thread has is the same either way. */
template <int W, typename T>
static __device__ inline void
raw_load(T (&x)[W], const T *row, int64_t c, int64_t C, bool packed, T fill) {
  if (packed && c + W <= C) {
    number_pack<T, W> pack = *(const number_pack<T, W> *)(row + c);
#pragma unroll
    for (int k = 0; k < W; k++) x[k] = pack.v[k];
    return;
  }
#pragma unroll
  for (int k = 0; k < W; k++) x[k] = c + k < C ? row[c + k] : fill;
}

template <int W, typename T>
static __device__ inline void
raw_store(T *row, const T (&x)[W], int64_t c, int64_t C, bool packed) {
  if (packed && c + W <= C) {
    number_pack<T, W> pack;
#pragma unroll
    for (int k = 0; k < W; k++) pack.v[k] = x[k];
    *(number_pack<T, W> *)(row + c) = pack;
    return;
  }
#pragma unroll
  for (int k = 0; k < W; k++)
    if (c + k < C) row[c + k] = x[k];
}

template <int W, typename T>
static __device__ inline void
row_load(float (&x)[W], const T *row, int64_t c, int64_t C, bool packed, float fill = 0) {
  T raw[W], end;
  number_set(&end, fill);
  raw_load(raw, row, c, C, packed, end);
#pragma unroll
  for (int k = 0; k < W; k++) x[k] = c + k < C ? number_float(raw[k]) : fill;
}

template <int W, typename T>
static __device__ inline void
row_store(T *row, const float (&x)[W], int64_t c, int64_t C, bool packed) {
  T raw[W];
#pragma unroll
  for (int k = 0; k < W; k++) number_set(&raw[k], x[k]);
  raw_store(row, raw, c, C, packed);
}

template <typename T> static __device__ inline float rounded(float x) {
  T stored;
  number_set(&stored, x);
  return number_float(stored);
}

/* x += row, rounded as if the sum had been stored; row NULL: nothing is added. */
template <int W, typename T>
static __device__ inline void
row_add(float (&x)[W], const T *row, int64_t c, int64_t C, bool packed) {
  float y[W];
  if (!row) return;
  row_load(y, row, c, C, packed);
#pragma unroll
  for (int k = 0; k < W; k++) x[k] = rounded<T>(x[k] + y[k]);
}

/* The statement for the type: T is it there. */
#define TSR_BY_TYPE(type, T, ...)                                                                  \
  switch (type) {                                                                                  \
  case TSR_CUDA_F32: {                                                                             \
    using T = float;                                                                               \
    __VA_ARGS__;                                                                                   \
    break;                                                                                         \
  }                                                                                                \
  case TSR_CUDA_BF16: {                                                                            \
    using T = tsr_bf16;                                                                            \
    __VA_ARGS__;                                                                                   \
    break;                                                                                         \
  }                                                                                                \
  case TSR_CUDA_F16: {                                                                             \
    using T = tsr_f16;                                                                             \
    __VA_ARGS__;                                                                                   \
    break;                                                                                         \
  }                                                                                                \
  }

#endif
