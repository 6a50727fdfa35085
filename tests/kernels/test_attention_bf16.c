// SPDX-License-Identifier: Apache-2.0
/* Attention whose operands are in bf16, at the levels that have an instruction for pairs of bf16:
 * within the error that rounding the probabilities, their gradients and the results to bf16 can
 * make, of the formula in double; for every split; the same bits by the instruction as by its
 * emulation in C, over units of the sequence and with a cache. */
#include "document_positions.h"
#include "kernel_check.h"
#include "emulated_attention.h"
#include "kernels/ring_attention_merge.h"

static const double unit = 0x1p-8; /* a rounding to bf16 changes a number by at most this part */

static uint16_t rounded(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
static float value(uint16_t x) {
  uint32_t bits = (uint32_t)x << 16;
  float wide;
  memcpy(&wide, &bits, sizeof wide);
  return wide;
}

static uint16_t *halves_new(int64_t n, float size) {
  uint16_t *x = check_alloc((size_t)n * sizeof *x);
  for (int64_t i = 0; i < n; i++) x[i] = rounded(check_uniform() * size);
  return x;
}

/* q, dout of a.H heads, k, v of a.G heads; the results of one kernel table. */
typedef struct {
  tsr_attention a;
  int64_t nq, nk, nv, nout;
  uint16_t *q, *k, *v, *dout;
} inputs;
typedef struct {
  uint16_t *out, *dq, *dk, *dv;
  float *stats;
} results;

static inputs inputs_new(tsr_attention a) {
  int64_t rows = a.B * a.T, Dv = tsr_attention_value_size(&a);
  inputs x = {a, rows * a.H * a.D, rows * a.G * a.D, rows * a.G * Dv, rows * a.H * Dv};
  x.q = halves_new(x.nq, 2), x.k = halves_new(x.nk, 2);
  x.v = halves_new(x.nv, 2), x.dout = halves_new(x.nout, 1);
  return x;
}
static void inputs_free(inputs *x) { free(x->q), free(x->k), free(x->v), free(x->dout); }

static results results_new(const inputs *x) {
  return (results){
      halves_new(x->nout, 1), halves_new(x->nq, 1), halves_new(x->nk, 1), halves_new(x->nv, 1),
      input_new(2 * x->a.B * x->a.H * x->a.T, 1)};
}
static void results_free(results *r) {
  free(r->out), free(r->dq), free(r->dk), free(r->dv), free(r->stats);
}

static bool halves_equal(const uint16_t *x, const uint16_t *y, int64_t n) {
  return !memcmp(x, y, (size_t)n * sizeof *x);
}
static void compare(const inputs *x, const results *a, const results *b, const char *what) {
  CHECK_AT(halves_equal(a->out, b->out, x->nout), "out: %s", what);
  CHECK_AT(halves_equal(a->dq, b->dq, x->nq), "dq: %s", what);
  CHECK_AT(halves_equal(a->dk, b->dk, x->nk), "dk: %s", what);
  CHECK_AT(halves_equal(a->dv, b->dv, x->nv), "dv: %s", what);
  size_t stats = (size_t)(2 * x->a.B * x->a.H * x->a.T) * sizeof(float);
  CHECK_AT(!memcmp(a->stats, b->stats, stats), "stats: %s", what);
}

/* ---- the formula in double ---- */

/* A sum, and how far roundings to bf16 inside it can move it. */
typedef struct {
  double sum, error;
} bounded;

typedef struct {
  bounded *out, *dq, *dk, *dv;
} reference;

static double dropout_factor(const tsr_attention *a, int64_t b, int64_t h, int64_t i, int64_t j) {
  if (a->dropout == 0) return 1;
  uint64_t line = (uint64_t)(b * a->heads_global + h);
  uint64_t element = (line * (uint64_t)a->T + (uint64_t)i) * (uint64_t)a->T + (uint64_t)j;
  uint32_t words[4];
  tsr_philox(element / 4, 0, a->key, words);
  return (words[element % 4] >> 8) * 0x1p-24 < a->dropout ? 0 : 1 / (1 - (double)a->dropout);
}

static int64_t document_begin(const tsr_attention *a, int64_t b, int64_t i) {
  while (a->positions && a->positions[b * a->T + i]) i--;
  return a->positions ? i : 0;
}

static bool sees(const tsr_attention *a, int64_t b, int64_t i, int64_t j) {
  if (document_begin(a, b, i) != document_begin(a, b, j)) return false;
  return !a->causal || (j <= i && (!a->window || i - j < a->window));
}

enum { LONGEST = 320 };

/* A row's probabilities, and the slope of the capped scores. */
static void row_probabilities(
    const inputs *x, int64_t b, int64_t h, int64_t i, double p[LONGEST], double slope[LONGEST]) {
  const tsr_attention *a = &x->a;
  int64_t g = h / (a->H / a->G);
  double max = a->sinks ? a->sinks[h] : -INFINITY, sum = 0;
  for (int64_t j = 0; j < a->T; j++) {
    double score = 0;
    for (int64_t d = 0; d < a->D; d++)
      score += (double)value(x->q[((b * a->T + i) * a->H + h) * a->D + d]) *
               value(x->k[((b * a->T + j) * a->G + g) * a->D + d]);
    score *= a->scale, slope[j] = 1;
    if (a->soft_cap != 0) {
      double tanh_of = tanh(score / a->soft_cap);
      score = a->soft_cap * tanh_of, slope[j] = 1 - tanh_of * tanh_of;
    }
    p[j] = sees(a, b, i, j) ? score : -INFINITY;
    max = fmax(max, p[j]);
  }
  if (a->sinks) sum = exp(a->sinks[h] - max);
  for (int64_t j = 0; j < a->T; j++) sum += p[j] = exp(p[j] - max);
  for (int64_t j = 0; j < a->T; j++) p[j] /= sum;
}

static void add(bounded *to, double x, double error) { to->sum += x, to->error += error; }

/* out of a row, and what it adds to the gradients. delta has the error of out, rounded. */
static void reference_row(const inputs *x, const reference *r, int64_t b, int64_t h, int64_t i) {
  const tsr_attention *a = &x->a;
  static double p[LONGEST], slope[LONGEST];
  int64_t Dv = tsr_attention_value_size(a), g = h / (a->H / a->G), row = (b * a->T + i) * a->H + h;
  bounded delta = {0, 0};
  row_probabilities(x, b, h, i, p, slope);
  for (int64_t d = 0; d < Dv; d++) {
    bounded *out = &r->out[row * Dv + d];
    for (int64_t j = 0; j < a->T; j++) {
      double term =
          p[j] * dropout_factor(a, b, h, i, j) * value(x->v[((b * a->T + j) * a->G + g) * Dv + d]);
      add(out, term, unit * fabs(term));
    }
    double dout = value(x->dout[row * Dv + d]);
    add(&delta, dout * out->sum, fabs(dout) * (out->error + unit * fabs(out->sum)));
  }
  for (int64_t j = 0; j < a->T; j++) {
    int64_t key = (b * a->T + j) * a->G + g;
    double f = dropout_factor(a, b, h, i, j), dp = 0;
    for (int64_t d = 0; d < Dv; d++) {
      double dout = value(x->dout[row * Dv + d]), weight = p[j] * f;
      dp += dout * value(x->v[key * Dv + d]);
      add(&r->dv[key * Dv + d], weight * dout, unit * fabs(weight * dout));
    }
    double part = p[j] * slope[j] * a->scale, ds = part * (dp * f - delta.sum);
    double error = unit * fabs(ds) + 1.01 * part * delta.error;
    for (int64_t d = 0; d < a->D; d++) {
      double q = value(x->q[row * a->D + d]), k = value(x->k[key * a->D + d]);
      add(&r->dq[row * a->D + d], ds * k, error * fabs(k));
      add(&r->dk[key * a->D + d], ds * q, error * fabs(q));
    }
  }
}

static bounded *bounded_new(int64_t n) {
  bounded *x = check_alloc((size_t)n * sizeof *x);
  for (int64_t i = 0; i < n; i++) x[i] = (bounded){0, 0};
  return x;
}

static reference reference_of(const inputs *x) {
  reference r = {bounded_new(x->nout), bounded_new(x->nq), bounded_new(x->nk), bounded_new(x->nv)};
  for (int64_t b = 0; b < x->a.B; b++)
    for (int64_t h = 0; h < x->a.H; h++)
      for (int64_t i = 0; i < x->a.T; i++) reference_row(x, &r, b, h, i);
  return r;
}
static void reference_free(reference *r) { free(r->out), free(r->dq), free(r->dk), free(r->dv); }

/* The result is rounded too; what f32 adds is small beside it. */
static void check_near(
    const tsr_kernels *k, const char *what, const uint16_t *got, const bounded *want, int64_t n) {
  int64_t wrong = 0;
  double errors = 0, squares = 0;
  for (int64_t i = 0; i < n; i++) {
    double off = fabs(value(got[i]) - want[i].sum);
    double most = 1.01 * (want[i].error + unit * fabs(want[i].sum)) + 2e-5;
    wrong += !(off <= most);
    errors += off * off, squares += want[i].sum * want[i].sum;
  }
  CHECK_AT(!wrong, "%s (%s): %lld of %lld too far", what, k->isa, (long long)wrong, (long long)n);
  CHECK_AT(errors <= 0x1p-14 * squares + 1e-9, "%s (%s): %g", what, k->isa, sqrt(errors / squares));
}

/* ---- kernels ---- */

static void run(const tsr_kernels *k, const inputs *x, results *r, bool split) {
  const tsr_attention *a = &x->a;
  output scratch = output_new((k->attention_scratch(a) + 3) / 4);
  for (int64_t begin = 0, end, all = a->B * a->H; begin < all; begin = end) {
    end = split ? split_next(begin, all) : all;
    k->attention(a, r->out, r->stats, x->q, x->k, x->v, scratch.pass[0], begin, end);
  }
  for (int64_t begin = 0, end, all = a->B * a->G; begin < all; begin = end) {
    end = split ? split_next(begin, all) : all;
    k->attention_backward(
        a, r->dq, r->dk, r->dv, x->dout, x->q, x->k, x->v, r->out, r->stats, scratch.pass[0], begin,
        end);
  }
  CHECK(guard_intact(scratch.pass[0] - GUARD) && guard_intact(scratch.pass[0] + scratch.n));
  output_free(&scratch);
}

/* As a ring of one member over `units` units. */
static void run_ring(const tsr_kernels *k, const inputs *x, results *r, int64_t units) {
  tsr_attention_ring ring = {.a = x->a, .length = x->a.T, .units = units, .members = 1};
  const tsr_attention *a = &x->a;
  int64_t heads = a->B * a->H, groups = a->B * a->G;
  void *scratch = check_alloc((size_t)k->attention_ring_scratch(&ring));
  float *rows = input_new(3 * heads * a->T, 1);
  float *acc[3];
  for (int i = 0; i < 3; i++)
    acc[i] = check_alloc((size_t)k->attention_ring_acc(&ring, (tsr_attention_sum)i));
  k->attention_ring(&ring, acc[0], x->q, x->k, x->v, scratch, 0, heads);
  k->attention_ring_finish(&ring, r->out, r->stats, acc[0], 0, heads);
  k->attention_ring_rows(&ring, rows, x->dout, r->out, r->stats, 0, heads);
  k->attention_ring_dq(&ring, acc[1], x->dout, x->q, x->k, x->v, rows, scratch, 0, heads);
  k->attention_ring_dq_finish(&ring, r->dq, acc[1], 0, heads);
  k->attention_ring_dkv(&ring, acc[2], x->dout, x->q, rows, x->k, x->v, scratch, 0, groups);
  k->attention_ring_dkv_finish(&ring, r->dk, r->dv, acc[2], 0, groups);
  for (int i = 0; i < 3; i++) free(acc[i]);
  free(scratch), free(rows);
}

/* All tokens of a sequence, `step` new ones at a time, give the rows of `want`. */
static void check_cached(const tsr_kernels *k, const inputs *x, const results *want, int64_t step) {
  tsr_attention a = x->a;
  int64_t Dv = tsr_attention_value_size(&a), page = 16, T = a.T, each = (T + page - 1) / page;
  uint16_t *keys = halves_new(each * page * a.G * a.D, 1);
  uint16_t *values = halves_new(each * page * a.G * Dv, 1), *out = halves_new(step * a.H * Dv, 1);
  int32_t pages[LONGEST / 16 + 1];
  for (int64_t i = 0; i < each; i++) pages[i] = (int32_t)(each - 1 - i);
  for (int64_t t = 0; t < T; t++) {
    int64_t row = pages[t / page] * page + t % page;
    memcpy(keys + row * a.G * a.D, x->k + t * a.G * a.D, (size_t)(a.G * a.D) * sizeof *keys);
    memcpy(values + row * a.G * Dv, x->v + t * a.G * Dv, (size_t)(a.G * Dv) * sizeof *values);
  }
  a.B = 1, a.T = step;
  tsr_attention_cached c = {.a = a, .page = page, .pages_each = each, .pages = pages};
  void *scratch = check_alloc((size_t)k->attention_cached_scratch(&c));
  for (int64_t t = 0; t < T; t += step) {
    int32_t position = (int32_t)t, count = (int32_t)(T - t < step ? T - t : step);
    c.positions = &position, c.counts = &count;
    k->attention_cached(&c, out, x->q + t * a.H * a.D, keys, values, scratch, 0, a.G);
    CHECK_AT(
        halves_equal(out, want->out + t * a.H * Dv, count * a.H * Dv),
        "%s: cached, %lld of %lld tokens at %lld", k->isa, (long long)count, (long long)T,
        (long long)t);
  }
  free(keys), free(values), free(out), free(scratch);
}

static void check_sinks(const tsr_kernels *k, const inputs *x, const results *r) {
  int64_t rows = x->a.B * x->a.T, Dv = tsr_attention_value_size(&x->a);
  float *d = input_new(rows * x->a.H, 1);
  k->attention_sinks_backward(&x->a, d, x->dout, r->out, r->stats, 0, rows);
  for (int64_t at = 0; at < rows * x->a.H; at++) {
    int64_t h = at % x->a.H, b = at / x->a.H / x->a.T, t = at / x->a.H % x->a.T;
    const float *of = r->stats + ((b * x->a.H + h) * x->a.T + t) * 2;
    double dot = 0, p = exp(x->a.sinks[h] - of[0]) / of[1];
    for (int64_t i = 0; i < Dv; i++)
      dot += (double)value(x->dout[at * Dv + i]) * value(r->out[at * Dv + i]);
    CHECK_AT(fabs(d[at] + p * dot) <= 1e-5 * fmax(1, fabs(dot)), "sink (%s): %g", k->isa, d[at]);
  }
  free(d);
}

static void
check_table(const tsr_kernels *k, const inputs *x, const reference *want, results *ret_results) {
  results split = results_new(x), ring = results_new(x);
  const tsr_attention *a = &x->a;
  CHECK(k->attention_bf16());
  run(k, x, ret_results, false);
  run(k, x, &split, true);
  compare(x, ret_results, &split, "depends on the split");
  check_near(k, "out", ret_results->out, want->out, x->nout);
  check_near(k, "dq", ret_results->dq, want->dq, x->nq);
  check_near(k, "dk", ret_results->dk, want->dk, x->nk);
  check_near(k, "dv", ret_results->dv, want->dv, x->nv);
  if (a->sinks) check_sinks(k, x, ret_results);
  if (!a->positions) {
    run_ring(k, x, &ring, 1);
    compare(x, ret_results, &ring, "over one unit");
    if (a->T % 4 == 0 && a->soft_cap == 0) {
      run_ring(k, x, &ring, 4);
      check_near(k, "out over 4 units", ring.out, want->out, x->nout);
      check_near(k, "dk over 4 units", ring.dk, want->dk, x->nk);
    }
  }
  if (a->causal && a->dropout == 0 && !a->positions) {
    check_cached(k, x, ret_results, 1);
    check_cached(k, x, ret_results, 3);
    check_cached(k, x, ret_results, 70);
  }
  results_free(&split), results_free(&ring);
}

/* The instruction has the bits of its emulation, and a level's those of another machine's. */
static void check_case(const inputs *x, const tsr_kernels *emulated, const tsr_kernels *level) {
  results by_c = results_new(x), by_instruction = results_new(x);
  reference want = reference_of(x);
  check_table(emulated, x, &want, &by_c);
  if (level) {
    check_table(level, x, &want, &by_instruction);
    compare(x, &by_c, &by_instruction, level->isa);
  }
  results_free(&by_c), results_free(&by_instruction), reference_free(&want);
}

static const float sinks[] = {0.3f, 9.0f, -20.0f, 1.7f};

/* clang-format off */
static const tsr_attention list[] = {
    {.B = 1, .T = 1, .H = 1, .G = 1, .D = 1, .scale = 1, .causal = true},
    {.B = 2, .T = 7, .H = 2, .G = 2, .D = 3, .scale = 0.5f, .causal = true},
    {.B = 1, .T = 17, .H = 4, .G = 2, .D = 8, .scale = 0.35f, .Dv = 3},
    {.B = 1, .T = 132, .H = 2, .G = 1, .D = 64, .scale = 0.125f, .causal = true},
    {.B = 1, .T = 100, .H = 1, .G = 1, .D = 33, .scale = 0.2f, .dropout = 0.1f, .key = 5,
     .heads_global = 1},
    {.B = 1, .T = 131, .H = 4, .G = 2, .D = 24, .scale = 0.2f, .causal = true, .Dv = 40,
     .sinks = sinks},
    {.B = 1, .T = 300, .H = 2, .G = 1, .D = 16, .scale = 0.3f, .causal = true, .window = 97},
    {.B = 1, .T = 124, .H = 4, .G = 4, .D = 32, .scale = 0.2f, .causal = true, .window = 37,
     .dropout = 0.2f, .key = 9, .heads_global = 4, .sinks = sinks},
    {.B = 1, .T = 131, .H = 4, .G = 2, .D = 16, .scale = 0.5f, .causal = true, .soft_cap = 3},
    {.B = 2, .T = 111, .H = 4, .G = 2, .D = 40, .scale = 0.2f, .causal = true,
     .positions = document_positions},
};
/* clang-format on */

int main(void) {
  tsr_kernels v4, amx;
  if (!emulated_attention(&v4, &amx)) {
    printf("kernels.attention_bf16: skipped: this CPU lacks the level of the emulation\n");
    return 77;
  }
  const tsr_kernels *levels[] = {tsr_kernels_get("v4-bf16"), tsr_kernels_get("amx-bf16")};
  if (!levels[0]) printf("level v4-bf16: not on this CPU\n");
  if (!levels[1]) printf("level amx-bf16: not on this CPU\n");
  make_positions();
  for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
    tsr_attention a = list[i];
    a.bf16 = true;
    inputs x = inputs_new(a);
    check_case(&x, &v4, levels[0]);
    check_case(&x, &amx, levels[1]);
    inputs_free(&x);
  }
  return check_done("kernels.attention_bf16");
}
