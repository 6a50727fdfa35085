// SPDX-License-Identifier: Apache-2.0
/* Matrix products. Sums that the recipe splits are made of units, each by products of
 * fixed shape, added in the tree's order. */
#include "device/cpu/fp8_operands.h"
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

static int64_t stack_bytes(const tsr_task *t) {
  return (tsr_task_stack_bytes(t, tsr_task_block_elements(t)) + 63) / 64 * 64;
}
/* Behind the stack of sums, in front of what is packed. */
static char *fp8_at(const cpu_call *c) {
  return (char *)cpu_scratch(c) + stack_bytes(c->call.task);
}

/* The same, or their codes in FP8. In rows the GEMM sums over columns for A, over rows for B;
 * transposed, the other way round. */
static tsr_matrix
operand(const cpu_call *c, int input, int64_t first, int64_t cols, bool turns, bool is_a) {
  if (c->call.task->fp8) {
    int64_t rs = turns ? 1 : cols, cs = turns ? cols : 1;
    return cpu_fp8_matrix(c, fp8_at(c), input, first, rs, cs, turns != is_a);
  }
  return turns ? transposed(c, input, first, cols) : rows_of(c, input, first, cols);
}

static bool any_half_input(const tsr_task *t, int input) { return (void)t, (void)input, true; }

/* ---- products in rounds. Each round packs a piece of one operand for all, and then every range
 * multiplies its strips of the other one by it. A sum that the recipe splits is made of units, and
 * each of those of one product or several ---- */

/* What a task's products have in common: for each of `leaves` (tsr_reduction, all blocks'), c (M,
 * N) of `each` products over up to K. */
typedef struct {
  int64_t M, N, K, each, leaves;
  bool by_rows, scaled; /* scaled: of codes in FP8, which a first round makes */
  int64_t depth;        /* of a round: so much of K that what is packed stays in the last cache */
} plan;

enum { ROUND_BYTES = 16 << 20 };

static int64_t pieces_of(const plan *p) { return (p->K + p->depth - 1) / p->depth; }

/* The smaller operand is packed for all. */
static plan plan_made(const tsr_task *t, plan p) {
  p.scaled = t->fp8 != NULL;
  p.by_rows = p.N <= p.M;
  int64_t line = (p.by_rows ? p.N : p.M) * 4, depth = ROUND_BYTES / line;
  depth = depth / TSR_GEMM_DEPTH * TSR_GEMM_DEPTH;
  if (depth < TSR_GEMM_DEPTH) depth = TSR_GEMM_DEPTH;
  p.depth = depth < p.K ? depth : p.K;
  return p;
}

/* Both operands are split into strips, which are what kernels take whole. */
static int64_t strip_of(bool rows) { return rows ? TSR_GEMM_ROWS : TSR_GEMM_COLUMNS; }
static int64_t strips_in(int64_t count, bool rows) {
  return (count + strip_of(rows) - 1) / strip_of(rows);
}
static int64_t strips_end(int64_t strip, int64_t count, bool rows) {
  return strip * strip_of(rows) < count ? strip * strip_of(rows) : count;
}

static int64_t strips_of(const plan *p) { return strips_in(p->by_rows ? p->M : p->N, p->by_rows); }

static int64_t plan_scratch(const tsr_kernels *k, const tsr_task *t, const plan *p) {
  tsr_gemm whole = {.M = p->M, .N = p->N, .K = p->depth, .by_rows = p->by_rows};
  whole.scaled = p->scaled;
  return stack_bytes(t) + cpu_fp8_bytes(t) + k->gemm_bytes(&whole);
}

static int rounds_of(const plan *p) {
  return (int)(p->leaves * p->each * pieces_of(p)) + p->scaled;
}
/* Whether this round quantises, and multiplies nothing yet. */
static bool quantizes(const cpu_call *c, const plan *p) { return p->scaled && !c->round; }

/* Where a round stands. */
typedef struct {
  int64_t block, leaf;
  int64_t gemm, piece; /* the product's number in its leaf, the piece's in the product */
} place;

