// SPDX-License-Identifier: Apache-2.0
/* Attention over whole sequences of one rank. Where the recipe cuts them, each is a sum over its
 * units, as members of cp have it who each hold some of them. */
#include "device/cuda_ops.h"

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* In a call's scratch, over units: the sums of dq (or out) and of dkv, the rows' numbers, and
 * what the kernels want. */
typedef struct {
  float *first, *dkv, *rows;
  void *kernel;
  int64_t bytes;
} unit_sums;

static unit_sums sums_of(const tsr_attention_ring *r, bool backward, char *at) {
  tsr_attention_sum first = backward ? TSR_ATTENTION_DQ : TSR_ATTENTION_OUT;
  int64_t acc = cuda_aligned(tsr_cuda_attention_ring_acc(r, first));
  int64_t kernel = tsr_cuda_attention_ring_scratch(r, first), dkv = 0, rows = 0;
  if (backward) {
    dkv = cuda_aligned(tsr_cuda_attention_ring_acc(r, TSR_ATTENTION_DKV));
    rows = cuda_aligned(r->a.B * r->a.H * r->a.T * 3 * 4);
    kernel = most(kernel, tsr_cuda_attention_ring_scratch(r, TSR_ATTENTION_DKV));
  }
  unit_sums s = {.bytes = acc + dkv + rows + kernel};
  if (!at) return s;
  s.first = (float *)(void *)at;
  s.dkv = (float *)(void *)(at + acc);
  s.rows = (float *)(void *)(at + acc + dkv);
  s.kernel = at + acc + dkv + rows;
  return s;
}

static tsr_attention_ring units_of(const cuda_call *c) {
  tsr_attention_ring r = cpu_ring_of(&c->base);
  r.step = 0;
  return r;
}

static int64_t scratch_of(const tsr_program *p, const tsr_task *t, bool backward) {
  cpu_call sizes = {.program = p, .task = t};
  tsr_attention_ring r = cpu_ring_of(&sizes);
  if (cpu_has_units(p)) return sums_of(&r, backward, NULL).bytes;
  return backward ? tsr_cuda_attention_scratch(&r.a) : 0;
}

static int64_t attention_scratch(const tsr_program *p, const tsr_task *t) {
  return scratch_of(p, t, false);
}

static void attention_units(const cuda_call *c) {
  tsr_attention_ring r = units_of(c);
  tsr_cuda_type type = cuda_type(cuda_y(c, 0));
  tsr_cuda_stream stream = c->state->stream;
  unit_sums s = sums_of(&r, false, cuda_scratch(c));
  tsr_cuda_attention_ring(
      stream, type, &r, cuda_key_of(c, &r.a), s.first, cuda_in(c, 0), cuda_in(c, 1), cuda_in(c, 2),
      s.kernel);
  tsr_cuda_attention_ring_finish(stream, type, &r, cuda_out(c, 0), cuda_out(c, 1), s.first);
}

static void attention_run(const cuda_call *c) {
  tsr_attention a = cpu_attention_of(&c->base);
  if (cpu_has_units(c->base.program)) attention_units(c);
  else
    tsr_cuda_attention(
        c->state->stream, cuda_type(cuda_y(c, 0)), &a, cuda_key_of(c, &a), cuda_out(c, 0),
        cuda_out(c, 1), cuda_in(c, 0), cuda_in(c, 1), cuda_in(c, 2));
}
const cuda_op cuda_attention = {attention_run, attention_scratch};

static int64_t attention_dx_scratch(const tsr_program *p, const tsr_task *t) {
  return scratch_of(p, t, true);
}

/* inputs: dout, q, k, v, out, stats */
static void attention_dx_units(const cuda_call *c) {
  tsr_attention_ring r = units_of(c);
  tsr_cuda_type type = cuda_type(cuda_y(c, 0));
  tsr_cuda_stream stream = c->state->stream;
  const uint64_t *key = cuda_key_of(c, &r.a);
  unit_sums s = sums_of(&r, true, cuda_scratch(c));
  const void *dout = cuda_in(c, 0), *q = cuda_in(c, 1), *k = cuda_in(c, 2), *v = cuda_in(c, 3);
  tsr_cuda_attention_ring_rows(stream, type, &r, s.rows, dout, cuda_in(c, 4), cuda_in(c, 5));
  tsr_cuda_attention_ring_dq(stream, type, &r, key, s.first, dout, q, k, v, s.rows, s.kernel);
  tsr_cuda_attention_ring_dq_finish(stream, type, &r, cuda_out(c, 0), s.first);
  tsr_cuda_attention_ring_dkv(stream, type, &r, key, s.dkv, dout, q, s.rows, k, v, s.kernel);
  tsr_cuda_attention_ring_dkv_finish(stream, type, &r, cuda_out(c, 1), cuda_out(c, 2), s.dkv);
}

static void attention_dx_run(const cuda_call *c) {
  tsr_attention a = cpu_attention_of(&c->base);
  if (cpu_has_units(c->base.program)) attention_dx_units(c);
  else
    tsr_cuda_attention_backward(
        c->state->stream, cuda_type(cuda_y(c, 0)), &a, cuda_key_of(c, &a), cuda_out(c, 0),
        cuda_out(c, 1), cuda_out(c, 2), cuda_in(c, 0), cuda_in(c, 1), cuda_in(c, 2), cuda_in(c, 3),
        cuda_in(c, 4), cuda_in(c, 5), cuda_scratch(c));
}
const cuda_op cuda_attention_dx = {attention_dx_run, attention_dx_scratch};
