// SPDX-License-Identifier: Apache-2.0
/* Sums to one number, in double. */
#include "base/reduction_tree.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/level.h"
#include <assert.h>
#include <string.h>

enum { SUMS = 32 }; /* running sums of a block: element i of a block goes to sum i % SUMS */
enum { HALF = WIDTH / 2, PARTS = SUMS / HALF };

typedef double wide __attribute__((vector_size(8 * HALF)));
typedef float narrow __attribute__((vector_size(4 * HALF), aligned(4), may_alias));

#define EACH_PART(k) _Pragma("GCC unroll 16") for (int k = 0; k < PARTS; k++)

static inline wide widen(const float *x) {
  return __builtin_convertvector(*(const narrow *)x, wide);
}

static double block_finish(double sums[SUMS], const float *rest, int64_t n, bool squared) {
  for (int64_t l = 0; l < n; l++)
    sums[l] += squared ? (double)rest[l] * (double)rest[l] : (double)rest[l];
  for (int half = SUMS / 2; half; half /= 2)
    for (int l = 0; l < half; l++) sums[l] += sums[l + half];
  return sums[0];
}

static double block_sum(const float *x, int64_t n, bool squared) {
  wide parts[PARTS] = {{0}};
  int64_t i = 0;
  if (squared)
    for (; i + SUMS <= n; i += SUMS) EACH_PART(k) {
        wide v = widen(x + i + k * HALF);
        parts[k] += v * v;
      }
  else
    for (; i + SUMS <= n; i += SUMS) EACH_PART(k) parts[k] += widen(x + i + k * HALF);
  double sums[SUMS];
  memcpy(sums, parts, sizeof sums);
  return block_finish(sums, x + i, n - i, squared);
}

/* Elements [first, first + n) of the row-major order, brought together. */
static void
gather(float *block, const float *x, int64_t cols, int64_t stride, int64_t first, int64_t n) {
  for (int64_t done = 0; done < n;) {
    int64_t row = (first + done) / cols, col = (first + done) % cols;
    int64_t take = cols - col < n - done ? cols - col : n - done;
    memcpy(block + done, x + row * stride + col, (size_t)take * sizeof *block);
    done += take;
  }
}

static double sum_blocks(const float *x, int64_t rows, int64_t cols, int64_t stride, bool squared) {
  int64_t total = rows * cols, blocks = (total + TSR_SUM_BLOCK - 1) / TSR_SUM_BLOCK;
  double stack[TSR_TREE_DEPTH_MAX] = {0};
  tsr_tree_stack tree = {0};
  float gathered[TSR_SUM_BLOCK];
  for (int64_t i = 0; i < blocks; i++) {
    int64_t first = i * TSR_SUM_BLOCK;
    int64_t n = total - first < TSR_SUM_BLOCK ? total - first : TSR_SUM_BLOCK;
    const float *block = x + first;
    if (stride != cols) gather(gathered, x, cols, stride, first, n), block = gathered;
    stack[tsr_tree_push(&tree, tsr_tree_merges(blocks, i))] = block_sum(block, n, squared);
    for (int low; tsr_tree_merge(&tree, &low);) stack[low] += stack[low + 1];
  }
  assert(tree.entries == (blocks > 0));
  return stack[0];
}

double LEVEL(sum)(const float *x, int64_t rows, int64_t cols, int64_t stride) {
  return sum_blocks(x, rows, cols, stride, false);
}

double LEVEL(sum_squares)(const float *x, int64_t rows, int64_t cols, int64_t stride) {
  return sum_blocks(x, rows, cols, stride, true);
}
