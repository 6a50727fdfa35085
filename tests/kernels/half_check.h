// SPDX-License-Identifier: Apache-2.0
/* What the tests of half precision share: the narrow formats worked out in double, and the random
 * word of an element. */
#ifndef TSR_TESTS_HALF_CHECK_H
#define TSR_TESTS_HALF_CHECK_H
#include "kernel_check.h"

/* A number is (1 + f / 2^fraction) * 2^(e - bias); e = 0 is subnormal. `top` is the code of what is
 * too large. */
typedef struct {
  int bytes, fraction, bias;
  uint32_t top;
} format;

static const format BF16 = {2, 7, 127, 0x7F80};

static inline uint32_t float_word(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float word_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* Of a code without a sign that is finite. */
static inline double format_value(const format *f, uint32_t code) {
  int e = (int)(code >> f->fraction), hidden = e ? 1 << f->fraction : 0;
  int digits = (int)(code & ((1u << f->fraction) - 1)) + hidden;
  return ldexp(digits, (e ? e : 1) - f->bias - f->fraction);
}

/* The code nearest to a number, which is no NaN; the even one of two. */
static inline uint32_t format_nearest(const format *f, double x) {
  uint32_t sign = signbit(x) ? 1u << (8 * f->bytes - 1) : 0;
  int e = 0;
  if (x == 0 || isinf(x)) return sign | (x == 0 ? 0 : f->top);
  frexp(x, &e);
  e = e - 1 < 1 - f->bias ? 1 - f->bias : e - 1;
  double digits = nearbyint(ldexp(fabs(x), f->fraction - e));
  double code = ldexp(e + f->bias - 1, f->fraction) + digits;
  return sign | (code < f->top ? (uint32_t)code : f->top);
}

static inline uint16_t bf16_of(double x) { return (uint16_t)format_nearest(&BF16, x); }

static inline float bf16_float(uint16_t code) { return word_float((uint32_t)code << 16); }

static inline int64_t slice_size(const tsr_tensor_slice *slice) {
  int64_t n = 1;
  for (int d = 0; d < slice->ndim; d++) n *= slice->shape[d];
  return n;
}

/* The random word of a local element: word e % 4 of counter e / 4, e its global index. */
static inline uint32_t slice_word(const tsr_tensor_slice *slice, int64_t i, uint64_t key) {
  uint64_t element = 0, stride = 1;
  for (int d = slice->ndim - 1; d >= 0; d--) {
    element += (uint64_t)(i % slice->shape[d] + slice->offset[d]) * stride;
    stride *= (uint64_t)slice->global[d];
    i /= slice->shape[d];
  }
  uint32_t words[4];
  tsr_philox(element / 4, 0, key, words);
  return words[element % 4];
}

/* Up or down by that word: up when its upper half reaches over what is cut off. */
static inline uint16_t bf16_by_word(float x, uint32_t word) {
  uint32_t bits = float_word(x), split = bits & 0xFFFF;
  return (uint16_t)((bits >> 16) + (split + (word >> 16) > 0xFFFF));
}

#endif
