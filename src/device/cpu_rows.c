/* Ops on rows: norms, softmax, rope, and the sums over rows that their weights' gradients are. */
#include "device/cpu_ops.h"

static void layernorm_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const float *bias = c->task->inputs_count == 3 ? cpu_in(c, 2) : NULL;
  c->k->layernorm(
      cpu_out(c, 0), cpu_out(c, 1), cpu_out(c, 2), cpu_in(c, 0), cpu_in(c, 1), bias,
      cpu_last(&c->task->inputs[0]), (float)cpu_attr(c, 0), begin, end);
}
const tsr_cpu_op cpu_layernorm = {.items = cpu_items_rows, .run = layernorm_run};

static void rmsnorm_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  c->k->rmsnorm(
      cpu_out(c, 0), cpu_out(c, 1), cpu_in(c, 0), cpu_in(c, 1), cpu_last(&c->task->inputs[0]),
      (float)cpu_attr(c, 0), begin, end);
}
const tsr_cpu_op cpu_rmsnorm = {.items = cpu_items_rows, .run = rmsnorm_run};

static void layernorm_dx_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  c->k->layernorm_backward(
      cpu_out(c, 0), cpu_in(c, 0), cpu_in(c, 1), cpu_in(c, 2), cpu_in(c, 3), cpu_in(c, 4),
      cpu_last(&c->task->outputs[0]), begin, end);
}
const tsr_cpu_op cpu_layernorm_dx = {.items = cpu_items_rows, .run = layernorm_dx_run};

static void rmsnorm_dx_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  c->k->rmsnorm_backward(
      cpu_out(c, 0), cpu_in(c, 0), cpu_in(c, 1), cpu_in(c, 2), cpu_in(c, 3),
      cpu_last(&c->task->outputs[0]), begin, end);
}
const tsr_cpu_op cpu_rmsnorm_dx = {.items = cpu_items_rows, .run = rmsnorm_dx_run};

static void softmax_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  c->k->softmax(cpu_out(c, 0), cpu_in(c, 0), cpu_last(&c->task->outputs[0]), begin, end);
}
const tsr_cpu_op cpu_softmax = {.items = cpu_items_rows, .run = softmax_run};

static void softmax_dx_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  c->k->softmax_backward(
      cpu_out(c, 0), cpu_in(c, 0), cpu_in(c, 1), cpu_last(&c->task->outputs[0]), begin, end);
}
const tsr_cpu_op cpu_softmax_dx = {.items = cpu_items_rows, .run = softmax_dx_run};

static void rope_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const tsr_tensor *x = &c->task->inputs[0]; // (B, T, H*D)
  int64_t D = (int64_t)cpu_attr(c, 0);
  c->k->rope(
      cpu_out(c, 0), cpu_in(c, 0), cpu_in(c, 1), x->shape[1], x->shape[2] / D, D,
      (float)cpu_attr(c, 1), begin, end);
}
const tsr_cpu_op cpu_rope = {.items = cpu_items_rows, .run = rope_run};

/* ---- sums over rows ---- */

cpu_row_sum cpu_row_sum_of(const cpu_call *c) {
  const tsr_tensor *x = &c->task->inputs[0], *out = &c->task->outputs[0];
  const tsr_placement tp = cpu_value(c, x)->placement[TSR_TP];
  int64_t C = cpu_row_sum_columns(c->task), rows = tsr_tensor_elements(x) / C;
  cpu_row_sum r = {.outer = rows, .split = 1, .inner = 1, .tp_units = 1, .C = C};
  r.norm = c->task->op == TSR_OP_NORM_DW;
  if (!out->units) return r;
  r.tp_units = out->units;
  int dim = cpu_value(c, out)->units_of_sequence ? 1 : tp.dim;
  r.split = x->shape[dim];
  r.outer = 1;
  for (int d = 0; d < dim; d++) r.outer *= x->shape[d];
  r.inner = rows / r.outer / r.split;
  return r;
}

bool cpu_rows_of_row_sum(
    const cpu_call *c, const cpu_row_sum *r, int64_t unit, int64_t k, cpu_strided_rows *ret) {
  const tsr_lowering *l = &c->program->lowering;
  const tsr_tensor *out = &c->task->outputs[0];
  bool folded = l->zigzag && out->units && cpu_value(c, out)->units_of_sequence;
  int64_t kept = tsr_sequence_unit(folded, r->tp_units, r->tp_unit);
  int64_t size = r->split / r->tp_units * r->inner, step = r->split * r->inner;
  cpu_run_of_rows run;
  if (!cpu_rows_of_unit(c, r->outer, unit, k / size, &run)) return false;
  *ret = (cpu_strided_rows){run.first * step + kept * size + k % size, step, run.rows};
  return true;
}

/* One range's part of it. */
typedef struct {
  cpu_row_sum sum;
  int64_t begin, end;
  float *part; /* (C), for one run's sum */
} row_sum;

static void sum_strided(const cpu_call *c, const row_sum *r, float *out, cpu_strided_rows rows) {
  const float *x = cpu_in(c, 0);
  int64_t C = r->sum.C;
  if (!r->sum.norm) {
    c->k->sum_rows(out, x, C, rows.first, rows.step, rows.rows, r->begin, r->end);
    return;
  }
  bool has_mean = c->task->inputs_count == 5;
  const float *mean = has_mean ? cpu_in(c, 2) : NULL, *rstd = cpu_in(c, has_mean ? 3 : 2);
  c->k->norm_dw(
      out, x, cpu_in(c, 1), mean, rstd, C, rows.first, rows.step, rows.rows, r->begin, r->end);
}

static void row_sum_unit(const cpu_call *c, void *context, int64_t unit, float *into) {
  const row_sum *r = context;
  cpu_strided_rows rows;
  for (int64_t k = 0; cpu_rows_of_row_sum(c, &r->sum, unit, k, &rows); k++) {
    sum_strided(c, r, k ? r->part : into, rows);
    if (k) c->k->add(into, into, r->part, r->begin, r->end);
  }
}

static void row_sum_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  row_sum r = {cpu_row_sum_of(c), begin, end, cpu_scratch(c)};
  int64_t C = r.sum.C;
  for (r.sum.tp_unit = 0; r.sum.tp_unit < r.sum.tp_units; r.sum.tp_unit++)
    cpu_add_units(
        c, c->task->units, cpu_out(c, 0) + r.sum.tp_unit * C, r.part + C, C, begin, end,
        row_sum_unit, &r);
}

int64_t cpu_row_sum_columns(const tsr_task *t) {
  return tsr_tensor_elements(&t->outputs[0]) / (t->outputs[0].units ? t->outputs[0].units : 1);
}

static int64_t
row_sum_scratch(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, int threads) {
  (void)k, (void)p, (void)threads;
  int64_t C = cpu_row_sum_columns(t);
  return C * 4 + cpu_stack_bytes(t->units, C);
}

const tsr_cpu_op cpu_sum_to = {
    .items = cpu_row_sum_columns, .scratch = row_sum_scratch, .run = row_sum_run};
const tsr_cpu_op cpu_norm_dw = {
    .items = cpu_row_sum_columns, .scratch = row_sum_scratch, .run = row_sum_run};
