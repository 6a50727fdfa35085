// SPDX-License-Identifier: Apache-2.0
/* What a run writes for TensorBoard (--tensorboard): the numbers of the metrics, MFU, memory,
 * histograms of tensors, samples, the recipe and the graph.
 *
 *   loss/train, loss/validation, accuracy/validation
 *   optimizer/learning_rate, optimizer/gradient_norm, optimizer/loss_scale,
 *   optimizer/loss_underflows, optimizer/loss_overflows
 *   throughput/tokens_per_s, throughput/step_ms, throughput/tokens, throughput/mfu
 *   memory/resident_gib, memory/resident_peak_gib    of the process that writes
 *   experts/LAYER/imbalance, …/entropy, …/dropped    as in report/metrics.h
 *   experts/LAYER/load       a histogram: bucket i has the choices of expert i
 *   weights/NAME, gradients/NAME                     histograms
 *   sample                   a text */
#ifndef TSR_TRAIN_TENSORBOARD_RUN_H
#define TSR_TRAIN_TENSORBOARD_RUN_H
#include "graph/graph.h"
#include "report/metrics.h"
#include "tensorboard/writer.h"
#include "train/out_folder.h"

typedef struct tsr_trainer tsr_trainer;

typedef struct {
  tsr_out_folder *folder;  /* of the process that writes; else NULL */
  tsr_tensorboard *writer; /* the same; made when the run begins */
  int *params, count;      /* the parameters that have histograms */
  int64_t every;           /* steps between these */
  double ideal_step_s;     /* a step's time if all devices computed at their peak; 0: unknown */
} tsr_tensorboard_run;

/* The trained parameters whose names have a match. An error where none has. */
bool tsr_tensorboard_choose(
    tsr_arena *arena, const tsr_graph *graph, const char *pattern, tsr_tensorboard_run *ret_run,
    tsr_diags *diags);

/* Each does nothing where the run has no --tensorboard, or another process writes. */
/* The run begins behind its step, or returns to it. */
bool tsr_tensorboard_run_begin(tsr_trainer *trainer);
void tsr_tensorboard_run_step(tsr_trainer *trainer, const tsr_metrics_step *step);
void tsr_tensorboard_run_eval(tsr_trainer *trainer, const tsr_metrics_eval *evaluation);
void tsr_tensorboard_run_sample(tsr_trainer *trainer, const char *text, size_t length);
bool tsr_tensorboard_run_end(tsr_trainer *trainer, bool is_done);
/* Collective, after a step: the histograms that are due. */
bool tsr_tensorboard_run_histograms(tsr_trainer *trainer);

#endif
