/* Matrix products and lookups. Sums that the recipe splits are made of units, each by products of
 * fixed shape, added in the tree's order. */
#include "device/cpu_ops.h"

static tsr_matrix rows_of(const float *data, int64_t cols) { return (tsr_matrix){data, cols, 1}; }
static tsr_matrix turned(const float *data, int64_t cols) { return (tsr_matrix){data, 1, cols}; }

typedef struct {
  int64_t begin, end;
} range;

/* ---- y (R, N) = x (R, K) w (N, K)^T, K split into units ---- */

/* Of few rows threads take columns, or each of them would read all of w. Of very few, reading w is
 * all the work. */
enum { FEW_ROWS = 16, VERY_FEW_ROWS = 4 };
static bool has_few_rows(const tsr_task *t) { return cpu_rows(&t->outputs[0]) <= FEW_ROWS; }

/* Columns [begin, end) of all rows. */
static void few_unit(const cpu_call *c, const range *r, int64_t unit, float *into) {
  int64_t K = cpu_last(&c->task->inputs[0]), N = cpu_last(&c->task->outputs[0]),
          part = K / c->task->units, R = cpu_rows(&c->task->outputs[0]);
  const float *x = cpu_in(c, 0) + unit * part, *w = cpu_in(c, 1) + unit * part;
  tsr_few_rows p = {R, part, K, K, N, R <= VERY_FEW_ROWS ? tsr_gemm_depth() : 0};
  if (p.depth) c->k->few_rows(&p, into, x, w, r->begin, r->end);
  else
    tsr_gemm(
        R, r->end - r->begin, part, 1, rows_of(x, K), turned(w + r->begin * K, K), 0,
        into + r->begin, N, 1);
}

/* As cpu_add_units, for a piece of every row. */
static void linear_few(const cpu_call *c, const range *r) {
  int64_t N = cpu_last(&c->task->outputs[0]), all = tsr_tensor_elements(&c->task->outputs[0]);
  float *out = cpu_out(c, 0), *stack = cpu_scratch(c);
  int top = 0;
  for (int64_t u = 0; u < c->task->units; u++) {
    few_unit(c, r, u, top ? stack + (top - 1) * all : out);
    top++;
    for (int merges = tsr_tree_merges(c->task->units, u); merges; merges--, top--) {
      float *high = stack + (top - 2) * all, *low = top == 2 ? out : high - all;
      for (int64_t row = 0; row < all; row += N)
        c->k->add(low, low, high, row + r->begin, row + r->end);
    }
  }
}

static void linear_unit(const cpu_call *c, void *context, int64_t unit, float *into) {
  const range *r = context;
  int64_t K = cpu_last(&c->task->inputs[0]), N = cpu_last(&c->task->outputs[0]),
          part = K / c->task->units;
  const float *x = cpu_in(c, 0) + r->begin * K + unit * part, *w = cpu_in(c, 1) + unit * part;
  tsr_gemm(
      r->end - r->begin, N, part, 1, rows_of(x, K), turned(w, K), 0, into + r->begin * N, N, 1);
}

static void linear_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  int64_t N = cpu_last(&c->task->outputs[0]), all = tsr_tensor_elements(&c->task->outputs[0]);
  range r = {begin, end};
  if (has_few_rows(c->task)) linear_few(c, &r);
  else
    cpu_add_units(
        c, c->task->units, cpu_out(c, 0), cpu_scratch(c), all, begin * N, end * N, linear_unit, &r);
}

static int64_t linear_items(const tsr_task *t) {
  return has_few_rows(t) ? cpu_last(&t->outputs[0]) : cpu_items_rows(t);
}

static int64_t
stack_scratch(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, int threads) {
  (void)k, (void)p, (void)threads;
  return cpu_stack_bytes(t->units, tsr_tensor_elements(&t->outputs[0]));
}

const tsr_cpu_op cpu_linear = {
    .items = linear_items, .scratch = stack_scratch, .run = linear_run};

