// SPDX-License-Identifier: Apache-2.0
/* Drawing tokens: exact answers, distributions and the edges. */
#include "tests/check.h"
#include "train/sampling.h"
#include "train/token_logprobs.h"
#include <math.h>
#include <stdalign.h>
#include <stdlib.h>

enum { V = 8 };
static const float LOGITS[V] = {0.5f, 2.0f, -1.0f, 1.5f, 2.0f, 0.0f, -3.0f, 1.0f};
static alignas(double) char scratch[V * 12];

static const tsr_sampling PLAIN = {
    .repetition_penalty = 1, .temperature = 1, .top_k = -1, .top_p = 1, .seed = 1234};

static int32_t sample(
    const tsr_sampling *sampling, const float *logits, const int32_t *history, int count,
    uint64_t position) {
  return tsr_sample_token(sampling, logits, V, history, count, position, scratch);
}

/* Worked out apart from this code: Philox from the paper, softmax and splits by sorted lists. */
static void test_known(void) {
  static const struct {
    int64_t top_k;
    double top_p, temperature, penalty;
    int tokens[16];
  } cases[] = {
      {-1, 1, 1, 1, {4, 4, 3, 3, 4, 3, 7, 1, 4, 1, 1, 3, 4, 3, 7, 3}},
      {3, 1, 1, 1, {4, 4, 4, 4, 4, 4, 3, 1, 4, 1, 1, 4, 3, 4, 3, 4}},
      {0, 0.7, 0.8, 1, {4, 4, 4, 4, 4, 4, 3, 1, 4, 1, 1, 4, 4, 4, 3, 4}},
      {5, 0.9, 1.5, 1.3, {3, 7, 3, 1, 3, 1, 0, 4, 3, 4, 4, 1, 7, 1, 0, 1}},
  };
  const int32_t history[] = {1, 1, 2};
  for (int i = 0; i < 4; i++) {
    tsr_sampling s = PLAIN;
    s.top_k = cases[i].top_k, s.top_p = cases[i].top_p;
    s.temperature = cases[i].temperature, s.repetition_penalty = cases[i].penalty;
    for (int position = 0; position < 16; position++)
      CHECK_INT(sample(&s, LOGITS, history, 3, (uint64_t)position), cases[i].tokens[position]);
  }
}

static void test_greedy(void) {
  tsr_sampling s = PLAIN;
  s.temperature = 0.0099;
  CHECK_INT(sample(&s, LOGITS, NULL, 0, 0), 1); /* of two equal ones the lower */
  s.repetition_penalty = 2;
  CHECK_INT(sample(&s, LOGITS, (const int32_t[]){1, 1, 1}, 3, 0), 4);
  CHECK_INT(sample(&s, LOGITS, (const int32_t[]){1, 4}, 2, 0), 3);
  const float below[V] = {-2, -1, -1.5f, -9, -9, -9, -9, -9};
  CHECK_INT(sample(&s, below, (const int32_t[]){1}, 1, 0), 2);            /* -1 * 2 is below -1.5 */
  CHECK_INT(tsr_sample_token(&s, LOGITS + 5, 2, NULL, 0, 0, scratch), 0); /* the rest is padding */
}

/* Draws per token, over 20,000 positions, against the probabilities. */
static void check_shares(const tsr_sampling *s, const double *shares) {
  enum { DRAWS = 20000 };
  int counts[V] = {0};
  for (uint64_t position = 0; position < DRAWS; position++)
    counts[sample(s, LOGITS, NULL, 0, position)]++;
  for (int i = 0; i < V; i++) {
    double expected = shares[i] * DRAWS;
    CHECK(fabs(counts[i] - expected) <= 5 * sqrt(expected)); /* and none where there is no chance */
  }
}

static void softmax(double temperature, int kept_mask, double *ret_shares) {
  double sum = 0;
  for (int i = 0; i < V; i++) {
    ret_shares[i] = kept_mask >> i & 1 ? exp(LOGITS[i] / temperature) : 0;
    sum += ret_shares[i];
  }
  for (int i = 0; i < V; i++) ret_shares[i] /= sum;
}

static void test_distribution(void) {
  double shares[V];
  tsr_sampling s = PLAIN;
  softmax(1, 0xff, shares);
  check_shares(&s, shares);
  s.temperature = 2;
  s.top_k = V; /* as good as off */
  softmax(2, 0xff, shares);
  check_shares(&s, shares);
  s.top_k = 3;
  softmax(2, 1 << 1 | 1 << 4 | 1 << 3, shares);
  check_shares(&s, shares);
  s.temperature = 1, s.top_k = 0, s.top_p = 0.75; /* 0.306 + 0.306 + 0.186 */
  softmax(1, 1 << 1 | 1 << 4 | 1 << 3, shares);
  check_shares(&s, shares);
}

