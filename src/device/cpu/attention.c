// SPDX-License-Identifier: Apache-2.0
/* Attention: over whole sequences, over the units of one, and over those that the members of cp
 * hold parts of. */
#include "device/cpu/ops.h"
#include <math.h>

/* Attention's in every form, but of one with a cache: they begin alike (attrs.def). */
static const tsr_ring_attrs *attrs_of(const cpu_call *c) { return &cpu_attrs(c)->ring; }

static cpu_call sizes_call(const tsr_kernels *k, const tsr_program *p, const tsr_task *t) {
  return (cpu_call){.call = {.program = p, .task = t}, .k = k};
}

/* At levels that multiply pairs of bf16. */
cpu_half_operands cpu_attention_half(const cpu_call *c) {
  tsr_attention_operands of = tsr_attention_operands_of(c->call.task->op);
  if (!c->k->attention_bf16() || !tsr_attention_is_bf16(c->call.task))
    return (cpu_half_operands){0};
  return (cpu_half_operands){of.inputs, of.outputs};
}

static int64_t round_up(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/* ---- one rank has the whole sequence ---- */

static int64_t attention_items(const tsr_task *t) {
  return t->outputs[1].shape[0] * t->outputs[1].shape[1];
}

static int64_t thread_scratch(const cpu_call *c) {
  tsr_attention a = tsr_attention_of(&c->call);
  if (!tsr_program_splits_sequences(c->call.program)) return round_up(c->k->attention_scratch(&a));
  tsr_attention_ring r = tsr_attention_ring_of(&c->call);
  return round_up(c->k->attention_ring_scratch(&r));
}

static char *scratch_of_thread(const cpu_call *c, int thread) {
  return (char *)cpu_scratch(c) + thread_scratch(c) * thread;
}

/* Behind the threads' scratch: accumulators of dq (or out) and dkv, and the rows' numbers. */
typedef struct {
  float *first, *dkv, *rows;
  int64_t bytes;
} sums;

static sums sums_of(const cpu_call *c, char *at) {
  tsr_attention_ring r = tsr_attention_ring_of(&c->call);
  bool backward = c->call.task->op == TSR_OP_ATTENTION_DX;
  int64_t first =
      round_up(c->k->attention_ring_acc(&r, backward ? TSR_ATTENTION_DQ : TSR_ATTENTION_OUT));
  int64_t dkv = backward ? round_up(c->k->attention_ring_acc(&r, TSR_ATTENTION_DKV)) : 0;
  int64_t rows = backward ? round_up(r.a.B * r.a.H * r.a.T * 3 * 4) : 0;
  sums s = {.bytes = first + dkv + rows};
  if (!at) return s;
  s.first = (float *)(void *)at;
  s.dkv = (float *)(void *)(at + first);
  s.rows = (float *)(void *)(at + first + dkv);
  return s;
}

static int64_t
attention_scratch(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, int threads) {
  cpu_call c = sizes_call(k, p, t);
  return thread_scratch(&c) * threads +
         (tsr_program_splits_sequences(p) ? sums_of(&c, NULL).bytes : 0);
}

/* Documents are never added up in the units of a sequence. */
static int64_t
document_scratch(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, int threads) {
  cpu_call c = sizes_call(k, p, t);
  tsr_attention a = tsr_attention_of(&c.call);
  return round_up(k->attention_scratch(&a)) * threads;
}

static void *document_thread(const cpu_call *c, int thread) {
  tsr_attention a = tsr_attention_of(&c->call);
  return (char *)cpu_scratch(c) + round_up(c->k->attention_scratch(&a)) * thread;
}

/* inputs: q, k, v[, sinks] */
static void attention_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  char *scratch = scratch_of_thread(c, thread);
  const float *sinks = c->call.task->inputs_count == 4 ? cpu_in(c, 3) : NULL;
  if (!tsr_program_splits_sequences(c->call.program)) {
    tsr_attention a = tsr_attention_of(&c->call);
    a.sinks = sinks;
    c->k->attention(
        &a, cpu_out(c, 0), cpu_out(c, 1), cpu_in(c, 0), cpu_in(c, 1), cpu_in(c, 2), scratch, begin,
        end);
    return;
  }
  tsr_attention_ring r = tsr_attention_ring_of(&c->call);
  sums s = sums_of(c, scratch_of_thread(c, c->threads));
  r.a.sinks = sinks;
  c->k->attention_ring(&r, s.first, cpu_in(c, 0), cpu_in(c, 1), cpu_in(c, 2), scratch, begin, end);
  c->k->attention_ring_finish(&r, cpu_out(c, 0), cpu_out(c, 1), s.first, begin, end);
}
const cpu_op cpu_attention = {
    .items = attention_items,
    .scratch = attention_scratch,
    .run = attention_run,
    .half = cpu_attention_half};

