/* Matrix products and lookups. cuBLASLt's bits depend on a call's shape, so rows and columns that
 * an axis may split are computed in calls as large as the recipe's units, and sums that an axis may
 * split are made of one call a unit, added in the tree's order. Without units, which is a mesh's
 * default, a product is one call. */
#include "device/cuda_norms.h"
#include "device/cuda_tail.h"
#include "device/cuda_tasks.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- calls of fixed shape ---- */

/* Into how many equal pieces the recipe's units cut what a rank holds of a dimension. */
static int64_t pieces_along(const cuda_call *c, const tsr_tensor *t, int dim) {
  const tsr_lowering *l = &c->base.program->lowering;
  const tsr_value *v = cpu_value(&c->base, t);
  int64_t pieces = 1;
  for (int a = 0; a < TSR_AXES; a++) {
    if (v->placement[a].kind != TSR_SHARD || v->placement[a].dim != dim) continue;
    if (a == TSR_DP) pieces *= l->batch_units;
    if (a == TSR_CP && l->sequence_units > 1) pieces *= l->sequence_units;
    if (a == TSR_TP) pieces *= l->tp_units;
  }
  return pieces > 0 && t->shape[dim] % pieces == 0 ? pieces : 1;
}

/* Runs of rows (all dimensions but the last) of one length: the units of the batch, or where
 * positions are cut, those of each sample. */
static int64_t runs_of_rows(const cuda_call *c, const tsr_tensor *t) {
  int64_t runs = pieces_along(c, t, 0), outer = 1;
  for (int d = 1; d < t->ndim - 1; d++) {
    outer *= t->shape[d - 1];
    int64_t pieces = pieces_along(c, t, d);
    if (pieces > 1) runs = outer * pieces;
  }
  return runs;
}

/* A product whose rows and columns are computed in so many equal pieces. */
typedef struct {
  tsr_cuda_product whole;
  int64_t row_pieces, col_pieces;
} pieced;

static const char *moved(const void *data, int64_t elements, tsr_cuda_type type) {
  return (const char *)data + elements * (type == TSR_CUDA_F32 ? 4 : 2);
}

/* The world fails here alone: a shape for which the library has nothing, or a device that is lost.
 */
static void run_product(const cuda_call *c, const tsr_cuda_product *p) {
  if (tsr_cuda_run_product(c->state->blas, c->state->stream, p)) return;
  c->state->fail(c->state->context, &c->base, tsr_cuda_blas_error(c->state->blas));
}

static tsr_cuda_product piece_of(const pieced *of, int64_t i, int64_t j) {
  const tsr_cuda_product *w = &of->whole;
  int64_t rows = w->M / of->row_pieces, cols = w->N / of->col_pieces;
  int64_t at = i * rows * w->c_stride + j * cols;
  tsr_cuda_product p = *w;
  p.M = rows;
  p.N = cols;
  p.a.data = moved(w->a.data, i * rows * (w->a.turned ? 1 : w->a.stride), w->type);
  p.b.data = moved(w->b.data, j * cols * (w->b.turned ? w->b.stride : 1), w->type);
  p.c = (void *)moved(w->c, at, w->c_type);
  if (w->plus) p.plus = moved(w->plus, at, w->c_type);
  if (w->bias) p.bias = moved(w->bias, j * cols, w->c_type);
  if (w->before) p.before = (void *)moved(w->before, at, w->c_type);
  return p;
}

static void run_pieces(const cuda_call *c, const pieced *of) {
  for (int64_t i = 0; i < of->row_pieces; i++)
    for (int64_t j = 0; j < of->col_pieces; j++) {
      tsr_cuda_product p = piece_of(of, i, j);
      run_product(c, &p);
    }
}

static tsr_cuda_matrix rows_of(const void *data, int64_t cols) {
  return (tsr_cuda_matrix){data, cols, false};
}
static tsr_cuda_matrix turned(const void *data, int64_t cols) {
  return (tsr_cuda_matrix){data, cols, true};
}

/* ---- sums of units: partial results in f32, rounded once when they are complete ---- */

/* Where a sum is made before it is rounded: a whole result in f32 and the stack behind it. */
static bool needs_wide(const tsr_task *t, int64_t summands) {
  return t->outputs[0].dtype != TSR_F32 && summands > 1;
}

static int64_t sum_scratch(const tsr_task *t, int64_t summands) {
  int64_t elements = tsr_tensor_elements(&t->outputs[0]);
  int64_t wide = needs_wide(t, summands) ? cuda_aligned(elements * 4) : 0;
  return wide + cpu_stack_bytes(t->units, elements);
}

