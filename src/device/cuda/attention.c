// SPDX-License-Identifier: Apache-2.0
/* Attention over whole sequences of one rank. Where the recipe splits them, each is a sum over its
 * units, as members of cp have it who each hold some of them. */
#include "device/cuda/ops.h"
#include "kernels/cuda/attention_shape.h"

static tsr_attention_ring units_of(const cuda_call *c) {
  tsr_attention_ring r = tsr_attention_ring_of(&c->call);
  r.step = 0;
  return r;
}

static void attention_units(const cuda_call *c) {
  tsr_attention_ring r = units_of(c);
  tsr_cuda_type type = cuda_type(cuda_y(c, 0));
  tsr_cuda_stream stream = c->state->stream;
  cuda_attention_scratch s = cuda_attention_scratch_at(&r, false, cuda_scratch(c));
  if (c->call.task->inputs_count == 4) r.a.sinks = cuda_in(c, 3);
  tsr_cuda_attention_ring(
      stream, type, &r, cuda_key_of(c, &r.a), s.first, cuda_in(c, 0), cuda_in(c, 1), cuda_in(c, 2),
      s.kernel);
  tsr_cuda_attention_ring_finish(stream, type, &r, cuda_out(c, 0), cuda_out(c, 1), s.first);
}

static void whole_attention(const cuda_call *c, const tsr_attention *a) {
  tsr_cuda_type type = cuda_type(cuda_y(c, 0));
  tsr_cuda_stream stream = c->state->stream;
  void *out = cuda_out(c, 0), *stats = cuda_out(c, 1);
  const void *q = cuda_in(c, 0), *k = cuda_in(c, 1), *v = cuda_in(c, 2);
  const void *arrays[] = {out, q, k, v};
  if (c->state->wgmma && attention_wgmma_can(type, a, arrays, 4))
    tsr_cuda_attention_wgmma(stream, type, a, out, stats, q, k, v);
  else tsr_cuda_attention(stream, type, a, cuda_key_of(c, a), out, stats, q, k, v);
}

/* inputs: q, k, v[, sinks] */
static void attention_run(const cuda_call *c) {
  tsr_attention a = tsr_attention_of(&c->call);
  if (c->call.task->inputs_count == 4) a.sinks = cuda_in(c, 3);
  if (tsr_program_splits_sequences(c->call.program)) attention_units(c);
  else whole_attention(c, &a);
}
const cuda_op cuda_attention = attention_run;

/* inputs: q, k, v, positions[, sinks] */
static void document_attention_run(const cuda_call *c) {
  tsr_attention a = tsr_document_attention_of(&c->call);
  if (c->call.task->inputs_count == 5) a.sinks = cuda_in(c, 4);
  whole_attention(c, &a);
}
const cuda_op cuda_document_attention = document_attention_run;

/* inputs: dout, q, k, v, out, stats */
static void attention_dx_units(const cuda_call *c) {
  tsr_attention_ring r = units_of(c);
  tsr_cuda_type type = cuda_type(cuda_y(c, 0));
  tsr_cuda_stream stream = c->state->stream;
  const uint64_t *key = cuda_key_of(c, &r.a);
  cuda_attention_scratch s = cuda_attention_scratch_at(&r, true, cuda_scratch(c));
  const void *dout = cuda_in(c, 0), *q = cuda_in(c, 1), *k = cuda_in(c, 2), *v = cuda_in(c, 3);
  tsr_cuda_attention_ring_rows(stream, type, &r, s.rows, dout, cuda_in(c, 4), cuda_in(c, 5));
  tsr_cuda_attention_ring_dq(stream, type, &r, key, s.first, dout, q, k, v, s.rows, s.kernel);
  tsr_cuda_attention_ring_dq_finish(stream, type, &r, cuda_out(c, 0), s.first);
  tsr_cuda_attention_ring_dkv(stream, type, &r, key, s.dkv, dout, q, s.rows, k, v, s.kernel);
  tsr_cuda_attention_ring_dkv_finish(stream, type, &r, cuda_out(c, 1), cuda_out(c, 2), s.dkv);
}

static void whole_attention_dx(const cuda_call *c, const tsr_attention *a) {
  tsr_cuda_type type = cuda_type(cuda_y(c, 0));
  tsr_cuda_stream stream = c->state->stream;
  void *dq = cuda_out(c, 0), *dk = cuda_out(c, 1), *dv = cuda_out(c, 2), *scratch = cuda_scratch(c);
  const void *dout = cuda_in(c, 0), *q = cuda_in(c, 1), *k = cuda_in(c, 2), *v = cuda_in(c, 3);
  const void *out = cuda_in(c, 4), *arrays[] = {dq, dk, dv, dout, q, k, v};
  const float *stats = cuda_in(c, 5);
  if (c->state->wgmma && attention_wgmma_can(type, a, arrays, 7))
    tsr_cuda_attention_wgmma_backward(
        stream, type, a, dq, dk, dv, dout, q, k, v, out, stats, scratch);
  else
    tsr_cuda_attention_backward(
        stream, type, a, cuda_key_of(c, a), dq, dk, dv, dout, q, k, v, out, stats, scratch);
}

static void attention_dx_run(const cuda_call *c) {
  tsr_attention a = tsr_attention_of(&c->call);
  if (tsr_program_splits_sequences(c->call.program)) attention_dx_units(c);
  else whole_attention_dx(c, &a);
}
const cuda_op cuda_attention_dx = attention_dx_run;

/* inputs: dout, out, stats, sinks */
static void attention_sinks_dx_run(const cuda_call *c) {
  const tsr_tensor *d = cuda_y(c, 0);
  tsr_attention a = {.B = d->shape[0], .T = d->shape[1], .H = d->shape[2]};
  a.D = tsr_tensor_last(cuda_x(c, 0)) / a.H;
  a.sinks = cuda_in(c, 3);
  tsr_cuda_attention_sinks_backward(
      c->state->stream, cuda_type(d), &a, cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1),
      cuda_in(c, 2));
}
const cuda_op cuda_attention_sinks_dx = attention_sinks_dx_run;

/* inputs: dout, q, k, v, out, stats, positions */
static void document_attention_dx_run(const cuda_call *c) {
  tsr_attention a = tsr_document_attention_of(&c->call);
  whole_attention_dx(c, &a);
}
const cuda_op cuda_document_attention_dx = document_attention_dx_run;
