// SPDX-License-Identifier: Apache-2.0
/* A mixture of experts, of Mixtral's numbers (8 experts, 2 of them a token) and of Qwen3's (128 and
 * 8): the routing of tokens, and what moves their rows. */
#include "cli/kernel_bench/case.h"
#include <inttypes.h>
#include <stdio.h>

enum { SCORES, CHOSEN, WEIGHTS, DSCORES, DWEIGHTS, PLAN, ROW_OF, ROWS, DROWS, TOKENS, USED };

/* shape: tokens, experts, choices of a token, features */
static int64_t tokens_of(const tsr_bench_case *what) { return what->shape[0]; }
static int64_t slots_of(const tsr_bench_case *what) { return what->shape[0] * what->shape[2]; }

static tsr_experts experts_of(const tsr_bench_case *what) {
  return (tsr_experts){what->shape[1], what->shape[2], 0, what->shape[1]};
}

static tsr_choice choice_of(const tsr_bench_case *what) {
  return (tsr_choice){what->shape[1], what->shape[2], 1, 1, 1};
}

static tsr_choice_weights weights_of(const tsr_bench_case *what) {
  return (tsr_choice_weights){what->shape[1], what->shape[2], true, false, 1};
}

static int32_t *integers(const tsr_bench_call *c, int array) { return (int32_t *)c->x[array]; }

/* touched: floats, for each token and feature, or of routing for each token and expert. */
static void
fix_experts(const tsr_bench_case *what, const tsr_kernels *k, tsr_bench_size *ret_size) {
  (void)k;
  tsr_bench_size *s = ret_size;
  int64_t width = what->shape[3] > 2 ? what->shape[3] : 2;
  *s = (tsr_bench_size){.rows = tokens_of(what), .cols = what->shape[3], .arrays = USED};
  s->elements = slots_of(what) * width;
  if (s->elements < tokens_of(what) * what->shape[1])
    s->elements = tokens_of(what) * what->shape[1];
  s->scratch_bytes = what->shape[1] * (int64_t)sizeof(int64_t) + slots_of(what) * 4;
  s->floats =
      what->touched *
      (double)(what->shape[3] ? slots_of(what) * what->shape[3] : tokens_of(what) * what->shape[1]);
  snprintf(
      s->shape, sizeof s->shape, "S%" PRId64 " E%" PRId64 " k%" PRId64 " C%" PRId64, what->shape[0],
      what->shape[1], what->shape[2], what->shape[3]);
}

static void run_choice(const tsr_bench_call *c) {
  tsr_choice r = choice_of(c->what);
  c->k->choose_experts(&r, integers(c, CHOSEN), c->x[SCORES], NULL, 0, tokens_of(c->what));
}

static void run_weights(const tsr_bench_call *c) {
  tsr_choice_weights w = weights_of(c->what);
  c->k->expert_weights(&w, c->x[WEIGHTS], c->x[SCORES], integers(c, CHOSEN), 0, tokens_of(c->what));
}

static void run_weights_backward(const tsr_bench_call *c) {
  tsr_choice_weights w = weights_of(c->what);
  c->k->expert_weights_backward(
      &w, c->x[DSCORES], c->x[DWEIGHTS], c->x[SCORES], integers(c, CHOSEN), 0, tokens_of(c->what));
}

static const tsr_capacity all_rows = {0};

/* DSCORES: counts of all tokens, then gradients. */
static void run_counts(const tsr_bench_call *c) {
  c->k->expert_counts(
      c->x[DSCORES], integers(c, CHOSEN), tokens_of(c->what), c->what->shape[2], c->what->shape[1],
      0, 1);
}

static void run_balance(const tsr_bench_call *c) {
  c->k->balance_backward(
      c->x[DSCORES], c->x[DWEIGHTS], c->x[SCORES], tokens_of(c->what), c->what->shape[1], 1, true,
      0, tokens_of(c->what));
}

static void run_z(const tsr_bench_call *c) {
  c->k->router_z_backward(c->x[DSCORES], c->x[SCORES], c->what->shape[1], 1, 0, tokens_of(c->what));
}

static void run_plan(const tsr_bench_call *c) {
  tsr_experts e = experts_of(c->what);
  c->k->expert_plan(
      &e, &all_rows, integers(c, PLAN), integers(c, CHOSEN), NULL, tokens_of(c->what),
      slots_of(c->what), c->scratch);
}

static void run_row_of(const tsr_bench_call *c) {
  int64_t slots = slots_of(c->what);
  c->k->expert_row_of(integers(c, ROW_OF), integers(c, PLAN), slots, slots);
}

static void run_permute(const tsr_bench_call *c) {
  c->k->permute_rows(
      c->x[ROWS], c->x[TOKENS], integers(c, PLAN), c->what->shape[2], c->what->shape[3], 0,
      slots_of(c->what));
}

static void run_combine(const tsr_bench_call *c) {
  tsr_experts e = experts_of(c->what);
  c->k->combine_rows(
      &e, TSR_LEAF_F32, c->x[TOKENS], c->x[ROWS], c->x[WEIGHTS], integers(c, CHOSEN),
      integers(c, ROW_OF), c->what->shape[3], 0, tokens_of(c->what));
}

static void run_combine_backward(const tsr_bench_call *c) {
  tsr_experts e = experts_of(c->what);
  c->k->combine_rows_backward(
      &e, c->x[DROWS], c->x[DWEIGHTS], c->x[TOKENS], c->x[ROWS], c->x[WEIGHTS], integers(c, ROW_OF),
      c->what->shape[3], 0, tokens_of(c->what));
}

static void prepare(const tsr_bench_call *c) {
  run_choice(c);
  run_weights(c);
  run_plan(c);
  run_row_of(c);
}

#define OF(kernel, variant, run, floats, ...)                                                      \
  {                                                                                                \
    kernel, variant, run, .touched = floats, .shape = {1024, __VA_ARGS__}, .fix = fix_experts,     \
                          .prepare = prepare                                                       \
  }
#define CASE(kernel, run, floats, features)                                                        \
  OF(kernel, "of 8", run, floats, 8, 2, features),                                                 \
      OF(kernel, "of 128", run, floats, 128, 8, features)

static const tsr_bench_case cases[] = {
    CASE("choose_experts", run_choice, 1, 0),
    CASE("expert_weights", run_weights, 1, 0),
    CASE("expert_weights_backward", run_weights_backward, 2, 0),
    CASE("expert_counts", run_counts, 1, 0),
    CASE("balance_backward", run_balance, 2, 0),
    CASE("router_z_backward", run_z, 2, 0),
    CASE("expert_plan", run_plan, 1, 0),
    CASE("expert_row_of", run_row_of, 1, 0),
    CASE("permute_rows", run_permute, 2, 512),
    CASE("combine_rows", run_combine, 2, 512),
    CASE("combine_rows_backward", run_combine_backward, 3, 512)};

const tsr_bench_group tsr_bench_experts = TSR_BENCH_GROUP("experts", cases);
