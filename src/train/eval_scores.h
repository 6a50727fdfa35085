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

typedef struct {
  int64_t above;                     /* requests that read so many tokens or fewer are left out */
  int64_t vocab_size;                /* all tokens are below it */
  bool finds_greedy;                 /* needs the program's logits */
  const volatile sig_atomic_t *stop; /* ends it early; NULL: nothing does */
} tsr_eval_scoring;

/* Of the requests that read more than `above` tokens and at most the program's sequence, in rows of
 * `evaluation`'s program (TSR_COMPILE_EVALUATE with a number for each of its samples). A request's
 * score depends on no other request, and not on the mesh. Errors: a token outside the vocabulary;
 * NaN or infinity among the scores; NaN among the scores of a router. False without an error where
 * it was ended early. `ret_scores` has room for `count`; those of other requests stay as they are.
 */
bool tsr_eval_score_requests(
    tsr_arena *arena, const tsr_compiled *evaluation, tsr_executable *executable,
    const tsr_eval_request *requests, int count, const tsr_eval_scoring *how,
    tsr_eval_score *ret_scores, tsr_diags *diags);

#endif