typedef void make_sum(const cuda_call *c, int64_t unit, void *into, tsr_cuda_type type);

static void make_unit(const cuda_call *c, void *context, int64_t unit, float *into) {
  make_sum *const *make = context;
  (*make)(c, unit, into, TSR_CUDA_F32);
}

/* `summands`: how many results of products are added up, in all units together. */
static void run_sum(const cuda_call *c, make_sum *make, int64_t summands) {
  const tsr_task *t = c->base.task;
  int64_t elements = tsr_tensor_elements(&t->outputs[0]);
  if (t->units == 1 && !needs_wide(t, summands)) {
    make(c, 0, cuda_out(c, 0), cuda_type(&t->outputs[0]));
    return;
  }
  char *stack = cuda_scratch(c);
  float *out = cuda_out(c, 0);
  if (needs_wide(t, summands)) {
    out = (float *)(void *)stack;
    stack += cuda_aligned(elements * 4);
  }
  cuda_add_units(c, t->units, out, (float *)(void *)stack, elements, elements, make_unit, &make);
  if (needs_wide(t, summands))
    tsr_cuda_cast(
        c->state->stream, cuda_type(&t->outputs[0]), cuda_out(c, 0), TSR_CUDA_F32, out, elements);
}

/* ---- y (R, N) = x (R, K) w (N, K)^T, K split into units ---- */

static pieced linear_pieced(const cuda_call *c, int64_t unit, void *into, tsr_cuda_type type) {
  const tsr_tensor *x = cuda_x(c, 0), *w = cuda_x(c, 1), *y = cuda_y(c, 0);
  int64_t K = cpu_last(x), each = K / c->base.task->units;
  tsr_cuda_type in = cuda_type(x);
  pieced p = {
      .whole = {
          .M = cpu_rows(y),
          .N = cpu_last(y),
          .K = each,
          .type = in,
          .c_type = type,
          .a = rows_of(moved(cuda_in(c, 0), unit * each, in), K),
          .b = turned(moved(cuda_in(c, 1), unit * each, in), K),
          .c = into,
          .c_stride = cpu_last(y)}};
  p.row_pieces = runs_of_rows(c, x);
  p.col_pieces = pieces_along(c, w, 0);
  return p;
}

static void linear_unit(const cuda_call *c, int64_t unit, void *into, tsr_cuda_type type) {
  pieced p = linear_pieced(c, unit, into, type);
  run_pieces(c, &p);
}

/* Where a product that reads x and w may write what is to lie at `to`: there, or else at y, which
 * nobody reads where the product's end goes on with it. */
static void *place_for(const cuda_call *c, const tsr_tensor *to, const tsr_tensor *plus) {
  bool free = !cuda_overlap(c, to, cuda_x(c, 0)) && !cuda_overlap(c, to, cuda_x(c, 1));
  void *there = cpu_address(&c->base, to);
  if (plus && there != cpu_address(&c->base, plus)) free &= !cuda_overlap(c, to, plus);
  return free ? there : cuda_out(c, 0);
}

/* The product with a tail in its end; false: of this one it cannot be. */
static bool add_tail(const cuda_call *c, const cuda_tail *tail, tsr_cuda_product *p) {
  const tsr_tensor *to = &tail->last->outputs[0];
  if (tail->bias) p->bias = cpu_address(&c->base, &tail->bias->inputs[1]);
  if (tail->plus) p->plus = cpu_address(&c->base, tail->plus);
  p->c = place_for(c, to, tail->plus);
  if (!tail->gelu) return true;
  p->before = cpu_address(&c->base, tail->sum);
  return p->c == cpu_address(&c->base, to) && place_for(c, tail->sum, NULL) == p->before &&
         !cuda_overlap(c, to, tail->sum);
}

static bool ends_with(const cuda_call *c, const cuda_tail *tail, pieced *p) {
  if (!c->state->fast && !cuda_tail_is_exact(tail, cuda_y(c, 0)->dtype)) return false;
  if (!add_tail(c, tail, &p->whole)) return false;
  tsr_cuda_product piece = piece_of(p, 0, 0);
  return tsr_cuda_has_product(c->state->blas, &piece);
}

bool cuda_linear_ends_with_tail(const cuda_call *c) {
  cuda_tail tail = cuda_tail_of(c, c->base.task);
  pieced p = linear_pieced(c, 0, cuda_out(c, 0), cuda_type(cuda_y(c, 0)));
  return ends_with(c, &tail, &p);
}

