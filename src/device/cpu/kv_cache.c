// SPDX-License-Identifier: Apache-2.0
/* Generation with a cache (passes/kv_cache.c): rows that come after those of earlier runs. Moves of
 * whole rows take any dtype. */
#include "device/cpu/ops.h"
#include <string.h>

/* Of sequence b of this rank: how many tokens the cache has, how many new ones are real. */
static int64_t number_of(const cpu_call *c, int input, int64_t b) {
  return cpu_tokens(c, input)[b];
}

static char *row_of(const cpu_call *c, const tsr_tensor *t, int64_t row) {
  return (char *)tsr_operand_address(&c->call, t) +
         row * tsr_tensor_last(t) * tsr_dtype_bytes(t->dtype);
}

static void copy_row(
    const cpu_call *c, const tsr_tensor *to, int64_t to_row, const tsr_tensor *from,
    int64_t from_row) {
  size_t bytes = (size_t)(tsr_tensor_last(from) * tsr_dtype_bytes(from->dtype));
  memcpy(row_of(c, to, to_row), row_of(c, from, from_row), bytes);
}

/* ---- x (B, C, W), positions (B), counts (B), pages (B, pages of a row) → a part of
 * (pages, page, W) ---- */

static int64_t keep_items(const tsr_task *t) { return tsr_tensor_rows(&t->inputs[0]); }

static void keep_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const tsr_tensor *x = &c->call.task->inputs[0], *y = &c->call.task->outputs[0];
  int64_t C = x->shape[1], page = y->shape[1], each = c->call.task->inputs[3].shape[1];
  for (int64_t r = begin; r < end; r++) {
    int64_t b = r / C, at = number_of(c, 1, b) + r % C;
    if (r % C >= number_of(c, 2, b) || at >= each * page) continue;
    copy_row(c, y, number_of(c, 3, b * each + at / page) * page + at % page, x, r);
  }
}
const cpu_op cpu_kv_cache_append = {.items = keep_items, .run = keep_run, .takes_half = true};

/* ---- attention: q, keys, values, positions, counts, pages[, sinks] ---- */

static int64_t thread_scratch(const cpu_call *c) {
  tsr_attention_cached a = tsr_attention_cached_of(&c->call);
  return (c->k->attention_cached_scratch(&a) + 63) / 64 * 64;
}

static int64_t
attention_scratch(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, int threads) {
  cpu_call c = {.call = {.program = p, .task = t}, .k = k};
  return thread_scratch(&c) * threads;
}

/* Items are features of the keys of each sequence; a range has the heads that begin in it. */
static int64_t attention_items(const tsr_task *t) {
  return t->inputs[0].shape[0] * tsr_tensor_last(&t->inputs[1]);
}

static void attention_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  tsr_attention_cached a = tsr_attention_cached_of(&c->call);
  int64_t D = a.a.D;
  if (c->call.task->inputs_count == 7) a.a.sinks = cpu_in(c, 6);
  c->k->attention_cached(
      &a, cpu_out(c, 0), cpu_in(c, 0), cpu_in(c, 1), cpu_in(c, 2),
      (char *)cpu_scratch(c) + thread_scratch(c) * thread, (begin + D - 1) / D, (end + D - 1) / D);
}
const cpu_op cpu_attention_cached = {
    .items = attention_items,
    .scratch = attention_scratch,
    .run = attention_run,
    .half = cpu_attention_half};

/* ---- x (B, C, H*D), table (T, rotary/2, 2), positions (B) of the first tokens, or (B, C) ---- */

static void rope_at_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  tsr_rope one = tsr_rope_of(&c->call);
  int64_t C = one.T, last = c->call.task->inputs[1].shape[0] - 1;
  bool each = c->call.task->inputs[2].ndim == 2;
  one.T = 1;
  for (int64_t r = begin; r < end; r++) {
    int64_t at =
        each ? number_of(c, 2, r)
             : number_of(c, 2, r / C) + r % C; /* tokens that are not real may stand behind it */
    const float *turn = cpu_in(c, 1) + (at < last ? at : last) * one.rotary;
    c->k->rope(&one, cpu_out(c, 0), cpu_in(c, 0), turn, r, r + 1);
  }
}
const cpu_op cpu_rope_at = {.items = cpu_items_rows, .run = rope_at_run};

/* ---- table (T, E), positions (B) → (B, C, E) ---- */

static void gather_rows_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const tsr_tensor *table = &c->call.task->inputs[0], *y = &c->call.task->outputs[0];
  int64_t C = y->shape[1], first = cpu_attrs(c)->gather_rows.begin, last = table->shape[0] - 1;
  for (int64_t r = begin; r < end; r++) {
    int64_t at = first + number_of(c, 1, r / C) + r % C;
    copy_row(c, y, r, table, at < last ? at : last);
  }
}
const cpu_op cpu_gather_rows = {
    .items = cpu_items_rows, .run = gather_rows_run, .takes_half = true};

/* ---- x (B, C, E), counts (B) → (B, 1, E) ---- */

static void slice_last_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const tsr_tensor *x = &c->call.task->inputs[0], *y = &c->call.task->outputs[0];
  for (int64_t b = begin; b < end; b++) {
    int64_t count = number_of(c, 1, b);
    copy_row(c, y, b, x, b * x->shape[1] + (count > 0 ? count - 1 : 0));
  }
}
const cpu_op cpu_slice_last = {.items = cpu_items_rows, .run = slice_last_run, .takes_half = true};
