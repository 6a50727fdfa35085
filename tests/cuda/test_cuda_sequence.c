// SPDX-License-Identifier: Apache-2.0
/* Training on the emulated device where the recipe splits sequences into units: the same losses,
 * norms and weights as on the CPU, to rounding, and the same bits wherever the units are: on cp's
 * ranks in both layouts, between tp's where they take positions, or on one. No op runs on the host.
 */
#include "tests/cuda/training.h"

/* What sums over positions are made of: a table's gradient, biases and norms, products, attention
 * of grouped heads with sinks, and dropout in two dimensions that are split. */
static const training recipe = {
    .name = "sequence",
    .steps = 2,
    .length = 12,
    .batch_units = 2,
    .tp_units = 2,
    .sequence_units = 4,
    .inputs = "tokens $B,$T tokens; targets $B,$T tokens",
    .params = "wte 24,16 0; wpe $T,16; n1 16; b1 16; wq 32,16 0; bq 32 0; wkey 16,16 0\n"
              "wv 16,16 0; s 4 0; wo 16,32 1; bo 16; n2 16",
    .calls = "e: embedding(tokens, wte); x0: add(e, wpe); x1: dropout(x0, p: 0.1)\n"
             "h: layernorm(x1, n1, b1); q: linear(h, wq, bq); k: linear(h, wkey)\n"
             "v: linear(h, wv); qr: rope(q, head_dim: 8); kr: rope(k, head_dim: 8)\n"
             "a: attention(qr, kr, v, s, head_dim: 8, dropout: 0.1); o: linear(a, wo, bo)\n"
             "x2: add(x1, o); y: rmsnorm(x2, n2); logits: linear(y, wte)\n"
             "loss: cross_entropy(logits, targets, valid: 21)"};

/* Matmuls whose rows are positions, and whose rows are split over tp; and a weight of (2, 10),
 * whose gradients of units lie at multiples of 8 bytes on tp's ranks. */
static const training matmuls = {
    .name = "matmuls",
    .steps = 2,
    .length = 16,
    .batch_units = 2,
    .tp_units = 2,
    .sequence_units = 4,
    .inputs = "tokens $B,$T tokens; targets $B,$T tokens",
    .params = "wte 24,16 0; wkey 16,16; up 32,16 0; mid 16,16; wo 16,32 1; w1 10,16 0\n"
              "w2 2,10 1; w3 16,2",
    .calls = "x: embedding(tokens, wte); k: linear(x, wkey); s: matmul(k, x, transpose_a: 1)\n"
             "m: scale(s, factor: 0.1); y: matmul(x, m, transpose_b: 1); x1: add(x, y)\n"
             "made: matmul(up, mid, transpose_b: 1); h: linear(x1, made); o: linear(h, wo)\n"
             "h1: linear(x1, w1); h2: linear(h1, w2); o1: linear(h2, w3); x2: add(o, o1)\n"
             "logits: linear(x2, wte); loss: cross_entropy(logits, targets, valid: 21)"};

/* Heads of 256 with soft caps and a window, as Gemma 2's. */
static const training wide = {
    .name = "wide",
    .steps = 2,
    .length = 12,
    .batch_units = 2,
    .tp_units = 2,
    .sequence_units = 4,
    .precision = TSR_BF16,
    .inputs = "tokens $B,$T tokens; targets $B,$T tokens",
    .params = "wte 24,16 0; wq 1024,16 0; wkey 512,16 0; wv 512,16 0; wo 16,1024 1; n 16",
    .calls = "x: embedding(tokens, wte); q: linear(x, wq); k: linear(x, wkey); v: linear(x, wv)\n"
             "a: attention(q, k, v, head_dim: 256, soft_cap: 0.1, window: 5); o: linear(a, wo)\n"
             "x2: add(x, o); y: rmsnorm(x2, n); logits: linear(y, wte)\n"
             "loss: cross_entropy(logits, targets, valid: 21)"};

#define MESHES(list) list, sizeof list / sizeof *list

int main(void) {
  static const harness_options contiguous[] = {
      {.dp = 1, .cp = 2, .tp = 1, .microbatches = 2},
      {.dp = 2, .cp = 2, .tp = 2, .microbatches = 1},
      {.dp = 1, .cp = 1, .tp = 2, .microbatches = 1, .sequence_parallel = true},
      {.dp = 1, .cp = 2, .tp = 2, .microbatches = 2, .sequence_parallel = true},
      {.dp = 1,
       .cp = 2,
       .tp = 1,
       .microbatches = 2,
       .recompute = {.kind = TSR_RECOMPUTE_BLOCKS, .every = 1}}};
  static const harness_options zigzag[] = {
      {.dp = 1, .cp = 2, .tp = 1, .microbatches = 2},
      {.dp = 1, .cp = 2, .tp = 2, .microbatches = 2}};
  static const harness_options four[] = {{.dp = 1, .cp = 4, .tp = 1, .microbatches = 4}};
  static const harness_options samples[] = {
      {.dp = 1, .cp = 2, .tp = 1, .microbatches = 1},
      {.dp = 2, .cp = 2, .tp = 1, .microbatches = 1}};
  static const harness_options half[] = {{.dp = 1, .cp = 2, .tp = 2, .microbatches = 2}};
  training t = recipe;
  training_check(&t, 1, MESHES(contiguous));
  t.zigzag = true;
  training_check(&t, 1, MESHES(zigzag));
  t.zigzag = false;
  t.precision = TSR_BF16;
  training_check(&t, 1, MESHES(half));
  t.precision = TSR_F32;
  t.batch_units = 4; /* a rank's microbatch is one of them */
  training_check(&t, 1, MESHES(four));
  t.batch_units = t.samples = t.sequence_units = 2; /* of each sample a rank has one unit */
  training_check(&t, 1, MESHES(samples));
  static const harness_options both[] = {
      {.dp = 1, .cp = 4, .tp = 1, .microbatches = 1},
      {.dp = 1, .cp = 1, .tp = 2, .microbatches = 2},
      {.dp = 2, .cp = 2, .tp = 2, .microbatches = 1}};
  training_check(&matmuls, 1, MESHES(both));
  static const harness_options of_wide[] = {
      {.dp = 1, .cp = 2, .tp = 2, .microbatches = 2},
      {.dp = 2, .cp = 4, .tp = 1, .microbatches = 1}};
  static const harness_options of_whole[] = {
      {.dp = 1, .tp = 2, .microbatches = 2}, {.dp = 2, .tp = 1, .microbatches = 1, .zero = 3}};
  t = wide;
  training_check(&t, 1, MESHES(of_wide));
  t.sequence_units = 1;
  training_check(&t, 1, MESHES(of_whole));
  return check_done("cuda.sequence");
}
