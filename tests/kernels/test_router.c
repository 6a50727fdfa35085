// SPDX-License-Identifier: Apache-2.0
/* Routing: the choice by a sort, weights in double, their gradient by differences. */
#include "kernel_check.h"

enum { E_MAX = 256 };

/* ---- the choice ---- */

typedef struct {
  float key;
  int64_t index;
} ranked;

static int compare_ranked(const void *left, const void *right) {
  const ranked *a = left, *b = right;
  if (a->key != b->key) return a->key > b->key ? -1 : 1;
  return (a->index > b->index) - (a->index < b->index);
}

static int compare_experts(const void *left, const void *right) {
  return *(const int32_t *)left - *(const int32_t *)right;
}

static void want_groups(const tsr_choice *r, bool *kept, const float *keys) {
  ranked groups[E_MAX], inside[E_MAX];
  int64_t size = r->E / r->groups;
  for (int64_t g = 0; g < r->groups; g++) {
    for (int64_t i = 0; i < size; i++) inside[i] = (ranked){keys[g * size + i], i};
    qsort(inside, (size_t)size, sizeof *inside, compare_ranked);
    groups[g] = (ranked){inside[0].key, g};
    for (int64_t i = 1; i < r->group_top; i++) groups[g].key += inside[i].key;
    kept[g] = false;
  }
  qsort(groups, (size_t)r->groups, sizeof *groups, compare_ranked);
  for (int64_t i = 0; i < r->kept_groups; i++) kept[groups[i].index] = true;
}

/* From keys in float, as the kernel has them: near ties would differ in double. */
static void want_choice(const tsr_choice *r, int32_t *experts, const float *keys) {
  ranked all[E_MAX];
  bool kept[E_MAX] = {true};
  int64_t n = 0;
  if (r->groups > 1) want_groups(r, kept, keys);
  for (int64_t e = 0; e < r->E; e++)
    if (kept[e / (r->E / r->groups)]) all[n++] = (ranked){keys[e], e};
  qsort(all, (size_t)n, sizeof *all, compare_ranked);
  for (int64_t j = 0; j < r->k; j++) experts[j] = (int32_t)all[j].index;
  qsort(experts, (size_t)r->k, sizeof *experts, compare_experts);
}

static int32_t *choice_of(const output *o) { return (int32_t *)o->pass[0]; }

/* (S,k), which the caller frees; `nan_rows` of them have a NaN. */
static output choose(
    const tsr_kernels *k, const tsr_choice *r, const float *scores, const float *bias, int64_t S,
    int64_t nan_rows) {
  output experts = output_new(S * r->k);
  int64_t found[2] = {0};
  RUN(S,
      found[pass] += k->choose_experts(r, (int32_t *)experts.pass[pass], scores, bias, begin, end));
  CHECK_INT(found[0], nan_rows);
  CHECK_INT(found[1], nan_rows);
  CHECK_OUTPUT(experts, NULL, 0, 0);
  return experts;
}

static void check_choice(const tsr_kernels *k, const tsr_choice *r, int64_t S, bool biased) {
  float *scores = input_new(S * r->E, 4), *bias = biased ? input_new(r->E, 2) : NULL;
  float keys[E_MAX];
  int32_t want[E_MAX];
  output experts = choose(k, r, scores, bias, S, 0);
  for (int64_t s = 0; s < S; s++) {
    for (int64_t e = 0; e < r->E; e++) keys[e] = scores[s * r->E + e] + (bias ? bias[e] : 0);
    want_choice(r, want, keys);
    CHECK(!memcmp(want, choice_of(&experts) + s * r->k, (size_t)r->k * sizeof *want));
  }
  output_free(&experts);
  free(scores), free(bias);
}

