// SPDX-License-Identifier: Apache-2.0
/* Context-parallel attention against the formulas in double, against the same sequence on one
 * member bit for bit, and against `attention`. The members are run one after the other here. */
#include "kernel_check.h"
#include "kernels/ring_attention_merge.h"

enum { SUMS = 3 };

/* A whole sequence; tensors as in `attention`, with T = length. */
typedef struct {
  tsr_attention a;
  int64_t units;
  float *q, *k, *v, *dout;
  double *out, *stats, *dq, *dk, *dv;
} ring_case;

static int64_t q_size(const tsr_attention *a) { return a->B * a->T * a->H * a->D; }
static int64_t k_size(const tsr_attention *a) { return a->B * a->T * a->G * a->D; }
static int64_t out_size(const tsr_attention *a) {
  return a->B * a->T * a->H * tsr_attention_value_size(a);
}
static int64_t v_size(const tsr_attention *a) {
  return a->B * a->T * a->G * tsr_attention_value_size(a);
}

static double dropout_factor(const tsr_attention *a, int64_t b, int64_t h, int64_t i, int64_t j) {
  if (a->dropout == 0) return 1;
  uint64_t line = (uint64_t)((b + a->batch_offset) * a->heads_global + h + a->head_offset);
  uint64_t element = (line * (uint64_t)a->T + (uint64_t)i) * (uint64_t)a->T + (uint64_t)j;
  uint32_t words[4];
  tsr_philox(element / 4, 0, a->key, words);
  return (words[element % 4] >> 8) * 0x1p-24 < a->dropout ? 0 : 1 / (1 - (double)a->dropout);
}

static double dot(const float *x, const float *y, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += (double)x[i] * y[i];
  return sum;
}

/* One query's row: out and stats, and what it adds to the gradients. */
static void reference_row(ring_case *c, int64_t b, int64_t h, int64_t i) {
  const tsr_attention *a = &c->a;
  static double p[1024], f[1024], slope[1024]; /* slope: of the soft cap */
  int64_t D = a->D, seen = a->causal ? i + 1 : a->T, stride = a->G * D;
  int64_t first = a->window && i >= a->window ? i - a->window + 1 : 0;
  int64_t at = ((b * a->T + i) * a->H + h) * D, keys = (b * a->T * a->G + h / (a->H / a->G)) * D;
  int64_t Dv = tsr_attention_value_size(a), v_stride = a->G * Dv;
  int64_t to = at / D * Dv, values = keys / D * Dv;
  double *stats = c->stats + ((b * a->H + h) * a->T + i) * 2, delta = 0;
  stats[0] = a->sinks ? (double)a->sinks[h] : -INFINITY, stats[1] = 0;
  for (int64_t j = first; j < seen; j++) {
    double score = dot(c->q + at, c->k + keys + j * stride, D) * a->scale;
    double bent = a->soft_cap != 0 ? tanh(score / a->soft_cap) : 0;
    p[j] = a->soft_cap != 0 ? a->soft_cap * bent : score;
    slope[j] = 1 - bent * bent;
    stats[0] = fmax(stats[0], p[j]);
  }
  if (a->sinks) stats[1] = exp(a->sinks[h] - stats[0]);
  for (int64_t j = first; j < seen; j++) stats[1] += p[j] = exp(p[j] - stats[0]);
  for (int64_t j = first; j < seen; j++) {
    p[j] /= stats[1], f[j] = dropout_factor(a, b, h, i, j);
    for (int64_t d = 0; d < Dv; d++)
      c->out[to + d] += p[j] * f[j] * c->v[values + j * v_stride + d];
  }
  for (int64_t d = 0; d < Dv; d++) delta += c->dout[to + d] * c->out[to + d];
  for (int64_t j = first; j < seen; j++) {
    int64_t key = keys + j * stride, value = values + j * v_stride;
    double ds = p[j] * (dot(c->dout + to, c->v + value, Dv) * f[j] - delta) * slope[j] * a->scale;
    for (int64_t d = 0; d < D; d++) {
      c->dq[at + d] += ds * c->k[key + d];
      c->dk[key + d] += ds * c->q[at + d];
    }
    for (int64_t d = 0; d < Dv; d++) c->dv[value + d] += p[j] * f[j] * c->dout[to + d];
  }
}

