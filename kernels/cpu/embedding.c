// SPDX-License-Identifier: Apache-2.0
/* Rows of a table by token, and the gradient of the table. */
#include "base/reduction_tree.h"
#include "kernels/cpu/level.h"
#include <assert.h>
#include <string.h>

void LEVEL(embedding)(
    float *out, const int32_t *tokens, const float *table, int64_t C, int64_t v_begin,
    int64_t v_end, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; r++) {
    float *row = out + r * C;
    if (tokens[r] < v_begin || tokens[r] >= v_end) {
      memset(row, 0, (size_t)C * sizeof *row);
      continue;
    }
    const float *from = table + (tokens[r] - v_begin) * C;
#pragma omp simd
    for (int64_t c = 0; c < C; c++) row[c] = from[c] + 0.0f; /* -0 + 0 = +0 */
  }
}

/* Scratch: starts (V+1), the rows sorted by token (R), then each thread's stack of unit sums. */
typedef struct {
  int64_t *starts;
  int32_t *rows;
  float *stack;
} embedding_parts;

static int64_t round_up(int64_t bytes) { return (bytes + 63) / 64 * 64; }

static int64_t starts_bytes(int64_t V) { return round_up((V + 1) * (int64_t)sizeof(int64_t)); }

static int64_t rows_bytes(int64_t R) { return round_up(R * (int64_t)sizeof(int32_t)); }

static int64_t stack_bytes(int64_t C, int depth) {
  return round_up(depth * C * (int64_t)sizeof(float));
}

int64_t LEVEL(embedding_scratch)(
    int64_t R, int64_t v_begin, int64_t v_end, int64_t C, int depth, int threads) {
  return starts_bytes(v_end - v_begin) + rows_bytes(R) + threads * stack_bytes(C, depth);
}

static embedding_parts scratch_parts(void *scratch, int64_t R, int64_t V) {
  char *bytes = scratch;
  return (embedding_parts){
      (int64_t *)bytes, (int32_t *)(bytes + starts_bytes(V)),
      (float *)(bytes + starts_bytes(V) + rows_bytes(R))};
}

static bool is_summed(int64_t token, int64_t v_begin, int64_t v_end, int64_t padding) {
  return token >= v_begin && token < v_end && token != padding;
}

void LEVEL(embedding_sort)(
    void *scratch, const int32_t *tokens, int64_t R, int64_t v_begin, int64_t v_end,
    int64_t padding) {
  int64_t V = v_end - v_begin;
  embedding_parts parts = scratch_parts(scratch, R, V);
  int64_t *starts = parts.starts;
  memset(starts, 0, (size_t)(V + 1) * sizeof *starts);
  for (int64_t r = 0; r < R; r++)
    if (is_summed(tokens[r], v_begin, v_end, padding)) starts[tokens[r] - v_begin]++;
  int64_t total = 0;
  for (int64_t v = 0; v <= V; v++) { /* now starts[v] is where v's rows end */
    total += starts[v];
    starts[v] = total;
  }
  for (int64_t r = R - 1; r >= 0;
       r--) /* filled from the back, each start comes down to its place */
    if (is_summed(tokens[r], v_begin, v_end, padding))
      parts.rows[--starts[tokens[r] - v_begin]] = (int32_t)r;
}

/* `sum` may be `a`. */
static void add_rows(float *sum, const float *a, const float *b, int64_t C) {
#pragma omp simd
  for (int64_t c = 0; c < C; c++) sum[c] = a[c] + b[c];
}

/* The tree over units for one token. A unit without it is a zero that is not written down: sums
 * start from +0 and so are never -0, and adding +0 to them changes no bit. */
static void sum_token(
    float *out, const float *plus, float *stack, const float *dout, const int32_t *row_of,
    const int32_t *rows, int64_t count, int64_t C, int64_t rows_per_unit, tsr_tree_shape shape,
    int64_t units, int64_t inner) {
  bool filled[TSR_TREE_DEPTH_MAX];
  tsr_tree_stack tree = {0};
  int64_t next = 0;
  for (int64_t unit = 0; unit < units; unit++) {
    int at = tsr_tree_push(&tree, tsr_tree_nested_merges(shape, units, inner, unit));
    float *sum = stack + at * C;
    filled[at] = next < count && rows[next] < (unit + 1) * rows_per_unit;
    if (filled[at]) memset(sum, 0, (size_t)C * sizeof *sum);
    for (; next < count && rows[next] < (unit + 1) * rows_per_unit; next++)
      add_rows(sum, sum, dout + (row_of ? row_of[rows[next]] : rows[next]) * C, C);
    for (int low; tsr_tree_merge(&tree, &low);) {
      float *lower = stack + low * C, *upper = lower + C;
      if (filled[low] && filled[low + 1]) add_rows(lower, lower, upper, C);
      else if (filled[low + 1]) memcpy(lower, upper, (size_t)C * sizeof *lower);
      filled[low] |= filled[low + 1];
    }
  }
  assert(tree.entries == 1 && filled[0]);
  if (plus) add_rows(out, plus, stack, C);
  else memcpy(out, stack, (size_t)C * sizeof *out);
}

static void zero_token(float *out, const float *plus, int64_t C) {
  if (!plus) {
    memset(out, 0, (size_t)C * sizeof *out);
    return;
  }
#pragma omp simd
  for (int64_t c = 0; c < C; c++) out[c] = plus[c] + 0.0f; /* -0 + 0 = +0 */
}

void LEVEL(embedding_backward)(
    float *dtable, const float *plus, const float *dout, const int32_t *row_of, void *scratch,
    int thread, int64_t R, int64_t C, int64_t v_begin, int64_t v_end, tsr_tree_shape tree,
    int64_t units, int64_t inner, int64_t begin, int64_t end) {
  assert(units > 0 && R % units == 0 && units % inner == 0);
  embedding_parts parts = scratch_parts(scratch, R, v_end - v_begin);
  int64_t stack_floats =
      stack_bytes(C, tsr_tree_nested_depth(tree, units, inner)) / (int64_t)sizeof(float);
  float *stack = parts.stack + thread * stack_floats;
  for (int64_t v = begin; v < end; v++) {
    int64_t count = parts.starts[v + 1] - parts.starts[v];
    const float *of_v = plus ? plus + v * C : NULL;
    if (count == 0) zero_token(dtable + v * C, of_v, C);
    else
      sum_token(
          dtable + v * C, of_v, stack, dout, row_of, parts.rows + parts.starts[v], count, C,
          R / units, tree, units, inner);
  }
}
