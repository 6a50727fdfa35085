// SPDX-License-Identifier: Apache-2.0
/* Inside the trainer: its state, which the step loop (trainer.c) and its reports
 * (trainer_reports.c) share. */
#ifndef TSR_TRAIN_TRAINER_INTERNAL_H
#define TSR_TRAIN_TRAINER_INTERNAL_H
#include "report/comm_trace.h"
#include "runtime/replica_check.h"
#include "train/expert_load.h"
#include "train/label_scores.h"
#include "train/learning_rate.h"
#include "train/loss_scale.h"
#include "train/trainer.h"

/* Comparisons of replicas, by steps (train/replica_checks.h). */
typedef struct {
  tsr_replica_check *check;
  int64_t steps;   /* that the run was to train at its begin */
  int64_t checked; /* the last one that was compared, or that the run has returned to; -1: none */
  int64_t passed;  /* the last one without a difference, or the begin */
  int64_t failed;  /* the run has returned to before it and has not passed it since; 0: none */
  int64_t count, differing; /* comparisons, and those that found a difference */
} tsr_replica_checks;

struct tsr_trainer {
  const tsr_trainer_options *o;
  const tsr_compiled *training, *evaluation, *generation;
  tsr_executable *train, *eval;
  tsr_generator generator;     /* of samples, where there are any */
  tsr_recorder *comm_recorder; /* of one step; NULL: communication is not traced */
  tsr_comm_trace comm_trace;
  tsr_expert_load experts;
  tsr_lr_curve curve;
  tsr_progress progress;
  tsr_checkpoint_manager *manager; /* NULL: nothing of the run lasts */
  tsr_diags *diags;
  int64_t step, samples; /* samples of a step */
  int64_t first_step;    /* of this start: 0, or where it resumes */
  int64_t steps;         /* to train: the curve's, or fewer */
  int64_t updates;       /* steps that changed the weights; after an overflow none is changed */
  double loss, norm, lr;
  tsr_validation_state validation;
  int64_t evaluated;     /* the step of the last evaluation */
  int64_t sampled;       /* and of the last whole sample */
  bool is_best;          /* its loss is among the best, and no checkpoint has it yet */
  bool ends_early;       /* the loss did not improve any more */
  bool is_repetition;    /* of steps that were made: their number alone ends it */
  tsr_loss_scale scale;  /* of fp16 */
  tsr_scale_losses lost; /* of fp16 in this step */
  int64_t lost_in_all;
  double used_scale;                  /* by the step that is reported; 0: none is */
  char *gradient_path, *routing_path; /* room for the files' */
  float *numbers;                     /* of an evaluation's loss */
  tsr_label_scorer scorer;            /* of its predictions, where it makes any: */
  int32_t *labels;                    /* of a sample */
  tsr_label_score *scores;            /* of these */
  tsr_checkpoint_manager_run facts;
  tsr_recipe_entry *recipe_entries;
  int recipe_count;
  char recipe[TSR_HASH_TEXT]; /* the hash of these */
  uint64_t weights_hash;      /* of a run that hashes its steps (train/run_hashes.h) */
  tsr_replica_checks replicas;
};

static inline bool tsr_trainer_scales_loss(const tsr_trainer *t) {
  return t->o->config->training.precision == TSR_PRECISION_FP16;
}

/* What the run continues with. */
static inline void tsr_trainer_take_state(tsr_trainer *t, const tsr_run_state *state) {
  t->step = state->step;
  t->updates = state->updates;
  t->loss = state->loss;
  t->scale.scale = state->scale;
  t->scale.good_steps = state->scale_good_steps;
  t->validation = state->validation;
}

/* The communication of the step that was recorded, to standard error. */
void tsr_trainer_print_communication(tsr_trainer *t);
/* The progress line and the metrics of a step. */
void tsr_trainer_report_step(tsr_trainer *t, double seconds, double now);
/* Room for what evaluations read; behind `eval` and `evaluation`. */
void tsr_trainer_prepare_evaluation(tsr_trainer *t);
/* The evaluation of a step, and what follows from it; nothing where it was made before. */
bool tsr_trainer_report_evaluation(tsr_trainer *t);
/* The evaluation and the sample that are due after a step, or at the end. */
bool tsr_trainer_report_texts(tsr_trainer *t, bool last);
/* What was due at the step that the run begins with and is not in the metrics: the last evaluation,
 * the sample. A run that was killed or interrupted behind the step has not made it. */
bool tsr_trainer_report_lacking(tsr_trainer *t);
void tsr_trainer_write_start(const tsr_trainer *t);
/* The last line and the metrics' end; false with a failure. */
bool tsr_trainer_write_end(tsr_trainer *t, int ended_by);

#endif
