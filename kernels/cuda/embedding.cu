// SPDX-License-Identifier: Apache-2.0
/* Rows of a table by token, and the gradient of the table.
 *
 * The gradient needs the rows of each token in their order. They are sorted by counting: how often
 * each token occurs (sums of integers, whose order does not matter), where its rows begin, its
 * rows in any order, and then each row's place among them, which is how many of them are smaller.
 */
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/reduction_tree.cuh"
#include <assert.h>
#define inline inline __host__ __device__
#include "base/sequence_layout.h"
#undef inline

template <typename T>
static __global__ void embedding(
    T *out, const int32_t *tokens, const T *table, int64_t C, int64_t v_begin, int64_t v_end,
    bool packed) {
  enum { W = pack_of<T>::width };
  int64_t r = blockIdx.x, token = tokens[r];
  bool here = token >= v_begin && token < v_end;
  const T *from = table + (here ? token - v_begin : 0) * C;
  EACH_PACK(c, C, W) {
    float v[W];
    EACH_LANE(k, W) v[k] = 0;
    if (here) row_load(v, from, c, C, packed);
    EACH_LANE(k, W) v[k] += 0.0f; /* -0 + 0 = +0 */
    row_store(out + r * C, v, c, C, packed);
  }
}

/* Of a table of another type. */
template <typename T, typename U>
static __global__ void embedding_cast(
    T *out, const int32_t *tokens, const U *table, int64_t C, int64_t v_begin, int64_t v_end) {
  int64_t r = blockIdx.x, token = tokens[r];
  bool here = token >= v_begin && token < v_end;
  const U *from = table + (here ? token - v_begin : 0) * C;
  for (int64_t c = threadIdx.x; c < C; c += blockDim.x)
    number_set(out + r * C + c, (here ? number_float(from[c]) : 0) + 0.0f);
}

#define EMBEDDING_CAST(T, U)                                                                       \
  TSR_LAUNCH(                                                                                      \
      (embedding_cast<T, U>), launch_rows(R, C), s, (T *)out, tokens, (const U *)table, C,         \
      v_begin, v_end)

extern "C" void tsr_cuda_embedding(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const int32_t *tokens,
    tsr_cuda_type table_type, const void *table, int64_t R, int64_t C, int64_t v_begin,
    int64_t v_end) {
  if (R <= 0 || C <= 0) return;
  assert(table_type == type || table_type == TSR_CUDA_F32 || type == TSR_CUDA_F32);
  if (table_type != type && type == TSR_CUDA_F32) {
    TSR_BY_TYPE(table_type, U, EMBEDDING_CAST(float, U))
    return;
  }
  if (table_type != type) {
    TSR_BY_TYPE(type, T, EMBEDDING_CAST(T, float))
    return;
  }
  bool packed = C % 8 == 0 && is_aligned(out, 16) && is_aligned(table, 16);
  TSR_BY_TYPE(
      type, T,
      TSR_LAUNCH(
          embedding<T>, launch_rows(R, C), s, (T *)out, tokens, (const T *)table, C, v_begin, v_end,
          packed))
}

/* Scratch: how many rows each token has, where they begin (V+1), and the rows by token, at first in
 * any order, then in theirs. */
typedef struct {
  int32_t *counts, *starts, *any, *rows;
} sorted;

static sorted sorted_parts(void *scratch, int64_t R, int64_t V) {
  int32_t *words = (int32_t *)scratch;
  return {words, words + V, words + 2 * V + 1, words + 2 * V + 1 + R};
}

static __global__ void counts_clear(sorted by, int64_t V) {
  for (int64_t v = map_thread(); v < V; v += map_threads()) by.counts[v] = 0;
}

static __global__ void tokens_count(
    sorted by, const int32_t *tokens, int64_t R, int64_t v_begin, int64_t V, int64_t padding) {
  for (int64_t r = map_thread(); r < R; r += map_threads()) {
    int64_t v = tokens[r] - v_begin;
    if (v >= 0 && v < V && tokens[r] != padding) atomicAdd(&by.counts[v], 1);
  }
}

/* starts[v] = sum of counts below v, by one block: each thread has a run of tokens. The counts
 * become 0 again. */
static __global__ void counts_scan(sorted by, int64_t V) {
  int64_t run = (V + LAUNCH_SCAN_THREADS - 1) / LAUNCH_SCAN_THREADS, v = threadIdx.x * run;
  int64_t end = v + run < V ? v + run : V;
  int32_t sum = 0;
  for (int64_t i = v; i < end; i++) sum += by.counts[i];
  int32_t all, at = block_sum_before(sum, &all);
  for (; v < end; v++) {
    by.starts[v] = at;
    at += by.counts[v];
    by.counts[v] = 0;
  }
  if (threadIdx.x == 0) by.starts[V] = all;
}

static __global__ void rows_gather(
    sorted by, const int32_t *tokens, int64_t R, int64_t v_begin, int64_t V, int64_t padding) {
  for (int64_t r = map_thread(); r < R; r += map_threads()) {
    int64_t v = tokens[r] - v_begin;
    if (v >= 0 && v < V && tokens[r] != padding)
      by.any[by.starts[v] + atomicAdd(&by.counts[v], 1)] = (int32_t)r;
  }
}

