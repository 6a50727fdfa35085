// SPDX-License-Identifier: Apache-2.0
/* Attention inside documents: each has the bits that it has alone in a sequence, and those that a
 * rank computes have the same bits as all of them. test_attention.c compares the numbers with the
 * formula. */
#include "kernel_check.h"

typedef struct {
  tsr_attention a;
  int32_t *positions;
  float *q, *k, *v, *dout;
  float *out, *stats, *dq, *dk, *dv; /* of all positions */
} pack;

static uint64_t state = 1;
static int64_t draw(int64_t below) {
  state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
  return (int64_t)((state >> 33) % (uint64_t)below);
}

static int64_t features(const tsr_attention *a, int64_t rows, int64_t heads, bool values) {
  return a->B * rows * heads * (values ? tsr_attention_value_size(a) : a->D);
}

static float *zeros(int64_t n) {
  float *x = check_alloc((size_t)n * sizeof *x);
  memset(x, 0, (size_t)n * sizeof *x);
  return x;
}

/* Documents of random lengths, some of one token. */
static void draw_positions(const pack *p) {
  for (int64_t b = 0; b < p->a.B; b++)
    for (int64_t t = 0, left = 0, at = 0; t < p->a.T; t++, left--, at++) {
      if (!left) left = draw(3) ? 1 + draw(p->a.T) : 1, at = 0;
      p->positions[b * p->a.T + t] = (int32_t)at;
    }
}

static void
run(const tsr_kernels *k, const tsr_attention *a, const pack *from, float *out, float *stats,
    float *dq, float *dk, float *dv, bool forward) {
  void *scratch = check_alloc((size_t)k->attention_scratch(a));
  if (forward) k->attention(a, out, stats, from->q, from->k, from->v, scratch, 0, a->B * a->H);
  else
    k->attention_backward(
        a, dq, dk, dv, from->dout, from->q, from->k, from->v, from->out, from->stats, scratch, 0,
        a->B * a->G);
  free(scratch);
}

static pack pack_new(const tsr_kernels *k, tsr_attention a) {
  int64_t nq = features(&a, a.T, a.H, false), nk = features(&a, a.T, a.G, false);
  int64_t no = features(&a, a.T, a.H, true), nv = features(&a, a.T, a.G, true);
  pack p = {.a = a, .q = input_new(nq, 2), .k = input_new(nk, 2), .v = input_new(nv, 2)};
  p.dout = input_new(no, 1);
  p.out = zeros(no), p.stats = zeros(2 * a.B * a.H * a.T);
  p.dq = zeros(nq), p.dk = zeros(nk), p.dv = zeros(nv);
  p.positions = check_alloc((size_t)(a.B * a.T) * sizeof *p.positions);
  draw_positions(&p);
  p.a.positions = p.positions;
  run(k, &p.a, &p, p.out, p.stats, NULL, NULL, NULL, true);
  run(k, &p.a, &p, NULL, NULL, p.dq, p.dk, p.dv, false);
  return p;
}

static void pack_free(pack *p) {
  free(p->positions), free(p->q), free(p->k), free(p->v), free(p->dout);
  free(p->out), free(p->stats), free(p->dq), free(p->dk), free(p->dv);
}

/* The rows [first, first + n) of sample b, (n, width). */
static float *
rows_of(const float *x, const pack *p, int64_t b, int64_t first, int64_t n, int64_t width) {
  float *part = zeros(n * width);
  memcpy(part, x + (b * p->a.T + first) * width, (size_t)(n * width) * sizeof *part);
  return part;
}

static void check_rows(
    const char *what, const tsr_kernels *k, const float *got, const float *want, int64_t width,
    int64_t n) {
  CHECK_AT(
      !memcmp(got, want, (size_t)(n * width) * sizeof *got), "%s (%s): %lld rows differ", what,
      k->isa, (long long)n);
}

static void check_alone(const tsr_kernels *k, const pack *p, int64_t b, int64_t first, int64_t n) {
  int64_t Dv = tsr_attention_value_size(&p->a), q = p->a.H * p->a.D, o = p->a.H * Dv;
  int64_t kw = p->a.G * p->a.D, vw = p->a.G * Dv;
  tsr_attention a = p->a;
  a.B = 1, a.T = n, a.positions = NULL;
  pack alone = {.q = rows_of(p->q, p, b, first, n, q), .k = rows_of(p->k, p, b, first, n, kw)};
  alone.v = rows_of(p->v, p, b, first, n, vw), alone.dout = rows_of(p->dout, p, b, first, n, o);
  alone.out = zeros(n * o), alone.stats = zeros(2 * a.H * n);
  alone.dq = zeros(n * q), alone.dk = zeros(n * kw), alone.dv = zeros(n * vw);
  run(k, &a, &alone, alone.out, alone.stats, NULL, NULL, NULL, true);
  run(k, &a, &alone, NULL, NULL, alone.dq, alone.dk, alone.dv, false);
  int64_t at = b * p->a.T + first;
  check_rows("out", k, alone.out, p->out + at * o, o, n);
  check_rows("dq", k, alone.dq, p->dq + at * q, q, n);
  check_rows("dk", k, alone.dk, p->dk + at * kw, kw, n);
  check_rows("dv", k, alone.dv, p->dv + at * vw, vw, n);
  for (int64_t h = 0; h < a.H; h++) {
    const float *want = p->stats + ((b * a.H + h) * p->a.T + first) * 2;
    check_rows("stats", k, alone.stats + h * n * 2, want, 2, n);
  }
  pack_free(&alone);
}

