// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/gemm_batch.h"

static int64_t bytes_of(const tsr_tensor *t) { return tsr_dtype_bytes(t->dtype); }

static int64_t distance(const cuda_call *c, const tsr_tensor *from, const tsr_tensor *to) {
  if (!from) return 0;
  return ((char *)cuda_at(c, to) - (char *)cuda_at(c, from)) / bytes_of(from);
}

static tsr_cuda_batch
steps_between(const cuda_call *c, const tsr_batched_gemm *x, const tsr_batched_gemm *y) {
  return (tsr_cuda_batch){
      .a = distance(c, x->a, y->a),
      .b = distance(c, x->b, y->b),
      .c = distance(c, x->out, y->out),
      .bias = distance(c, x->bias, y->bias)};
}

/* Whether a GEMM so far behind a batch's last one belongs to it; distances are not negative. */
static bool continues(const cuda_gemm_batch *g, const tsr_cuda_batch *s) {
  if (s->a < 0 || s->b < 0 || s->bias < 0) return false;
  const tsr_cuda_batch *have = &g->steps;
  return have->count == 1 ||
         (s->a == have->a && s->b == have->b && s->c == have->c && s->bias == have->bias);
}

static int list_gemms(const cuda_call *c, tsr_batched_gemm *ret) {
  const tsr_task *t = c->call.task;
  if (t->fused != TSR_FUSED_GEMMS) {
    ret[0] = (tsr_batched_gemm){.a = cuda_x(c, 0), .b = cuda_x(c, 1), .out = cuda_y(c, 0)};
    return 1;
  }
  for (int i = 0; i < t->outputs_count; i++) {
    tsr_batched_gemm gemm = tsr_batched_gemm_of(t, i);
    int at = i;
    for (; at > 0 && distance(c, gemm.out, ret[at - 1].out) > 0; at--) ret[at] = ret[at - 1];
    ret[at] = gemm;
  }
  return t->outputs_count;
}

int cuda_gemm_batches(const cuda_call *c, cuda_gemm_batch ret[TSR_GEMMS_MAX]) {
  tsr_batched_gemm gemms[TSR_GEMMS_MAX];
  int count = list_gemms(c, gemms), batches = 0;
  for (int i = 0; i < count; i++) {
    cuda_gemm_batch *last = batches ? &ret[batches - 1] : NULL;
    tsr_cuda_batch s = {0};
    if (last) s = steps_between(c, &gemms[i - 1], &gemms[i]);
    if (last && continues(last, &s)) {
      s.count = last->steps.count + 1;
      last->steps = s;
    } else {
      ret[batches++] = (cuda_gemm_batch){gemms[i], {.count = 1}};
    }
  }
  return batches;
}
