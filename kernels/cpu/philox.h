// SPDX-License-Identifier: Apache-2.0
/* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11). Element e of
 * a stream uses word e % 4 of counter e / 4. */
#ifndef TSR_KERNELS_CPU_PHILOX_H
#define TSR_KERNELS_CPU_PHILOX_H
#include <stdint.h>
#if defined(__SSE2__)
#include <immintrin.h>
#include <string.h>
#endif

enum { PHILOX_COUNTERS = 64, PHILOX_ELEMENTS = 4 * PHILOX_COUNTERS };

typedef struct {
  uint32_t word[4];
} philox_words;

static inline philox_words philox_rounds(philox_words c, uint32_t key0, uint32_t key1) {
#pragma GCC unroll 10
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c.word[0], p1 = (uint64_t)0xCD9E8D57u * c.word[2];
    philox_words next = {
        {(uint32_t)(p1 >> 32) ^ c.word[1] ^ key0, (uint32_t)p1,
         (uint32_t)(p0 >> 32) ^ c.word[3] ^ key1, (uint32_t)p0}};
    c = next;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

/* The words of `counters` counters (a multiple of 16) from `counter` on, in element order. */
#if defined(__SSE2__)

/* Each word in the low half of 64 bits, where the machine's widening product reads it; what a round
 * leaves above it is never read. */
#if defined(__AVX512F__)
enum { PHILOX_LANES = 8 };
typedef long long philox_wide __attribute__((vector_size(64)));
static inline philox_wide philox_gemm(philox_wide a, philox_wide b) {
  return (philox_wide)_mm512_mul_epu32((__m512i)a, (__m512i)b);
}
#elif defined(__AVX2__)
enum { PHILOX_LANES = 4 };
typedef long long philox_wide __attribute__((vector_size(32)));
static inline philox_wide philox_gemm(philox_wide a, philox_wide b) {
  return (philox_wide)_mm256_mul_epu32((__m256i)a, (__m256i)b);
}
#else
enum { PHILOX_LANES = 2 };
typedef long long philox_wide __attribute__((vector_size(16)));
static inline philox_wide philox_gemm(philox_wide a, philox_wide b) {
  return (philox_wide)_mm_mul_epu32((__m128i)a, (__m128i)b);
}
#endif
typedef unsigned long long philox_unsigned __attribute__((vector_size(8 * PHILOX_LANES)));

static inline philox_wide philox_high(philox_wide x) {
  return (philox_wide)((philox_unsigned)x >> 32);
}

static inline philox_wide philox_all(uint32_t x) { return (philox_wide){0} + (long long)x; }

static inline void philox_run(uint32_t *words, int counters, uint64_t counter, uint64_t key) {
  const philox_wide low = philox_all(UINT32_MAX), m0 = philox_all(0xD2511F53u),
                    m1 = philox_all(0xCD9E8D57u);
  for (int i = 0; i < counters; i += PHILOX_LANES) {
    uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
    philox_wide c0, c1, c2 = {0}, c3 = {0};
    for (int l = 0; l < PHILOX_LANES; l++) c0[l] = (long long)(counter + (uint64_t)(i + l));
    c1 = philox_high(c0);
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
      philox_wide p0 = philox_gemm(c0, m0), p1 = philox_gemm(c2, m1);
      c0 = philox_high(p1) ^ c1 ^ philox_all(key0);
      c1 = p1;
      c2 = philox_high(p0) ^ c3 ^ philox_all(key1);
      c3 = p0;
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    philox_wide first = (c0 & low) | c1 << 32, second = (c2 & low) | c3 << 32;
    uint64_t pairs[2 * PHILOX_LANES];
    for (int l = 0; l < PHILOX_LANES; l++) {
      pairs[2 * l] = (uint64_t)first[l];
      pairs[2 * l + 1] = (uint64_t)second[l];
    }
    memcpy(words + 4 * i, pairs, sizeof pairs);
  }
}

#else

static inline void philox_run(uint32_t *words, int counters, uint64_t counter, uint64_t key) {
  uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
  uint32_t low = (uint32_t)counter, high = (uint32_t)(counter >> 32);
#pragma omp simd
  for (int i = 0; i < counters; i++) {
    uint32_t n = low + (uint32_t)i;
    philox_words c = {{n, high + (n < low), 0, 0}};
    c = philox_rounds(c, key0, key1);
    words[4 * i] = c.word[0];
    words[4 * i + 1] = c.word[1];
    words[4 * i + 2] = c.word[2];
    words[4 * i + 3] = c.word[3];
  }
}

#endif

static inline void philox_block(uint32_t words[PHILOX_ELEMENTS], uint64_t counter, uint64_t key) {
  philox_run(words, PHILOX_COUNTERS, counter, key);
}

/* In [0, 1), 24 bits. */
static inline float philox_uniform(uint32_t word) { return (float)(int32_t)(word >> 8) * 0x1p-24f; }

#endif