/* inputs: q, k, v, positions[, sinks] */
static void document_attention_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  tsr_attention a = tsr_document_attention_of(&c->call);
  if (c->call.task->inputs_count == 5) a.sinks = cpu_in(c, 4);
  c->k->attention(
      &a, cpu_out(c, 0), cpu_out(c, 1), cpu_in(c, 0), cpu_in(c, 1), cpu_in(c, 2),
      document_thread(c, thread), begin, end);
}
const cpu_op cpu_document_attention = {
    .items = attention_items,
    .scratch = document_scratch,
    .run = document_attention_run,
    .half = cpu_attention_half};

/* Items are key/value heads: (batch, groups) of stats (batch, heads, sequence, 2) over heads per
 * group. */
static int64_t attention_dx_items(const tsr_task *t) {
  int64_t per_group = t->inputs[1].shape[2] / t->inputs[2].shape[2];
  return t->inputs[5].shape[0] * t->inputs[5].shape[1] / per_group;
}

/* inputs: dout, q, k, v, out, stats */
static void attention_dx_units(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  tsr_attention_ring r = tsr_attention_ring_of(&c->call);
  char *scratch = scratch_of_thread(c, thread);
  sums s = sums_of(c, scratch_of_thread(c, c->threads));
  const float *dout = cpu_in(c, 0), *q = cpu_in(c, 1), *k = cpu_in(c, 2), *v = cpu_in(c, 3);
  int64_t heads = r.a.H / r.a.G, first = begin * heads, last = end * heads;
  c->k->attention_ring_rows(&r, s.rows, dout, cpu_in(c, 4), cpu_in(c, 5), first, last);
  c->k->attention_ring_dq(&r, s.first, dout, q, k, v, s.rows, scratch, first, last);
  c->k->attention_ring_dq_finish(&r, cpu_out(c, 0), s.first, first, last);
  c->k->attention_ring_dkv(&r, s.dkv, dout, q, s.rows, k, v, scratch, begin, end);
  c->k->attention_ring_dkv_finish(&r, cpu_out(c, 1), cpu_out(c, 2), s.dkv, begin, end);
}

static void attention_dx_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  if (tsr_program_splits_sequences(c->call.program)) {
    attention_dx_units(c, begin, end, thread);
    return;
  }
  tsr_attention a = tsr_attention_of(&c->call);
  c->k->attention_backward(
      &a, cpu_out(c, 0), cpu_out(c, 1), cpu_out(c, 2), cpu_in(c, 0), cpu_in(c, 1), cpu_in(c, 2),
      cpu_in(c, 3), cpu_in(c, 4), cpu_in(c, 5), scratch_of_thread(c, thread), begin, end);
}
const cpu_op cpu_attention_dx = {
    .items = attention_dx_items,
    .scratch = attention_scratch,
    .run = attention_dx_run,
    .half = cpu_attention_half};

