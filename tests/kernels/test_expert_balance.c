// SPDX-License-Identifier: Apache-2.0
/* What balances experts: counts by brute force, gradients of the losses by differences in double. */
#include "experts_check.h"

/* ---- counts ---- */

static void check_counts(
    const tsr_kernels *k, const int32_t *experts, int64_t runs, int64_t each, int64_t chosen,
    int64_t E) {
  output counts = output_new(runs * E);
  double *want = reference_new(runs * E);
  for (int64_t slot = 0; slot < runs * each * chosen; slot++)
    want[slot / (each * chosen) * E + experts[slot]]++;
  RUN(runs, k->expert_counts(counts.pass[pass], experts, each, chosen, E, begin, end));
  CHECK_OUTPUT(counts, want, 0, 0);
  output_free(&counts), free(want);
}

static void test_counts(const tsr_kernels *k) {
  static const int64_t shapes[][4] = {/* runs, each, k, E */
                                      {1, 1, 1, 1},   {1, 37, 2, 8},  {5, 1, 3, 12},
                                      {7, 13, 1, 33}, {3, 29, 8, 60}, {2, 17, 7, 7}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    const int64_t *s = shapes[i];
    int32_t *experts = choices_new(s[0] * s[1], s[3], s[2]);
    check_counts(k, experts, s[0], s[1], s[2], s[3]);
    free(experts);
  }
}

/* All tokens choose one expert, the first or the last; the others have none. */
static void test_counts_of_one(const tsr_kernels *k) {
  enum { RUNS = 3, EACH = 11, E = 9 };
  int32_t experts[RUNS * EACH];
  for (int32_t one = 0; one < E; one += E - 1) {
    for (int i = 0; i < RUNS * EACH; i++) experts[i] = one;
    check_counts(k, experts, RUNS, EACH, 1, E);
  }
}

/* ---- the gradient of the balance loss ---- */

typedef struct {
  const float *counts; // (E)
  int64_t E;
  double factor;
  bool normalizes;
} balance;

/* Of one token with scores s (E). */
static double balance_loss(const double *s, void *context) {
  const balance *b = context;
  double sum = 0, loss = 0;
  for (int64_t e = 0; e < b->E; e++) sum += s[e];
  for (int64_t e = 0; e < b->E; e++) loss += b->factor * b->counts[e] * s[e];
  return b->normalizes ? loss / sum : loss;
}

static void check_balance(
    const tsr_kernels *k, const float *counts, int64_t runs, int64_t each, int64_t E,
    bool normalizes) {
  int64_t S = runs * each;
  float *scores = input_new(S * E, 1);
  for (int64_t i = 0; i < S * E; i++) scores[i] = 0.05f + fabsf(scores[i]);
  double *want = reference_new(S * E), *s = to_double(scores, S * E);
  for (int64_t t = 0; t < S; t++) {
    balance b = {counts + t / each * E, E, 0.25, normalizes};
    for (int64_t e = 0; e < E; e++) want[t * E + e] = slope_at(balance_loss, s + t * E, e, &b);
  }
  output d = output_new(S * E);
  RUN(S, k->balance_backward(d.pass[pass], counts, scores, each, E, 0.25f, normalizes, begin, end));
  CHECK_OUTPUT(d, want, 2e-5, 1);
  output_free(&d);
  free(scores), free(want), free(s);
}

static void test_balance(const tsr_kernels *k) {
  static const int64_t shapes[][3] = {/* runs, each, E */
                                      {1, 1, 1},
                                      {1, 37, 8},
                                      {5, 1, 12},
                                      {7, 3, 33},
                                      {2, 9, 65}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    int64_t runs = shapes[i][0], E = shapes[i][2];
    float *counts = input_new(runs * E, 1);
    for (int64_t c = 0; c < runs * E; c++) counts[c] = (float)(check_random() % 20);
    for (int normalizes = 0; normalizes < 2; normalizes++)
      check_balance(k, counts, runs, shapes[i][1], E, normalizes);
    free(counts);
  }
}

/* One expert has all tokens; and none has any, as in the first step. */
static void test_balance_of_one(const tsr_kernels *k) {
  float counts[2 * 7] = {0};
  for (int normalizes = 0; normalizes < 2; normalizes++) {
    counts[3] = counts[7 + 6] = 0;
    check_balance(k, counts, 2, 5, 7, normalizes);
    counts[3] = counts[7 + 6] = 40;
    check_balance(k, counts, 2, 5, 7, normalizes);
  }
}

/* ---- the gradient of the router's z-loss ---- */

typedef struct {
  int64_t E;
  double factor;
} z_loss;

/* factor / 2 * logsumexp^2, around the largest logit. */
static double z_loss_of(const double *x, void *context) {
  const z_loss *z = context;
  double max = x[0], sum = 0;
  for (int64_t e = 1; e < z->E; e++) max = x[e] > max ? x[e] : max;
  for (int64_t e = 0; e < z->E; e++) sum += exp(x[e] - max);
  double log_sum = max + log(sum);
  return z->factor / 2 * log_sum * log_sum;
}

static void check_z(const tsr_kernels *k, const float *logits, int64_t S, int64_t E, float size) {
  z_loss z = {E, 0.5};
  double *want = reference_new(S * E), *x = to_double(logits, S * E);
  for (int64_t t = 0; t < S; t++)
    for (int64_t e = 0; e < E; e++) want[t * E + e] = slope_at(z_loss_of, x + t * E, e, &z);
  output d = output_new(S * E);
  RUN(S, k->router_z_backward(d.pass[pass], logits, E, 0.5f, begin, end));
  CHECK_OUTPUT(d, want, 2e-5, size);
  output_free(&d);
  free(want), free(x);
}

static void test_z(const tsr_kernels *k) {
  EACH_SIZE(E) {
    if (E > 300) continue;
    for (float size = 0.5f; size < 50; size *= 8) {
      float *logits = input_new(9 * E, size);
      check_z(k, logits, 9, E, size);
      free(logits);
    }
  }
}

/* Equal logits, and one that outweighs all others. */
static void test_z_of_one(const tsr_kernels *k) {
  float logits[2 * 17] = {0};
  for (int e = 0; e < 17; e++) logits[e] = -3;
  logits[17 + 4] = 80;
  check_z(k, logits, 2, 17, 80);
}

int main(void) {
  each_level(test_counts);
  each_level(test_counts_of_one);
  each_level(test_balance);
  each_level(test_balance_of_one);
  each_level(test_z);
  each_level(test_z_of_one);
  return check_done("kernels.expert_balance");
}
