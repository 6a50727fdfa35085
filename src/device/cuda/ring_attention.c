// SPDX-License-Identifier: Apache-2.0
/* Ring attention: the members of cp have parts of the sequences. Accumulators go from step to step
 * as values of the graph, whose size is the CPU's (tsr_target.output_bytes), which pads rows; the
 * device's are no longer. */
#include "device/cuda/ops.h"
#include <assert.h>

/* A step's; its accumulator is the first output. */
static tsr_attention_ring step_of(const cuda_call *c) {
  tsr_attention_ring r = tsr_attention_ring_of(&c->call);
  assert(
      tsr_cuda_attention_ring_acc(&r, cuda_ring_sum_of(c->call.task->op)) <=
      cuda_y(c, 0)->shape[0] * 4);
  return r;
}

/* inputs: q, k, v[, acc] */
static void ring_attention_run(const cuda_call *c) {
  tsr_attention_ring r = step_of(c);
  tsr_cuda_attention_ring(
      c->state->stream, cuda_type(cuda_x(c, 0)), &r, cuda_key_of(c, &r.a), cuda_out(c, 0),
      cuda_in(c, 0), cuda_in(c, 1), cuda_in(c, 2), cuda_scratch(c));
}
const cuda_op cuda_ring_attention = ring_attention_run;

/* inputs: q, k, acc[, sinks] */
static void ring_out_run(const cuda_call *c) {
  tsr_attention_ring r = tsr_attention_ring_of(&c->call);
  if (c->call.task->inputs_count == 4) r.a.sinks = cuda_in(c, 3);
  tsr_cuda_attention_ring_finish(
      c->state->stream, cuda_type(cuda_y(c, 0)), &r, cuda_out(c, 0), cuda_out(c, 1), cuda_in(c, 2));
}
const cuda_op cuda_ring_out = ring_out_run;

/* inputs: dout, out, stats */
static void ring_rows_run(const cuda_call *c) {
  tsr_attention_ring r = tsr_attention_ring_of(&c->call);
  tsr_cuda_attention_ring_rows(
      c->state->stream, cuda_type(cuda_x(c, 0)), &r, cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1),
      cuda_in(c, 2));
}
const cuda_op cuda_ring_rows = ring_rows_run;

/* inputs: dout, q, k, v, rows[, acc] */
static void ring_dq_run(const cuda_call *c) {
  tsr_attention_ring r = step_of(c);
  tsr_cuda_attention_ring_dq(
      c->state->stream, cuda_type(cuda_x(c, 1)), &r, cuda_key_of(c, &r.a), cuda_out(c, 0),
      cuda_in(c, 0), cuda_in(c, 1), cuda_in(c, 2), cuda_in(c, 3), cuda_in(c, 4), cuda_scratch(c));
}
const cuda_op cuda_ring_dq = ring_dq_run;

/* inputs: q, k, acc */
static void ring_dq_out_run(const cuda_call *c) {
  tsr_attention_ring r = tsr_attention_ring_of(&c->call);
  tsr_cuda_attention_ring_dq_finish(
      c->state->stream, cuda_type(cuda_y(c, 0)), &r, cuda_out(c, 0), cuda_in(c, 2));
}
const cuda_op cuda_ring_dq_out = ring_dq_out_run;

/* inputs: dout, q, rows, k, v[, acc] */
static void ring_dkv_run(const cuda_call *c) {
  tsr_attention_ring r = step_of(c);
  tsr_cuda_attention_ring_dkv(
      c->state->stream, cuda_type(cuda_x(c, 1)), &r, cuda_key_of(c, &r.a), cuda_out(c, 0),
      cuda_in(c, 0), cuda_in(c, 1), cuda_in(c, 2), cuda_in(c, 3), cuda_in(c, 4), cuda_scratch(c));
}
const cuda_op cuda_ring_dkv = ring_dkv_run;

/* inputs: q, k, acc */
static void ring_dkv_out_run(const cuda_call *c) {
  tsr_attention_ring r = tsr_attention_ring_of(&c->call);
  tsr_cuda_attention_ring_dkv_finish(
      c->state->stream, cuda_type(cuda_y(c, 0)), &r, cuda_out(c, 0), cuda_out(c, 1), cuda_in(c, 2));
}
const cuda_op cuda_ring_dkv_out = ring_dkv_out_run;
