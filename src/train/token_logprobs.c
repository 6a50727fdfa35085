// SPDX-License-Identifier: Apache-2.0
#include "train/token_logprobs.h"
#include <math.h>

static double logit_of(const float *logits, int64_t token) {
  return isnan(logits[token]) ? -INFINITY : (double)logits[token];
}

double tsr_token_logprobs(
    const float *logits, int64_t rows, int64_t vocab_size, int32_t token, int most,
    tsr_token_logprob *ret_top, int *ret_count) {
  int count = 0;
  double top = -INFINITY, sum = 0;
  for (int64_t i = 0; i < rows; i++) top = fmax(top, logit_of(logits, i));
  if (isfinite(top))
    for (int64_t i = 0; i < rows; i++) sum += exp(logit_of(logits, i) - top);
  double whole = isfinite(top) ? top + log(sum) : 0;
  for (int64_t i = 0; i < vocab_size; i++) {
    double at = logit_of(logits, i) - whole;
    if (most == 0 || (count == most && !(at > ret_top[count - 1].log_probability))) continue;
    int place = count < most ? count++ : count - 1;
    for (; place > 0 && at > ret_top[place - 1].log_probability; place--)
      ret_top[place] = ret_top[place - 1];
    ret_top[place] = (tsr_token_logprob){(int32_t)i, at};
  }
  *ret_count = count;
  return logit_of(logits, token) - whole;
}
