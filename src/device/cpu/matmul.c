// SPDX-License-Identifier: Apache-2.0
/* Matrix products. Sums that the recipe splits are made of units, each by products of
 * fixed shape, added in the tree's order. */
#include "device/cpu/fp8_operands.h"
#include "device/cpu/gemm_rounds.h"
#include "schedule/fuse.h"
#include <assert.h>

/* An input's rows of `cols` elements, from element `first` on. */
static tsr_matrix rows_of(const cpu_call *c, int input, int64_t first, int64_t cols) {
  return cpu_matrix(c, input, first, cols, 1);
}
static tsr_matrix transposed(const cpu_call *c, int input, int64_t first, int64_t cols) {
  return cpu_matrix(c, input, first, 1, cols);
}
static void skip(tsr_matrix *m, int64_t elements) { m->first += elements; }

/* The same, or their codes in FP8. */
static tsr_matrix
operand(const cpu_call *c, int input, int64_t first, int64_t cols, bool is_transposed) {
  if (c->call.task->fp8) {
    int64_t rs = is_transposed ? 1 : cols, cs = is_transposed ? cols : 1;
    return cpu_fp8_matrix(c, cpu_gemm_fp8_at(c), input, first, rs, cs);
  }
  return is_transposed ? transposed(c, input, first, cols) : rows_of(c, input, first, cols);
}

static bool any_half_input(const tsr_task *t, int input) { return (void)t, (void)input, true; }

/* The functions of an op that is made of rounds; `make` is a cpu_make_gemm, and `planned`
 * gives a task's plan. */
#define ROUNDS_OF(name, planned, make)                                                             \
  static int name##_rounds(const tsr_task *t) {                                                    \
    cpu_gemm_plan p = planned(t);                                                                  \
    return cpu_gemm_plan_rounds(&p);                                                               \
  }                                                                                                \
  static int64_t name##_items(const tsr_task *t) {                                                 \
    cpu_gemm_plan p = planned(t);                                                                  \
    return cpu_gemm_plan_strips(&p);                                                               \
  }                                                                                                \
  static int64_t name##_scratch(                                                                   \
      const tsr_kernels *k, const tsr_program *program, const tsr_task *t, int threads) {          \
    (void)program, (void)threads;                                                                  \
    cpu_gemm_plan p = planned(t);                                                                  \
    return cpu_gemm_plan_scratch(k, t, &p);                                                        \
  }                                                                                                \
  static void name##_before(const cpu_call *c, int part, int parts) {                              \
    cpu_gemm_plan p = planned(c->call.task);                                                       \
    cpu_pack_gemm_round(c, make, &p, part, parts);                                                 \
  }                                                                                                \
  static void name##_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {              \
    (void)thread;                                                                                  \
    cpu_gemm_plan p = planned(c->call.task);                                                       \
    cpu_run_gemm_round(c, make, &p, begin, end);                                                   \
  }

/* A thread that is done continues with ranges that others have not begun. */
enum { RANGES = CPU_RANGES_MAX };

/* ---- y (R, N) = x (R, K) w (N, K)^T, K split into units ---- */

static cpu_gemm_plan linear_plan(const tsr_task *t) {
  return cpu_gemm_plan_made(
      t, (cpu_gemm_plan){
             tsr_tensor_rows(&t->outputs[0]), tsr_tensor_last(&t->outputs[0]),
             tsr_tensor_last(&t->inputs[0]) / tsr_reduction_splits(&t->sum, 0), 1,
             tsr_task_leaves(t)});
}

/* Where a leaf of a sum over one dimension begins in `size` of it. */
static int64_t leaf_begin(const cpu_call *c, cpu_gemm_place at, int64_t size) {
  tsr_reduced_rows rows = {0};
  bool there = tsr_reduction_rows(&c->call.task->sum, at.block, at.leaf, 0, &rows);
  assert(there && size % tsr_reduction_splits(&c->call.task->sum, 0) == 0);
  return rows.first / rows.rows * (size / tsr_reduction_splits(&c->call.task->sum, 0));
}

/* Of a fused epilogue (schedule/fuse.h), whose sum has one leaf; NULL: none. */
static const float *linear_bias(const cpu_call *c) {
  const tsr_tensor *bias = tsr_epilogue_of(c->call.program, c->call.task).bias;
  return bias ? tsr_operand_address(&c->call, bias) : NULL;
}

static bool
linear_gemm(const cpu_call *c, const cpu_gemm_plan *p, cpu_gemm_place at, tsr_gemm *ret) {
  int64_t K = tsr_tensor_last(&c->call.task->inputs[0]), begin = leaf_begin(c, at, K);
  ret->a = operand(c, 0, begin, K, false);
  ret->b = operand(c, 1, begin, K, true);
  ret->K = p->K;
  ret->bias = linear_bias(c);
  return true;
}

ROUNDS_OF(many_rows, linear_plan, linear_gemm)

/* Of few rows threads take columns: reading w is all the work. */
enum { FEW_ROWS = 32 };
static bool has_few_rows(const tsr_task *t) { return tsr_tensor_rows(&t->outputs[0]) <= FEW_ROWS; }