/* inputs: dout, q, k, v, out, stats, positions */
static void document_attention_dx_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  tsr_attention a = tsr_document_attention_of(&c->call);
  c->k->attention_backward(
      &a, cpu_out(c, 0), cpu_out(c, 1), cpu_out(c, 2), cpu_in(c, 0), cpu_in(c, 1), cpu_in(c, 2),
      cpu_in(c, 3), cpu_in(c, 4), cpu_in(c, 5), document_thread(c, thread), begin, end);
}
const cpu_op cpu_document_attention_dx = {
    .items = attention_dx_items,
    .scratch = document_scratch,
    .run = document_attention_dx_run,
    .half = cpu_attention_half};

/* inputs: dout, out, stats, sinks */
static void attention_sinks_dx_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const tsr_tensor *d = &c->call.task->outputs[0];
  tsr_attention a = {.B = d->shape[0], .T = d->shape[1], .H = d->shape[2]};
  a.D = tsr_tensor_last(&c->call.task->inputs[0]) / a.H;
  a.sinks = cpu_in(c, 3);
  a.bf16 = tsr_attention_is_bf16(c->call.task);
  c->k->attention_sinks_backward(
      &a, cpu_out(c, 0), cpu_in(c, 0), cpu_in(c, 1), cpu_in(c, 2), begin, end);
}
const cpu_op cpu_attention_sinks_dx = {
    .items = cpu_items_rows, .run = attention_sinks_dx_run, .half = cpu_attention_half};

/* ---- the members of cp have parts of it ---- */

static int64_t
ring_scratch(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, int threads) {
  cpu_call c = sizes_call(k, p, t);
  tsr_attention_ring r = tsr_attention_ring_of(&c.call);
  return round_up(k->attention_ring_scratch(&r)) * threads;
}

static void *ring_thread(const cpu_call *c, const tsr_attention_ring *r, int thread) {
  return (char *)cpu_scratch(c) + round_up(c->k->attention_ring_scratch(r)) * thread;
}

static int64_t
acc_bytes(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, tsr_attention_sum sum) {
  cpu_call c = sizes_call(k, p, t);
  tsr_attention_ring r = tsr_attention_ring_of(&c.call);
  return round_up(k->attention_ring_acc(&r, sum));
}

/* Items are features; a range has the heads that begin in it. */
typedef struct {
  int64_t begin, end;
} heads;

static heads heads_in(const cpu_call *c, int64_t begin, int64_t end) {
  bool outs = c->call.task->op == TSR_OP_RING_ROWS; /* of dout, whose heads are those of values */
  const tsr_node *n = &c->call.program->graph->nodes[c->call.task->node];
  int64_t D = outs ? tsr_node_value_head(n) : attrs_of(c)->head_dim;
  return (heads){(begin + D - 1) / D, (end + D - 1) / D};
}

static int64_t query_items(const tsr_task *t) {
  const tsr_tensor *q = &t->inputs[tsr_attention_inputs_of(t->op).q];
  return q->shape[0] * q->shape[2];
}

static int64_t key_items(const tsr_task *t) {
  const tsr_tensor *k = &t->inputs[tsr_attention_inputs_of(t->op).k];
  return k->shape[0] * k->shape[2];
}

static int64_t out_bytes(const tsr_kernels *k, const tsr_program *p, const tsr_task *t) {
  return acc_bytes(k, p, t, TSR_ATTENTION_OUT);
}
static int64_t dq_bytes(const tsr_kernels *k, const tsr_program *p, const tsr_task *t) {
  return acc_bytes(k, p, t, TSR_ATTENTION_DQ);
}
static int64_t dkv_bytes(const tsr_kernels *k, const tsr_program *p, const tsr_task *t) {
  return acc_bytes(k, p, t, TSR_ATTENTION_DKV);
}

