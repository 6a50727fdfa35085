// SPDX-License-Identifier: Apache-2.0
/* The next token from logits: repetition penalty, frequency and presence penalties, biases,
 * temperature, top-k, top-p, draw, in this order. */
#ifndef TSR_TRAIN_SAMPLING_H
#define TSR_TRAIN_SAMPLING_H
#include <stddef.h>
#include <stdint.h>

typedef struct {
  int32_t token;
  double bias; /* is added to the token's logit */
} tsr_logit_bias;

typedef struct {
  double repetition_penalty; /* 1: off; Keskar et al., CTRL (2019): a token of the history has its
                                logit divided by it where positive, else multiplied */
  double temperature;        /* below 0.01: greedy */
  int64_t top_k;             /* keep the k likeliest; <= 0: off */
  double top_p; /* keep the fewest likeliest whose probabilities reach p, at least one; >= 1: off */
  uint64_t seed;
  uint64_t stream; /* of the seed's; below 2^24 */
  /* OpenAI's penalties, for tokens of the history from index `drawn_from` on: a token's logit is
   * lowered by the first once for each time that it stands there, by the second if it does. */
  double frequency_penalty, presence_penalty;
  int64_t drawn_from;
  const tsr_logit_bias *biases; /* (biases_count) of tokens below vocab_size */
  int biases_count;
} tsr_sampling;

size_t tsr_sampling_scratch_bytes(int64_t vocab_size);

/* `logits` (vocab_size): padding behind the vocabulary is left out by the count. `history` are the
 * tokens so far, each in [0, vocab_size). `position` is the new token's, below 2^40: the draw is a
 * function of (seed, stream, position) alone. Of equal logits the lower token is the likelier. A
 * logit of NaN counts as -infinity; one of +infinity always wins. Returns -1 when no token is
 * possible (all -infinity). `scratch` is aligned for double. */
int32_t tsr_sample_token(
    const tsr_sampling *sampling, const float *logits, int64_t vocab_size, const int32_t *history,
    int64_t history_count, uint64_t position, void *scratch);

#endif