static void linear_run(const cuda_call *c) {
  cuda_tail tail = cuda_tail_of(c, c->base.task);
  if (!tail.last) {
    run_sum(c, linear_unit, c->base.task->units);
    return;
  }
  tsr_cuda_type type = cuda_type(cuda_y(c, 0));
  pieced p = linear_pieced(c, 0, cuda_out(c, 0), type);
  if (!ends_with(c, &tail, &p)) {
    linear_unit(c, 0, cuda_out(c, 0), type);
    cuda_call last = *c;
    last.base.task = tail.last;
    if (!cuda_is_in_norm(&last)) cuda_run_tail(c, &tail);
    return;
  }
  run_pieces(c, &p);
  void *to = cpu_address(&c->base, &tail.last->outputs[0]);
  if (p.whole.c != to)
    tsr_cuda_cast(c->state->stream, type, to, type, p.whole.c, tsr_tensor_elements(cuda_y(c, 0)));
}

static int64_t linear_scratch(const tsr_program *p, const tsr_task *t) {
  (void)p;
  return sum_scratch(t, t->units);
}
const cuda_op cuda_linear = {linear_run, linear_scratch};

/* ---- dx (R, K) = sum over pairs of dy (R, N) w (N, K), N split into units ---- */

static void linear_dx_unit(const cuda_call *c, int64_t unit, void *into, tsr_cuda_type type) {
  const tsr_tensor *dx = cuda_y(c, 0);
  for (int i = 0; i < c->base.task->inputs_count; i += 2) {
    const tsr_tensor *dy = cuda_x(c, i), *w = cuda_x(c, i + 1);
    int64_t N = cpu_last(dy), each = N / c->base.task->units, K = cpu_last(dx);
    tsr_cuda_type in = cuda_type(dy);
    pieced p = {
        .whole = {
            .M = cpu_rows(dx),
            .N = K,
            .K = each,
            .type = in,
            .c_type = type,
            .a = rows_of(moved(cuda_in(c, i), unit * each, in), N),
            .b = rows_of(moved(cuda_in(c, i + 1), unit * each * K, in), K),
            .c = into,
            .c_stride = K,
            .plus = i > 0 ? into : NULL}};
    p.row_pieces = runs_of_rows(c, dy);
    p.col_pieces = pieces_along(c, w, 1);
    run_pieces(c, &p);
  }
}

static void linear_dx_run(const cuda_call *c) {
  run_sum(c, linear_dx_unit, c->base.task->units * c->base.task->inputs_count / 2);
}
static int64_t linear_dx_scratch(const tsr_program *p, const tsr_task *t) {
  (void)p;
  return sum_scratch(t, t->units * t->inputs_count / 2);
}
const cuda_op cuda_linear_dx = {linear_dx_run, linear_dx_scratch};

/* ---- dw (N, K) = dy (R, N)^T x (R, K), R split into units of runs of rows ---- */

static void linear_dw_unit(const cuda_call *c, int64_t unit, void *into, tsr_cuda_type type) {
  const tsr_tensor *dy = cuda_x(c, 0), *x = cuda_x(c, 1), *w = cuda_x(c, 2);
  int64_t N = cpu_last(dy), K = cpu_last(x);
  tsr_cuda_type in = cuda_type(dy);
  cpu_run_of_rows run;
  for (int64_t k = 0; cpu_rows_of_unit(&c->base, cpu_rows(dy), unit, k, &run); k++) {
    pieced p = {
        .whole = {
            .M = N,
            .N = K,
            .K = run.rows,
            .type = in,
            .c_type = type,
            .a = turned(moved(cuda_in(c, 0), run.first * N, in), N),
            .b = rows_of(moved(cuda_in(c, 1), run.first * K, in), K),
            .c = into,
            .c_stride = K,
            .plus = k > 0 ? into : NULL}};
    p.row_pieces = pieces_along(c, w, 0);
    p.col_pieces = pieces_along(c, w, 1);
    run_pieces(c, &p);
  }
}

static int64_t summands_of_dw(const tsr_task *t) {
  int64_t runs = t->sequence_units ? t->inputs[0].shape[0] : 1;
  return t->units * runs;
}
static void linear_dw_run(const cuda_call *c) {
  run_sum(c, linear_dw_unit, summands_of_dw(c->base.task));
}
static int64_t linear_dw_scratch(const tsr_program *p, const tsr_task *t) {
  (void)p;
  return sum_scratch(t, summands_of_dw(t));
}
const cuda_op cuda_linear_dw = {linear_dw_run, linear_dw_scratch};

