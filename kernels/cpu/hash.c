// SPDX-License-Identifier: Apache-2.0
/* The hash of a part of a tensor (base/tensor_hash.h). */
#include "base/tensor_hash.h"
#include "kernels/cpu/level.h"
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

static const uint32_t keys[TSR_HASH_BLOCK] = {TSR_HASH_KEYS};

static inline uint64_t product(uint32_t bits, int j) {
  int32_t size = (int32_t)(bits & 0x7fffffff);
  return (uint64_t)keys[j] * (size > 0x7f800000 ? 0x7fc00000 : bits); /* NaN */
}

/* Elements [begin, end) of a block, the first of them at x. */
static uint64_t hash_some(const float *x, int64_t begin, int64_t end) {
  uint64_t sum = 0;
  for (int64_t j = begin; j < end; j++) {
    uint32_t bits;
    memcpy(&bits, x + j - begin, sizeof bits);
    sum += product(bits, (int)j);
  }
  return sum;
}

/* The products of the elements with even and with odd places in a vector, added to a sum of each of
 * its 64-bit lanes: a product of 32 bits reads the lower half of a lane alone. */
#if defined(__AVX512F__)
typedef __m512i words;
enum { WORDS = 16 };

static inline words canonical(words x) {
  words size = _mm512_and_si512(x, _mm512_set1_epi32(0x7fffffff));
  __mmask16 nan = _mm512_cmpgt_epi32_mask(size, _mm512_set1_epi32(0x7f800000));
  return _mm512_mask_mov_epi32(x, nan, _mm512_set1_epi32(0x7fc00000));
}
static inline words add_products(words sum, words x, words key) {
  sum = _mm512_add_epi64(sum, _mm512_mul_epu32(x, key));
  words odd = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), _mm512_srli_epi64(key, 32));
  return _mm512_add_epi64(sum, odd);
}
static inline words load(const void *p) { return _mm512_loadu_si512(p); }
#elif defined(__AVX2__)
typedef __m256i words;
enum { WORDS = 8 };

static inline words canonical(words x) {
  words size = _mm256_and_si256(x, _mm256_set1_epi32(0x7fffffff));
  words nan = _mm256_cmpgt_epi32(size, _mm256_set1_epi32(0x7f800000));
  return _mm256_blendv_epi8(x, _mm256_set1_epi32(0x7fc00000), nan);
}
static inline words add_products(words sum, words x, words key) {
  sum = _mm256_add_epi64(sum, _mm256_mul_epu32(x, key));
  words odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), _mm256_srli_epi64(key, 32));
  return _mm256_add_epi64(sum, odd);
}
static inline words load(const void *p) { return _mm256_loadu_si256(p); }
#elif defined(__SSE2__)
typedef __m128i words;
enum { WORDS = 4 };

static inline words canonical(words x) {
  words size = _mm_and_si128(x, _mm_set1_epi32(0x7fffffff));
  words nan = _mm_cmpgt_epi32(size, _mm_set1_epi32(0x7f800000));
  words kept = _mm_andnot_si128(nan, x);
  return _mm_or_si128(kept, _mm_and_si128(nan, _mm_set1_epi32(0x7fc00000)));
}
static inline words add_products(words sum, words x, words key) {
  sum = _mm_add_epi64(sum, _mm_mul_epu32(x, key));
  words odd = _mm_mul_epu32(_mm_srli_epi64(x, 32), _mm_srli_epi64(key, 32));
  return _mm_add_epi64(sum, odd);
}
static inline words load(const void *p) { return _mm_loadu_si128(p); }
#endif

static uint64_t hash_block(const float *x) {
#if defined(__SSE2__)
  words sum = {0};
  for (int j = 0; j < TSR_HASH_BLOCK; j += WORDS)
    sum = add_products(sum, canonical(load(x + j)), load(keys + j));
  uint64_t lanes[WORDS / 2], all = 0;
  memcpy(lanes, &sum, sizeof lanes);
  for (int i = 0; i < WORDS / 2; i++) all += lanes[i];
  return all;
#else
  return hash_some(x, 0, TSR_HASH_BLOCK);
#endif
}

uint64_t LEVEL(hash)(const float *x, int64_t first, int64_t count) {
  uint64_t sum = 0;
  for (int64_t done = 0, take; done < count; done += take) {
    int64_t block = (first + done) / TSR_HASH_BLOCK, begin = (first + done) % TSR_HASH_BLOCK;
    take = TSR_HASH_BLOCK - begin < count - done ? TSR_HASH_BLOCK - begin : count - done;
    uint64_t part =
        take == TSR_HASH_BLOCK ? hash_block(x + done) : hash_some(x + done, begin, begin + take);
    sum += tsr_hash_block_key(block) * part;
  }
  return sum;
}
