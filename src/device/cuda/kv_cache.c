// SPDX-License-Identifier: Apache-2.0
/* Generation with a cache (passes/kv_cache.c). Positions and counts are inputs of a step, which the
 * kernels read where they lie on the device. */
#include "device/cuda/ops.h"
#include <assert.h>

static int64_t row_bytes(const tsr_tensor *t) {
  return tsr_tensor_last(t) * tsr_dtype_bytes(t->dtype);
}

/* x (B, C, W), positions (B), counts (B), pages (B, pages of a row) → a part of (pages, page, W) */
static void keep_run(const cuda_call *c) {
  const tsr_tensor *x = cuda_x(c, 0);
  tsr_cuda_pages pages = {cuda_in(c, 3), cuda_y(c, 0)->shape[1], cuda_x(c, 3)->shape[1]};
  tsr_cuda_kv_cache_append(
      c->state->stream, cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1), cuda_in(c, 2), &pages,
      row_bytes(x), x->shape[0], x->shape[1]);
}
const cuda_op cuda_kv_cache_append = keep_run;

/* q, keys, values, positions, counts, pages[, sinks]; attributes: head_dim, scale */
static void attention_cached_run(const cuda_call *c) {
  const tsr_tensor *q = cuda_x(c, 0), *k = cuda_x(c, 1);
  tsr_attention_cached a = tsr_attention_cached_of(&c->call);
  assert(q->dtype == k->dtype && q->dtype == cuda_y(c, 0)->dtype);
  if (c->call.task->inputs_count == 7) a.a.sinks = cuda_in(c, 6);
  tsr_cuda_attention_cached(
      c->state->stream, cuda_type(q), &a, cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1),
      cuda_in(c, 2));
}
const cuda_op cuda_attention_cached = attention_cached_run;

/* x (B, C, H*D), table (T, D/2, 2), positions (B) of the first tokens, or (B, C), which are as many
 * sequences of one token */
static void rope_at_run(const cuda_call *c) {
  const tsr_tensor *x = cuda_x(c, 0), *table = cuda_x(c, 1);
  tsr_rope r = tsr_rope_of(&c->call);
  bool each = cuda_x(c, 2)->ndim == 2;
  int64_t B = each ? x->shape[0] * x->shape[1] : x->shape[0];
  if (each) r.T = 1;
  assert(table->dtype == TSR_F32 && x->dtype == cuda_y(c, 0)->dtype);
  tsr_cuda_rope_cached(
      c->state->stream, cuda_type(x), cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1), cuda_in(c, 2),
      table->shape[0], B, &r);
}
const cuda_op cuda_rope_at = rope_at_run;

/* table (T, E), positions (B) → (B, C, E); attributes: C, the row of position 0 */
static void gather_rows_run(const cuda_call *c) {
  const tsr_tensor *table = cuda_x(c, 0), *y = cuda_y(c, 0);
  tsr_cuda_gather_rows(
      c->state->stream, cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1), row_bytes(table), y->shape[0],
      y->shape[1], table->shape[0], cuda_attrs(c)->gather_rows.begin);
}
const cuda_op cuda_gather_rows = gather_rows_run;

/* x (B, C, E), counts (B) → (B, 1, E) */
static void slice_last_run(const cuda_call *c) {
  const tsr_tensor *x = cuda_x(c, 0);
  tsr_cuda_slice_last(
      c->state->stream, cuda_out(c, 0), cuda_in(c, 0), cuda_in(c, 1), row_bytes(x), x->shape[0],
      x->shape[1]);
}
const cuda_op cuda_slice_last = slice_last_run;
