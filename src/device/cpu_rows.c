/* Ops on rows: norms, softmax, rope, attention, and the sums over rows that their weights'
 * gradients are. */
#include "device/cpu_ops.h"
#include <assert.h>
#include <math.h>

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

/* ---- attention ---- */

/* Sizes alone: q (B,T,H*D) and k (B,T,G*D) of this rank. */
static tsr_attention attention_sizes(const tsr_program *p, const tsr_task *t, int q_input) {
  const double *attr = p->graph->nodes[t->node].attr;
  const tsr_tensor *q = &t->inputs[q_input], *k = &t->inputs[q_input + 1];
  int64_t D = (int64_t)attr[0];
  tsr_attention a = {
      .B = q->shape[0], .T = q->shape[1], .H = q->shape[2] / D, .G = k->shape[2] / D, .D = D};
  a.causal = attr[1] != 0;
  a.scale = attr[2] != 0 ? (float)attr[2] : (float)(1 / sqrt((double)D));
  a.dropout = (float)attr[3];
  return a;
}

static tsr_attention attention_of(const cpu_call *c, int q_input) {
  tsr_attention a = attention_sizes(c->program, c->task, q_input);
  const tsr_tensor *q = &c->task->inputs[q_input];
  tsr_box box = cpu_sample_box(c, q);
  a.batch_offset = box.offset[0];
  a.head_offset = box.offset[2] / a.D;
  a.heads_global = box.global[2] / a.D;
  a.key = tsr_random_key(
      c->moment.seed, c->program->graph->nodes[c->task->node].stream, (uint64_t)c->moment.step);
  return a;
}

static int64_t attention_items(const tsr_task *t) {
  return t->outputs[1].shape[0] * t->outputs[1].shape[1];
}

static int64_t
attention_scratch(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, int threads) {
  tsr_attention a = attention_sizes(p, t, t->op == TSR_OP_ATTENTION ? 0 : 1);
  return (k->attention_scratch(&a) + 63) / 64 * 64 * threads;
}

static void *attention_thread_scratch(const cpu_call *c, const tsr_attention *a, int thread) {
  return (char *)cpu_scratch(c) + (c->k->attention_scratch(a) + 63) / 64 * 64 * thread;
}

static void attention_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  tsr_attention a = attention_of(c, 0);
  c->k->attention(
      &a, cpu_out(c, 0), cpu_out(c, 1), cpu_in(c, 0), cpu_in(c, 1), cpu_in(c, 2),
      attention_thread_scratch(c, &a, thread), begin, end);
}
const tsr_cpu_op cpu_attention = {
    .items = attention_items, .scratch = attention_scratch, .run = attention_run};

/* Items are key/value heads: (batch, groups) of stats (batch, heads, sequence, 2) over heads per
 * group. */
static int64_t attention_dx_items(const tsr_task *t) {
  int64_t per_group = t->inputs[1].shape[2] / t->inputs[2].shape[2];
  return t->inputs[5].shape[0] * t->inputs[5].shape[1] / per_group;
}

static void attention_dx_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  tsr_attention a = attention_of(c, 1);
  c->k->attention_backward(
      &a, cpu_out(c, 0), cpu_out(c, 1), cpu_out(c, 2), cpu_in(c, 0), cpu_in(c, 1), cpu_in(c, 2),
      cpu_in(c, 3), cpu_in(c, 4), cpu_in(c, 5), attention_thread_scratch(c, &a, thread), begin,
      end);
}
const tsr_cpu_op cpu_attention_dx = {
    .items = attention_dx_items, .scratch = attention_scratch, .run = attention_dx_run};

/* ---- sums over rows ----
 * x is (…, C). Its rows belong to batch units (equal runs of dimension 0) and, when the result
 * keeps its tp units apart, to one tp unit by their index along the dimension that tp splits. A tp
 * unit's rows are summed index by index, in their order; batch units are added by the tree. */

typedef struct {
  int64_t outer, split,
      inner; /* rows = outer * split * inner; `split` is the dimension that tp cuts */
  int64_t tp_units, tp_unit;
  int64_t C, begin, end;
  float *part; /* (C), for one index's sum */
  bool norm;   /* norm_dw, else a plain sum */
} row_sum;

static row_sum row_sum_of(const cpu_call *c) {
  const tsr_tensor *x = &c->task->inputs[0], *out = &c->task->outputs[0];
  const tsr_placement tp = cpu_value(c, x)->placement[TSR_TP];
  int64_t C = tsr_tensor_elements(out) / (out->units ? out->units : 1);
  int64_t rows = tsr_tensor_elements(x) / C;
  row_sum r = {.outer = rows, .split = 1, .inner = 1, .tp_units = 1, .C = C};
  r.norm = c->task->op == TSR_OP_NORM_DW;
  if (!out->units) return r;
  r.tp_units = out->units;
  int dim = tp.kind == TSR_SHARD ? tp.dim : 1; /* the sequence, when the recipe alone cuts it */
  r.split = x->shape[dim];
  r.outer = 1;
  for (int d = 0; d < dim; d++) r.outer *= x->shape[d];
  r.inner = rows / r.outer / r.split;
  return r;
}

static void sum_strided(
    const cpu_call *c, const row_sum *r, float *out, int64_t row_first, int64_t row_step,
    int64_t rows) {
  const float *x = cpu_in(c, 0);
  if (!r->norm) {
    c->k->sum_rows(out, x, r->C, row_first, row_step, rows, r->begin, r->end);
    return;
  }
  bool has_mean = c->task->inputs_count == 5;
  const float *mean = has_mean ? cpu_in(c, 2) : NULL, *rstd = cpu_in(c, has_mean ? 3 : 2);
  c->k->norm_dw(
      out, x, cpu_in(c, 1), mean, rstd, r->C, row_first, row_step, rows, r->begin, r->end);
}

static void row_sum_unit(const cpu_call *c, void *context, int64_t unit, float *into) {
  const row_sum *r = context;
  assert(r->outer % c->task->units == 0);
  int64_t outer = r->outer / c->task->units, size = r->split / r->tp_units,
          step = r->split * r->inner;
  for (int64_t i = 0; i < size * r->inner; i++) {
    int64_t first = unit * outer * step + r->tp_unit * size * r->inner + i;
    sum_strided(c, r, i ? r->part : into, first, step, outer);
    if (i) c->k->add(into, into, r->part, r->begin, r->end);
  }
}

static void row_sum_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  row_sum r = row_sum_of(c);
  r.begin = begin;
  r.end = end;
  r.part = cpu_scratch(c);
  for (r.tp_unit = 0; r.tp_unit < r.tp_units; r.tp_unit++)
    cpu_add_units(
        c, c->task->units, cpu_out(c, 0) + r.tp_unit * r.C, r.part + r.C, r.C, begin, end,
        row_sum_unit, &r);
}

static int64_t row_sum_columns(const tsr_task *t) {
  return tsr_tensor_elements(&t->outputs[0]) / (t->outputs[0].units ? t->outputs[0].units : 1);
}

static int64_t
row_sum_scratch(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, int threads) {
  (void)k, (void)p, (void)threads;
  int64_t C = row_sum_columns(t);
  return C * 4 + cpu_stack_bytes(t->units, C);
}

const tsr_cpu_op cpu_sum_to = {
    .items = row_sum_columns, .scratch = row_sum_scratch, .run = row_sum_run};
const tsr_cpu_op cpu_norm_dw = {
    .items = row_sum_columns, .scratch = row_sum_scratch, .run = row_sum_run};