static ring_case case_new(tsr_attention a, int64_t units) {
  int64_t nq = q_size(&a), nk = k_size(&a);
  ring_case c = {
      a,
      units,
      input_new(nq, 2),
      input_new(nk, 2),
      input_new(v_size(&a), 2),
      input_new(out_size(&a), 1),
      reference_new(out_size(&a)),
      reference_new(2 * a.B * a.H * a.T),
      reference_new(nq),
      reference_new(nk),
      reference_new(v_size(&a))};
  for (int64_t b = 0; b < a.B; b++)
    for (int64_t h = 0; h < a.H; h++)
      for (int64_t i = 0; i < a.T; i++) reference_row(&c, b, h, i);
  return c;
}

static void case_free(ring_case *c) {
  free(c->q), free(c->k), free(c->v), free(c->dout);
  free(c->out), free(c->stats), free(c->dq), free(c->dk), free(c->dv);
}

/* What one member holds; outputs have the two passes of kernel_check.h. */
typedef struct {
  tsr_attention_ring r;
  float *q, *k, *v, *dout;
  output acc[SUMS], scratch, out, stats, rows, dq, dk, dv;
} member;

/* The whole's (outer, length, inner) to or from a member's (outer, T, inner). */
static void part_copy(
    const tsr_attention_ring *r, float *whole, float *part, int64_t outer, int64_t inner,
    bool gather) {
  tsr_ring map = {.units = r->units, .members = r->members, .zigzag = r->zigzag};
  int64_t rows = r->length / r->units;
  for (int64_t o = 0; o < outer; o++)
    for (int64_t t = 0; t < r->a.T; t++) {
      int64_t position = tsr_ring_unit(&map, r->coord, t / rows) * rows + t % rows;
      float *there = whole + (o * r->length + position) * inner;
      float *here = part + (o * r->a.T + t) * inner;
      memcpy(gather ? there : here, gather ? here : there, (size_t)inner * sizeof *here);
    }
}

static float *part_new(const tsr_attention_ring *r, float *whole, int64_t inner) {
  float *part = check_alloc((size_t)(r->a.B * r->a.T * inner) * sizeof *part);
  part_copy(r, whole, part, r->a.B, inner, false);
  return part;
}

static member member_new(const tsr_kernels *k, const ring_case *c, tsr_attention_ring r) {
  int64_t nq = q_size(&r.a), nk = k_size(&r.a), rows = r.a.B * r.a.H * r.a.T;
  member m = {.r = r};
  int64_t Dv = tsr_attention_value_size(&r.a);
  m.q = part_new(&r, c->q, r.a.H * r.a.D), m.dout = part_new(&r, c->dout, r.a.H * Dv);
  m.k = part_new(&r, c->k, r.a.G * r.a.D), m.v = part_new(&r, c->v, r.a.G * Dv);
  for (int s = 0; s < SUMS; s++)
    m.acc[s] = output_new(k->attention_ring_acc(&r, (tsr_attention_sum)s) / 4);
  m.scratch = output_new(k->attention_ring_scratch(&r) / 4);
  m.out = output_new(out_size(&r.a)), m.stats = output_new(2 * rows);
  m.rows = output_new(3 * rows);
  m.dq = output_new(nq), m.dk = output_new(nk), m.dv = output_new(v_size(&r.a));
  return m;
}

static void member_free(member *m) {
  free(m->q), free(m->k), free(m->v), free(m->dout);
  for (int s = 0; s < SUMS; s++) output_free(&m->acc[s]);
  output_free(&m->scratch), output_free(&m->out), output_free(&m->stats), output_free(&m->rows);
  output_free(&m->dq), output_free(&m->dk), output_free(&m->dv);
}

static const member *keys_of(const member *all, const member *m, int step) {
  return &all[(m->r.coord - step + m->r.members) % m->r.members];
}

