// SPDX-License-Identifier: Apache-2.0
/* Table lookups, and the sums over tokens that their gradients are. */
#include "device/cpu/ops.h"
#include "schedule/fuse.h"
#include <assert.h>
#include <string.h>

/* n numbers, as the kernel of f32 tables gives them: -0 becomes +0. */
static void
look_up(const tsr_kernels *k, tsr_dtype to, void *out, tsr_dtype from, const void *x, int64_t n) {
  enum { BLOCK = 1024 };
  float block[BLOCK];
  for (int64_t at = 0; at < n; at += BLOCK) {
    int64_t size = n - at < BLOCK ? n - at : BLOCK;
    const char *in = (const char *)x + at * tsr_dtype_bytes(from);
    char *into = (char *)out + at * tsr_dtype_bytes(to);
    float *wide = to == TSR_F32 ? (float *)(void *)into : block;
    if (from == TSR_F32) memcpy(wide, in, sizeof *wide * (size_t)size);
    else cpu_cast_from_half(k, from, wide, in, 0, size);
    for (int64_t i = 0; i < size; i++) wide[i] += 0.0f;
    if (to != TSR_F32) cpu_cast_to_half(k, to, into, wide, 0, size);
  }
}

static void
embedding_half(const cpu_call *c, int64_t v_begin, int64_t v_end, int64_t begin, int64_t end) {
  const tsr_tensor *table = &c->call.task->inputs[1], *y = &c->call.task->outputs[0];
  const char *rows = (const char *)cpu_in(c, 1);
  int64_t C = table->shape[1], out_row = C * tsr_dtype_bytes(y->dtype);
  for (int64_t r = begin; r < end; r++) {
    char *out = (char *)cpu_out(c, 0) + r * out_row;
    int64_t token = cpu_tokens(c, 0)[r];
    if (token < v_begin || token >= v_end) memset(out, 0, (size_t)out_row);
    else
      look_up(
          c->k, y->dtype, out, table->dtype,
          rows + (token - v_begin) * C * tsr_dtype_bytes(table->dtype), C);
  }
}

static void embedding_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const tsr_tensor *table = &c->call.task->inputs[1];
  int64_t first = tsr_operand_offset(&c->call, table, 0);
  bool half = tsr_dtype_is_half(table->dtype) || tsr_dtype_is_half(c->call.task->outputs[0].dtype);
  if (half) embedding_half(c, first, first + table->shape[0], begin, end);
  else
    c->k->embedding(
        cpu_out(c, 0), cpu_tokens(c, 0), cpu_in(c, 1), table->shape[1], first,
        first + table->shape[0], begin, end);
}

const cpu_op cpu_embedding = {.items = cpu_items_rows, .run = embedding_run, .takes_half = true};

/* A leaf's rows are neighbours for the kernel: in another order of the rows where they are not. */
static int64_t rows_of_tokens(const tsr_task *t) { return tsr_tensor_elements(&t->inputs[0]); }
static bool is_reordered(const tsr_task *t) { return !tsr_reduction_is_contiguous(&t->sum); }

static int64_t
embedding_dw_scratch(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, int threads) {
  (void)p;
  const tsr_tensor *table = &t->outputs[0];
  int64_t rows = rows_of_tokens(t), blocks = tsr_reduction_blocks(&t->sum), bytes;
  bytes = blocks * k->embedding_scratch(
                       rows / blocks, 0, table->shape[0], table->shape[1],
                       tsr_reduction_depth(&t->sum), threads);
  return is_reordered(t) ? bytes + 2 * 4 * rows : bytes;
}

/* Where rows are reordered: the tokens leaf by leaf, and which row each one is of. */
static int32_t *reordered_rows(const cpu_call *c, int32_t **ret_tokens) {
  char *end = (char *)cpu_scratch(c) + c->call.task->scratch_bytes - c->call.task->cast_bytes;
  *ret_tokens = (int32_t *)(void *)end - 2 * rows_of_tokens(c->call.task);
  return is_reordered(c->call.task) ? *ret_tokens + rows_of_tokens(c->call.task) : NULL;
}