/* ---- dx (R, K) = sum over pairs of dy (R, N) w (N, K), N split into units ---- */

static void linear_dx_unit(const cpu_call *c, void *context, int64_t unit, float *into) {
  const range *r = context;
  int64_t K = cpu_last(&c->task->outputs[0]);
  for (int i = 0; i < c->task->inputs_count; i += 2) {
    int64_t N = cpu_last(&c->task->inputs[i]), part = N / c->task->units;
    const float *dy = cpu_in(c, i) + r->begin * N + unit * part,
                *w = cpu_in(c, i + 1) + unit * part * K;
    tsr_gemm(
        r->end - r->begin, K, part, 1, rows_of(dy, N), rows_of(w, K), i ? 1 : 0,
        into + r->begin * K, K, 1);
  }
}

static void linear_dx_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  int64_t K = cpu_last(&c->task->outputs[0]), all = tsr_tensor_elements(&c->task->outputs[0]);
  range r = {begin, end};
  cpu_add_units(
      c, c->task->units, cpu_out(c, 0), cpu_scratch(c), all, begin * K, end * K, linear_dx_unit,
      &r);
}

const tsr_cpu_op cpu_linear_dx = {
    .items = cpu_items_rows, .scratch = stack_scratch, .run = linear_dx_run};

/* ---- dw (N, K) = dy (R, N)^T x (R, K), R split into units ---- */

static void linear_dw_unit(const cpu_call *c, void *context, int64_t unit, float *into) {
  const range *r = context;
  int64_t N = cpu_last(&c->task->inputs[0]), K = cpu_last(&c->task->inputs[1]);
  cpu_run_of_rows rows;
  for (int64_t k = 0; cpu_rows_of_unit(c, cpu_rows(&c->task->inputs[0]), unit, k, &rows); k++) {
    const float *dy = cpu_in(c, 0) + rows.first * N + r->begin,
                *x = cpu_in(c, 1) + rows.first * K;
    tsr_gemm(
        r->end - r->begin, K, rows.rows, 1, turned(dy, N), rows_of(x, K), k ? 1 : 0,
        into + r->begin * K, K, 1);
  }
}

static void linear_dw_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  int64_t K = cpu_last(&c->task->outputs[0]), all = tsr_tensor_elements(&c->task->outputs[0]);
  range r = {begin, end};
  cpu_add_units(
      c, c->task->units, cpu_out(c, 0), cpu_scratch(c), all, begin * K, end * K, linear_dw_unit,
      &r);
}

const tsr_cpu_op cpu_linear_dw = {
    .items = cpu_items_rows, .scratch = stack_scratch, .run = linear_dw_run};

/* ---- c (…, M, N) = A (…, M, K) B (…, K, N), either turned; K split into units ---- */

static void matmul_unit(const cpu_call *c, void *context, int64_t unit, float *into) {
  const range *r = context;
  const tsr_tensor *a = &c->task->inputs[0], *b = &c->task->inputs[1], *o = &c->task->outputs[0];
  bool ta = cpu_attr(c, 0) != 0, tb = cpu_attr(c, 1) != 0;
  int n = o->ndim;
  int64_t M = o->shape[n - 2], N = o->shape[n - 1], K = a->shape[ta ? n - 2 : n - 1],
          part = K / c->task->units;
  int64_t a_cols = a->shape[n - 1], b_cols = b->shape[n - 1];
  for (int64_t row = r->begin; row < r->end;) {
    int64_t batch = row / M, first = row % M,
            rows = M - first < r->end - row ? M - first : r->end - row;
    const float *pa = cpu_in(c, 0) + batch * M * K, *pb = cpu_in(c, 1) + batch * K * N;
    tsr_matrix ma = ta ? turned(pa + unit * part * a_cols + first, a_cols)
                       : rows_of(pa + first * a_cols + unit * part, a_cols);
    tsr_matrix mb =
        tb ? turned(pb + unit * part, b_cols) : rows_of(pb + unit * part * b_cols, b_cols);
    tsr_gemm(rows, N, part, 1, ma, mb, 0, into + row * N, N, 1);
    row += rows;
  }
}