/* It reads x in f32; a task whose rows are a part of another one's has no copy in f32. */
static bool has_skinny_gemm(const tsr_task *t) {
  return has_few_rows(t) && tsr_kernel_inputs(t)[0].dtype == TSR_F32 && !t->fp8;
}

static void skinny_gemm_leaf(const cpu_call *c, int64_t leaf, int64_t begin, int64_t end) {
  cpu_gemm_plan p = linear_plan(c->call.task);
  p.by_rows = false;
  int64_t K = tsr_tensor_last(&c->call.task->inputs[0]);
  cpu_gemm_place at = {.leaf = leaf};
  int64_t first = leaf_begin(c, at, K);
  tsr_skinny_gemm few = {p.M, p.K, K, p.N, linear_bias(c), transposed(c, 1, first, K)};
  few.x_bf16 = c->call.task->inputs[0].dtype == TSR_BF16;
  c->k->skinny_gemm(
      &few, cpu_stack_entry(c, 0, tsr_reduction_entries(&c->call.task->sum, leaf)),
      cpu_in(c, 0) + first, begin, end);
  cpu_add_complete(c, &p, at, begin, end);
}

/* A bias is added in f32. */
static bool linear_half_input(const tsr_task *t, int input) {
  return input == 1 || (input == 0 && !has_few_rows(t));
}

static int linear_rounds(const tsr_task *t) { return has_skinny_gemm(t) ? 1 : many_rows_rounds(t); }

static bool linear_strips(const tsr_task *t) { return !has_skinny_gemm(t); }
static bool has_strips(const tsr_task *t) { return (void)t, true; }

static int64_t linear_items(const tsr_task *t) {
  return has_skinny_gemm(t) ? tsr_tensor_last(&t->outputs[0]) : many_rows_items(t);
}

static void linear_before(const cpu_call *c, int part, int parts) {
  if (!has_skinny_gemm(c->call.task)) many_rows_before(c, part, parts);
}

static void linear_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  if (!has_skinny_gemm(c->call.task)) many_rows_run(c, begin, end, thread);
  else
    for (int64_t leaf = 0; leaf < tsr_task_leaves(c->call.task); leaf++)
      skinny_gemm_leaf(c, leaf, begin, end);
}

static bool linear_stores_half(const cpu_call *c) {
  cpu_gemm_plan p = linear_plan(c->call.task);
  return !has_skinny_gemm(c->call.task) && cpu_gemms_store_bf16(c, linear_gemm, &p);
}

const cpu_op cpu_linear = {
    .items = linear_items,
    .scratch = many_rows_scratch,
    .rounds = linear_rounds,
    .strips = linear_strips,
    .before = linear_before,
    .run = linear_run,
    .ranges = RANGES,
    .takes_half_input = linear_half_input,
    .stores_half = linear_stores_half};

/* ---- dx (R, K) = sum over pairs of dy (R, N) w (N, K), N split into units ---- */

static cpu_gemm_plan linear_dx_plan(const tsr_task *t) {
  int64_t most = 0;
  for (int i = 0; i < t->inputs_count; i += 2)
    if (tsr_tensor_last(&t->inputs[i]) > most) most = tsr_tensor_last(&t->inputs[i]);
  return cpu_gemm_plan_made(
      t, (cpu_gemm_plan){
             tsr_tensor_rows(&t->outputs[0]), tsr_tensor_last(&t->outputs[0]),
             most / tsr_reduction_splits(&t->sum, 0), t->inputs_count / 2, tsr_task_leaves(t)});
}

static bool
linear_dx_gemm(const cpu_call *c, const cpu_gemm_plan *p, cpu_gemm_place at, tsr_gemm *ret) {
  int i = 2 * (int)at.gemm;
  int64_t N = tsr_tensor_last(&c->call.task->inputs[i]), begin = leaf_begin(c, at, N);
  ret->K = N / tsr_reduction_splits(&c->call.task->sum, 0);
  ret->a = operand(c, i, begin, N, false);
  ret->b = operand(c, i + 1, begin * p->N, p->N, false);
  return true;
}

ROUNDS_OF(linear_dx, linear_dx_plan, linear_dx_gemm)

static bool linear_dx_stores_half(const cpu_call *c) {
  cpu_gemm_plan p = linear_dx_plan(c->call.task);
  return cpu_gemms_store_bf16(c, linear_dx_gemm, &p);
}

const cpu_op cpu_linear_dx = {
    .items = linear_dx_items,
    .scratch = linear_dx_scratch,
    .rounds = linear_dx_rounds,
    .strips = has_strips,
    .before = linear_dx_before,
    .run = linear_dx_run,
    .ranges = RANGES,
    .takes_half_input = any_half_input,
    .stores_half = linear_dx_stores_half};

/* ---- dw (N, K) = dy (R, N)^T x (R, K), R split into units ---- */

