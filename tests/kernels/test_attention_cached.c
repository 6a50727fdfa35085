// SPDX-License-Identifier: Apache-2.0
/* Attention with a cache has the bits of `attention` over the whole sequence, for any number of new
 * tokens, whatever the other sequences of the batch have and wherever the pages are, and reads no
 * position that is not there. */
#include "kernel_check.h"

typedef struct {
  int64_t B, H, G, D, length; /* sequences of `length` positions */
  float scale;
  int64_t window, Dv; /* Dv 0: D */
  bool sinks;
  float soft_cap;
} sizes;

static const float sinks[] = {0.3f, 95.0f, -120.0f, 1.7f};

static int64_t value_size(const sizes *s) { return s->Dv ? s->Dv : s->D; }

typedef struct {
  sizes s;
  float *q, *k, *v;
  float *want; /* (B, length, H*Dv): of `attention` over the whole */
} sequences;

static float *whole_attention(const tsr_kernels *k, const sequences *x) {
  tsr_attention a = {.B = x->s.B, .T = x->s.length, .H = x->s.H, .G = x->s.G, .D = x->s.D};
  a.scale = x->s.scale;
  a.causal = true;
  a.window = x->s.window;
  a.Dv = x->s.Dv;
  if (x->s.sinks) a.sinks = sinks;
  a.soft_cap = x->s.soft_cap;
  int64_t n = a.B * a.T * a.H * value_size(&x->s);
  float *out = input_new(n, 1), *stats = input_new(2 * a.B * a.H * a.T, 1);
  void *scratch = check_alloc((size_t)k->attention_scratch(&a));
  k->attention(&a, out, stats, x->q, x->k, x->v, scratch, 0, a.B * a.H);
  free(stats), free(scratch);
  return out;
}

static sequences sequences_new(const tsr_kernels *k, sizes s) {
  int64_t rows = s.B * s.length;
  sequences x = {.s = s};
  x.q = input_new(rows * s.H * s.D, 2);
  x.k = input_new(rows * s.G * s.D, 2);
  x.v = input_new(rows * s.G * value_size(&s), 1);
  x.want = whole_attention(k, &x);
  return x;
}

static void sequences_free(sequences *x) { free(x->q), free(x->k), free(x->v), free(x->want); }

/* Pages in any order, and some that no sequence has. */
typedef struct {
  int64_t page, each, count;
  int32_t *of; /* (B, each) */
} page_table;

static page_table pages_new(const sizes *s) {
  page_table p = {.page = 16 * (1 + (int64_t)(check_random() % 4))};
  p.each = (s->length + p.page - 1) / p.page;
  p.count = s->B * p.each + 3;
  p.of = check_alloc((size_t)p.count * sizeof *p.of);
  for (int64_t i = 0; i < p.count; i++) {
    int64_t at = (int64_t)(check_random() % (uint64_t)(i + 1));
    p.of[i] = p.of[at];
    p.of[at] = (int32_t)i;
  }
  return p;
}

/* What is behind the new tokens, and in other pages, is a NaN: reading it would show. */
static float *cache_new(
    const sequences *x, const page_table *p, const float *from, int64_t head_size,
    const int64_t *have) {
  int64_t width = x->s.G * head_size, all = p->count * p->page * width;
  float *cache = input_new(all, 1);
  for (int64_t i = 0; i < all; i++) memcpy(&cache[i], &guard_bits, sizeof guard_bits);
  for (int64_t b = 0; b < x->s.B; b++)
    for (int64_t at = 0; at < have[b]; at++) {
      int64_t row = p->of[b * p->each + at / p->page] * p->page + at % p->page;
      memcpy(
          cache + row * width, from + (b * x->s.length + at) * width,
          (size_t)width * sizeof *cache);
    }
  return cache;
}