static void member_forward(const tsr_kernels *k, member *m, const member *all) {
  int64_t items = m->r.a.B * m->r.a.H;
  const tsr_attention_ring *r = &m->r;
  for (m->r.step = 0; m->r.step < m->r.members; m->r.step++) {
    const member *from = keys_of(all, m, m->r.step);
    RUN(items,
        k->attention_ring(
            r, m->acc[0].pass[pass], m->q, from->k, from->v, m->scratch.pass[pass], begin, end));
  }
  RUN(items, k->attention_ring_finish(
                 r, m->out.pass[pass], m->stats.pass[pass], m->acc[0].pass[pass], begin, end));
  RUN(items,
      k->attention_ring_rows(
          r, m->rows.pass[pass], m->dout, m->out.pass[pass], m->stats.pass[pass], begin, end));
}

static void member_backward(const tsr_kernels *k, member *m, const member *all) {
  int64_t items = m->r.a.B * m->r.a.H, groups = m->r.a.B * m->r.a.G;
  const tsr_attention_ring *r = &m->r;
  for (m->r.step = 0; m->r.step < m->r.members; m->r.step++) {
    const member *from = keys_of(all, m, m->r.step);
    RUN(items, k->attention_ring_dq(
                   r, m->acc[1].pass[pass], m->dout, m->q, from->k, from->v, m->rows.pass[pass],
                   m->scratch.pass[pass], begin, end));
    from = &all[(m->r.coord + m->r.step) % m->r.members];
    RUN(groups, k->attention_ring_dkv(
                    r, m->acc[2].pass[pass], from->dout, from->q, from->rows.pass[pass], m->k, m->v,
                    m->scratch.pass[pass], begin, end));
  }
  RUN(items, k->attention_ring_dq_finish(r, m->dq.pass[pass], m->acc[1].pass[pass], begin, end));
  RUN(groups, k->attention_ring_dkv_finish(
                  r, m->dk.pass[pass], m->dv.pass[pass], m->acc[2].pass[pass], begin, end));
}

/* The results of all members, put together. */
typedef struct {
  output out, stats, dq, dk, dv;
} results;

static results results_new(const tsr_attention *a) {
  return (results){
      output_new(out_size(a)), output_new(2 * a->B * a->H * a->T), output_new(q_size(a)),
      output_new(k_size(a)), output_new(v_size(a))};
}

static void results_free(results *r) {
  output_free(&r->out), output_free(&r->stats), output_free(&r->dq);
  output_free(&r->dk), output_free(&r->dv);
}

static void member_gather(const tsr_kernels *k, member *m, results *all) {
  const tsr_attention *a = &m->r.a;
  for (int s = 0; s < SUMS; s++) CHECK_OUTPUT(m->acc[s], NULL, 0, 0);
  CHECK_OUTPUT(m->rows, NULL, 0, 0);
  for (int p = 0; p < 2; p++) {
    CHECK(guard_intact(m->scratch.pass[p] - GUARD));
    CHECK(guard_intact(m->scratch.pass[p] + m->scratch.n));
    part_copy(&m->r, all->out.pass[p], m->out.pass[p], a->B, out_size(a) / a->B / a->T, true);
    part_copy(&m->r, all->stats.pass[p], m->stats.pass[p], a->B * a->H, 2, true);
    part_copy(&m->r, all->dq.pass[p], m->dq.pass[p], a->B, a->H * a->D, true);
    part_copy(&m->r, all->dk.pass[p], m->dk.pass[p], a->B, a->G * a->D, true);
    part_copy(&m->r, all->dv.pass[p], m->dv.pass[p], a->B, v_size(a) / a->B / a->T, true);
  }
  output *own[] = {&m->out, &m->stats, &m->dq, &m->dk, &m->dv};
  for (int i = 0; i < 5; i++) CHECK_OUTPUT(*own[i], NULL, 0, 0);
}