static void test_edges(void) {
  tsr_sampling s = PLAIN;
  float logits[V];
  for (int i = 0; i < V; i++) logits[i] = -INFINITY;
  CHECK_INT(sample(&s, logits, NULL, 0, 0), -1);
  logits[2] = NAN;
  CHECK_INT(sample(&s, logits, (const int32_t[]){2, 3}, 2, 0), -1);
  logits[6] = -80;
  s.repetition_penalty = 1.5;
  for (int split = 0; split < 3; split++) {
    s.top_k = split == 1 ? 3 : 0, s.top_p = split == 2 ? 0.9 : 1;
    for (uint64_t position = 0; position < 50; position++)
      CHECK_INT(sample(&s, logits, (const int32_t[]){2, 6}, 2, position), 6);
  }
  logits[3] = INFINITY;
  CHECK_INT(sample(&s, logits, NULL, 0, 0), 3);

  tsr_sampling one = PLAIN;
  one.top_k = 1;
  for (uint64_t position = 0; position < 50; position++)
    CHECK_INT(sample(&one, LOGITS, NULL, 0, position), 1);
  one.top_k = 0, one.top_p = 0;
  for (uint64_t position = 0; position < 50; position++)
    CHECK_INT(sample(&one, LOGITS, NULL, 0, position), 1);
  CHECK_INT(tsr_sample_token(&PLAIN, LOGITS, 1, NULL, 0, 0, scratch), 0);
}

/* OpenAI's penalties count what was drawn, not the prompt; biases come on top. */
static void test_penalties(void) {
  tsr_sampling s = PLAIN;
  const int32_t history[] = {4, 3, 1, 1}; /* logits 2, 1.5, 2, 2 */
  s.temperature = 0;
  s.drawn_from = 2;
  s.presence_penalty = 0.25;
  CHECK_INT(sample(&s, LOGITS, history, 4, 0), 4); /* 1 has 1.75 */
  s.drawn_from = 0;
  CHECK_INT(sample(&s, LOGITS, history, 4, 0), 1); /* of 1.75 and 1.75 the lower */
  s.frequency_penalty = 0.125;
  CHECK_INT(sample(&s, LOGITS, history, 4, 0), 4);     /* 1.625, and 1 has 1.5 */
  CHECK_INT(sample(&s, LOGITS, history + 1, 3, 0), 4); /* 2 */
  s.frequency_penalty = 0.75;
  CHECK_INT(sample(&s, LOGITS, history, 4, 0), 4); /* 4, 7: both 1; the lower */
  s.frequency_penalty = -1;
  CHECK_INT(sample(&s, LOGITS, history, 4, 0), 1); /* 2 - 0.25 + 2 */
  const tsr_logit_bias biases[] = {{6, 8}, {1, -2}, {6, -0.5}};
  s.biases = biases;
  s.biases_count = 3;
  CHECK_INT(sample(&s, LOGITS, history, 4, 0), 6); /* -3 + 7.5 */
  s.biases_count = 0;
  s.frequency_penalty = s.presence_penalty = 0;
  s.temperature = 1;
  for (uint64_t i = 0; i < 16; i++)
    CHECK_INT(sample(&s, LOGITS, history, 4, i), sample(&PLAIN, LOGITS, NULL, 0, i));
}

/* Against the same sum in long double. */
static void test_logprobs(void) {
  const float logits[V] = {0.5f, 2, NAN, 1.5f, 2, -INFINITY, -3, 80};
  tsr_token_logprob top[V];
  int count;
  for (int at = 0; at < V; at++) {
    long double sum = 0;
    for (int i = 0; i < V; i++)
      if (i != 2 && i != 5) sum += expl((long double)logits[i] - 80);
    double want = (double)((long double)logits[at] - 80 - logl(sum));
    double got = tsr_token_logprobs(logits, V, V, at, 4, top, &count);
    if (at == 2 || at == 5) CHECK(isinf(got) && got < 0);
    else CHECK(fabs(got - want) <= 1e-14 * fabs(want) + 1e-30);
    CHECK_INT(count, 4);
    const int32_t order[] = {7, 1, 4, 3};
    for (int i = 0; i < 4; i++) CHECK_INT(top[i].token, order[i]);
    if (at == 1) CHECK(top[1].log_probability == got);
  }
  /* Rows behind the tokens are a part of the sum, and are not listed. */
  double whole = tsr_token_logprobs(logits, V, V, 1, V, top, &count);
  CHECK(tsr_token_logprobs(logits, V, 2, 1, V, top, &count) == whole);
  CHECK_INT(count, 2);
  CHECK(top[0].token == 1 && top[0].log_probability == whole);
}

int main(void) {
  test_penalties();
  test_logprobs();
  CHECK_INT(tsr_sampling_scratch_bytes(V), sizeof scratch);
  test_known();
  test_greedy();
  test_distribution();
  test_edges();
  return check_done("sampling");
}
