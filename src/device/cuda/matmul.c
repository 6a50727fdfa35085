// SPDX-License-Identifier: Apache-2.0
/* GEMMs, in the calls of gemm_calls.h. */
#include "device/cuda/fp8_matmul.h"
#include "device/cuda/gemm_batch.h"
#include "device/cuda/gemm_calls.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- calls of fixed shape ---- */

/* A GEMM whose rows and columns are computed in the pieces and calls of cuda_gemm_calls. */
typedef struct {
  tsr_cuda_gemm whole;
  int64_t row_pieces, col_pieces, call_rows;
} pieced;

static void set_pieces(pieced *p, const cuda_gemm_calls *calls) {
  p->row_pieces = calls->row_pieces;
  p->col_pieces = calls->col_pieces;
  p->call_rows = calls->call_rows;
}

static const char *moved(const void *data, int64_t elements, tsr_cuda_type type) {
  return (const char *)data + elements * (type == TSR_CUDA_F32 ? 4 : 2);
}

/* The world fails here alone: a shape for which the library has nothing, or a device that is lost.
 */
static void run_gemm(const cuda_call *c, const tsr_cuda_gemm *of) {
  tsr_cuda_gemm p = *of;
  p.scratch = cuda_matmul_scratch_at(&c->call, cuda_scratch(c)).operands;
  if (tsr_cuda_run_gemm(c->state->blas, c->state->stream, &p)) return;
  c->state->fail(c->state->context, &c->call, tsr_cuda_blas_error(c->state->blas));
}

/* Rows from `first` on, of columns j. */
static tsr_cuda_gemm piece_of(const pieced *of, int64_t first, int64_t rows, int64_t j) {
  const tsr_cuda_gemm *w = &of->whole;
  int64_t cols = w->N / of->col_pieces, at = first * w->c_stride + j * cols;
  tsr_cuda_gemm p = *w;
  p.M = rows;
  p.N = cols;
  p.a.data = moved(w->a.data, first * (w->a.transposed ? 1 : w->a.stride), w->type);
  p.b.data = moved(w->b.data, j * cols * (w->b.transposed ? w->b.stride : 1), w->type);
  p.c = (void *)moved(w->c, at, w->c_type);
  if (w->plus) p.plus = moved(w->plus, at, w->c_type);
  if (w->bias) p.bias = moved(w->bias, j * cols, w->c_type);
  if (w->before) p.before = (void *)moved(w->before, at, w->c_type);
  return p;
}

static void run_pieces(const cuda_call *c, const pieced *of) {
  int64_t rows = of->whole.M / of->row_pieces;
  for (int64_t first = 0, end = rows; first < of->whole.M; end += rows)
    for (int64_t n; first < end; first += n) {
      n = end - first < of->call_rows ? end - first : of->call_rows;
      for (int64_t j = 0; j < of->col_pieces; j++) {
        tsr_cuda_gemm p = piece_of(of, first, n, j);
        run_gemm(c, &p);
      }
    }
}

static tsr_cuda_matrix rows_of(const void *data, int64_t cols) {
  return (tsr_cuda_matrix){data, cols, false};
}
static tsr_cuda_matrix transposed(const void *data, int64_t cols) {
  return (tsr_cuda_matrix){data, cols, true};
}

/* ---- sums of leaves: partial results in f32, rounded once when they are complete; or where the
 * sum rounds, each in the output's type ---- */

/* Where the results of a batch's GEMMs are written: `step` elements apart. */
typedef struct {
  const cuda_gemm_batch *of;
  void *at;
  int64_t step;
  tsr_cuda_type type;
} results;

typedef void
make_sum(const cuda_call *c, void *context, int64_t block, int64_t leaf, const results *into);

typedef struct {
  make_sum *make;
  void *context;
  float *wide; /* where the GEMMs of a leaf are added in f32 before it is rounded; or NULL */
} summand;

/* A sum that rounds is in no batch (schedule/fuse_gemms.c). */
static void
make_leaf(const cuda_call *c, const summand *of, int64_t block, int64_t leaf, const results *into) {
  if (!of->wide) {
    of->make(c, of->context, block, leaf, into);
    return;
  }
  results sum = {into->of, of->wide, into->step, TSR_CUDA_F32};
  of->make(c, of->context, block, leaf, &sum);
  tsr_cuda_cast(
      c->state->stream, into->type, into->at, TSR_CUDA_F32, of->wide,
      tsr_task_block_elements(c->call.task));
}

