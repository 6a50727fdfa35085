// SPDX-License-Identifier: Apache-2.0
/* Attention against the formula in double; its gradients against central differences of that. */
#include "document_positions.h"
#include "kernel_check.h"

typedef struct {
  tsr_attention a;
  double *tensors; /* q (B,T,H*D), k (B,T,G*D), v (B,T,G*Dv), sinks (H), one after the other */
  const float *dout;
  double *out, *stats;
} attention_reference;

static int64_t q_size(const tsr_attention *a) { return a->B * a->T * a->H * a->D; }
static int64_t k_size(const tsr_attention *a) { return a->B * a->T * a->G * a->D; }
static int64_t out_size(const tsr_attention *a) {
  return a->B * a->T * a->H * tsr_attention_value_size(a);
}
static int64_t v_size(const tsr_attention *a) {
  return a->B * a->T * a->G * tsr_attention_value_size(a);
}

static int64_t sinks_size(const tsr_attention *a) { return a->sinks ? a->H : 0; }

static double dropout_factor(const tsr_attention *a, int64_t b, int64_t h, int64_t i, int64_t j) {
  if (a->dropout == 0) return 1;
  uint64_t line = (uint64_t)((b + a->batch_offset) * a->heads_global + h + a->head_offset);
  if (h >= a->H - a->H / 2) line += (uint64_t)a->head_gap;
  uint64_t element = (line * (uint64_t)a->T + (uint64_t)i) * (uint64_t)a->T + (uint64_t)j;
  uint32_t words[4];
  tsr_philox(element / 4, 0, a->key, words);
  return (words[element % 4] >> 8) * 0x1p-24 < a->dropout ? 0 : 1 / (1 - (double)a->dropout);
}

/* The first token of the document of token i, or the first behind it. */
static int64_t document_edge(const tsr_attention *a, int64_t b, int64_t i, int64_t step) {
  const int32_t *positions = a->positions + b * a->T;
  if (!a->positions) return step < 0 ? 0 : a->T;
  if (step > 0) i++;
  while (i > 0 && i < a->T && positions[i]) i += step;
  return i;
}

static void reference_row(
    const attention_reference *f, const double *x, int64_t b, int64_t h, int64_t i, double *out,
    double stats[2]) {
  const tsr_attention *a = &f->a;
  static double score[1024];
  int64_t g = h / (a->H / a->G), begin = document_edge(a, b, i, -1);
  int64_t Dv = tsr_attention_value_size(a), seen = a->causal ? i + 1 : document_edge(a, b, i, 1);
  int64_t first = a->window && i - begin >= a->window ? i - a->window + 1 : begin;
  const double *q = x + ((b * a->T + i) * a->H + h) * a->D;
  const double *k = x + q_size(a), *v = k + k_size(a), *sinks = v + v_size(a);
  stats[0] = a->sinks ? sinks[h] : -INFINITY, stats[1] = 0;
  for (int64_t j = first; j < seen; j++) {
    score[j] = 0;
    for (int64_t d = 0; d < a->D; d++) score[j] += q[d] * k[((b * a->T + j) * a->G + g) * a->D + d];
    score[j] *= a->scale;
    if (a->soft_cap != 0) score[j] = a->soft_cap * tanh(score[j] / a->soft_cap);
    stats[0] = fmax(stats[0], score[j]);
  }
  if (a->sinks) stats[1] = exp(sinks[h] - stats[0]);
  for (int64_t j = first; j < seen; j++) stats[1] += score[j] = exp(score[j] - stats[0]);
  for (int64_t d = 0; d < Dv; d++) out[d] = 0;
  for (int64_t j = first; j < seen; j++) {
    double p = score[j] / stats[1] * dropout_factor(a, b, h, i, j);
    for (int64_t d = 0; d < Dv; d++) out[d] += p * v[((b * a->T + j) * a->G + g) * Dv + d];
  }
}