cpu_gemm_plan cpu_linear_dw_plan(const tsr_task *t) {
  int64_t leaves = tsr_task_leaves(t), runs = tsr_reduction_runs(&t->sum);
  return cpu_gemm_plan_made(
      t, (cpu_gemm_plan){
             tsr_tensor_last(&t->inputs[0]), tsr_tensor_last(&t->inputs[1]),
             tsr_tensor_rows(&t->inputs[0]) / (leaves * runs), runs, leaves});
}

bool cpu_linear_dw_gemm(
    const cpu_call *c, const cpu_gemm_plan *p, cpu_gemm_place at, tsr_gemm *ret) {
  tsr_reduced_rows run;
  if (!tsr_reduction_rows(&c->call.task->sum, at.block, at.leaf, at.gemm, &run)) return false;
  ret->K = run.rows;
  ret->a = operand(c, 0, (run.first - p->first) * p->M, p->M, true);
  ret->b = operand(c, 1, (run.first - p->first) * p->N, p->N, false);
  return true;
}

ROUNDS_OF(linear_dw, cpu_linear_dw_plan, cpu_linear_dw_gemm)

const cpu_op cpu_linear_dw = {
    .items = linear_dw_items,
    .scratch = linear_dw_scratch,
    .rounds = linear_dw_rounds,
    .strips = has_strips,
    .before = linear_dw_before,
    .run = linear_dw_run,
    .ranges = RANGES,
    .takes_half_input = any_half_input};

/* ---- c (…, M, N) = A (…, M, K) B (…, K, N), either transposed; K split into units. Items are rows
 * of all matrices; each range packs what it needs of B for itself ---- */

typedef struct {
  int64_t begin, end;
  void *packed;
} range;

static tsr_gemm matmul_gemm(const cpu_call *c, int64_t matrix, int64_t first) {
  const tsr_tensor *a = &c->call.task->inputs[0], *b = &c->call.task->inputs[1],
                   *o = &c->call.task->outputs[0];
  bool ta = cpu_attrs(c)->matmul.transpose_a, tb = cpu_attrs(c)->matmul.transpose_b;
  int n = o->ndim;
  int64_t M = o->shape[n - 2], N = o->shape[n - 1], K = a->shape[ta ? n - 2 : n - 1];
  int64_t a_cols = a->shape[n - 1], b_cols = b->shape[n - 1];
  int64_t in_a = matrix * M * K, in_b = matrix * K * N;
  return (tsr_gemm){
      .M = M - first,
      .N = N,
      .K = K / tsr_reduction_splits(&c->call.task->sum, 0),
      .a = ta ? transposed(c, 0, in_a + first, a_cols)
              : rows_of(c, 0, in_a + first * a_cols, a_cols),
      .b = tb ? transposed(c, 1, in_b, b_cols) : rows_of(c, 1, in_b, b_cols),
      .c_stride = N,
      .by_rows = true};
}

static void
matmul_leaf(const cpu_call *c, void *context, int64_t block, int64_t leaf, float *into) {
  const range *r = context;
  tsr_reduced_rows k;
  bool there = tsr_reduction_rows(&c->call.task->sum, block, leaf, 0, &k);
  assert(there && k.rows == matmul_gemm(c, 0, 0).K);
  const tsr_tensor *o = &c->call.task->outputs[0];
  int64_t M = o->shape[o->ndim - 2], N = tsr_tensor_last(o);
  for (int64_t row = r->begin; row < r->end;) {
    tsr_gemm p = matmul_gemm(c, row / M, row % M);
    if (r->end - row < p.M) p.M = r->end - row;
    skip(&p.a, k.first * p.a.cs);
    skip(&p.b, k.first * p.b.rs);
    p.c = into + row * N;
    c->k->gemm_pack(&p, r->packed, 0, N);
    c->k->gemm(&p, r->packed, 0, p.M);
    row += p.M;
  }
}

static int64_t matmul_bytes(const tsr_kernels *k, const tsr_task *t) {
  const tsr_tensor *a = &t->inputs[0];
  int64_t N = tsr_tensor_last(&t->outputs[0]), M = t->outputs[0].shape[t->outputs[0].ndim - 2];
  /* K is what a row or a column of A has beside M */
  int64_t K = a->shape[a->ndim - 1] * a->shape[a->ndim - 2] / M / tsr_reduction_splits(&t->sum, 0);
  tsr_gemm p = {.M = M, .N = N, .K = K, .by_rows = true};
  return (k->gemm_bytes(&p) + 63) / 64 * 64;
}

static int64_t
matmul_scratch(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, int threads) {
  (void)p;
  return cpu_gemm_stack_bytes(t) + threads * matmul_bytes(k, t);
}

static void matmul_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  int64_t N = tsr_tensor_last(&c->call.task->outputs[0]),
          all = tsr_tensor_elements(&c->call.task->outputs[0]);
  range r = {begin, end, (char *)cpu_gemm_packed_at(c) + thread * matmul_bytes(c->k, c->call.task)};
  cpu_add_leaves(c, 0, cpu_out(c, 0), cpu_scratch(c), all, begin * N, end * N, matmul_leaf, &r);
}

const cpu_op cpu_matmul = {
    .items = cpu_items_rows,
    .scratch = matmul_scratch,
    .run = matmul_run,
    .takes_half_input = any_half_input};