/* Adds partial results of `elements` each to others. */
static void
add_results(const cuda_call *c, const results *to, const results *from, int64_t elements) {
  bool dense = to->step == elements && from->step == elements;
  int count = to->of->steps.count, calls = dense ? 1 : count;
  for (int i = 0; i < calls; i++) {
    void *sum = (void *)moved(to->at, i * to->step, to->type);
    const void *other = moved(from->at, i * from->step, to->type);
    tsr_cuda_add(c->state->stream, to->type, sum, sum, other, dense ? count * elements : elements);
  }
}

/* The stack entries of the tree, of all GEMMs of the batch each; the first is the results. */
static results entry(const results *first, void *stack, int64_t elements, int at) {
  int64_t behind = (at - 1) * first->of->steps.count * elements;
  void *partial = (void *)moved(stack, behind, first->type);
  return at ? (results){first->of, partial, elements, first->type} : *first;
}

static void add_leaves(
    const cuda_call *c, const summand *of, int64_t block, const results *out, void *stack,
    int64_t elements) {
  const tsr_reduction *sum = &c->call.task->sum;
  tsr_tree_stack tree = {0};
  for (int64_t leaf = 0; leaf < tsr_reduction_leaves(sum); leaf++) {
    int at = tsr_tree_push(&tree, tsr_reduction_merges(sum, leaf));
    results into = entry(out, stack, elements, at);
    make_leaf(c, of, block, leaf, &into);
    for (int low; tsr_tree_merge(&tree, &low);) {
      results lower = entry(out, stack, elements, low),
              upper = entry(out, stack, elements, low + 1);
      add_results(c, &lower, &upper, elements);
    }
  }
}

static void run_batch(const cuda_call *c, const cuda_gemm_batch *g, make_sum *make, void *context) {
  const tsr_task *t = c->call.task;
  int64_t elements = tsr_task_block_elements(t), blocks = tsr_reduction_blocks(&t->sum);
  bool wide = cuda_matmul_is_wide(t), rounds = t->sum.rounds != TSR_F32;
  results out = {g, cuda_at(c, g->first.out), g->steps.c, cuda_type(g->first.out)}, to = out;
  if (!tsr_reduction_is_split(&t->sum) && !wide) {
    make(c, context, 0, 0, &out);
    return;
  }
  cuda_matmul_scratch s = cuda_matmul_scratch_at(&c->call, cuda_scratch(c));
  summand of = {make, context, rounds ? s.wide : NULL};
  if (!rounds) to.type = TSR_CUDA_F32;
  if (!rounds && wide) to.at = s.wide;
  assert(!wide || blocks == 1); /* blocks are partial, and those are f32 */
  for (int64_t block = 0; block < blocks; block++) {
    results sum = to;
    sum.at = (void *)moved(to.at, block * elements, to.type);
    add_leaves(c, &of, block, &sum, s.stack, elements);
  }
  if (!rounds && wide)
    tsr_cuda_cast(c->state->stream, out.type, out.at, TSR_CUDA_F32, to.at, elements);
}

static void run_sum(const cuda_call *c, make_sum *make, void *context) {
  cuda_gemm_batch batches[TSR_GEMMS_MAX];
  if (c->call.task->fp8)
    cuda_fp8_quantize(c, cuda_matmul_scratch_at(&c->call, cuda_scratch(c)).operands, NULL);
  int count = cuda_gemm_batches(c, batches);
  for (int i = 0; i < count; i++) run_batch(c, &batches[i], make, context);
}

/* The unit that a leaf sums, of the one dimension that a task sums over. */
static int64_t unit_of(const cuda_call *c, int64_t block, int64_t leaf) {
  tsr_reduced_rows rows = {0};
  bool there = tsr_reduction_rows(&c->call.task->sum, block, leaf, 0, &rows);
  assert(there && rows.first % rows.rows == 0);
  return rows.first / rows.rows;
}

