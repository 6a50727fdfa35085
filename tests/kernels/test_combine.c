// SPDX-License-Identifier: Apache-2.0
/* The combination of experts' rows into tokens: its tree against the recursive definition, the sums
 * of blocks of experts against the whole, rounding, and the gradient. */
#include "experts_check.h"

/* ---- reference ---- */

/* To the nearest number of `digits` binary digits whose last one is at least 2^least. */
static float rounded(float x, int digits, int least) {
  int exponent;
  frexp(x, &exponent);
  int last = exponent - digits < least ? least : exponent - digits;
  return (float)ldexp(nearbyint(ldexp(x, -last)), last);
}

static float leaf_value(tsr_leaf_type type, float weight, float x) {
  volatile float product = weight * x; /* in f32 on every compiler */
  if (type == TSR_LEAF_BF16) return rounded(product, 8, -133);
  return type == TSR_LEAF_F16 ? rounded(product, 11, -24) : product;
}

typedef struct {
  const float *values; /* of all experts */
  const bool *present;
} leaves;

/* Leaves [first, first + n): halved while n is even; an odd n is a binary counter's digits, the
 * largest power of two first, and what follows it is merged before. */
static bool tree_sum(const leaves *t, int64_t first, int64_t n, float *ret_sum) {
  if (n == 1) {
    *ret_sum = t->values[first];
    return t->present[first];
  }
  int64_t left = n / 2;
  if (n % 2)
    for (left = 1; left * 2 <= n;) left *= 2;
  float a, b;
  bool has_left = tree_sum(t, first, left, &a);
  bool has_right = tree_sum(t, first + left, n - left, &b);
  *ret_sum = has_left && has_right ? a + b : has_left ? a : b;
  return has_left || has_right;
}

/* ---- one block of experts ---- */

typedef struct {
  int64_t E, k, S, C;
  tsr_leaf_type leaf;
  bool weighted;
  int32_t *experts;   // (S, k)
  float *weights, *x; // (S, k), (S, k, C): the row of each slot
} combine_case;

/* Exponents differ by up to 2 * spread, so that another order of additions gives other bits. */
static float *spread_new(int64_t n, int spread) {
  float *x = input_new(n, 1);
  for (int64_t i = 0; i < n; i++)
    x[i] = ldexpf(x[i], (int)(check_random() % (uint64_t)(2 * spread + 1)) - spread);
  return x;
}

static combine_case
combine_case_new(int64_t E, int64_t k, int64_t S, int64_t C, tsr_leaf_type leaf, bool weighted) {
  int spread = leaf == TSR_LEAF_F16 ? 12 : 20;
  combine_case c = {
      E,
      k,
      S,
      C,
      leaf,
      weighted,
      choices_new(S, E, k),
      input_new(S * k, 1),
      spread_new(S * k * C, spread)};
  c.x[0] = c.x[S * k * C / 2] = -0.0f;
  return c;
}

static void combine_case_free(combine_case *c) { free(c->experts), free(c->weights), free(c->x); }

/* The rows of a plan, filled from the slots. */
static float *rows_of(const combine_case *c, const expert_rows *t) {
  float *rows = check_alloc((size_t)(t->R * c->C) * sizeof *rows);
  for (int64_t i = 0; i < t->R * c->C; i++)
    rows[i] = i / c->C < t->rows ? c->x[t->plan[i / c->C * 2] * c->C + i % c->C] : NAN;
  return rows;
}

static void want_combined(const combine_case *c, const tsr_experts *e, double *want) {
  float values[64];
  bool present[64];
  leaves t = {values, present};
  for (int64_t i = 0; i < c->S * c->C; i++) {
    int64_t s = i / c->C;
    memset(present, 0, sizeof present);
    for (int64_t slot = s * c->k; slot < (s + 1) * c->k; slot++) {
      int32_t expert = c->experts[slot];
      float x = c->x[slot * c->C + i % c->C];
      present[expert] = expert_is_here(e, expert);
      values[expert] = c->weighted ? leaf_value(c->leaf, c->weights[slot], x) : x;
    }
    float sum;
    want[i] = tree_sum(&t, 0, c->E, &sum) ? sum : 0;
  }
}

static void
combine_block(const tsr_kernels *k, const combine_case *c, const tsr_experts *e, output *y) {
  expert_rows t = expert_rows_new(k, e, c->experts, c->S, 2);
  float *rows = rows_of(c, &t);
  RUN(c->S, k->combine_rows(
                e, c->leaf, y->pass[pass], rows, c->weighted ? c->weights : NULL, c->experts,
                t.row_of, c->C, begin, end));
  expert_rows_free(&t);
  free(rows);
}

/* ---- blocks against the whole ---- */

/* The sums of equal blocks of experts, added by the stack machine over blocks. */
static void add_blocks(const tsr_kernels *k, const combine_case *c, int64_t count, output *sum) {
  int64_t n = c->S * c->C, blocks = c->E / count;
  double *want = reference_new(n);
  output stack[TSR_TREE_DEPTH_MAX];
  tsr_tree_stack tree = {0};
  for (int64_t block = 0; block < blocks; block++) {
    tsr_experts e = {c->E, c->k, block * count, count};
    int at = tsr_tree_push(&tree, tsr_tree_merges(blocks, block));
    output y = stack[at] = output_new(n);
    combine_block(k, c, &e, &stack[at]);
    want_combined(c, &e, want);
    CHECK_OUTPUT(y, want, 0, 0);
    for (int low; tsr_tree_merge(&tree, &low);) {
      for (int64_t i = 0; i < n; i++) stack[low].pass[0][i] += stack[low + 1].pass[0][i];
      output_free(&stack[low + 1]);
    }
  }
  CHECK_INT(tree.entries, 1);
  *sum = stack[0];
  free(want);
}

