// SPDX-License-Identifier: Apache-2.0
/* The run's numbers as JSON lines: one object per line, its kind in "event".
 *
 *   start   config, module, mesh, ranks, parameters, seed, policy, isa, threads, recipe
 *   step    step, loss, grad_norm, lr, tokens, tokens_per_s, ms; with fp16 loss_scale, and on the
 *           CPU how many scaled numbers were underflows and overflows, over all ranks;
 *           with experts for each layer of them: layer, load (choices of each expert), imbalance
 *           (the largest load by the mean), entropy (of the loads, 1 where all are equal) and
 *           dropped (choices beyond a capacity);
 *           saving true while a checkpoint is written beside the step
 *   eval    step, loss, perplexity
 *   sample  step, text
 *   end     step, loss, reason, weights_sha256, recipe
 *
 * A step's number is how many updates are done with it, from 1. Numbers are written so that they
 * read back as the same double; NaN and infinities are null. The file is one of
 * report/json_lines.h, which has what holds of all its functions. */
#ifndef TSR_REPORT_METRICS_H
#define TSR_REPORT_METRICS_H
#include "base/diag.h"
#include <signal.h>
#include <stdint.h>

typedef struct tsr_metrics tsr_metrics;

typedef struct {
  const char *config, *module; /* the graph's name */
  const char *mesh;            /* as text, "dp=2 tp=4", say */
  int64_t ranks;
  int64_t parameters; /* numbers in all parameters */
  uint64_t seed;
  const char *policy, *isa;
  int threads;
  const char *recipe; /* its hash, as in checkpoints (checkpoint/manifest.h) */
} tsr_metrics_start;

/* A layer's choices of experts. */
typedef struct {
  const char *layer;
  int64_t experts;
  double *counts; /* per expert */
  double dropped; /* choices without a row */
} tsr_metrics_experts;
double tsr_metrics_imbalance(const tsr_metrics_experts *experts);
double tsr_metrics_entropy(const tsr_metrics_experts *experts);

typedef struct {
  int64_t step;
  double loss;
  double grad_norm; /* before clipping; NaN when it was not computed */
  double lr;
  int64_t tokens;                /* seen since the run's first step */
  double tokens_per_s, ms;       /* of this step */
  double loss_scale;             /* of this step; 0: there is none */
  int64_t underflows, overflows; /* -1: they were not counted */
  bool saving;
  const tsr_metrics_experts *experts; /* per layer */
  int layers;
} tsr_metrics_step;

typedef struct {
  int64_t step;
  double loss;
  const char *reason; /* max_steps, num_epochs, early_stop, time_limit, stop_at, signal or
                         profile */
  const char *weights_sha256, *recipe;
} tsr_metrics_end;

bool tsr_metrics_open(
    tsr_arena *arena, const char *path, const volatile sig_atomic_t *stop,
    tsr_metrics **ret_metrics, tsr_diags *diags);
bool tsr_metrics_begin(tsr_metrics *metrics, int64_t step, tsr_diags *diags);
void tsr_metrics_close(tsr_metrics *metrics);

/* Each writes one line. */
void tsr_metrics_write_start(
    tsr_metrics *metrics, const tsr_metrics_start *start, tsr_diags *diags);
void tsr_metrics_write_step(tsr_metrics *metrics, const tsr_metrics_step *step, tsr_diags *diags);
/* Without an accuracy the perplexity is written, exp(loss). */
typedef struct {
  int64_t step;
  double loss;
  bool has_accuracy; /* of a model that tells classes of documents apart */
  double accuracy, accuracy_error;
} tsr_metrics_eval;
/* Whether the file has the step's line of that event, "eval" say; true where none is written or
 * read. */
bool tsr_metrics_have(const tsr_metrics *metrics, const char *event, int64_t step);
void tsr_metrics_write_eval(
    tsr_metrics *metrics, const tsr_metrics_eval *evaluation, tsr_diags *diags);
/* Bytes of the text that are not UTF-8, and NUL, become U+FFFD. */
void tsr_metrics_write_sample(
    tsr_metrics *metrics, int64_t step, const char *text, size_t length, tsr_diags *diags);
void tsr_metrics_write_end(tsr_metrics *metrics, const tsr_metrics_end *end, tsr_diags *diags);

/* Of a run that begins behind step `step` of another one, which has the same steps up to there. */
typedef struct {
  const char *path;   /* that one's metrics */
  const char *recipe; /* and its hash: of other ones nothing is taken */
  int64_t step;
  int64_t evaluations; /* evaluations and samples are taken up to this step; 0: none */
} tsr_metrics_origin;
/* Behind the start: adds the other run's lines of steps, as they are. False with the reason, and
 * nothing is added: it has no such file, or not that step. Fine where no metrics are written. */
bool tsr_metrics_add_origin(
    tsr_arena *arena, tsr_metrics *metrics, const tsr_metrics_origin *origin, const char **ret_why,
    tsr_diags *diags);
bool tsr_metrics_finish(tsr_metrics *metrics, tsr_diags *diags);

#endif