/* A leaf's part of `size` elements of the one dimension that a task sums over. */
static tsr_reduced_rows leaf_of(const cuda_call *c, int64_t block, int64_t leaf, int64_t size) {
  int64_t splits = tsr_reduction_splits(&c->call.task->sum, 0);
  assert(size % splits == 0);
  return (tsr_reduced_rows){unit_of(c, block, leaf) * (size / splits), 1, size / splits};
}

/* ---- y (R, N) = x (R, K) w (N, K)^T, K split into units ---- */

static tsr_cuda_batch steps_to(const results *into) {
  tsr_cuda_batch steps = into->of->steps;
  steps.c = into->step;
  return steps;
}

static pieced linear_pieced(const cuda_call *c, int64_t leaf, const results *into) {
  const tsr_tensor *x = into->of->first.a, *y = into->of->first.out;
  int64_t K = tsr_tensor_last(x);
  cuda_gemm_calls calls = cuda_gemm_calls_of(&c->call, 0);
  tsr_reduced_rows part = leaf_of(c, 0, leaf, K);
  tsr_cuda_type in = cuda_type(x);
  pieced p = {
      .whole = {
          .M = tsr_tensor_rows(y),
          .N = tsr_tensor_last(y),
          .K = part.rows,
          .type = in,
          .c_type = into->type,
          .a = rows_of(moved(cuda_at(c, x), part.first, in), K),
          .b = transposed(moved(cuda_at(c, into->of->first.b), part.first, in), K),
          .c = into->at,
          .c_stride = tsr_tensor_last(y),
          .batch = steps_to(into)}};
  set_pieces(&p, &calls);
  return p;
}

static void
linear_leaf(const cuda_call *c, void *context, int64_t block, int64_t leaf, const results *into) {
  (void)context;
  if (c->call.task->fp8) {
    int64_t unit = unit_of(c, block, leaf);
    cuda_fp8_gemm(c, (cuda_fp8_call){0, 1, unit, false}, into->at, into->type);
    return;
  }
  pieced p = linear_pieced(c, leaf, into);
  run_pieces(c, &p);
}

/* Whether the library computes the epilogue with the GEMM; `p` then has it. Under policy
 * deterministic it does only where that has the bits of the separate ops: it adds a residual before
 * a bias and has a gelu of its own, and half precision is rounded behind the bias and again behind
 * the rest. */
static bool has_epilogue(const cuda_call *c, const tsr_epilogue *e, pieced *p) {
  bool half = e->out->dtype != TSR_F32, adds_last = e->residual && (half || e->bias);
  if (!c->state->fast && (e->gelu || adds_last)) return false;
  if (e->bias) p->whole.bias = cuda_at(c, e->bias);
  if (e->residual) p->whole.plus = cuda_at(c, e->residual);
  if (e->gelu && !e->before) return false; /* the library writes its input, too */
  if (e->gelu) p->whole.before = cuda_at(c, e->before);
  tsr_cuda_gemm piece = piece_of(p, 0, p->call_rows, 0);
  piece.batch.count = 1;
  return tsr_cuda_has_gemm(c->state->blas, &piece);
}

/* In half precision the GEMM adds the bias before it rounds: in the library's epilogue, or where it
 * has none for the shape, to rows of the bias. */
static void run_with_bias(const cuda_call *c, const tsr_tensor *bias, pieced *p) {
  int64_t rows = p->whole.M, cols = p->whole.N;
  p->whole.bias = cuda_at(c, bias);
  tsr_cuda_gemm piece = piece_of(p, 0, p->call_rows, 0);
  piece.batch.count = 1;
  if (!tsr_cuda_has_gemm(c->state->blas, &piece)) {
    const tsr_cuda_batch *batch = &p->whole.batch;
    tsr_cuda_type type = p->whole.c_type;
    for (int i = 0; i < batch->count; i++) {
      void *y = (void *)moved(p->whole.c, i * batch->c, type);
      tsr_cuda_zero(c->state->stream, y, rows * cols * 2);
      tsr_cuda_add_row(
          c->state->stream, type, y, y, moved(p->whole.bias, i * batch->bias, type), rows, cols);
    }
    p->whole.bias = NULL;
    p->whole.plus = p->whole.c;
  }
  run_pieces(c, p);
}

