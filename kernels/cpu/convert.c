// SPDX-License-Identifier: Apache-2.0
/* Conversions between f32 and the narrower types. */
#include "kernels/cpu/fp8.h"
#include "kernels/cpu/level.h"

#define EACH _Pragma("omp simd") for (int64_t i = begin; i < end; i++)

void LEVEL(bf16_to_f32)(float *out, const uint16_t *x, int64_t begin, int64_t end) {
  EACH out[i] = bf16_value(x[i]);
}

void LEVEL(f32_to_bf16)(uint16_t *out, const float *x, int64_t begin, int64_t end) {
  EACH out[i] = bf16_nearest(x[i]);
}

void LEVEL(f32_to_bf16_stochastic)(
    uint16_t *out, const float *x, uint64_t key, const tsr_tensor_slice *slice, int64_t begin,
    int64_t end) {
  if (begin < end) bf16_stochastic(out + begin, x + begin, key, slice, begin, end - begin);
}

/* The CPU's own conversion, where it has one, gives the same bits; the rest of a range is not a
 * vector. */
void LEVEL(fp16_to_f32)(float *out, const uint16_t *x, int64_t begin, int64_t end) {
#if defined(__F16C__)
  for (; end - begin >= 8; begin += 8)
    _mm256_storeu_ps(out + begin, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + begin))));
#endif
  EACH out[i] = fp16_value(x[i]);
}

void LEVEL(f32_to_fp16)(uint16_t *out, const float *x, int64_t begin, int64_t end) {
#if defined(__F16C__)
  for (; end - begin >= 8; begin += 8)
    _mm_storeu_si128(
        (__m128i *)(out + begin),
        _mm256_cvtps_ph(_mm256_loadu_ps(x + begin), _MM_FROUND_TO_NEAREST_INT));
#endif
  EACH out[i] = fp16_nearest(x[i]);
}

void LEVEL(e4m3_to_f32)(float *out, const uint8_t *x, int64_t begin, int64_t end) {
  EACH out[i] = e4m3_value(x[i]);
}

void LEVEL(f32_to_e4m3)(uint8_t *out, const float *x, int64_t begin, int64_t end) {
  EACH out[i] = e4m3_nearest(x[i]);
}

void LEVEL(e5m2_to_f32)(float *out, const uint8_t *x, int64_t begin, int64_t end) {
  EACH out[i] = e5m2_value(x[i]);
}
