// SPDX-License-Identifier: Apache-2.0
/* Ring attention: the members of cp have parts of the sequences. Accumulators go from step to step
 * as values of the graph, whose size is the CPU's (tsr_cpu_op's `output`), which pads rows; the
 * device's are no longer. */
#include "device/cuda_ops.h"
#include <assert.h>

/* The sum that a step adds to. */
static tsr_attention_sum sum_of(const tsr_task *t) {
  switch ((int)t->op) {
  case TSR_OP_RING_DQ:
    return TSR_ATTENTION_DQ;
  case TSR_OP_RING_DKV:
    return TSR_ATTENTION_DKV;
  default:
    return TSR_ATTENTION_OUT;
  }
}

static int64_t step_scratch(const tsr_program *p, const tsr_task *t) {
  cpu_call sizes = {.program = p, .task = t};
  tsr_attention_ring r = cpu_ring_of(&sizes);
  return tsr_cuda_attention_ring_scratch(&r, sum_of(t));
}

/* A step's; its accumulator is the first output. */
static tsr_attention_ring step_of(const cuda_call *c) {
  tsr_attention_ring r = cpu_ring_of(&c->base);
  assert(tsr_cuda_attention_ring_acc(&r, sum_of(c->base.task)) <= cuda_y(c, 0)->shape[0] * 4);
  return r;
}

/* inputs: q, k, v[, acc] */
static void ring_attention_run(const cuda_call *c) {
  tsr_attention_ring r = step_of(c);
  tsr_cuda_attention_ring(
      c->state->stream, cuda_type(cuda_x(c, 0)), &r, cuda_key_of(c, &r.a), cuda_out(c, 0),
      cuda_in(c, 0), cuda_in(c, 1), cuda_in(c, 2), cuda_scratch(c));
}
const cuda_op cuda_ring_attention = {ring_attention_run, step_scratch};

/* inputs: q, k, acc */
static void ring_out_run(const cuda_call *c) {
  tsr_attention_ring r = cpu_ring_of(&c->base);
  tsr_cuda_attention_ring_finish(
      c->state->stream, cuda_type(cuda_y(c, 0)), &r, cuda_out(c, 0), cuda_out(c, 1), cuda_in(c, 2));
}
const cuda_op cuda_ring_out = {ring_out_run, NULL};

/* inputs: dout, out, stats */
static void ring_rows_run(const cuda_call *c) {
  tsr_attention_ring r = cpu_ring_of(&c->base);
  tsr_cuda_attention_ring_rows(
      c->state->stream, cuda_type(cuda_x(c, 0)), &r, cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1),
      cuda_in(c, 2));
}
const cuda_op cuda_ring_rows = {ring_rows_run, NULL};

/* inputs: dout, q, k, v, rows[, acc] */
static void ring_dq_run(const cuda_call *c) {
  tsr_attention_ring r = step_of(c);
  tsr_cuda_attention_ring_dq(
      c->state->stream, cuda_type(cuda_x(c, 1)), &r, cuda_key_of(c, &r.a), cuda_out(c, 0),
      cuda_in(c, 0), cuda_in(c, 1), cuda_in(c, 2), cuda_in(c, 3), cuda_in(c, 4), cuda_scratch(c));
}
const cuda_op cuda_ring_dq = {ring_dq_run, step_scratch};

/* inputs: q, k, acc */
static void ring_dq_out_run(const cuda_call *c) {
  tsr_attention_ring r = cpu_ring_of(&c->base);
  tsr_cuda_attention_ring_dq_finish(
      c->state->stream, cuda_type(cuda_y(c, 0)), &r, cuda_out(c, 0), cuda_in(c, 2));
}
const cuda_op cuda_ring_dq_out = {ring_dq_out_run, NULL};

/* inputs: dout, q, rows, k, v[, acc] */
static void ring_dkv_run(const cuda_call *c) {
  tsr_attention_ring r = step_of(c);
  tsr_cuda_attention_ring_dkv(
      c->state->stream, cuda_type(cuda_x(c, 1)), &r, cuda_key_of(c, &r.a), cuda_out(c, 0),
      cuda_in(c, 0), cuda_in(c, 1), cuda_in(c, 2), cuda_in(c, 3), cuda_in(c, 4), cuda_scratch(c));
}
const cuda_op cuda_ring_dkv = {ring_dkv_run, step_scratch};

/* inputs: q, k, acc */
static void ring_dkv_out_run(const cuda_call *c) {
  tsr_attention_ring r = cpu_ring_of(&c->base);
  tsr_cuda_attention_ring_dkv_finish(
      c->state->stream, cuda_type(cuda_y(c, 0)), &r, cuda_out(c, 0), cuda_out(c, 1), cuda_in(c, 2));
}
const cuda_op cuda_ring_dkv_out = {ring_dkv_out_run, NULL};