static void sort_by_leaves(const cpu_call *c, int32_t *tokens, int32_t *row) {
  const tsr_reduction *sum = &c->call.task->sum;
  int64_t n = 0, leaves = tsr_reduction_leaves(sum);
  tsr_reduced_rows run;
  for (int64_t i = 0; i < tsr_task_leaves(c->call.task); i++)
    for (int64_t k = 0; tsr_reduction_rows(sum, i / leaves, i % leaves, k, &run); k++)
      for (int64_t j = 0; j < run.rows; j++) row[n++] = (int32_t)(run.first + j);
  assert(n == rows_of_tokens(c->call.task));
  for (int64_t i = 0; i < n; i++) tokens[i] = cpu_tokens(c, 0)[row[i]];
}

/* One block's part of the task's inputs. */
typedef struct {
  int64_t rows;
  const int32_t *tokens, *row_of;
  const float *dout;
  void *scratch;
} token_block;

static token_block token_block_of(const cpu_call *c, int64_t index) {
  const tsr_tensor *table = &c->call.task->outputs[0];
  int64_t rows = rows_of_tokens(c->call.task) / tsr_reduction_blocks(&c->call.task->sum),
          bytes = c->k->embedding_scratch(
              rows, 0, table->shape[0], table->shape[1], tsr_reduction_depth(&c->call.task->sum),
              c->threads);
  int32_t *tokens, *row_of = reordered_rows(c, &tokens);
  token_block b = {.rows = rows, .scratch = (char *)cpu_scratch(c) + index * bytes};
  b.tokens = (row_of ? tokens : cpu_tokens(c, 0)) + index * rows;
  b.row_of = row_of ? row_of + index * rows : NULL;
  b.dout = cpu_in(c, 1) + (row_of ? 0 : index * rows * table->shape[1]);
  return b;
}

static void embedding_dw_before(const cpu_call *c, int part, int parts) {
  (void)parts;
  if (part) return;
  const tsr_tensor *table = &c->call.task->outputs[0];
  int64_t first = tsr_operand_offset(&c->call, table, 0);
  int32_t *tokens, *row = reordered_rows(c, &tokens);
  if (row) sort_by_leaves(c, tokens, row);
  for (int64_t i = 0; i < tsr_reduction_blocks(&c->call.task->sum); i++) {
    token_block b = token_block_of(c, i);
    c->k->embedding_sort(
        b.scratch, b.tokens, b.rows, first, first + table->shape[0],
        tsr_task_attrs(&c->call)->embedding.padding);
  }
}

/* Items are rows of the table, of all blocks. */
static void embedding_dw_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  const tsr_tensor *table = &c->call.task->outputs[0];
  const tsr_tensor *plus = tsr_gradient_addend(c->call.task); // (V, C)
  int64_t V = table->shape[0], C = table->shape[1],
          v_begin = tsr_operand_offset(&c->call, table, 0);
  for (int64_t i = begin / V; i * V < end; i++) {
    token_block b = token_block_of(c, i);
    int64_t from = begin > i * V ? begin - i * V : 0, to = end < (i + 1) * V ? end - i * V : V;
    c->k->embedding_backward(
        cpu_out(c, 0) + i * V * C, plus ? tsr_operand_address(&c->call, plus) : NULL, b.dout,
        b.row_of, b.scratch, thread, b.rows, C, v_begin, v_begin + V, c->call.task->sum.tree,
        tsr_reduction_leaves(&c->call.task->sum), c->call.task->sum.sequence, from, to);
  }
}

const cpu_op cpu_embedding_dw = {
    .items = cpu_items_rows,
    .scratch = embedding_dw_scratch,
    .before = embedding_dw_before,
    .run = embedding_dw_run};