/* Sum of out * dout; keeps out and stats where they are wanted. */
static double reference_loss(const double *x, void *context) {
  attention_reference *f = context;
  const tsr_attention *a = &f->a;
  int64_t Dv = tsr_attention_value_size(a);
  double loss = 0, row[256], stats[2];
  for (int64_t b = 0; b < a->B; b++)
    for (int64_t h = 0; h < a->H; h++)
      for (int64_t i = 0; i < a->T; i++) {
        int64_t at = ((b * a->T + i) * a->H + h) * Dv;
        reference_row(f, x, b, h, i, row, stats);
        for (int64_t d = 0; d < Dv; d++) loss += row[d] * f->dout[at + d];
        if (f->out) memcpy(f->out + at, row, (size_t)Dv * sizeof *row);
        if (f->stats) memcpy(f->stats + ((b * a->H + h) * a->T + i) * 2, stats, sizeof stats);
      }
  return loss;
}

typedef struct {
  tsr_attention a;
  float *q, *k, *v, *dout;
  double *out, *stats, *gradients; /* of q, k, v and the sinks; NAN where it was not computed */
} attention_case;

/* Central differences at about `samples` places of q, k and v, and at all sinks. */
static attention_case case_new(tsr_attention a, int64_t samples) {
  int64_t nq = q_size(&a), nk = k_size(&a), nv = v_size(&a), sinks = nq + nk + nv;
  int64_t total = sinks + sinks_size(&a);
  attention_case c = {
      a,
      input_new(nq, 2),
      input_new(nk, 2),
      input_new(nv, 2),
      input_new(out_size(&a), 1),
      reference_new(out_size(&a)),
      reference_new(2 * a.B * a.H * a.T),
      reference_new(total)};
  double *x = reference_new(total);
  for (int64_t i = 0; i < nq; i++) x[i] = c.q[i];
  for (int64_t i = 0; i < nk; i++) x[nq + i] = c.k[i];
  for (int64_t i = 0; i < nv; i++) x[nq + nk + i] = c.v[i];
  for (int64_t i = sinks; i < total; i++) x[i] = a.sinks[i - sinks];
  attention_reference f = {a, x, c.dout, c.out, c.stats};
  reference_loss(x, &f);
  f.out = f.stats = NULL;
  int64_t step = total / samples + 1;
  for (int64_t i = 0; i < total; i++)
    c.gradients[i] = i % step && i < sinks ? NAN : slope_at(reference_loss, x, i, &f);
  free(x);
  return c;
}

static void case_free(attention_case *c) {
  free(c->q), free(c->k), free(c->v), free(c->dout), free(c->out), free(c->stats);
  free(c->gradients);
}

/* Where no difference was taken, only the bits are compared. */
static void
check_gradient(const tsr_kernels *k, const output *o, const double *want, const char *what) {
  output_check(o, NULL, 0, 0, what, k->isa, __FILE__, __LINE__);
  for (int64_t i = 0; i < o->n; i++)
    if (!isnan(want[i]))
      CHECK_AT(
          fabs(o->pass[0][i] - want[i]) <= 2e-5 * fmax(1, fabs(want[i])),
          "%s (%s) at %lld: %.9g, want %.9g", what, k->isa, (long long)i, o->pass[0][i], want[i]);
}

/* The gradient of the sinks is the sum of its rows. */
static void
check_sinks(const tsr_kernels *k, const attention_case *c, const output *out, const output *stats) {
  const tsr_attention *a = &c->a;
  const double *want = c->gradients + q_size(a) + k_size(a) + v_size(a);
  output rows = output_new(a->B * a->T * a->H);
  RUN(a->B * a->T, k->attention_sinks_backward(
                       a, rows.pass[pass], c->dout, out->pass[0], stats->pass[0], begin, end));
  output_check(&rows, NULL, 0, 0, "sinks", k->isa, __FILE__, __LINE__);
  for (int64_t h = 0; h < a->H; h++) {
    double sum = 0;
    for (int64_t row = h; row < a->B * a->T * a->H; row += a->H) sum += rows.pass[0][row];
    CHECK_AT(
        fabs(sum - want[h]) <= 2e-5 * fmax(1, fabs(want[h])), "sink %lld (%s): %.9g, want %.9g",
        (long long)h, k->isa, sum, want[h]);
  }
  output_free(&rows);
}