/* A rank's positions: `runs` runs of `each`, of which the i-th begins at first[i]. */
static void check_part(const tsr_kernels *k, const pack *p, tsr_attention_rows rows) {
  int64_t own = rows.runs * rows.each, Dv = tsr_attention_value_size(&p->a);
  const float *q = p->q;
  tsr_attention a = p->a;
  a.rows = rows;
  const float *want[] = {p->out, p->dq, p->dk, p->dv};
  int64_t width[] = {a.H * Dv, a.H * a.D, a.G * a.D, a.G * Dv};
  float *got[4], *stats = zeros(2 * a.B * a.H * own), *own_q = zeros(a.B * own * width[1]);
  for (int i = 0; i < 4; i++) got[i] = zeros(a.B * own * width[i]);
  for (int64_t b = 0; b < a.B; b++)
    for (int64_t t = 0; t < own; t++)
      memcpy(
          own_q + (b * own + t) * width[1],
          q + (b * a.T + rows.first[t / rows.each] + t % rows.each) * width[1],
          (size_t)width[1] * sizeof *q);
  pack part = *p;
  part.q = own_q;
  run(k, &a, &part, got[0], stats, NULL, NULL, NULL, true);
  run(k, &a, p, NULL, NULL, got[1], got[2], got[3], false);
  for (int64_t b = 0; b < a.B; b++)
    for (int run = 0; run < rows.runs; run++)
      for (int i = 0; i < 4; i++)
        check_rows(
            "part", k, got[i] + (b * own + run * rows.each) * width[i],
            want[i] + (b * a.T + rows.first[run]) * width[i], width[i], rows.each);
  for (int64_t line = 0; line < a.B * a.H; line++)
    for (int run = 0; run < rows.runs; run++)
      check_rows(
          "part of stats", k, stats + (line * own + run * rows.each) * 2,
          p->stats + (line * a.T + rows.first[run]) * 2, 2, rows.each);
  for (int i = 0; i < 4; i++) free(got[i]);
  free(stats), free(own_q);
}

static void check_pack(const tsr_kernels *k, tsr_attention a) {
  pack p = pack_new(k, a);
  for (int64_t b = 0; b < a.B && a.dropout == 0; b++)
    for (int64_t first = 0, end; first < a.T; first = end) {
      for (end = first + 1; end < a.T && p.positions[b * a.T + end];) end++;
      check_alone(k, &p, b, first, end - first);
    }
  for (int members = 2; members <= 4; members *= 2)
    for (int m = 0; m < members; m++) {
      int64_t each = a.T / members, half = each / 2;
      check_part(k, &p, (tsr_attention_rows){1, each, {m * each}});
      int64_t other = (2 * members - 1 - m) * half; /* zigzag */
      check_part(k, &p, (tsr_attention_rows){2, half, {m * half, other}});
    }
  pack_free(&p);
}

static const float sinks[] = {0.3f, 5.0f, -20.0f, 1.7f};

static void test_packs(const tsr_kernels *k) {
  state = 1;
  for (int i = 0; i < 24; i++) {
    int64_t G = 1 + draw(2);
    tsr_attention a = {.B = 1 + draw(2), .T = 8 * (1 + draw(40)), .G = G, .H = G * (1 + draw(2))};
    a.D = 1 + draw(20), a.causal = draw(4) > 0, a.scale = 0.3f;
    a.Dv = draw(2) ? 1 + draw(20) : 0;
    a.window = a.causal && draw(2) ? 1 + draw(120) : 0;
    if (draw(3) == 0) a.dropout = 0.2f, a.key = 7, a.heads_global = a.H;
    if (draw(3) == 0) a.sinks = sinks;
    if (draw(4) == 0) a.soft_cap = 1.5f;
    check_pack(k, a);
  }
}

int main(void) {
  each_level(test_packs);
  return check_done("kernels.attention_documents");
}