/* inputs: q, k, v[, acc] */
static void ring_attention_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  tsr_attention_ring r = tsr_attention_ring_of(&c->call);
  heads h = heads_in(c, begin, end);
  c->k->attention_ring(
      &r, cpu_out(c, 0), cpu_in(c, 0), cpu_in(c, 1), cpu_in(c, 2), ring_thread(c, &r, thread),
      h.begin, h.end);
}
const cpu_op cpu_ring_attention = {
    .items = query_items,
    .scratch = ring_scratch,
    .output = out_bytes,
    .run = ring_attention_run,
    .half = cpu_attention_half};

/* inputs: q, k, acc[, sinks] */
static void ring_out_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  tsr_attention_ring r = tsr_attention_ring_of(&c->call);
  if (c->call.task->inputs_count == 4) r.a.sinks = cpu_in(c, 3);
  heads h = heads_in(c, begin, end);
  c->k->attention_ring_finish(&r, cpu_out(c, 0), cpu_out(c, 1), cpu_in(c, 2), h.begin, h.end);
}
const cpu_op cpu_ring_out = {.items = query_items, .run = ring_out_run, .half = cpu_attention_half};

/* inputs: dout, out, stats */
static void ring_rows_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  tsr_attention_ring r = tsr_attention_ring_of(&c->call);
  heads h = heads_in(c, begin, end);
  c->k->attention_ring_rows(
      &r, cpu_out(c, 0), cpu_in(c, 0), cpu_in(c, 1), cpu_in(c, 2), h.begin, h.end);
}
const cpu_op cpu_ring_rows = {
    .items = query_items, .run = ring_rows_run, .half = cpu_attention_half};

/* inputs: dout, q, k, v, rows[, acc] */
static void ring_dq_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  tsr_attention_ring r = tsr_attention_ring_of(&c->call);
  heads h = heads_in(c, begin, end);
  c->k->attention_ring_dq(
      &r, cpu_out(c, 0), cpu_in(c, 0), cpu_in(c, 1), cpu_in(c, 2), cpu_in(c, 3), cpu_in(c, 4),
      ring_thread(c, &r, thread), h.begin, h.end);
}
const cpu_op cpu_ring_dq = {
    .items = query_items,
    .scratch = ring_scratch,
    .output = dq_bytes,
    .run = ring_dq_run,
    .half = cpu_attention_half};

/* inputs: q, k, acc */
static void ring_dq_out_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  tsr_attention_ring r = tsr_attention_ring_of(&c->call);
  heads h = heads_in(c, begin, end);
  c->k->attention_ring_dq_finish(&r, cpu_out(c, 0), cpu_in(c, 2), h.begin, h.end);
}
const cpu_op cpu_ring_dq_out = {
    .items = query_items, .run = ring_dq_out_run, .half = cpu_attention_half};

/* inputs: dout, q, rows, k, v[, acc] */
static void ring_dkv_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  tsr_attention_ring r = tsr_attention_ring_of(&c->call);
  heads h = heads_in(c, begin, end);
  c->k->attention_ring_dkv(
      &r, cpu_out(c, 0), cpu_in(c, 0), cpu_in(c, 1), cpu_in(c, 2), cpu_in(c, 3), cpu_in(c, 4),
      ring_thread(c, &r, thread), h.begin, h.end);
}
const cpu_op cpu_ring_dkv = {
    .items = key_items,
    .scratch = ring_scratch,
    .output = dkv_bytes,
    .run = ring_dkv_run,
    .half = cpu_attention_half};

/* inputs: q, k, acc */
static void ring_dkv_out_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  tsr_attention_ring r = tsr_attention_ring_of(&c->call);
  heads h = heads_in(c, begin, end);
  c->k->attention_ring_dkv_finish(&r, cpu_out(c, 0), cpu_out(c, 1), cpu_in(c, 2), h.begin, h.end);
}
const cpu_op cpu_ring_dkv_out = {
    .items = key_items, .run = ring_dkv_out_run, .half = cpu_attention_half};