static void case_check(const tsr_kernels *k, const attention_case *c) {
  const tsr_attention *a = &c->a;
  int64_t nq = q_size(a), nk = k_size(a), bytes = k->attention_scratch(a);
  output out = output_new(out_size(a)), stats = output_new(2 * a->B * a->H * a->T);
  output dq = output_new(nq), dk = output_new(nk), dv = output_new(v_size(a)),
         scratch = output_new((bytes + 3) / 4);
  RUN(a->B * a->H,
      k->attention(
          a, out.pass[pass], stats.pass[pass], c->q, c->k, c->v, scratch.pass[pass], begin, end));
  RUN(a->B * a->G, k->attention_backward(
                       a, dq.pass[pass], dk.pass[pass], dv.pass[pass], c->dout, c->q, c->k, c->v,
                       out.pass[0], stats.pass[0], scratch.pass[pass], begin, end));
  CHECK_OUTPUT(out, c->out, 3e-6, 1);
  CHECK_OUTPUT(stats, c->stats, 3e-6, 1);
  check_gradient(k, &dq, c->gradients, "dq");
  check_gradient(k, &dk, c->gradients + nq, "dk");
  check_gradient(k, &dv, c->gradients + nq + nk, "dv");
  if (a->sinks) check_sinks(k, c, &out, &stats);
  CHECK(guard_intact(scratch.pass[0] - GUARD) && guard_intact(scratch.pass[0] + scratch.n));
  output_free(&out), output_free(&stats), output_free(&dq), output_free(&dk), output_free(&dv);
  output_free(&scratch);
}

/* One sequence alone, and one head alone, give the bits that they have in the whole. */
static void check_shards(const tsr_kernels *k, const attention_case *c) {
  const tsr_attention *a = &c->a;
  int64_t nq = q_size(a), bytes = k->attention_scratch(a), width = a->H * a->D, h = a->H - 1;
  float *whole = input_new(nq, 1), *part = input_new(nq, 1), *stats = input_new(2 * nq, 1);
  void *scratch = check_alloc((size_t)bytes);
  k->attention(a, whole, stats, c->q, c->k, c->v, scratch, 0, a->B * a->H);
  tsr_attention last = *a;
  last.B = 1, last.batch_offset = a->batch_offset + a->B - 1;
  int64_t q_at = (a->B - 1) * a->T * width, k_at = (a->B - 1) * a->T * a->G * a->D;
  k->attention(&last, part, stats, c->q + q_at, c->k + k_at, c->v + k_at, scratch, 0, a->H);
  CHECK(!memcmp(part, whole + q_at, (size_t)(a->T * width) * sizeof *part));

  tsr_attention head = *a; /* with G = 1 every head reads all of k and v */
  CHECK_INT(a->G, 1);
  head.H = 1, head.head_offset = a->head_offset + h + (h >= a->H / 2 ? a->head_gap : 0);
  float *q = input_new(a->B * a->T * a->D, 1);
  for (int64_t i = 0; i < a->B * a->T * a->D; i++)
    q[i] = c->q[i / a->D * width + h * a->D + i % a->D];
  k->attention(&head, part, stats, q, c->k, c->v, scratch, 0, a->B);
  for (int64_t i = 0; i < a->B * a->T; i++)
    CHECK(!memcmp(part + i * a->D, whole + i * width + h * a->D, (size_t)a->D * sizeof *part));
  free(whole), free(part), free(stats), free(scratch), free(q);
}

static attention_case cases[32];
static int case_count;

static void test_cases(const tsr_kernels *k) {
  for (int i = 0; i < case_count; i++) case_check(k, &cases[i]);
  check_shards(k, &cases[7]);
}

/* one of them far above all scores, one far below */
static const float sinks[] = {0.3f, 95.0f, -120.0f, 1.7f};