/* A pass behind the GEMMs, in place, which rounds as the separate ops do. */
static void run_epilogue_pass(
    const cuda_call *c, const tsr_epilogue *e, const tsr_cuda_batch *batch, bool bias) {
  tsr_cuda_type type = cuda_type(e->out);
  for (int i = 0; i < batch->count; i++) {
    void *y = (void *)moved(cuda_at(c, e->out), i * batch->c, type);
    const void *row = bias ? moved(cuda_at(c, e->bias), i * batch->bias, type) : NULL;
    tsr_cuda_epilogue(
        c->state->stream, type, y, cuda_at(c, e->before), y, row, cuda_at(c, e->residual), e->gelu,
        tsr_tensor_rows(e->out), tsr_tensor_last(e->out));
  }
}

static void run_with_epilogue(const cuda_call *c, const tsr_epilogue *e, const cuda_gemm_batch *g) {
  tsr_cuda_type type = cuda_type(e->out);
  const results into = {g, cuda_at(c, e->out), g->steps.c, type};
  pieced p = linear_pieced(c, 0, &into), plain = p;
  if (has_epilogue(c, e, &p)) {
    run_pieces(c, &p);
    return;
  }
  bool half = type != TSR_CUDA_F32 && e->bias;
  if (half) run_with_bias(c, e->bias, &plain);
  else run_pieces(c, &plain);
  if (!half || e->residual || e->gelu) run_epilogue_pass(c, e, &g->steps, !half && e->bias);
}

static void linear_run(const cuda_call *c) {
  const tsr_task *t = c->call.task;
  cuda_gemm_batch batches[TSR_GEMMS_MAX];
  if (t->fused == TSR_FUSED_EPILOGUE) {
    tsr_epilogue e = tsr_epilogue_of(c->call.program, t);
    const cuda_gemm_batch one = {{cuda_x(c, 0), cuda_x(c, 1), e.bias, e.out}, {.count = 1}};
    run_with_epilogue(c, &e, &one);
    return;
  }
  if (t->fused != TSR_FUSED_GEMMS || !tsr_batched_gemm_of(t, 0).bias) {
    run_sum(c, linear_leaf, NULL);
    return;
  }
  int count = cuda_gemm_batches(c, batches);
  for (int i = 0; i < count; i++) {
    const tsr_epilogue e = {.bias = batches[i].first.bias, .out = batches[i].first.out};
    run_with_epilogue(c, &e, &batches[i]);
  }
}

const cuda_op cuda_linear = linear_run;

/* ---- dx (R, K) = sum over pairs of dy (R, N) w (N, K), N split into units ---- */

static void linear_dx_leaf(
    const cuda_call *c, void *context, int64_t block, int64_t leaf, const results *into) {
  (void)context;
  const tsr_tensor *dx = cuda_y(c, 0);
  for (int i = 0; i < c->call.task->inputs_count; i += 2) {
    if (c->call.task->fp8) {
      cuda_fp8_gemm(
          c, (cuda_fp8_call){i, i + 1, unit_of(c, block, leaf), i > 0}, into->at, into->type);
      continue;
    }
    const tsr_tensor *dy = cuda_x(c, i);
    int64_t N = tsr_tensor_last(dy), K = tsr_tensor_last(dx);
    cuda_gemm_calls calls = cuda_gemm_calls_of(&c->call, i);
    tsr_reduced_rows part = leaf_of(c, block, leaf, N);
    tsr_cuda_type in = cuda_type(dy);
    pieced p = {
        .whole = {
            .M = tsr_tensor_rows(dx),
            .N = K,
            .K = part.rows,
            .type = in,
            .c_type = into->type,
            .a = rows_of(moved(cuda_in(c, i), part.first, in), N),
            .b = rows_of(moved(cuda_in(c, i + 1), part.first * K, in), K),
            .c = into->at,
            .c_stride = K,
            .plus = i > 0 ? into->at : NULL}};
    set_pieces(&p, &calls);
    run_pieces(c, &p);
  }
}

static void linear_dx_run(const cuda_call *c) { run_sum(c, linear_dx_leaf, NULL); }
const cuda_op cuda_linear_dx = linear_dx_run;

/* ---- dw (N, K) = dy (R, N)^T x (R, K), R split into units of runs of rows, and these into calls
 * ---- */

typedef struct {
  cuda_rows_at *dy;
  void *context;
} gradient_rows;

