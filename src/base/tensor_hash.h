// SPDX-License-Identifier: Apache-2.0
/* A 64-bit hash of a tensor's f32 numbers that does not depend on how the tensor is split: every
 * element adds its bits times a key of its global index, modulo 2^64, so the hash of a tensor is
 * the sum of the hashes of its parts, in any order.
 *
 *   hash(tensor)  = sum over blocks b of TSR_HASH_BLOCK elements:
 *                     block_key(b) * sum over elements j of the block: key[j] * bits(b, j)
 *   hash(weights) = sum over tensors: (FNV-1a 64 of its name, made odd) * hash(tensor)
 *
 * Indices count the elements of the whole tensor without padding, row-major. This is multilinear
 * hashing (Carter and Wegman 1979; Lemire and Kaser 2014) on three levels. Keys of elements are odd
 * and have 32 bits, so one element that changes always changes the hash; so does any change inside
 * one block but for one in 2^32. The keys are fixed: the hash detects faults, and protects nothing
 * from somebody who looks for two tensors with one hash. All NaNs count as the same one. */
#ifndef TSR_BASE_TENSOR_HASH_H
#define TSR_BASE_TENSOR_HASH_H
#include <stdint.h>

/* In CUDA C for the device, too. */
#ifdef __CUDACC__
#define TSR_HASH_FUNCTION static inline __host__ __device__
#else
#define TSR_HASH_FUNCTION static inline
#endif

enum { TSR_HASH_BLOCK = 64 };

/* The keys of a block's elements: the upper halves of tsr_hash_mix(0), (1), …, made odd. */
/* clang-format off */
#define TSR_HASH_KEYS \
  0xe220a839, 0x910a2ded, 0x975835df, 0x1d0b14e5, 0x6e73e373, 0x63033b0d, 0xbd64a5d9, 0x63cbe1e5, \
  0x9e5651b1, 0xaeaf52ff, 0x088712bf, 0x50f5647d, 0x943ff9fd, 0xc4ca37b7, 0x6aa9d615, 0x875b9307, \
  0x5de186dd, 0x808475f1, 0x1120b3d1, 0xbc4075f3, 0x36225991, 0x06ca0a95, 0xc80de0f9, 0xe8d7da01, \
  0xaac8c001, 0xa208c12d, 0xc3b7f4e9, 0x974e3533, 0x905c768b, 0xbb7b49ab, 0xa8ee577b, 0xd7599677, \
  0xeaeb7f27, 0x2c0e0fed, 0x89242d2d, 0x4d5cb825, 0xe9b31629, 0xc7ab5605, 0xeb01cfaf, 0xce6a57a7, \
  0x369eae0b, 0x118e846f, 0xbdd73227, 0xba69ec91, 0xfb452913, 0xf7e9f3f9, 0xbaee56f3, 0x7bb3c45d, \
  0x040a2077, 0x1c4a97a7, 0xbb0802c5, 0x5ddad83b, 0xf9b44ecd, 0xc85e84f5, 0xbc46b611, 0x6e1351b3, \
  0x9d189ecf, 0x36057413, 0x7daf7bd7, 0x9691c38b, 0xbb0af0f3, 0x417ffd13, 0x322f69af, 0x8c741197
/* clang-format on */

/* The output function of splitmix64 (Steele et al. 2014). */
TSR_HASH_FUNCTION uint64_t tsr_hash_mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

TSR_HASH_FUNCTION uint64_t tsr_hash_block_key(int64_t block) {
  return tsr_hash_mix((uint64_t)block + TSR_HASH_BLOCK) | 1;
}

/* The hash of a tensor as a summand of the hash of all weights. */
uint64_t tsr_hash_named(const char *name, uint64_t hash);

#endif
