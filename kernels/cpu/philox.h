/* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11). Element e of
 * a stream uses word e % 4 of counter e / 4. */
#ifndef TSR_KERNELS_CPU_PHILOX_H
#define TSR_KERNELS_CPU_PHILOX_H
#include <stdint.h>

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

/* The words of PHILOX_COUNTERS counters from `counter` on, in element order. */
static inline void philox_block(uint32_t words[PHILOX_ELEMENTS], uint64_t counter, uint64_t key) {
  uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
  uint32_t low = (uint32_t)counter, high = (uint32_t)(counter >> 32);
#pragma omp simd
  for (int i = 0; i < PHILOX_COUNTERS; i++) {
    uint32_t n = low + (uint32_t)i;
    philox_words c = {{n, high + (n < low), 0, 0}};
    c = philox_rounds(c, key0, key1);
    words[4 * i] = c.word[0];
    words[4 * i + 1] = c.word[1];
    words[4 * i + 2] = c.word[2];
    words[4 * i + 3] = c.word[3];
  }
}

/* In [0, 1), 24 bits. */
static inline float philox_uniform(uint32_t word) { return (float)(int32_t)(word >> 8) * 0x1p-24f; }

#endif
