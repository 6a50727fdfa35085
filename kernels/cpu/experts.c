// SPDX-License-Identifier: Apache-2.0
/* The rows of a mixture of experts: the plan that sorts them by expert, the permutation of tokens
 * into rows and the combination of rows into tokens. */
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/fp16.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/level.h"
#include <assert.h>
#include <math.h>

/* ---- plan ---- */

static bool is_here(const tsr_experts *e, int32_t expert) {
  return expert >= e->first && expert < e->first + e->count;
}

/* Slots by (expert, token): a counting sort that reads slots in ascending order. ends (count):
 * where the slots of each expert end. Returns how many there are. */
static int64_t sort_slots(
    const tsr_experts *e, int32_t *sorted, int64_t *ends, const int32_t *experts, int64_t slots) {
  int64_t rows = 0;
  memset(ends, 0, (size_t)e->count * sizeof *ends);
  for (int64_t slot = 0; slot < slots; slot++)
    if (is_here(e, experts[slot])) ends[experts[slot] - e->first]++;
  for (int64_t i = 0; i < e->count; i++) { /* now ends[i] is where the slots of i begin */
    int64_t count = ends[i];
    ends[i] = rows;
    rows += count;
  }
  for (int64_t slot = 0; slot < slots; slot++)
    if (is_here(e, experts[slot])) sorted[ends[experts[slot] - e->first]++] = (int32_t)slot;
  return rows;
}

/* Whether slot a is kept rather than b. */
static bool is_kept_before(const float *priority, int32_t a, int32_t b) {
  if (!priority) return a < b;
  float x = priority[a] > -INFINITY ? priority[a] : -INFINITY,
        y = priority[b] > -INFINITY ? priority[b] : -INFINITY;
  return x > y || (x == y && a < b);
}

/* The `slots`-th of the candidates, which are put in another order (Hoare's selection). */
static int32_t
select_last(int32_t *candidates, int64_t count, int64_t slots, const float *priority) {
  int64_t low = 0, high = count - 1, wanted = slots - 1;
  while (low < high) {
    int32_t pivot = candidates[(low + high) / 2];
    int64_t i = low, j = high;
    while (i <= j) {
      while (is_kept_before(priority, candidates[i], pivot)) i++;
      while (is_kept_before(priority, pivot, candidates[j])) j--;
      if (i > j) break;
      int32_t swapped = candidates[i];
      candidates[i++] = candidates[j];
      candidates[j--] = swapped;
    }
    if (wanted <= j) high = j;
    else if (wanted >= i) low = i;
    else return candidates[wanted];
  }
  return candidates[wanted];
}

/* Takes the slots of one expert and batch unit that have a row, in their order; how many. */
static int64_t keep_slots(
    int32_t *kept, const int32_t *unit, int64_t count, int64_t slots, const float *priority,
    int32_t *candidates) {
  int64_t rows = 0;
  if (count <= slots || !priority) {
    rows = count < slots ? count : slots;
    memmove(kept, unit, (size_t)rows * sizeof *kept);
    return rows;
  }
  memcpy(candidates, unit, (size_t)count * sizeof *unit);
  int32_t last = select_last(candidates, count, slots, priority);
  for (int64_t i = 0; i < count; i++)
    if (!is_kept_before(priority, last, unit[i])) kept[rows++] = unit[i];
  return rows;
}

/* Of all experts here, one after the other; ends are then those of what is kept. */
static int64_t drop_slots(
    const tsr_experts *e, const tsr_capacity *c, int32_t *sorted, int64_t *ends,
    const float *priority, int32_t *candidates) {
  int64_t rows = 0, begin = 0, each = c->unit_tokens * e->k;
  for (int64_t i = 0; i < e->count; i++) {
    int64_t end = ends[i];
    for (int64_t stop; begin < end; begin = stop) {
      int64_t unit = sorted[begin] / each;
      for (stop = begin; stop < end && sorted[stop] / each == unit;) stop++;
      rows +=
          keep_slots(sorted + rows, sorted + begin, stop - begin, c->slots, priority, candidates);
    }
    ends[i] = rows;
  }
  return rows;
}