static void matmul_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  int64_t N = cpu_last(&c->task->outputs[0]), all = tsr_tensor_elements(&c->task->outputs[0]);
  range r = {begin, end};
  cpu_add_units(
      c, c->task->units, cpu_out(c, 0), cpu_scratch(c), all, begin * N, end * N, matmul_unit, &r);
}

const tsr_cpu_op cpu_matmul = {
    .items = cpu_items_rows, .scratch = stack_scratch, .run = matmul_run};

/* ---- embedding ---- */

static void embedding_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const tsr_tensor *table = &c->task->inputs[1];
  int64_t first = cpu_offset(c, table, 0);
  bool half = tsr_dtype_is_half(table->dtype) || tsr_dtype_is_half(c->task->outputs[0].dtype);
  if (half) cpu_embedding_half(c, first, first + table->shape[0], begin, end);
  else
    c->k->embedding(
        cpu_out(c, 0), cpu_tokens(c, 0), cpu_in(c, 1), table->shape[1], first,
        first + table->shape[0], begin, end);
}

const tsr_cpu_op cpu_embedding = {
    .items = cpu_items_rows, .run = embedding_run, .takes_half = true};

static int64_t
embedding_dw_scratch(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, int threads) {
  (void)p;
  const tsr_tensor *table = &t->outputs[0];
  int64_t rows = tsr_tensor_elements(&t->inputs[0]), bytes = k->embedding_scratch(
      rows, 0, table->shape[0], table->shape[1], t->units, threads);
  return t->sequence_units > 1 ? bytes + 2 * 4 * rows : bytes;
}

/* Where units are pieces of samples: the tokens unit by unit, and which row each one is of. */
static int32_t *unit_rows(const cpu_call *c, int32_t **ret_tokens) {
  int64_t rows = tsr_tensor_elements(&c->task->inputs[0]);
  char *end = cpu_task_scratch(c) + c->task->scratch_bytes;
  *ret_tokens = (int32_t *)(void *)end - 2 * rows;
  return c->task->sequence_units > 1 ? *ret_tokens + rows : NULL;
}

static void sort_by_units(const cpu_call *c, int32_t *tokens, int32_t *row) {
  int64_t rows = tsr_tensor_elements(&c->task->inputs[0]), n = 0;
  cpu_run_of_rows run;
  for (int64_t u = 0; u < c->task->units; u++)
    for (int64_t k = 0; cpu_rows_of_unit(c, rows, u, k, &run); k++)
      for (int64_t i = 0; i < run.rows; i++) row[n++] = (int32_t)(run.first + i);
  for (int64_t i = 0; i < rows; i++) tokens[i] = cpu_tokens(c, 0)[row[i]];
}

static void embedding_dw_before(const cpu_call *c) {
  const tsr_tensor *table = &c->task->outputs[0];
  int64_t first = cpu_offset(c, table, 0);
  int32_t *tokens, *row = unit_rows(c, &tokens);
  if (row) sort_by_units(c, tokens, row);
  c->k->embedding_sort(
      cpu_scratch(c), row ? tokens : cpu_tokens(c, 0), tsr_tensor_elements(&c->task->inputs[0]),
      first, first + table->shape[0]);
}

static void embedding_dw_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  const tsr_tensor *table = &c->task->outputs[0];
  int64_t first = cpu_offset(c, table, 0);
  int32_t *tokens;
  c->k->embedding_backward(
      cpu_out(c, 0), cpu_in(c, 1), unit_rows(c, &tokens), cpu_scratch(c), thread,
      tsr_tensor_elements(&c->task->inputs[0]), table->shape[1], first, first + table->shape[0], c->task->units, begin, end);
}

const tsr_cpu_op cpu_embedding_dw = {
    .items = cpu_items_rows,
    .scratch = embedding_dw_scratch,
    .before = embedding_dw_before,
    .run = embedding_dw_run};