/* Threads side by side have rows of one token, of which they read all. */
static __global__ void rows_order(sorted by, const int32_t *tokens, int64_t v_begin, int64_t V) {
  int64_t count = by.starts[V];
  for (int64_t i = map_thread(); i < count; i += map_threads()) {
    int32_t row = by.any[i], v = (int32_t)(tokens[row] - v_begin), place = by.starts[v];
    for (int32_t j = by.starts[v], end = by.starts[v + 1]; j < end; j++) place += by.any[j] < row;
    by.rows[place] = row;
  }
}

/* The tree over units of one column of one token. A unit without the token is a zero: sums start
 * from +0 and so are never -0, and adding +0 to them changes no bit. */
template <typename T>
static __device__ float token_sum(
    const T *dout, const int32_t *row_of, const int32_t *rows, int32_t count, int64_t C, int64_t c,
    int64_t rows_per_unit, tsr_tree_shape shape, int64_t units, int64_t inner) {
  float stack[TSR_TREE_DEPTH_MAX];
  tsr_tree_stack tree = {};
  int32_t next = 0;
  for (int64_t unit = 0; unit < units; unit++) {
    int32_t end = next;
    while (end < count && rows[end] < (unit + 1) * rows_per_unit) end++;
    float sum = 0;
#pragma unroll 4
    for (; next < end; next++)
      sum += number_load(dout + (int64_t)(row_of ? row_of[rows[next]] : rows[next]) * C + c);
    stack[tsr_tree_push(&tree, tsr_tree_nested_merges(shape, units, inner, unit))] = sum;
    for (int low; tsr_tree_merge(&tree, &low);) stack[low] += stack[low + 1];
  }
  return stack[0];
}

/* A block a token. */
template <typename T>
static __global__ void tokens_sum(
    float *dtable, const T *dout, const int32_t *row_of, sorted by, int64_t C,
    int64_t rows_per_unit, tsr_tree_shape tree, int64_t units, int64_t inner) {
  int64_t v = blockIdx.x;
  int32_t start = by.starts[v], count = by.starts[v + 1] - start;
  const int32_t *rows = by.rows + start;
  /* in one unit: the rows in their order */
  if (count && rows[0] / rows_per_unit == rows[count - 1] / rows_per_unit) {
    rows_per_unit *= units;
    units = inner = 1;
  }
  for (int64_t c = threadIdx.x; c < C; c += blockDim.x)
    dtable[v * C + c] =
        count ? token_sum(dout, row_of, rows, count, C, c, rows_per_unit, tree, units, inner) : 0;
}

extern "C" void tsr_cuda_embedding_backward(
    tsr_cuda_stream s, tsr_cuda_type type, float *dtable, const int32_t *tokens, const void *dout,
    const int32_t *row_of, void *scratch, int64_t R, int64_t C, int64_t v_begin, int64_t v_end,
    int64_t padding, tsr_tree_shape tree, int64_t units, int64_t inner) {
  assert(units > 0 && R % units == 0 && units % inner == 0);
  int64_t V = v_end - v_begin;
  sorted by = sorted_parts(scratch, R, V);
  if (V <= 0 || C <= 0) return;
  TSR_LAUNCH(counts_clear, launch_map(V), s, by, V);
  if (R > 0) TSR_LAUNCH(tokens_count, launch_map(R), s, by, tokens, R, v_begin, V, padding);
  TSR_LAUNCH(counts_scan, launch_scan(), s, by, V);
  if (R > 0) {
    TSR_LAUNCH(rows_gather, launch_map(R), s, by, tokens, R, v_begin, V, padding);
    TSR_LAUNCH(rows_order, launch_map(R), s, by, tokens, v_begin, V);
  }
  TSR_BY_TYPE(
      type, T,
      TSR_LAUNCH(
          tokens_sum<T>, launch_tokens(V, C), s, dtable, (const T *)dout, row_of, by, C, R / units,
          tree, units, inner))
}

static __global__ void rows_by_leaves(
    int32_t *by_leaves, int32_t *row_of, const int32_t *tokens, const tsr_cuda_leaves l) {
  int64_t in_leaf = l.rows / l.leaves;
  for (int64_t i = map_thread(); i < l.rows; i += map_threads()) {
    int64_t leaf = i / in_leaf, rest = i % in_leaf, row = 0, step = 1;
    int64_t batch = leaf / l.sequence,
            piece = tsr_sequence_unit(l.zigzag, l.sequence, leaf % l.sequence);
    for (int d = l.ndim - 1; d >= 0; d--) {
      int64_t index = l.batch[d] > 1 ? batch : 0, length = l.size[d] / l.batch[d] / l.positions[d];
      if (l.positions[d] > 1) index = index * l.positions[d] + piece;
      row += (index * length + rest % length) * step;
      rest /= length;
      step *= l.size[d];
    }
    row_of[i] = (int32_t)row;
    by_leaves[i] = tokens[row];
  }
}

extern "C" void tsr_cuda_rows_by_leaves(
    tsr_cuda_stream s, int32_t *by_leaves, int32_t *row_of, const int32_t *tokens,
    const tsr_cuda_leaves *l) {
  assert(l->leaves > 0 && l->rows % l->leaves == 0);
  if (l->rows > 0)
    TSR_LAUNCH(rows_by_leaves, launch_map(l->rows), s, by_leaves, row_of, tokens, *l);
}