static results ring_run(const tsr_kernels *k, const ring_case *c, int members, bool zigzag) {
  results all = results_new(&c->a);
  member m[8];
  for (int i = 0; i < members; i++) {
    tsr_attention_ring r = {c->a, c->a.T, c->units, members, i, 0, zigzag};
    r.a.T = c->a.T / members;
    m[i] = member_new(k, c, r);
  }
  for (int i = 0; i < members; i++) member_forward(k, &m[i], m);
  for (int i = 0; i < members; i++) member_backward(k, &m[i], m);
  for (int i = 0; i < members; i++) member_gather(k, &m[i], &all);
  for (int i = 0; i < members; i++) member_free(&m[i]);
  return all;
}

static void same_bits(
    const tsr_kernels *k, const ring_case *c, const results *x, const results *y, int members,
    const char *layout) {
  const output *a[] = {&x->out, &x->stats, &x->dq, &x->dk, &x->dv};
  const output *b[] = {&y->out, &y->stats, &y->dq, &y->dk, &y->dv};
  const char *names[] = {"out", "stats", "dq", "dk", "dv"};
  for (int i = 0; i < 5; i++)
    CHECK_AT(
        !memcmp(a[i]->pass[0], b[i]->pass[0], (size_t)a[i]->n * sizeof(float)),
        "%s (%s) of length %lld, %lld units has other bits with %d members, %s", names[i], k->isa,
        (long long)c->a.T, (long long)c->units, members, layout);
}

/* The kernels for whole sequences; with one unit they have the ring's bits. */
static void check_plain(const tsr_kernels *k, const ring_case *c, const results *ring) {
  const tsr_attention *a = &c->a;
  results plain = results_new(a);
  void *scratch = check_alloc((size_t)k->attention_scratch(a));
  for (int p = 0; p < 2; p++) {
    k->attention(
        a, plain.out.pass[p], plain.stats.pass[p], c->q, c->k, c->v, scratch, 0, a->B * a->H);
    k->attention_backward(
        a, plain.dq.pass[p], plain.dk.pass[p], plain.dv.pass[p], c->dout, c->q, c->k, c->v,
        plain.out.pass[p], plain.stats.pass[p], scratch, 0, a->B * a->G);
  }
  if (c->units == 1) same_bits(k, c, ring, &plain, 1, "plain");
  const output *x[] = {&ring->out, &ring->stats, &ring->dq, &ring->dk, &ring->dv};
  output *y[] = {&plain.out, &plain.stats, &plain.dq, &plain.dk, &plain.dv};
  for (int i = 0; i < 5; i++) {
    double *want = to_double(x[i]->pass[0], x[i]->n);
    CHECK_OUTPUT(*y[i], want, 1e-5, 1);
    free(want);
  }
  free(scratch);
  results_free(&plain);
}

static void case_check(const tsr_kernels *k, const ring_case *c) {
  results one = ring_run(k, c, 1, false);
  CHECK_OUTPUT(one.out, c->out, 3e-6, 1);
  CHECK_OUTPUT(one.stats, c->stats, 3e-6, 1);
  CHECK_OUTPUT(one.dq, c->dq, 5e-6, 1);
  CHECK_OUTPUT(one.dk, c->dk, 5e-6, 1);
  CHECK_OUTPUT(one.dv, c->dv, 5e-6, 1);
  check_plain(k, c, &one);
  for (int members = 1; members <= 8; members++)
    for (int zigzag = 0; zigzag < 2; zigzag++) {
      if (c->units % (members * (zigzag + 1))) continue;
      results all = ring_run(k, c, members, zigzag);
      same_bits(k, c, &one, &all, members, zigzag ? "zigzag" : "contiguous");
      results_free(&all);
    }
  results_free(&one);
}

static ring_case cases[40];
static int case_count;

static void test_cases(const tsr_kernels *k) {
  for (int i = 0; i < case_count; i++) case_check(k, &cases[i]);
}

