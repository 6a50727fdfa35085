// SPDX-License-Identifier: Apache-2.0
/* The gradient of a table that is embedding and classifier: its GEMM directly before the sum over
 * tokens, which is added in place, where that saves memory; and that fusing it changes no bit. */
#include "sample.h"
#include "schedule/fuse.h"
#include "tests/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, VOCABULARY = 500, WIDTH = 8 };

static tsr_graph *make_graph(tsr_arena *arena, int rows, bool tied) {
  tsr_graph *g = tsr_graph_new(arena, "tied", (tsr_units){.batch = 1, .sequence = 1, .tp = 1});
  char inputs[64];
  snprintf(inputs, sizeof inputs, "x %d tokens; t %d tokens", rows, rows);
  harness_inputs(g, inputs);
  harness_params(g, tied ? "table 500,8; w 8,8; n 8" : "table 500,8; w 8,8; n 8; head 500,8");
  harness_calls(g, "e: embedding(x, table); u: linear(e, w); a: gelu(u); h: rmsnorm(a, n)");
  harness_calls(g, tied ? "y: linear(h, table)" : "y: linear(h, head)");
  harness_calls(g, "loss: cross_entropy(y, t, valid: 500)");
  g->loss = harness_find(g, "loss");
  return g;
}

static const tsr_optimizer adamw = HARNESS_ADAMW(0);

static harness_options options(void) {
  harness_options o = {
      .dp = 1, .tp = 1, .threads = 2, .microbatches = 1, .batch_units = 1, .tp_units = 1};
  o.optimizer = &adamw;
  o.vocabulary = VOCABULARY;
  return o;
}

static harness compile(tsr_arena *arena, int rows, bool tied) {
  harness_options o = options();
  harness h;
  tsr_diags *diags = tsr_diags_new(arena);
  if (!harness_compile(make_graph(arena, rows, tied), &o, &h, diags))
    tsr_diags_print(diags, stderr), abort();
  return h;
}

static int find(const tsr_program *p, tsr_op op, int64_t rows) {
  for (int i = 0; i < p->tasks_count; i++)
    if (p->tasks[i].op == op && p->tasks[i].outputs[0].shape[0] == rows) return i;
  CHECK_AT(false, "no %s", tsr_op_name(op));
  return 0;
}

/* Fewer rows than features: the logits' gradient is smaller than the table's. */
static void test_few_rows(void) {
  tsr_arena *arena = tsr_arena_new();
  harness h = compile(arena, WIDTH / 2, true);
  const tsr_program *p = h.programs.of_stage[0];
  int gemm = find(p, TSR_OP_LINEAR_DW, VOCABULARY), sum = find(p, TSR_OP_EMBEDDING_DW, VOCABULARY);
  const tsr_task *t = &p->tasks[sum];
  CHECK_INT(t->fused, TSR_FUSED_EMBEDDING_DW_SUM);
  CHECK_INT(gemm, sum - 1);
  CHECK_INT(t->outputs[0].offset, p->tasks[gemm].outputs[0].offset);
  CHECK(tsr_gradient_addend(t)->value == p->tasks[gemm].outputs[0].value);
  /* less than two gradients of the table and the tokens sorted by its rows */
  CHECK(p->bytes[TSR_SEGMENT_WORK] < 2 * 4 * VOCABULARY * WIDTH + 8 * VOCABULARY);
  tsr_arena_free(arena);
}

static void test_many_rows(void) {
  tsr_arena *arena = tsr_arena_new();
  harness h = compile(arena, 2 * WIDTH, true);
  const tsr_program *p = h.programs.of_stage[0];
  int gemm = find(p, TSR_OP_LINEAR_DW, VOCABULARY), sum = find(p, TSR_OP_EMBEDDING_DW, VOCABULARY);
  CHECK_INT(p->tasks[sum].fused, TSR_FUSED_EMBEDDING_DW_SUM);
  CHECK_AT(gemm < find(p, TSR_OP_LINEAR_DW, WIDTH), "%d", gemm);
  tsr_arena_free(arena);
}

/* Both gradients have their update right behind them. */
static void test_untied(void) {
  tsr_arena *arena = tsr_arena_new();
  harness h = compile(arena, WIDTH / 2, false);
  const tsr_program *p = h.programs.of_stage[0];
  int gemm = find(p, TSR_OP_LINEAR_DW, VOCABULARY), sum = find(p, TSR_OP_EMBEDDING_DW, VOCABULARY);
  CHECK_INT(p->tasks[sum].fused, TSR_FUSED_NONE);
  CHECK_AT(gemm < find(p, TSR_OP_LINEAR_DW, WIDTH), "%d", gemm);
  tsr_arena_free(arena);
}

static harness_trace train(tsr_arena *arena, int rows, unsigned fuses) {
  harness_options o = options();
  harness_trace trace = {0};
  harness_target.fuses = fuses;
  harness h = harness_open(arena, make_graph(arena, rows, true), &o);
  harness_target.fuses = 0;
  for (int step = 0; step < STEPS; step++) {
    harness_step(&h, step);
    harness_keep_weights(arena, &h, &trace);
  }
  harness_close(&h);
  return trace;
}

static void test_bits(int rows) {
  tsr_arena *arena = tsr_arena_new();
  harness_trace fused = train(arena, rows, 1u << TSR_FUSED_EMBEDDING_DW_SUM),
                separate = train(arena, rows, 1u << TSR_FUSED_LINEAR_CROSS_ENTROPY);
  CHECK(fused.count > 0 && fused.count == separate.count);
  CHECK(!memcmp(fused.data, separate.data, (size_t)fused.count * sizeof(float)));
  tsr_arena_free(arena);
}

int main(void) {
  test_few_rows();
  test_many_rows();
  test_untied();
  test_bits(WIDTH / 2);
  test_bits(2 * WIDTH);
  return check_done("schedule.delay_gradients");
}