int64_t
LEVEL(expert_plan_scratch)(int64_t count, int64_t slots, int64_t k, const tsr_capacity *capacity) {
  int64_t of_unit = capacity->slots ? capacity->unit_tokens * k : 0;
  return count * (int64_t)sizeof(int64_t) + (slots + of_unit) * (int64_t)sizeof(int32_t);
}

int64_t LEVEL(expert_plan)(
    const tsr_experts *e, const tsr_capacity *capacity, int32_t *plan, const int32_t *experts,
    const float *priority, int64_t S, int64_t R, void *scratch) {
  int64_t *ends = scratch, slots = S * e->k, row = 0;
  int32_t *sorted = (int32_t *)(void *)(ends + e->count), *candidates = sorted + slots;
  int64_t rows = sort_slots(e, sorted, ends, experts, slots);
  if (capacity->slots) rows = drop_slots(e, capacity, sorted, ends, priority, candidates);
  assert(rows <= R && R <= INT32_MAX && slots <= INT32_MAX);
  for (int64_t i = 0; i < e->count; i++)
    for (; row < ends[i]; row++) {
      plan[2 * row] = sorted[row];
      plan[2 * row + 1] = (int32_t)(e->first + i);
    }
  for (int64_t i = rows * 2; i < R * 2; i++) plan[i] = -1;
  return rows;
}

void LEVEL(expert_row_of)(int32_t *row_of, const int32_t *plan, int64_t slots, int64_t R) {
  for (int64_t slot = 0; slot < slots; slot++) row_of[slot] = -1;
  for (int64_t r = 0; r < R && plan[r * 2] >= 0; r++) row_of[plan[r * 2]] = (int32_t)r;
}

void LEVEL(permute_rows)(
    float *rows, const float *x, const int32_t *plan, int64_t k, int64_t C, int64_t begin,
    int64_t end) {
  size_t bytes = (size_t)C * sizeof *rows;
  for (int64_t r = begin; r < end; r++)
    if (plan[r * 2] >= 0) memcpy(rows + r * C, x + plan[r * 2] / k * C, bytes);
    else memset(rows + r * C, 0, bytes);
}

/* ---- combine ---- */

/* Columns whose partial sums are kept at once, and how many sums wait at most. */
enum { COLUMNS = 256, DEPTH = 32 };

/* Where a leaf lies in the tree of odd * 2^p leaves: its run of `odd` and its place in it. */
typedef struct {
  uint32_t run, place;
} leaf_position;

static inline leaf_position position_of(int32_t expert, uint32_t odd) {
  return (leaf_position){(uint32_t)expert / odd, (uint32_t)expert % odd};
}

static inline int bit_length(uint32_t x) { return x ? 32 - __builtin_clz(x) : 0; }

/* The height of the lowest node above both of two leaves, a before b: a number that grows from node
 * to node on the way up from any leaf. The tree halves the runs, so of leaves in different runs the
 * highest bit in which the runs differ gives the node. Inside a run the binary digits of `odd` are
 * blocks, each aligned to its size, and each is merged with all that follows it. Places in the same
 * block differ highest in a bit below the block's size. Of places in different blocks the first
 * lacks the bit of its own block's size, the second has it, and the bits above are equal. So the
 * highest bit in which the places differ gives the node in both cases. */
static inline int common_height(leaf_position a, leaf_position b) {
  return a.run != b.run ? 32 + bit_length(a.run ^ b.run) : bit_length(a.place ^ b.place);
}

typedef struct {
  tsr_leaf_type type;
  int64_t k, C;
  uint32_t odd;
  const float *rows, *weights;
  const int32_t *experts, *row_of;
} combination;

static inline void
put_leaf(float *out, const combination *c, int64_t slot, int64_t column, int64_t n) {
  const float *x = c->rows + c->row_of[slot] * c->C + column;
  if (!c->weights) {
    memcpy(out, x, (size_t)n * sizeof *out);
    return;
  }
  float weight = c->weights[slot];
  if (c->type == TSR_LEAF_BF16) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) out[i] = bf16_value(bf16_nearest(weight * x[i]));
    return;
  }
