/* Attention over whole sequences of one rank. */
#include "device/cuda_ops.h"

static void attention_run(const cuda_call *c) {
  tsr_attention a = cpu_attention_of(&c->base);
  tsr_cuda_attention(
      c->state->stream, cuda_type(cuda_y(c, 0)), &a, a.dropout > 0 ? c->key : NULL, cuda_out(c, 0),
      cuda_out(c, 1), cuda_in(c, 0), cuda_in(c, 1), cuda_in(c, 2));
}
const cuda_op cuda_attention = {attention_run, NULL};

static int64_t attention_dx_scratch(const tsr_program *p, const tsr_task *t) {
  cpu_call sizes = {.program = p, .task = t};
  tsr_attention a = cpu_attention_of(&sizes);
  return tsr_cuda_attention_scratch(&a);
}

/* inputs: dout, q, k, v, out, stats */
static void attention_dx_run(const cuda_call *c) {
  tsr_attention a = cpu_attention_of(&c->base);
  tsr_cuda_attention_backward(
      c->state->stream, cuda_type(cuda_y(c, 0)), &a, a.dropout > 0 ? c->key : NULL, cuda_out(c, 0),
      cuda_out(c, 1), cuda_out(c, 2), cuda_in(c, 0), cuda_in(c, 1), cuda_in(c, 2), cuda_in(c, 3),
      cuda_in(c, 4), cuda_in(c, 5), cuda_scratch(c));
}
const cuda_op cuda_attention_dx = {attention_dx_run, attention_dx_scratch};