static const int64_t shapes[][3] = {/* E, k, S */
                                    {1, 1, 5},  {2, 1, 9},   {3, 3, 7},   {8, 2, 33},
                                    {60, 4, 7}, {64, 64, 3}, {100, 6, 5}, {256, 8, 2}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void test_choice(const tsr_kernels *k) {
  for (int i = 0; i < SHAPES; i++)
    for (int biased = 0; biased < 2; biased++)
      check_choice(k, &(tsr_choice){shapes[i][0], shapes[i][1], 1, 1, 1}, shapes[i][2], biased);
}

static void test_groups(const tsr_kernels *k) {
  static const tsr_choice choices[] = {{8, 2, 4, 2, 1},     {8, 4, 4, 2, 2},  {8, 3, 8, 3, 1},
                                       {12, 5, 3, 3, 2},    {60, 6, 6, 2, 3}, {8, 4, 2, 1, 4},
                                       {200, 5, 100, 7, 2}, {256, 8, 8, 4, 2}};
  for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
    for (int biased = 0; biased < 2; biased++)
      check_choice(k, &choices[i], choices[i].E > 60 ? 3 : 17, biased);
}

/* ---- choices that are known beforehand ---- */

static void check_known(
    const tsr_kernels *k, const tsr_choice *r, const float *scores, const float *bias,
    const int32_t *want) {
  int32_t experts[64];
  CHECK_INT(k->choose_experts(r, experts, scores, bias, 0, 1), 0);
  for (int64_t j = 0; j < r->k; j++) CHECK_INT(experts[j], want[j]);
}

static void test_ties(const tsr_kernels *k) {
  float equal[12], pairs[12]; /* pairs: 0 0 1 1 2 2 0 0 1 1 2 2 */
  for (int e = 0; e < 12; e++) equal[e] = 0.75f, pairs[e] = (float)(e / 2 % 3);
  for (int64_t n = 1; n <= 12; n++)
    check_known(
        k, &(tsr_choice){12, n, 1, 1, 1}, equal, NULL,
        (int32_t[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  tsr_choice r = {12, 3, 1, 1, 1};
  check_known(k, &r, pairs, NULL, (int32_t[]){4, 5, 10});
  r.k = 5;
  check_known(k, &r, pairs, NULL, (int32_t[]){2, 4, 5, 10, 11});
  r.k = 3, r.groups = 4, r.kept_groups = 2, r.group_top = 1; /* keys 1 2 1 2 */
  check_known(k, &r, pairs, NULL, (int32_t[]){4, 5, 10});
  check_known(k, &r, equal, NULL, (int32_t[]){0, 1, 2});
  r.group_top = 2; /* keys 1 4 1 4 */
  check_known(k, &r, pairs, NULL, (int32_t[]){4, 5, 10});
}

/* 8 experts in 4 groups. The largest keys are in groups 0 and 3, the largest pairs in 1 and 3; the
 * bias moves group 2 to the front. */
static void test_limited(const tsr_kernels *k) {
  static const float scores[8] = {3, -3, 2, 2.5f, -2, -1, 0, 3.5f};
  static const float bias[8] = {0, 0, 0, 0, 9, 9, 0, 0};
  tsr_choice r = {8, 3, 4, 2, 1};
  check_known(k, &r, scores, NULL, (int32_t[]){0, 6, 7});
  check_known(k, &r, scores, bias, (int32_t[]){4, 5, 7});
  r.group_top = 2;
  check_known(k, &r, scores, NULL, (int32_t[]){2, 3, 7});
  check_known(k, &r, scores, bias, (int32_t[]){3, 4, 5});
  r.kept_groups = 4;
  check_known(k, &r, scores, NULL, (int32_t[]){0, 3, 7});
}

/* No bias lifts a score of -inf, which is chosen only where nothing else is left, in order. */
static void test_infinite(const tsr_kernels *k) {
  static const float scores[6] = {-INFINITY, 1, -INFINITY, -300, 0.5f, -INFINITY};
  static const float bias[6] = {9, 0, 9, 0, 0, 9};
  tsr_choice r = {6, 3, 1, 1, 1};
  check_known(k, &r, scores, NULL, (int32_t[]){1, 3, 4});
  check_known(k, &r, scores, bias, (int32_t[]){1, 3, 4});
  r.k = 5;
  check_known(k, &r, scores, bias, (int32_t[]){0, 1, 2, 3, 4});
  r.k = 2, r.groups = 3, r.kept_groups = 2, r.group_top = 2; /* every group's key is -inf or less */
  check_known(k, &r, scores, NULL, (int32_t[]){1, 3});
  float weights[5];
  const int32_t five[5] = {0, 1, 2, 3, 4};
  k->expert_weights(&(tsr_choice_weights){6, 5, true, false, 1}, weights, scores, five, 0, 1);
  CHECK(weights[0] == 0 && weights[2] == 0 && weights[1] > weights[4] && weights[4] > 0);
}

/* Every ninth row has a NaN, which counts as -inf, with or without a bias. */
static void test_nan(const tsr_kernels *k) {
  enum { S = 90, E = 7, K = 3 };
  float *scores = input_new(S * E, 2), *bias = input_new(E, 1);
  for (int s = 0; s < S; s += 9)
    for (int e = 0; e < E; e++)
      if (e != (s + 3) % E) scores[s * E + e] = NAN;
  for (int biased = 0; biased < 2; biased++) {
    tsr_choice r = {E, K, 1, 1, 1};
    output experts = choose(k, &r, scores, biased ? bias : NULL, S, 10);
    for (int s = 0; s < S; s += 9) { /* the number, and the first two others */
      int32_t number = (s + 3) % E, want[K] = {number, number > 0 ? 0 : 1, number > 1 ? 1 : 2};
      qsort(want, K, sizeof *want, compare_experts);
      CHECK(!memcmp(want, choice_of(&experts) + s * K, sizeof want));
    }
    output_free(&experts);
  }
  bias[E - 1] = NAN;
  output experts = choose(k, &(tsr_choice){E, K, 1, 1, 1}, scores, bias, S, S);
  output_free(&experts);
  free(scores), free(bias);
}

/* ---- weights ---- */

static void want_weights(
    const tsr_choice_weights *w, double *weights, const double *scores, const int32_t *experts) {
  double max = -INFINITY, all = 0, sum = 0;
  for (int64_t j = 0; j < w->k; j++) max = fmax(max, scores[experts[j]]);
  for (int64_t j = 0; j < w->k; j++) all += exp(scores[experts[j]] - max);
  for (int64_t j = 0; j < w->k; j++) {
    weights[j] = w->softmax ? exp(scores[experts[j]] - max) / all : scores[experts[j]];
    sum += weights[j];
  }
  for (int64_t j = 0; j < w->k; j++) weights[j] *= (double)w->scale / (w->normalizes ? sum : 1);
}

typedef struct {
  const tsr_choice_weights *w;
  const int32_t *experts;
  const float *dweights;
} slope_context;

static double weighted(const double *scores, void *context) {
  const slope_context *c = context;
  double weights[E_MAX], sum = 0;
  want_weights(c->w, weights, scores, c->experts);
  for (int64_t j = 0; j < c->w->k; j++) sum += (double)c->dweights[j] * weights[j];
  return sum;
}

static void check_weights(const tsr_kernels *k, const tsr_choice_weights *w, int64_t S) {
  float *scores = input_new(S * w->E, 2), *dweights = input_new(S * w->k, 1);
  for (int64_t i = 0; i < S * w->E && !w->softmax; i++) scores[i] = fabsf(scores[i]) + 0.1f;
  double *x = to_double(scores, S * w->E), *want = reference_new(S * w->k);
  double *want_ds = reference_new(S * w->E);
  output experts = choose(k, &(tsr_choice){w->E, w->k, 1, 1, 1}, scores, NULL, S, 0);
  const int32_t *chosen = choice_of(&experts);
  for (int64_t s = 0; s < S; s++) {
    slope_context at = {w, chosen + s * w->k, dweights + s * w->k};
    want_weights(w, want + s * w->k, x + s * w->E, at.experts);
    for (int64_t e = 0; e < w->E; e++)
      want_ds[s * w->E + e] = slope_at(weighted, x + s * w->E, e, &at);
  }
  output weights = output_new(S * w->k), ds = output_new(S * w->E);
  RUN(S, k->expert_weights(w, weights.pass[pass], scores, chosen, begin, end));
  RUN(S, k->expert_weights_backward(w, ds.pass[pass], dweights, scores, chosen, begin, end));
  CHECK_OUTPUT(weights, want, 5e-6, 1e-6);
  CHECK_OUTPUT(ds, want_ds, 1e-5, 0.1);
  output_free(&weights), output_free(&ds), output_free(&experts);
  free(scores), free(dweights), free(x), free(want), free(want_ds);
}

static void test_weights(const tsr_kernels *k) {
  for (int i = 0; i < SHAPES; i++)
    for (int kind = 0; kind < 8; kind++) {
      tsr_choice_weights w = {shapes[i][0], shapes[i][1], kind & 1, kind & 2, kind & 4 ? 2.5f : 1};
      check_weights(k, &w, shapes[i][2]);
    }
}

/* Scores of 0 make weights of 0, not of NaN. */
static void test_zeros(const tsr_kernels *k) {
  const float scores[4] = {0, 0, 0, 0};
  const int32_t experts[2] = {1, 3};
  float weights[2], ds[4], dweights[2] = {1, 2};
  tsr_choice_weights w = {4, 2, false, true, 1};
  k->expert_weights(&w, weights, scores, experts, 0, 1);
  CHECK(weights[0] == 0 && weights[1] == 0);
  k->expert_weights_backward(&w, ds, dweights, scores, experts, 0, 1);
  CHECK(ds[0] == 0 && ds[2] == 0 && isfinite(ds[1]) && isfinite(ds[3]));
}

int main(void) {
  each_level(test_choice);
  each_level(test_groups);
  each_level(test_ties);
  each_level(test_limited);
  each_level(test_infinite);
  each_level(test_nan);
  each_level(test_weights);
  each_level(test_zeros);
  return check_done("kernels.router");
}