static const void *rows_at(
    const cuda_call *c, const gradient_rows *from, const tsr_tensor *dy, int64_t first,
    int64_t rows) {
  if (from->dy) return from->dy(c, from->context, first, rows);
  return moved(cuda_at(c, dy), first * tsr_tensor_last(dy), cuda_type(dy));
}

static void linear_dw_leaf(
    const cuda_call *c, void *context, int64_t block, int64_t leaf, const results *into) {
  const gradient_rows *from = context;
  const tsr_tensor *dy = into->of->first.a, *x = into->of->first.b;
  int64_t N = tsr_tensor_last(dy), K = tsr_tensor_last(x);
  cuda_gemm_calls calls = cuda_gemm_calls_of(&c->call, 0);
  tsr_cuda_type in = cuda_type(dy);
  tsr_reduced_rows run;
  bool first = true;
  for (int64_t k = 0; tsr_reduction_rows(&c->call.task->sum, block, leaf, k, &run); k++) {
    if (c->call.task->fp8) {
      cuda_fp8_gemm(c, (cuda_fp8_call){0, 1, run.first / run.rows, k > 0}, into->at, into->type);
      continue;
    }
    int64_t end = run.first + run.rows;
    for (int64_t row = run.first, rows; row < end; row += rows, first = false) {
      rows = end - row < calls.K ? end - row : calls.K;
      pieced p = {
          .whole = {
              .M = N,
              .N = K,
              .K = rows,
              .type = in,
              .c_type = into->type,
              .a = transposed(rows_at(c, from, dy, row, rows), N),
              .b = rows_of(moved(cuda_at(c, x), row * K, in), K),
              .c = into->at,
              .c_stride = K,
              .plus = first ? NULL : into->at,
              .batch = steps_to(into)}};
      set_pieces(&p, &calls);
      run_pieces(c, &p);
    }
  }
}

void cuda_run_linear_dw(const cuda_call *c, cuda_rows_at *dy, void *context) {
  gradient_rows from = {dy, context};
  run_sum(c, linear_dw_leaf, &from);
}

static void linear_dw_run(const cuda_call *c) { cuda_run_linear_dw(c, NULL, NULL); }
const cuda_op cuda_linear_dw = linear_dw_run;

/* ---- c (…, M, N) = A (…, M, K) B (…, K, N), either transposed; K split into units ---- */

static void
matmul_leaf(const cuda_call *c, void *context, int64_t block, int64_t leaf, const results *into) {
  (void)context;
  const tsr_tensor *a = cuda_x(c, 0), *b = cuda_x(c, 1), *y = cuda_y(c, 0);
  bool ta = cuda_attrs(c)->matmul.transpose_a, tb = cuda_attrs(c)->matmul.transpose_b;
  int n = y->ndim;
  int64_t M = y->shape[n - 2], N = y->shape[n - 1], K = a->shape[ta ? n - 2 : n - 1];
  int64_t a_cols = a->shape[n - 1], b_cols = b->shape[n - 1];
  tsr_reduced_rows part = leaf_of(c, block, leaf, K);
  tsr_cuda_type in = cuda_type(a);
  cuda_gemm_calls calls = cuda_gemm_calls_of(&c->call, 0);
  pieced p = {
      .whole = {
          .M = M,
          .N = N,
          .K = part.rows,
          .type = in,
          .c_type = into->type,
          .a = {moved(cuda_in(c, 0), part.first * (ta ? a_cols : 1), in), a_cols, ta},
          .b = {moved(cuda_in(c, 1), part.first * (tb ? 1 : b_cols), in), b_cols, tb},
          .c = into->at,
          .c_stride = N}};
  set_pieces(&p, &calls);
  /* how many matrices there are changes no bit */
  for (int64_t i = 0; i < tsr_tensor_elements(y) / (M * N); i++) {
    run_pieces(c, &p);
    p.whole.a.data = moved(p.whole.a.data, M * K, in);
    p.whole.b.data = moved(p.whole.b.data, K * N, in);
    p.whole.c = (void *)moved(p.whole.c, M * N, into->type);
  }
}

static void matmul_run(const cuda_call *c) { run_sum(c, matmul_leaf, NULL); }
const cuda_op cuda_matmul = matmul_run;