static void check_combine(const tsr_kernels *k, const combine_case *c) {
  int64_t n = c->S * c->C;
  output whole = output_new(n), sum;
  combine_block(k, c, &(tsr_experts){c->E, c->k, 0, c->E}, &whole);
  for (int64_t i = 0; i < n; i++)
    if (whole.pass[0][i] == 0) CHECK(!signbit(whole.pass[0][i]));
  for (int64_t count = 1; count <= c->E; count++) {
    if (!tsr_tree_is_subtree(c->E, count)) continue;
    add_blocks(k, c, count, &sum);
    CHECK(!memcmp(sum.pass[0], whole.pass[0], (size_t)n * sizeof(float)));
    output_free(&sum);
  }
  output_free(&whole);
}

static void test_tree(const tsr_kernels *k) {
  static const int64_t experts[] = {1, 2, 6, 7, 8, 11, 12, 60, 64}, columns[] = {1, 7, 64, 100};
  for (int i = 0; i < 9; i++)
    for (int64_t chosen = 1; chosen <= 8 && chosen <= experts[i]; chosen++)
      for (int kind = 0; kind < 4; kind++) { /* the last: without weights */
        int64_t C = columns[(i + chosen + kind) % 4];
        combine_case c = combine_case_new(
            experts[i], chosen, C > 50 ? 5 : 31, C, (tsr_leaf_type)(kind % 3), kind < 3);
        check_combine(k, &c);
        combine_case_free(&c);
      }
}

/* All experts, more columns than are summed at once. */
static void test_all(const tsr_kernels *k) {
  static const int64_t experts[] = {12, 60, 64};
  for (int i = 0; i < 3; i++) {
    combine_case c = combine_case_new(experts[i], experts[i], 2, 600, TSR_LEAF_F32, true);
    check_combine(k, &c);
    combine_case_free(&c);
  }
}

/* ---- gradient ---- */

static float want_dot(const float *x, const float *y, int64_t n) {
  float lanes[16] = {0};
  for (int64_t i = 0; i < n; i++) {
    volatile float product = x[i] * y[i];
    lanes[i % 16] += product;
  }
  bool all[16];
  memset(all, true, sizeof all);
  float sum;
  tree_sum(&(leaves){lanes, all}, 0, 16, &sum);
  return sum;
}

static void backward_check(const tsr_kernels *k, const combine_case *c, const tsr_experts *e) {
  int64_t C = c->C, slots = c->S * c->k;
  expert_rows t = expert_rows_new(k, e, c->experts, c->S, 3);
  float *rows = rows_of(c, &t), *dy = input_new(c->S * C, 1), *zeros = input_new(t.R * C, 0);
  double *want_drows = reference_new(t.R * C), *want_dweights = reference_new(slots);
  for (int64_t slot = 0; slot < slots; slot++) {
    if (!expert_is_here(e, c->experts[slot])) continue;
    const float *d = dy + slot / c->k * C;
    want_dweights[slot] = want_dot(d, c->x + slot * C, C);
    for (int64_t i = 0; i < C; i++) {
      volatile float product = c->weights[slot] * d[i];
      want_drows[t.row_of[slot] * C + i] = product;
    }
  }
  output drows = output_from(zeros, t.R * C), dweights = output_new(slots);
  RUN(c->S,
      k->combine_rows_backward(
          e, drows.pass[pass], dweights.pass[pass], dy, rows, c->weights, t.row_of, C, begin, end));
  CHECK_OUTPUT(drows, want_drows, 0, 0);
  CHECK_OUTPUT(dweights, want_dweights, 0, 0);
  output_free(&drows), output_free(&dweights), expert_rows_free(&t);
  free(rows), free(dy), free(zeros), free(want_drows), free(want_dweights);
}

static void test_backward(const tsr_kernels *k) {
  static const int64_t columns[] = {1, 7, 16, 64, 100, 257};
  for (int i = 0; i < 6; i++)
    for (int64_t chosen = 1; chosen <= 4; chosen++) {
      combine_case c = combine_case_new(12, chosen, 19, columns[i], TSR_LEAF_F32, true);
      backward_check(k, &c, &(tsr_experts){12, chosen, 0, 12});
      backward_check(k, &c, &(tsr_experts){12, chosen, 6, 3});
      combine_case_free(&c);
    }
}

/* The reference is the tree that base/reduction_tree.h's stack machine walks. */
static void test_reference(void) {
  for (int64_t n = 1; n <= 64; n++) {
    float *x = spread_new(n, 20), sum, stack[TSR_TREE_DEPTH_MAX];
    bool all[64];
    memset(all, true, sizeof all);
    tsr_tree_stack tree = {0};
    for (int64_t i = 0; i < n; i++) {
      stack[tsr_tree_push(&tree, tsr_tree_merges(n, i))] = x[i];
      for (int low; tsr_tree_merge(&tree, &low);) stack[low] += stack[low + 1];
    }
    tree_sum(&(leaves){x, all}, 0, n, &sum);
    CHECK(sum == stack[0]);
    free(x);
  }
}

int main(void) {
  test_reference();
  each_level(test_tree);
  each_level(test_all);
  each_level(test_backward);
  return check_done("kernels.combine");
}