static place place_of(const cpu_call *c, const plan *p) {
  int round = c->round - p->scaled;
  int64_t pieces = pieces_of(p), in_leaf = p->each * pieces,
          leaves = tsr_reduction_leaves(&c->call.task->sum), leaf = round / in_leaf;
  return (place){leaf / leaves, leaf % leaves, round % in_leaf / pieces, round % pieces};
}

/* Entry i of the stack of a block's sums; entry 0 is the result. */
static float *entry(const cpu_call *c, int64_t block, int i) {
  int64_t elements = tsr_task_block_elements(c->call.task);
  float *stack = cpu_scratch(c);
  return i ? stack + (i - 1) * elements : cpu_out(c, 0) + block * elements;
}

static void *packed_at(const cpu_call *c) { return fp8_at(c) + cpu_fp8_bytes(c->call.task); }

/* The product of a place, whole in K; false when there is none (runs of a leaf, pairs). */
typedef bool make_gemm(const cpu_call *c, const plan *p, place at, tsr_gemm *ret_gemm);

/* Takes the round's piece out of the whole. */
static bool split_piece(const plan *p, place at, tsr_gemm *gemm) {
  int64_t k = at.piece * p->depth, left = gemm->K - k;
  if (left <= 0) return false;
  skip(&gemm->a, k * gemm->a.cs);
  skip(&gemm->b, k * gemm->b.rs);
  if (gemm->scaled) {
    gemm->a.scales.data += k / TSR_FP8_BLOCK * gemm->a.scales.k_stride;
    gemm->b.scales.data += k / TSR_FP8_BLOCK * gemm->b.scales.k_stride;
  }
  gemm->K = left < p->depth ? left : p->depth;
  gemm->adds = at.gemm || at.piece;
  if (gemm->K < left) gemm->bias = NULL; /* a later piece makes the sum complete */
  return true;
}

static bool round_gemm(const cpu_call *c, make_gemm *make, const plan *p, tsr_gemm *ret_gemm) {
  place at = place_of(c, p);
  *ret_gemm = (tsr_gemm){.M = p->M, .N = p->N, .c_stride = p->N, .by_rows = p->by_rows};
  ret_gemm->scaled = p->scaled;
  ret_gemm->c = entry(c, at.block, tsr_reduction_entries(&c->call.task->sum, at.leaf));
  return make(c, p, at, ret_gemm) && split_piece(p, at, ret_gemm);
}

static void pack_round(const cpu_call *c, make_gemm *make, const plan *p, int part, int parts) {
  tsr_gemm gemm;
  if (quantizes(c, p)) cpu_fp8_quantize(c, fp8_at(c), part, parts);
  if (quantizes(c, p) || !round_gemm(c, make, p, &gemm)) return;
  bool rows = !p->by_rows;
  int64_t all = rows ? p->M : p->N, strips = strips_in(all, rows);
  int64_t begin = strips * part / parts, end = strips * (part + 1) / parts;
  if (begin == end) return;
  c->k->gemm_pack(&gemm, packed_at(c), strips_end(begin, all, rows), strips_end(end, all, rows));
}

/* Rows, or columns, [begin, end) of c. */
static void
add_entries(const cpu_call *c, const plan *p, int64_t block, int low, int64_t begin, int64_t end) {
  float *to = entry(c, block, low), *from = entry(c, block, low + 1);
  if (p->by_rows) {
    c->k->add(to, to, from, begin * p->N, end * p->N);
    return;
  }
  for (int64_t row = 0; row < p->M; row++)
    c->k->add(to, to, from, row * p->N + begin, row * p->N + end);
}

/* After the last round of a leaf: adds what the tree has complete. */
static void add_complete(const cpu_call *c, const plan *p, place at, int64_t begin, int64_t end) {
  const tsr_reduction *sum = &c->call.task->sum;
  tsr_tree_stack tree = {.entries = tsr_reduction_entries(sum, at.leaf)};
  tsr_tree_push(&tree, tsr_reduction_merges(sum, at.leaf));
  for (int low; tsr_tree_merge(&tree, &low);) add_entries(c, p, at.block, low, begin, end);
}

