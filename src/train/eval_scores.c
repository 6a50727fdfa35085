// SPDX-License-Identifier: Apache-2.0
#include "train/eval_scores.h"
#include "base/command_progress.h"
#include "graph/documents.h"
#include "train/score_check.h"
#include <math.h>
#include <string.h>

typedef struct {
  const tsr_compiled *evaluation;
  tsr_executable *executable;
  const tsr_eval_scoring *how;
  const tsr_eval_request *requests;
  int *members; /* the requests in the rows of the batch that is under way */
  int count;    /* of them; rows behind them are padding */
  int64_t T;
  int logits;
  float *row; /* (vocab_padded) of logits */
} batch;

/* Token i's target is token i + 1 where that is scored. What is behind a request is padding without
 * targets, and positions before a token do not depend on it. */
static void fill(void *context, const char *input, int64_t sample, void *row) {
  const batch *b = context;
  bool targets = !strcmp(input, "targets"), positions = !strcmp(input, TSR_DOCUMENT_POSITIONS);
  int32_t *out = row;
  int64_t read = 0;
  if (sample < b->count) {
    const tsr_eval_request *r = &b->requests[b->members[sample]];
    read = r->count - 1;
    for (int64_t t = 0; t < read; t++)
      out[t] = positions                       ? (int32_t)t
               : !targets                      ? r->tokens[t]
               : t >= r->count - 1 - r->scored ? r->tokens[t + 1]
                                               : TSR_TARGET_IGNORED;
  }
  for (int64_t t = read; t < b->T; t++) out[t] = targets ? TSR_TARGET_IGNORED : 0;
}

static bool has_largest_logit(const batch *b, int64_t row, int32_t token) {
  tsr_executable_read_row(b->executable, b->logits, row, b->row);
  for (int64_t i = 0; i < b->how->vocab_size; i++)
    if (b->row[i] > b->row[token] || (b->row[i] == b->row[token] && i < token)) return false;
  return true;
}

static bool is_greedy(const batch *b, int64_t sample) {
  const tsr_eval_request *r = &b->requests[b->members[sample]];
  for (int64_t t = r->count - r->scored; t < r->count; t++)
    if (!has_largest_logit(b, sample * b->T + t - 1, r->tokens[t])) return false;
  return true;
}

static bool
check_tokens(const tsr_eval_request *requests, int count, int64_t vocab_size, tsr_diags *diags) {
  for (int i = 0; i < count; i++)
    for (int64_t t = 0; t < requests[i].count; t++)
      if (requests[i].tokens[t] < 0 || requests[i].tokens[t] >= vocab_size)
        return tsr_diag_error(
            diags, TSR_NOWHERE, "token %d is none of the model's %lld", requests[i].tokens[t],
            (long long)vocab_size);
  return true;
}

static bool run(batch *b, float *numbers, tsr_eval_score *ret_scores, tsr_diags *diags) {
  float step_scalars[TSR_SCALARS] = {0};
  step_scalars[TSR_SCALAR_INV_COUNT] = 1; /* sums, not means */
  tsr_executable_set_step_scalars(b->executable, step_scalars);
  tsr_executable_run(b->executable, 0, fill, b);
  if (!tsr_check_scores(b->executable, "the evaluation", diags)) return false;
  tsr_executable_read(b->executable, b->evaluation->placed->loss, numbers);
  for (int i = 0; i < b->count; i++) {
    if (!isfinite(numbers[i]))
      return tsr_diag_failure(
          diags, TSR_NOWHERE, "a log-probability is %s: the weights are damaged, or have diverged",
          isnan(numbers[i]) ? "nan" : "infinite");
    ret_scores[b->members[i]] =
        (tsr_eval_score){-(double)numbers[i], b->how->finds_greedy && is_greedy(b, i)};
  }
  tsr_command_progress_add(b->count);
  b->count = 0;
  return true;
}

bool tsr_eval_score_requests(
    tsr_arena *arena, const tsr_compiled *evaluation, tsr_executable *executable,
    const tsr_eval_request *requests, int count, const tsr_eval_scoring *how,
    tsr_eval_score *ret_scores, tsr_diags *diags) {
  batch b = {.evaluation = evaluation, .executable = executable, .how = how, .requests = requests};
  float *numbers = tsr_arena_array(arena, float, evaluation->batch);
  b.members = tsr_arena_array(arena, int, evaluation->samples);
  b.T = evaluation->model->sequence;
  if (!check_tokens(requests, count, how->vocab_size, diags)) return false;
  if (how->finds_greedy) {
    b.logits = tsr_graph_find_output(evaluation->placed, "logits");
    const tsr_value *logits = &evaluation->placed->values[b.logits]; // (B, T, vocab_padded)
    b.row = tsr_arena_array(arena, float, logits->shape[logits->ndim - 1]);
  }
  for (int i = 0; i < count; i++) {
    if (how->stop && *how->stop) return false;
    int64_t read = requests[i].count - 1;
    if (read > how->above && read <= b.T) b.members[b.count++] = i;
    if (b.count == evaluation->samples && !run(&b, numbers, ret_scores, diags)) return false;
  }
  return !b.count || run(&b, numbers, ret_scores, diags);
}