/* One call for C new tokens of each sequence, some of which are not real. */
static void check_call(
    const tsr_kernels *k, const sequences *x, int64_t C, const int32_t *positions,
    const int32_t *counts) {
  sizes s = x->s;
  int64_t width = s.H * s.D, out_width = s.H * value_size(&s), n = s.B * C * out_width, have[8];
  page_table pages = pages_new(&s);
  tsr_attention_cached c = {.page = pages.page, .pages_each = pages.each, .pages = pages.of};
  c.positions = positions;
  c.counts = counts;
  c.a = (tsr_attention){.B = s.B, .T = C, .H = s.H, .G = s.G, .D = s.D, .scale = s.scale};
  c.a.causal = true;
  c.a.window = s.window;
  c.a.Dv = s.Dv;
  if (s.sinks) c.a.sinks = sinks;
  c.a.soft_cap = s.soft_cap;
  float *q = input_new(s.B * C * width, 1);
  for (int64_t b = 0; b < s.B; b++) {
    have[b] = positions[b] + counts[b];
    for (int64_t i = 0; i < counts[b]; i++)
      memcpy(
          q + (b * C + i) * width, x->q + (b * s.length + positions[b] + i) * width,
          (size_t)width * sizeof *q);
  }
  float *keys = cache_new(x, &pages, x->k, s.D, have);
  float *values = cache_new(x, &pages, x->v, value_size(&s), have);
  output out = output_new(n), scratch = output_new((k->attention_cached_scratch(&c) + 3) / 4);
  RUN(s.B * s.G,
      k->attention_cached(&c, out.pass[pass], q, keys, values, scratch.pass[pass], begin, end));
  CHECK_OUTPUT(out, NULL, 0, 0);
  CHECK(guard_intact(scratch.pass[0] - GUARD) && guard_intact(scratch.pass[0] + scratch.n));
  for (int64_t i = 0; i < n; i++) {
    int64_t b = i / out_width / C, row = i / out_width % C;
    float want = 0;
    if (row < counts[b])
      want = x->want[(b * s.length + positions[b] + row) * out_width + i % out_width];
    CHECK_AT(
        !memcmp(&out.pass[0][i], &want, sizeof want),
        "%s: %lld new, sequence %lld behind %d, token %lld of %d, at %lld: %.9g, want %.9g", k->isa,
        (long long)C, (long long)b, positions[b], (long long)row, counts[b],
        (long long)(i % out_width), (double)out.pass[0][i], (double)want);
  }
  free(q), free(keys), free(values), free(pages.of), output_free(&out), output_free(&scratch);
}

static void check_sizes(const tsr_kernels *k, sizes s) {
  static const int64_t chunks[] = {1, 2, 3, 5, 7, 48, 64, 131};
  sequences x = sequences_new(k, s);
  for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++)
    for (int times = 0; times < 4; times++) {
      int32_t positions[8], counts[8];
      for (int64_t b = 0; b < s.B; b++) {
        positions[b] = (int32_t)(check_random() % (uint64_t)s.length);
        if (times == 0) positions[b] = 0;
        int64_t most = s.length - positions[b] < chunks[i] ? s.length - positions[b] : chunks[i];
        counts[b] = times < 2 ? (int32_t)most : (int32_t)(check_random() % (uint64_t)(most + 1));
      }
      check_call(k, &x, chunks[i], positions, counts);
    }
  sequences_free(&x);
}

static void test_level(const tsr_kernels *k) {
  static const sizes list[] = {
      {1, 1, 1, 1, 3, 1},
      {2, 2, 2, 3, 17, 0.5f},
      {3, 4, 2, 8, 70, 0.35f},
      {2, 9, 1, 33, 131, 0.2f},
      {1, 16, 2, 16, 150, 0.25f},
      {2, 3, 3, 64, 200, 0.125f},
      {1, 8, 2, 130, 90, 0.1f},
      {2, 4, 2, 8, 70, 0.35f, 1},
      {2, 9, 1, 33, 131, 0.2f, 19},
      {1, 4, 2, 16, 250, 0.25f, 100},
      {1, 2, 1, 64, 90, 0.1f, 90},
      {2, 4, 2, 24, 131, 0.2f, 0, 10},
      {1, 8, 1, 5, 90, 0.4f, 19, 70},
      {2, 4, 2, 16, 131, 0.25f, 0, 0, true},
      {1, 4, 1, 8, 90, 0.35f, 19, 0, true},
      {2, 4, 2, 16, 131, 0.5f, 0, 0, false, 1.5f},
      {1, 4, 1, 8, 90, 0.6f, 19, 0, true, 2}};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) check_sizes(k, list[i]);
}

int main(void) {
  each_level(test_level);
  return check_done("kernels.attention_cached");
}
