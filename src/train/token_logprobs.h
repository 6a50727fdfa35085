// SPDX-License-Identifier: Apache-2.0
/* Log-probabilities of tokens: log softmax of logits. */
#ifndef TSR_TRAIN_TOKEN_LOGPROBS_H
#define TSR_TRAIN_TOKEN_LOGPROBS_H
#include "train/text_batch.h"

/* Of `logits` (rows) the log-probability of `token`, and the `most` likeliest of the tokens below
 * `vocab_size` with theirs, falling; of equal ones the lower token first. The softmax is over all
 * rows: a model may have more of them than there are tokens. A logit of NaN counts as -infinity. */
double tsr_token_logprobs(
    const float *logits, int64_t rows, int64_t vocab_size, int32_t token, int most,
    tsr_token_logprob *ret_top, int *ret_count);

#endif