static void
run_round(const cpu_call *c, make_gemm *make, const plan *p, int64_t begin, int64_t end) {
  tsr_gemm gemm;
  if (quantizes(c, p)) return;
  int64_t all = p->by_rows ? p->M : p->N, from = strips_end(begin, all, p->by_rows),
          to = strips_end(end, all, p->by_rows);
  if (round_gemm(c, make, p, &gemm)) c->k->gemm(&gemm, packed_at(c), from, to);
  place at = place_of(c, p);
  if (at.gemm == p->each - 1 && at.piece == pieces_of(p) - 1) add_complete(c, p, at, from, to);
}

/* The functions of an op that is made of rounds; `make` is a make_product, and `planned`
 * gives a task's plan. */
#define ROUNDS_OF(name, planned, make)                                                             \
  static int name##_rounds(const tsr_task *t) {                                                    \
    plan p = planned(t);                                                                           \
    return rounds_of(&p);                                                                          \
  }                                                                                                \
  static int64_t name##_items(const tsr_task *t) {                                                 \
    plan p = planned(t);                                                                           \
    return strips_of(&p);                                                                          \
  }                                                                                                \
  static int64_t name##_scratch(                                                                   \
      const tsr_kernels *k, const tsr_program *program, const tsr_task *t, int threads) {          \
    (void)program, (void)threads;                                                                  \
    plan p = planned(t);                                                                           \
    return plan_scratch(k, t, &p);                                                                 \
  }                                                                                                \
  static void name##_before(const cpu_call *c, int part, int parts) {                              \
    plan p = planned(c->call.task);                                                                \
    pack_round(c, make, &p, part, parts);                                                          \
  }                                                                                                \
  static void name##_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {              \
    (void)thread;                                                                                  \
    plan p = planned(c->call.task);                                                                \
    run_round(c, make, &p, begin, end);                                                            \
  }

/* A thread that is done continues with ranges that others have not begun. */
enum { RANGES = CPU_RANGES_MAX };

/* ---- y (R, N) = x (R, K) w (N, K)^T, K split into units ---- */

static plan linear_plan(const tsr_task *t) {
  return plan_made(
      t, (plan){
             tsr_tensor_rows(&t->outputs[0]), tsr_tensor_last(&t->outputs[0]),
             tsr_tensor_last(&t->inputs[0]) / tsr_reduction_splits(&t->sum, 0), 1,
             tsr_task_leaves(t)});
}

