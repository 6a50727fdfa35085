// SPDX-License-Identifier: Apache-2.0
/* What lasts of a run: where it begins (anew, from saved weights, or where another run of the same
 * recipe stopped), and the checkpoints that it leaves. */
#ifndef TSR_TRAIN_CHECKPOINT_MANAGER_H
#define TSR_TRAIN_CHECKPOINT_MANAGER_H
#include "checkpoint/saver.h"
#include "train/compile.h"
#include "train/out_folder.h"
#include "train/run_data.h"
#include <signal.h>

typedef struct {
  const char *folder;         /* of the checkpoints; NULL: none are written */
  const char *out;            /* the folder of --out; NULL: none */
  const char *gradients;      /* that of --dump-grads; NULL: none */
  const char *routing;        /* that of --record-routing; NULL: none */
  bool resumes;               /* a resume was requested, with or without a checkpoint */
  tsr_out_purpose purpose;    /* of the folder: to resume from what is in it, for one */
  const tsr_manifest *resume; /* to resume from; NULL: the run begins anew */
  bool named;                 /* it was named, so no other one will do */
  bool forks;                 /* it is another run's (resume_recipe.h) */
  /* Whose parameters a new run begins with, and one that resumes has as its frozen ones; NULL:
   * random ones. */
  const tsr_manifest *weights;
  const char *adapter, *adapter_hash; /* PEFT's folder that a new run begins with; NULL: none */
  double limit_s;                     /* the run ends before it has lasted so long; 0: never */
  const char *mesh_text, *version;
  const char *owner; /* of the folder, process 0 (tsr_folder_lock_owner); NULL: alone */
} tsr_checkpoint_manager_options;

/* What the checkpoint manager must know of the run. */
typedef struct {
  const tsr_config *config;
  const tsr_run_data *data;
  const tsr_compiled *training;
  tsr_executable *executable;
  const char *isa;
  const char *units_order;     /* tsr_parallel_own_order */
  const char *routing;         /* hash of what is replayed; NULL: nothing is */
  const char *initial_weights; /* tsr_resume_recipe_weights */
  const char *initial_adapter; /* hash of the adapters that it began with; NULL: none */
  int64_t samples_per_step, total_steps;
  bool quiet;
  bool forks; /* its learning rates may differ behind the checkpoint that it begins with */
  bool data_may_differ; /* from those of the run that it resumes: a warning */
  int process, processes;
} tsr_checkpoint_manager_run;

typedef struct tsr_checkpoint_manager tsr_checkpoint_manager;

/* The failure of a run that should resume in a folder whose checkpoints are all damaged. */
bool tsr_checkpoint_manager_none_whole(const char *folder, tsr_diags *diags);

/* Compares the recipes, takes the folder, and loads. `state` is set where the run begins: untouched
 * for a new one. A run that resumes from no named checkpoint reads the newest one that the folder
 * has once it is taken, which may be newer than options->resume. One that is damaged is skipped
 * with a warning for the one before it; that there is none is a failure. Errors: every key of the
 * recipe that differs; tensors that do not fit; a folder that holds the checkpoints of another run,
 * or is a checkpoint or a run's --out folder. */
bool tsr_checkpoint_manager_open(
    tsr_arena *arena, const tsr_checkpoint_manager_options *options,
    const tsr_checkpoint_manager_run *run, tsr_run_state *state,
    tsr_checkpoint_manager **ret_checkpoint_manager, tsr_diags *diags);

/* The checkpoint that the run goes on from; NULL: none. */
const tsr_manifest *tsr_checkpoint_manager_resumed(const tsr_checkpoint_manager *manager);

/* Whether the interval asks for a checkpoint after that step; NULL: never. */
bool tsr_checkpoint_manager_is_due(const tsr_checkpoint_manager *manager, int64_t step);
/* The run's memory has wrong bits: loads the newest checkpoint that this run has written or found
 * in its folder, of step `last` or before. One that cannot be read is skipped with a warning. All
 * processes together; failure, on all of them: there is none (NULL: none are kept). */
bool tsr_checkpoint_manager_return(
    tsr_checkpoint_manager *manager, int64_t last, tsr_run_state *ret_state,
    const char **ret_folder, tsr_diags *diags);
/* After every step: remembers its numbers, and takes a checkpoint if one is due or `wanted`.
 * Messages of the writer come as warnings. Processes call it alike. */
void tsr_checkpoint_manager_step(
    tsr_checkpoint_manager *manager, const tsr_run_state *state, double loss, double norm,
    double seconds, bool wanted, tsr_diags *diags);
bool tsr_checkpoint_manager_is_writing(
    const tsr_checkpoint_manager *manager); /* beside the steps */
/* The step of the newest checkpoint, which may still be written; -1: there is none, or NULL. */
int64_t tsr_checkpoint_manager_taken(const tsr_checkpoint_manager *manager);
/* Whether the next step, and a checkpoint after it, would end behind the time limit. */
bool tsr_checkpoint_manager_is_late(const tsr_checkpoint_manager *manager);
/* Whether the time limit leaves no more than a checkpoint takes, or nothing where the newest is of
 * `step`. */
bool tsr_checkpoint_manager_is_out_of_time(const tsr_checkpoint_manager *manager, int64_t step);
/* Whether half of the time limit is over. */
bool tsr_checkpoint_manager_is_past_half(const tsr_checkpoint_manager *manager);

/* At the end: the state, if it is not on the disk yet. False if it cannot be kept. */
bool tsr_checkpoint_manager_finish(
    tsr_checkpoint_manager *manager, const tsr_run_state *state, tsr_diags *diags);
void tsr_checkpoint_manager_close(tsr_checkpoint_manager *manager); /* NULL is fine */

#endif