#pragma omp simd
  for (int64_t i = 0; i < n; i++) out[i] = weight * x[i];
  if (c->type == TSR_LEAF_F16) fp16_round(out, n);
}

static inline void add_into(float *sum, const float *x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

/* y (n) of some columns of a token. A stack of partial sums as in base/reduction_tree.h, of which
 * only present leaves are pushed: when a leaf comes, all nodes below the lowest one that it shares
 * with the leaf before are complete, and are merged. */
static void
combine_columns(const combination *c, float *y, int64_t token, int64_t column, int64_t n) {
  float stack[DEPTH][COLUMNS];
  int heights[DEPTH]; /* of the node where entries i and i + 1 meet */
  int entries = 0;
  leaf_position last = {0, 0};
  for (int64_t slot = token * c->k; slot < (token + 1) * c->k; slot++) {
    if (c->row_of[slot] < 0) continue;
    leaf_position here = position_of(c->experts[slot], c->odd);
    if (entries > 0) {
      int height = common_height(last, here);
      for (; entries > 1 && heights[entries - 2] < height; entries--)
        add_into(stack[entries - 2], stack[entries - 1], n);
      heights[entries - 1] = height;
    }
    put_leaf(stack[entries++], c, slot, column, n);
    last = here;
  }
  for (; entries > 1; entries--) add_into(stack[entries - 2], stack[entries - 1], n);
  if (entries == 0) memset(y, 0, (size_t)n * sizeof *y);
#pragma omp simd
  for (int64_t i = 0; i < n * entries; i++) y[i] = stack[0][i] + 0.0f; /* -0 + 0 = +0 */
}

void LEVEL(combine_rows)(
    const tsr_experts *e, tsr_leaf_type leaf, float *y, const float *rows, const float *weights,
    const int32_t *experts, const int32_t *row_of, int64_t C, int64_t begin, int64_t end) {
  assert(tsr_tree_is_subtree(e->E, e->count) && tsr_tree_depth(e->E) <= DEPTH);
  combination c = {leaf, e->k, C, (uint32_t)tsr_tree_odd(e->E), rows, weights, experts, row_of};
  for (int64_t s = begin; s < end; s++)
    for (int64_t column = 0; column < C; column += COLUMNS) {
      int64_t n = C - column < COLUMNS ? C - column : COLUMNS;
      combine_columns(&c, y + s * C + column, s, column, n);
    }
}

/* ---- the gradient of the combination ---- */

enum { DOT_LANES = 16, DOT_VECTORS = DOT_LANES / WIDTH };

static inline void store(float *out, vector x) { *(vector_unaligned *)out = x; }

/* drow = weight dy; returns dy . row. */
static float row_backward(float *drow, const float *dy, const float *row, float weight, int64_t C) {
  vector sums[DOT_VECTORS] = {{0}};
  int64_t c = 0;
  for (; c + DOT_LANES <= C; c += DOT_LANES)
    for (int v = 0; v < DOT_VECTORS; v++) {
      vector d = lanes_load(dy + c, v);
      store(drow + c + v * WIDTH, weight * d);
      sums[v] += d * lanes_load(row + c, v);
    }
  float t[DOT_LANES];
  memcpy(t, sums, sizeof t);
  for (int lane = 0; c < C; c++, lane++) {
    drow[c] = weight * dy[c];
    t[lane] += dy[c] * row[c];
  }
  for (int step = 1; step < DOT_LANES; step *= 2)
    for (int lane = 0; lane < DOT_LANES; lane += 2 * step) t[lane] += t[lane + step];
  return t[0];
}

void LEVEL(combine_rows_backward)(
    const tsr_experts *e, float *drows, float *dweights, const float *dy, const float *rows,
    const float *weights, const int32_t *row_of, int64_t C, int64_t begin, int64_t end) {
  for (int64_t slot = begin * e->k; slot < end * e->k; slot++) {
    int64_t row = row_of[slot];
    const float *d = dy + slot / e->k * C;
    dweights[slot] = 0;
    if (row >= 0)
      dweights[slot] = row_backward(drows + row * C, d, rows + row * C, weights[slot], C);
  }
}