/* Where a leaf of a sum over one dimension begins in `size` of it. */
static int64_t leaf_begin(const cpu_call *c, place at, int64_t size) {
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

static bool linear_gemm(const cpu_call *c, const plan *p, place at, tsr_gemm *ret) {
  int64_t K = tsr_tensor_last(&c->call.task->inputs[0]), begin = leaf_begin(c, at, K);
  ret->a = operand(c, 0, begin, K, false, true);
  ret->b = operand(c, 1, begin, K, true, false);
  ret->K = p->K;
  ret->bias = linear_bias(c);
  return true;
}

ROUNDS_OF(many_rows, linear_plan, linear_gemm)

/* Of few rows threads take columns: reading w is all the work. */
enum { FEW_ROWS = 32 };
static bool has_skinny_gemm(const tsr_task *t) {
  return tsr_tensor_rows(&t->outputs[0]) <= FEW_ROWS && !t->fp8;
}

static void skinny_gemm_leaf(const cpu_call *c, int64_t leaf, int64_t begin, int64_t end) {
  plan p = linear_plan(c->call.task);
  p.by_rows = false;
  int64_t K = tsr_tensor_last(&c->call.task->inputs[0]);
  place at = {.leaf = leaf};
  int64_t first = leaf_begin(c, at, K);
  tsr_skinny_gemm few = {p.M, p.K, K, p.N, linear_bias(c), transposed(c, 1, first, K)};
  c->k->skinny_gemm(
      &few, entry(c, 0, tsr_reduction_entries(&c->call.task->sum, leaf)), cpu_in(c, 0) + first,
      begin, end);
  add_complete(c, &p, at, begin, end);
}

static bool linear_half_input(const tsr_task *t, int input) {
  return input == 1 || !has_skinny_gemm(t);
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

const cpu_op cpu_linear = {
    .items = linear_items,
    .scratch = many_rows_scratch,
    .rounds = linear_rounds,
    .strips = linear_strips,
    .before = linear_before,
    .run = linear_run,
    .ranges = RANGES,
    .takes_half_input = linear_half_input};

/* ---- dx (R, K) = sum over pairs of dy (R, N) w (N, K), N split into units ---- */

static plan linear_dx_plan(const tsr_task *t) {
  int64_t most = 0;
  for (int i = 0; i < t->inputs_count; i += 2)
    if (tsr_tensor_last(&t->inputs[i]) > most) most = tsr_tensor_last(&t->inputs[i]);
  return plan_made(
      t, (plan){
             tsr_tensor_rows(&t->outputs[0]), tsr_tensor_last(&t->outputs[0]),
             most / tsr_reduction_splits(&t->sum, 0), t->inputs_count / 2, tsr_task_leaves(t)});
}

static bool linear_dx_gemm(const cpu_call *c, const plan *p, place at, tsr_gemm *ret) {
  int i = 2 * (int)at.gemm;
  int64_t N = tsr_tensor_last(&c->call.task->inputs[i]), begin = leaf_begin(c, at, N);
  ret->K = N / tsr_reduction_splits(&c->call.task->sum, 0);
  ret->a = operand(c, i, begin, N, false, true);
  ret->b = operand(c, i + 1, begin * p->N, p->N, false, false);
  return true;
}

ROUNDS_OF(linear_dx, linear_dx_plan, linear_dx_gemm)

const cpu_op cpu_linear_dx = {
    .items = linear_dx_items,
    .scratch = linear_dx_scratch,
    .rounds = linear_dx_rounds,
    .strips = has_strips,
    .before = linear_dx_before,
    .run = linear_dx_run,
    .ranges = RANGES,
    .takes_half_input = any_half_input};

/* ---- dw (N, K) = dy (R, N)^T x (R, K), R split into units ---- */

static plan linear_dw_plan(const tsr_task *t) {
  int64_t leaves = tsr_task_leaves(t), runs = tsr_reduction_runs(&t->sum);
  return plan_made(
      t, (plan){
             tsr_tensor_last(&t->inputs[0]), tsr_tensor_last(&t->inputs[1]),
             tsr_tensor_rows(&t->inputs[0]) / (leaves * runs), runs, leaves});
}

static bool linear_dw_gemm(const cpu_call *c, const plan *p, place at, tsr_gemm *ret) {
  tsr_reduced_rows run;
  if (!tsr_reduction_rows(&c->call.task->sum, at.block, at.leaf, at.gemm, &run)) return false;
  ret->K = run.rows;
  ret->a = operand(c, 0, run.first * p->M, p->M, true, true);
  ret->b = operand(c, 1, run.first * p->N, p->N, false, false);
  return true;
}

ROUNDS_OF(linear_dw, linear_dw_plan, linear_dw_gemm)

const cpu_op cpu_linear_dw = {
    .items = linear_dw_items,
    .scratch = linear_dw_scratch,
    .rounds = linear_dw_rounds,
    .strips = has_strips,
    .before = linear_dw_before,
    .run = linear_dw_run,
    .ranges = RANGES,
    .takes_half_input = any_half_input};

/* ---- c (…, M, N) = A (…, M, K) B (…, K, N), either turned; K split into units. Items are rows of
 * all matrices; each range packs what it needs of B for itself ---- */

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
  return stack_bytes(t) + threads * matmul_bytes(k, t);
}

static void matmul_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  int64_t N = tsr_tensor_last(&c->call.task->outputs[0]),
          all = tsr_tensor_elements(&c->call.task->outputs[0]);
  range r = {begin, end, (char *)packed_at(c) + thread * matmul_bytes(c->k, c->call.task)};
  cpu_add_leaves(c, 0, cpu_out(c, 0), cpu_scratch(c), all, begin * N, end * N, matmul_leaf, &r);
}

const cpu_op cpu_matmul = {
    .items = cpu_items_rows,
    .scratch = matmul_scratch,
    .run = matmul_run,
    .takes_half_input = any_half_input};