static const tsr_attention list[] = {
    {.B = 2,
     .T = 111,
     .H = 4,
     .G = 2,
     .D = 5,
     .scale = 0.4f,
     .causal = true,
     .positions = document_positions},
    {.B = 2, .T = 111, .H = 1, .G = 1, .D = 5, .scale = 0.4f, .positions = document_positions},
    {.B = 2,
     .T = 111,
     .H = 4,
     .G = 4,
     .D = 8,
     .scale = 0.4f,
     .causal = true,
     .window = 11,
     .dropout = 0.2f,
     .key = 9,
     .heads_global = 4,
     .Dv = 3,
     .sinks = sinks,
     .positions = document_positions},
    {.B = 1, .T = 1, .H = 1, .G = 1, .D = 1, .scale = 1, .causal = true},
    {.B = 2, .T = 7, .H = 2, .G = 2, .D = 3, .scale = 0.5f, .causal = true},
    {.B = 1, .T = 17, .H = 4, .G = 2, .D = 8, .scale = 0.35f, .causal = false},
    {.B = 1, .T = 70, .H = 3, .G = 1, .D = 5, .scale = 0.4f, .causal = true},
    {.B = 2,
     .T = 33,
     .H = 2,
     .G = 1,
     .D = 7,
     .scale = 0.4f,
     .causal = true,
     .dropout = 0.25f,
     .key = 77,
     .batch_offset = 3,
     .head_offset = 2,
     .heads_global = 6,
     .head_gap = 2},
    {.B = 1, .T = 131, .H = 2, .G = 2, .D = 16, .scale = 0.25f, .causal = true},
    {.B = 1,
     .T = 100,
     .H = 1,
     .G = 1,
     .D = 33,
     .scale = 0.2f,
     .causal = false,
     .dropout = 0.1f,
     .key = 5,
     .heads_global = 1},
    {.B = 2, .T = 21, .H = 2, .G = 1, .D = 3, .scale = 0.5f, .causal = true, .window = 1},
    {.B = 1, .T = 131, .H = 4, .G = 2, .D = 5, .scale = 0.4f, .causal = true, .window = 7},
    {.B = 1, .T = 250, .H = 1, .G = 1, .D = 16, .scale = 0.3f, .causal = true, .window = 100},
    {.B = 1, .T = 17, .H = 4, .G = 2, .D = 8, .scale = 0.35f, .causal = false, .Dv = 3},
    {.B = 2, .T = 131, .H = 4, .G = 2, .D = 24, .scale = 0.2f, .causal = true, .Dv = 16},
    {.B = 1,
     .T = 100,
     .H = 2,
     .G = 1,
     .D = 5,
     .scale = 0.4f,
     .causal = true,
     .window = 60,
     .dropout = 0.2f,
     .key = 3,
     .heads_global = 2,
     .Dv = 70},
    {.B = 1,
     .T = 310,
     .H = 2,
     .G = 1,
     .D = 8,
     .scale = 0.3f,
     .causal = true,
     .window = 97,
     .dropout = 0.2f,
     .key = 9,
     .heads_global = 2},
    {.B = 2,
     .T = 21,
     .H = 4,
     .G = 2,
     .D = 3,
     .scale = 0.5f,
     .causal = true,
     .window = 5,
     .sinks = sinks},
    {.B = 1,
     .T = 131,
     .H = 4,
     .G = 1,
     .D = 16,
     .scale = 0.4f,
     .causal = true,
     .dropout = 0.2f,
     .key = 9,
     .heads_global = 4,
     .Dv = 7,
     .sinks = sinks},
    {.B = 2, .T = 33, .H = 4, .G = 2, .D = 8, .scale = 0.7f, .causal = true, .soft_cap = 1.5f},
    {.B = 1, .T = 19, .H = 2, .G = 2, .D = 5, .scale = 0.9f, .causal = false, .soft_cap = 0.5f},
    {.B = 1,
     .T = 131,
     .H = 4,
     .G = 2,
     .D = 16,
     .scale = 0.5f,
     .causal = true,
     .window = 37,
     .dropout = 0.2f,
     .key = 9,
     .heads_global = 4,
     .soft_cap = 3,
     .sinks = sinks},
};

int main(void) {
  make_positions();
  case_count = (int)(sizeof list / sizeof list[0]);
  for (int i = 0; i < case_count; i++) cases[i] = case_new(list[i], i < 6 ? 1000 : 300);
  each_level(test_cases);
  for (int i = 0; i < case_count; i++) case_free(&cases[i]);
  return check_done("kernels.attention");
}
