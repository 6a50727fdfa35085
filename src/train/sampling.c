// SPDX-License-Identifier: Apache-2.0
#include "train/sampling.h"
#include "kernels/kernels.h"
#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

static const double GREEDY_BELOW = 0.01;
static const uint64_t STREAM = 0x73616d706c65; /* "sample": apart from the seed's other streams */

/* Tokens as a heap with the likeliest on top. */
typedef struct {
  const double *weights;
  int32_t *tokens;
  int64_t count;
} heap;

size_t tsr_sampling_scratch_bytes(int64_t vocab_size) {
  return (size_t)vocab_size * (sizeof(double) + sizeof(int32_t));
}

static double penalise(double logit, double penalty) {
  return logit > 0 ? logit / penalty : logit * penalty;
}

/* `seen` (vocab_size) is for this function alone. */
static void lower_drawn(
    const tsr_sampling *sampling, const int32_t *history, int64_t history_count, int64_t vocab_size,
    double *logits, int32_t *seen) {
  if (sampling->frequency_penalty == 0 && sampling->presence_penalty == 0) return;
  memset(seen, 0, sizeof *seen * (size_t)vocab_size);
  for (int64_t i = sampling->drawn_from; i < history_count; i++) {
    if (!seen[history[i]]++) logits[history[i]] -= sampling->presence_penalty;
    logits[history[i]] -= sampling->frequency_penalty;
  }
}

/* Adjusted logits, and the token of the largest; -1 if there is none. */
static int32_t adjust(
    const tsr_sampling *sampling, const float *logits, int64_t vocab_size, const int32_t *history,
    int64_t history_count, double *ret_logits) {
  for (int64_t i = 0; i < vocab_size; i++) ret_logits[i] = isnan(logits[i]) ? -INFINITY : logits[i];
  if (sampling->repetition_penalty != 1) {
    for (int64_t i = 0; i < history_count; i++) {
      assert(history[i] >= 0 && history[i] < vocab_size);
      /* From the given logit, so that a token seen twice is penalised once. */
      float logit = logits[history[i]];
      if (!isnan(logit)) ret_logits[history[i]] = penalise(logit, sampling->repetition_penalty);
    }
  }
  lower_drawn(
      sampling, history, history_count, vocab_size, ret_logits,
      (int32_t *)(ret_logits + vocab_size));
  for (int i = 0; i < sampling->biases_count; i++)
    ret_logits[sampling->biases[i].token] += sampling->biases[i].bias;
  int32_t best = -1;
  for (int64_t i = 0; i < vocab_size; i++)
    if (ret_logits[i] > (best < 0 ? -INFINITY : ret_logits[best])) best = (int32_t)i;
  return best;
}

static bool is_likelier(const heap *h, int32_t a, int32_t b) {
  return h->weights[a] > h->weights[b] || (h->weights[a] == h->weights[b] && a < b);
}

static void sink(heap *h, int64_t at) {
  for (int64_t child; (child = 2 * at + 1) < h->count; at = child) {
    if (child + 1 < h->count && is_likelier(h, h->tokens[child + 1], h->tokens[child])) child++;
    if (!is_likelier(h, h->tokens[child], h->tokens[at])) return;
    int32_t token = h->tokens[at];
    h->tokens[at] = h->tokens[child];
    h->tokens[child] = token;
  }
}

/* Moves the likeliest token behind the heap's end. */
static int32_t pop(heap *h) {
  int32_t top = h->tokens[0];
  h->tokens[0] = h->tokens[--h->count];
  h->tokens[h->count] = top;
  sink(h, 0);
  return top;
}

/* Makes the `*ret_kept` tokens that top-k and top-p keep stand at the end of the heap's array,
 * likeliest last. Returns the sum of their weights. */
static double keep(const tsr_sampling *sampling, heap *h, int64_t *ret_kept) {
  int64_t size = h->count, most = size, kept = 0;
  double total = 0, sum = 0;
  for (int64_t i = size / 2; i-- > 0;) sink(h, i);
  if (sampling->top_k > 0 && sampling->top_k < size) {
    most = sampling->top_k;
    for (int64_t i = 0; i < most; i++) total += h->weights[pop(h)];
  } else {
    for (int64_t i = 0; i < size; i++) total += h->weights[i];
  }
  while (kept < most) {
    kept++;
    if (h->count > size - kept) pop(h);
    sum += h->weights[h->tokens[size - kept]];
    if (sampling->top_p < 1 && sum >= sampling->top_p * total) break;
  }
  *ret_kept = kept;
  return sum;
}

/* A number in [0, 1). */
static double draw(uint64_t seed, uint64_t position) {
  uint32_t words[4];
  tsr_philox(position, STREAM, seed, words);
  uint64_t bits = (uint64_t)words[0] << 32 | words[1];
  return (double)(bits >> 11) * 0x1p-53;
}

/* The token at which the running sum of weights passes `at`; rounding may let none pass, and then
 * it is the last that is possible. Tokens stand at tokens[0], tokens[step], … */
static int32_t
pick(const double *weights, const int32_t *tokens, int64_t count, int64_t step, double at) {
  int32_t chosen = tokens[0];
  for (int64_t i = 0; i < count && at >= 0; i++) {
    int32_t token = tokens[i * step];
    if (weights[token] > 0) chosen = token;
    at -= weights[token];
  }
  return chosen;
}

int32_t tsr_sample_token(
    const tsr_sampling *sampling, const float *logits, int64_t vocab_size, const int32_t *history,
    int64_t history_count, uint64_t position, void *scratch) {
  double *weights = scratch;
  int32_t best = adjust(sampling, logits, vocab_size, history, history_count, weights);
  if (best < 0 || sampling->temperature < GREEDY_BELOW || isinf(weights[best])) return best;
  double top = weights[best];
  for (int64_t i = 0; i < vocab_size; i++)
    weights[i] = exp((weights[i] - top) / sampling->temperature);

  heap h = {weights, (int32_t *)(weights + vocab_size), vocab_size};
  for (int64_t i = 0; i < vocab_size; i++) h.tokens[i] = (int32_t)i;
  double chance = draw(sampling->seed, sampling->stream << 40 | position);
  bool is_split = (sampling->top_k > 0 && sampling->top_k < vocab_size) || sampling->top_p < 1;
  if (is_split) {
    int64_t kept;
    double total = keep(sampling, &h, &kept);
    return pick(weights, h.tokens + vocab_size - 1, kept, -1, chance * total);
  }
  double total = 0; /* in the order of the tokens, which spares the sorting */
  for (int64_t i = 0; i < vocab_size; i++) total += weights[i];
  return pick(weights, h.tokens, vocab_size, 1, chance * total);
}
