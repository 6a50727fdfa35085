// SPDX-License-Identifier: Apache-2.0
/* The log-probabilities of tokens behind others: what evaluation sets are scored by. */
#ifndef TSR_TRAIN_EVAL_SCORES_H
#define TSR_TRAIN_EVAL_SCORES_H
#include "data/eval_requests.h"
#include "data/window.h"
#include "runtime/process.h"
#include "train/compile.h"
#include <signal.h>

typedef struct {
  double log_likelihood; /* nats, the sum over the scored tokens */
  bool is_greedy;        /* each scored token has the largest logit, the first of equal ones */
} tsr_eval_score;

/* Of all requests, in rows of `evaluation`'s program (TSR_COMPILE_EVALUATE with a number for each
 * of its samples), whose sequence is at least the window. A request's score depends on no other
 * request, and not on the mesh. `finds_greedy` needs the program's logits. Errors: a token outside
 * the vocabulary; NaN or infinity among the scores; NaN among the scores of a router. `stop` (NULL:
 * nothing does) ends it early, with false and no error. `ret_scores` has room for `count`. */
bool tsr_eval_score_requests(
    tsr_arena *arena, const tsr_compiled *evaluation, tsr_executable *executable,
    const tsr_eval_request *requests, int64_t count, int64_t vocab_size, bool finds_greedy,
    const volatile sig_atomic_t *stop, tsr_eval_score *ret_scores, tsr_diags *diags);

#endif