/* Memory that waits between the steps grows as the logarithm of the members. */
static void test_sizes(const tsr_kernels *k) {
  tsr_attention a = {.B = 2, .H = 4, .G = 2, .D = 64, .scale = 1};
  for (int members = 1; members <= 64; members *= 2) {
    tsr_attention_ring r = {a, 8192, 128, members, 0, 0, false};
    r.a.T = r.length / members;
    int slots = members <= 4 ? (members + 1) / 2 : 2 * (31 - __builtin_clz((unsigned)members) - 1);
    int64_t positions = a.B * r.a.T * slots * 4;
    CHECK_INT(k->attention_ring_acc(&r, TSR_ATTENTION_OUT), positions * a.H * (64 + 2));
    CHECK_INT(k->attention_ring_acc(&r, TSR_ATTENTION_DQ), positions * a.H * 64);
    CHECK_INT(k->attention_ring_acc(&r, TSR_ATTENTION_DKV), positions * a.G * 2 * 64);
  }
}

int main(void) {
  const tsr_attention plain = {.B = 2, .H = 2, .G = 1, .D = 5, .scale = 0.4f};
  const tsr_attention dropped = {
      .B = 2,
      .H = 4,
      .G = 2,
      .D = 8,
      .scale = 0.35f,
      .dropout = 0.25f,
      .key = 77,
      .batch_offset = 3,
      .head_offset = 2,
      .heads_global = 7};
  const tsr_attention wide = {.B = 1, .H = 3, .G = 3, .D = 33, .scale = 0.2f};
  const tsr_attention narrow = {
      .B = 2,
      .H = 4,
      .G = 2,
      .D = 24,
      .scale = 0.2f,
      .dropout = 0.25f,
      .key = 7,
      .heads_global = 4,
      .Dv = 10};
  const tsr_attention broad = {.B = 1, .H = 2, .G = 1, .D = 5, .scale = 0.4f, .Dv = 40};
  static const float sinks[] = {0.3f, 95.0f, -120.0f, 1.7f};
  tsr_attention sunk = dropped;
  sunk.sinks = sinks;
  tsr_attention capped = dropped;
  capped.scale = 0.8f;
  capped.soft_cap = 1.5f;
  const tsr_attention grouped = {.B = 1, .H = 6, .G = 2, .D = 64, .scale = 0.125f};
  const struct {
    const tsr_attention *a;
    int64_t length, units;
    bool causal;
    int64_t window;
  } list[] = {
      {&plain, 16, 16, true},     {&plain, 24, 8, false},       {&plain, 57, 3, true},
      {&plain, 60, 12, true},     {&plain, 70, 1, true},        {&dropped, 40, 8, true},
      {&dropped, 72, 6, false},   {&dropped, 51, 1, true},      {&dropped, 104, 8, true},
      {&wide, 200, 2, true},      {&wide, 208, 4, false},       {&wide, 112, 16, true},
      {&wide, 130, 10, true},     {&grouped, 211, 1, true},     {&grouped, 206, 2, true},
      {&plain, 16, 16, true, 1},  {&plain, 60, 12, true, 5},    {&plain, 60, 12, true, 6},
      {&plain, 57, 3, true, 30},  {&dropped, 104, 8, true, 14}, {&wide, 208, 4, true, 53},
      {&wide, 112, 16, true, 50}, {&grouped, 206, 2, true, 99}, {&plain, 200, 4, true, 20},
      {&narrow, 51, 1, true},     {&narrow, 104, 8, true},      {&narrow, 208, 4, false},
      {&broad, 60, 12, true, 6},  {&broad, 206, 2, true},       {&sunk, 40, 8, true},
      {&sunk, 51, 1, true},       {&sunk, 104, 8, true, 14},    {&capped, 40, 8, true},
      {&capped, 51, 1, true},     {&capped, 104, 8, true, 14},  {&capped, 72, 6, false},
  };
  case_count = (int)(sizeof list / sizeof list[0]);
  for (int i = 0; i < case_count; i++) {
    tsr_attention a = *list[i].a;
    a.T = list[i].length, a.causal = list[i].causal, a.window = list[i].window;
    cases[i] = case_new(a, list[i].units);
  }
  each_level(test_cases);
  each_level(test_sizes);
  for (int i = 0; i < case_count; i++) case_free(&cases[i]);
  return check_done("kernels.attention_ring");
}
