// SPDX-License-Identifier: Apache-2.0
/* The GPU's hashes of a tensor's parts, of whatever split and padding, add up to the CPU's hash of the
 * whole tensor without padding. */
#include "cuda_check.h"

/* A tensor (real[0], real[1], real[2]), of which dimension `dim` is stored as blocks * length. */
struct shape {
  int64_t real[3];
  int dim;
  int64_t blocks, length;
  int64_t parts[3]; /* along each stored dimension */
};

/* Where a stored index is among the real ones; -1: it is padding. The first blocks have one more. */
static int64_t unpadded(const shape &s, int d, int64_t stored) {
  if (d != s.dim) return stored;
  int64_t at = 0;
  for (int64_t b = 0; b < s.blocks; b++) {
    int64_t size = s.real[d] / s.blocks + (b < s.real[d] % s.blocks);
    if (stored < (b + 1) * s.length)
      return stored - b * s.length < size ? at + stored - b * s.length : -1;
    at += size;
  }
  return -1;
}

/* A part's elements; what is padding holds numbers that must not count. */
static numbers elements_of(const shape &s, const tsr_tensor_slice &part, const numbers &whole) {
  numbers x;
  for (int64_t i = 0; i < part.shape[0]; i++)
    for (int64_t j = 0; j < part.shape[1]; j++)
      for (int64_t k = 0; k < part.shape[2]; k++) {
        int64_t a = unpadded(s, 0, part.offset[0] + i), b = unpadded(s, 1, part.offset[1] + j),
                c = unpadded(s, 2, part.offset[2] + k);
        bool real = a >= 0 && b >= 0 && c >= 0;
        x.push_back(real ? whole[(size_t)((a * s.real[1] + b) * s.real[2] + c)] : 7);
      }
  return x;
}

static uint64_t
hash_of_part(const shape &s, tsr_cuda_type type, const tsr_tensor_slice &part, const numbers &x) {
  tsr_cuda_padding padding = {s.dim, s.real[s.dim], s.blocks};
  int64_t n = (int64_t)x.size(), middle = n / 3;
  uint64_t sum = 0;
  call_arrays arrays;
  arrays.shift = 0;
  const void *data = arrays.in(type, x);
  uint64_t *hash = arrays.key(5); /* it is added to */
  arrays.all.back().is_output = true;
  tsr_cuda_hash(NULL, type, hash, data, &part, &padding, 0, middle);
  tsr_cuda_hash(NULL, type, hash, data, &part, &padding, middle, n);
  finish_work();
  for (const array &a : arrays.all) CHECK(array_intact(&a));
  memcpy(&sum, hash, sizeof sum);
  return sum - 5;
}

static void check_shape(const shape &s) {
  int64_t n = s.real[0] * s.real[1] * s.real[2];
  for (tsr_cuda_type type : types) {
    numbers whole = rounded(type, random_numbers(n, 2));
    if (n > 3) whole[1] = NAN, whole[2] = -0.0f, whole[3] = INFINITY;
    uint64_t sum = 0;
    tsr_tensor_slice part = {};
    part.ndim = 3;
    for (int d = 0; d < 3; d++) {
      part.global[d] = d == s.dim ? s.blocks * s.length : s.real[d];
      part.shape[d] = part.global[d] / s.parts[d];
    }
    for (part.offset[0] = 0; part.offset[0] < part.global[0]; part.offset[0] += part.shape[0])
      for (part.offset[1] = 0; part.offset[1] < part.global[1]; part.offset[1] += part.shape[1])
        for (part.offset[2] = 0; part.offset[2] < part.global[2]; part.offset[2] += part.shape[2])
          sum += hash_of_part(s, type, part, elements_of(s, part, whole));
    CHECK_AT(
        sum == cpu->hash(whole.data(), 0, n), "type %d, (%d, %d, %d) in %d × %d × %d parts", type,
        (int)s.real[0], (int)s.real[1], (int)s.real[2], (int)s.parts[0], (int)s.parts[1],
        (int)s.parts[2]);
  }
}

int main() {
  check_shape({{1, 1, 1}, 0, 1, 1, {1, 1, 1}});
  check_shape({{3, 5, 70}, 0, 1, 3, {1, 1, 1}});
  check_shape({{4, 6, 66}, 0, 1, 4, {2, 3, 2}});
  check_shape({{4, 6, 66}, 1, 1, 6, {1, 1, 3}});
  check_shape({{1, 50, 96}, 1, 1, 64, {1, 4, 1}});
  check_shape({{1, 50, 96}, 1, 1, 64, {1, 1, 2}});
  check_shape({{1, 10, 33}, 1, 4, 3, {1, 2, 1}});
  check_shape({{1, 10, 33}, 1, 4, 3, {1, 4, 3}});
  check_shape({{7, 3, 10}, 2, 4, 3, {7, 1, 2}});
  check_shape({{10, 3, 20}, 0, 4, 4, {4, 3, 1}});
  return check_done("cuda.hash");
}