/* ---- c (…, M, N) = A (…, M, K) B (…, K, N), either turned; K split into units ---- */

static void matmul_unit(const cuda_call *c, int64_t unit, void *into, tsr_cuda_type type) {
  const tsr_tensor *a = cuda_x(c, 0), *b = cuda_x(c, 1), *y = cuda_y(c, 0);
  bool ta = cuda_attr(c, 0) != 0, tb = cuda_attr(c, 1) != 0;
  int n = y->ndim;
  int64_t M = y->shape[n - 2], N = y->shape[n - 1], K = a->shape[ta ? n - 2 : n - 1];
  int64_t each = K / c->base.task->units, a_cols = a->shape[n - 1], b_cols = b->shape[n - 1];
  tsr_cuda_type in = cuda_type(a);
  tsr_cuda_product p = {
      .M = M,
      .N = N,
      .K = each,
      .type = in,
      .c_type = type,
      .a = {moved(cuda_in(c, 0), unit * each * (ta ? a_cols : 1), in), a_cols, ta},
      .b = {moved(cuda_in(c, 1), unit * each * (tb ? 1 : b_cols), in), b_cols, tb},
      .c = into,
      .c_stride = N};
  /* one call a matrix: how many there are changes no bit */
  for (int64_t i = 0; i < tsr_tensor_elements(y) / (M * N); i++) {
    run_product(c, &p);
    p.a.data = moved(p.a.data, M * K, in);
    p.b.data = moved(p.b.data, K * N, in);
    p.c = (void *)moved(p.c, M * N, type);
  }
}

static void matmul_run(const cuda_call *c) { run_sum(c, matmul_unit, c->base.task->units); }
const cuda_op cuda_matmul = {matmul_run, linear_scratch};

/* ---- embedding ---- */

static void embedding_run(const cuda_call *c) {
  const tsr_tensor *table = cuda_x(c, 1), *y = cuda_y(c, 0);
  int64_t first = cpu_offset(&c->base, table, 0);
  tsr_cuda_embedding(
      c->state->stream, cuda_type(y), cuda_out(c, 0), cuda_in(c, 0), cuda_type(table),
      cuda_in(c, 1), cpu_rows(y), table->shape[1], first, first + table->shape[0]);
}
const cuda_op cuda_embedding = {embedding_run, NULL};

/* Behind the sort's scratch, where units are pieces of samples: the tokens unit by unit, and which
 * row each one is of. */
static int64_t sort_bytes(const tsr_task *t) {
  int64_t rows = tsr_tensor_elements(&t->inputs[0]);
  return cuda_aligned(tsr_cuda_embedding_scratch(rows, 0, t->outputs[0].shape[0]));
}

static int64_t embedding_dw_scratch(const tsr_program *p, const tsr_task *t) {
  (void)p;
  int64_t rows = tsr_tensor_elements(&t->inputs[0]);
  return sort_bytes(t) + (t->sequence_units > 1 ? 2 * 4 * rows : 0);
}

static void order_by_units(const cuda_call *c, int32_t *by_units, int32_t *row_of) {
  const tsr_task *t = c->base.task;
  int64_t rows = tsr_tensor_elements(&t->inputs[0]), pieces = t->sequence_units;
  int64_t samples = t->inputs[0].shape[0], in_unit = samples * pieces / t->units;
  tsr_cuda_rows_by_units(
      c->state->stream, by_units, row_of, cuda_in(c, 0), rows, in_unit, rows / samples, pieces,
      c->base.program->lowering.zigzag);
}

static void embedding_dw_run(const cuda_call *c) {
  const tsr_tensor *table = cuda_y(c, 0), *dout = cuda_x(c, 1);
  int64_t first = cpu_offset(&c->base, table, 0), rows = tsr_tensor_elements(cuda_x(c, 0));
  int32_t *tokens = cuda_in(c, 0), *row_of = NULL;
  if (c->base.task->sequence_units > 1) {
    tokens = (int32_t *)(void *)((char *)cuda_scratch(c) + sort_bytes(c->base.task));
    row_of = tokens + rows;
    order_by_units(c, tokens, row_of);
  }
  tsr_cuda_embedding_backward(
      c->state->stream, cuda_type(dout), cuda_out(c, 0), tokens, cuda_in(c, 1), row_of,
      cuda_scratch(c), rows, table->shape[1], first, first + table->shape[0], c->base.task->units);
}
const cuda_op cuda_embedding_dw = {embedding_dw_run, embedding_dw_scratch};
