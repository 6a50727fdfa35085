// SPDX-License-Identifier: Apache-2.0
/* Kernels that look tokens up: the embedding and the classifier's loss, over GPT-2's vocabulary. */
#include "cli/kernel_bench/case.h"

enum { WIDTH = 768, VOCAB = 50257, TOKENS = TSR_BENCH_ARRAYS - 1 /* the array of tokens */ };

static int32_t *tokens_of(const tsr_bench_call *c) { return (int32_t *)c->x[TOKENS]; }

static void draw_tokens(const tsr_bench_call *c, int64_t below) {
  int32_t *tokens = tokens_of(c);
  for (int64_t i = 0; i < c->size.rows; i++) {
    uint64_t bits = (uint64_t)(i + 1) * 0x9E3779B97F4A7C15u;
    tokens[i] = (int32_t)((bits >> 32) % (uint64_t)below);
  }
}

/* ---- the table has as many rows as there are tokens ---- */

static void prepare_embedding(const tsr_bench_call *c) { draw_tokens(c, c->size.rows); }

static void run_embedding(const tsr_bench_call *c) {
  c->k->embedding(c->x[0], tokens_of(c), c->x[1], WIDTH, 0, c->size.rows, 0, c->size.rows);
}

static int64_t scratch_of_embedding(const tsr_kernels *k, const tsr_bench_size *s) {
  return k->embedding_scratch(s->rows, 0, s->rows, s->cols, 1, 1);
}

static void run_embedding_sort(const tsr_bench_call *c) {
  c->k->embedding_sort(c->scratch, tokens_of(c), c->size.rows, 0, c->size.rows, -1);
}

static void prepare_embedding_backward(const tsr_bench_call *c) {
  draw_tokens(c, c->size.rows);
  run_embedding_sort(c);
}

static void run_embedding_backward(const tsr_bench_call *c) {
  int64_t rows = c->size.rows;
  c->k->embedding_backward(
      c->x[0], NULL, c->x[1], NULL, c->scratch, 0, rows, WIDTH, 0, rows, TSR_TREE_BINARY, 1, 1, 0,
      rows);
}

/* ---- the loss ---- */

static void prepare_targets(const tsr_bench_call *c) { draw_tokens(c, VOCAB); }

static void run_softmax_stats(const tsr_bench_call *c) {
  c->k->softmax_stats(c->x[1], c->x[0], tokens_of(c), VOCAB, 0, VOCAB, 1, 0, c->size.rows);
}

static void prepare_softmax_loss(const tsr_bench_call *c) {
  draw_tokens(c, VOCAB);
  c->k->fill(c->x[0], 1.5f, 0, c->size.elements);
}

/* stats (R, 1, 3) */
static void run_softmax_loss(const tsr_bench_call *c) {
  c->k->softmax_loss(c->x[1], c->x[2], c->x[0], tokens_of(c), 1, 0, c->size.rows);
}

static void prepare_softmax_loss_backward(const tsr_bench_call *c) {
  draw_tokens(c, VOCAB);
  for (int64_t r = 0; r < c->size.rows; r++) {
    c->x[2][2 * r] = 2; /* the maximum and the sum */
    c->x[2][2 * r + 1] = VOCAB;
  }
}

static void run_softmax_loss_backward(const tsr_bench_call *c) {
  c->k->softmax_loss_backward(
      c->x[0], c->x[1], c->x[2], tokens_of(c), 0.5f, VOCAB, 0, VOCAB, 0, c->size.rows);
}

static const tsr_bench_case cases[] = {
    {"embedding", NULL, run_embedding, WIDTH, 2, 2, .prepare = prepare_embedding},
    {"embedding_sort", NULL, run_embedding_sort, 1, 2, 2, .is_small = true,
     .prepare = prepare_embedding, .scratch = scratch_of_embedding},
    {"embedding_backward", NULL, run_embedding_backward, WIDTH, 2, 2,
     .prepare = prepare_embedding_backward, .scratch = scratch_of_embedding},
    {"softmax_stats", NULL, run_softmax_stats, VOCAB, 1, 1, .prepare = prepare_targets},
    /* a row's three numbers and its token are read, three are written */
    {"softmax_loss", NULL, run_softmax_loss, 3, 3, 7.0 / 3, .prepare = prepare_softmax_loss},
    {"softmax_loss_backward", NULL, run_softmax_loss_backward, VOCAB, 2, 2,
     .prepare = prepare_softmax_loss_backward}};

const tsr_bench_group tsr_bench_tokens = TSR_BENCH_GROUP("tokens and losses", cases);
