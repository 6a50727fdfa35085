// SPDX-License-Identifier: Apache-2.0
/* The step loop: training, evaluation at intervals, sampled text, and the reports of all three. */
#ifndef TSR_TRAIN_TRAINER_H
#define TSR_TRAIN_TRAINER_H
#include "report/metrics.h"
#include "report/progress.h"
#include "report/run_lock_writer.h"
#include "runtime/collective_digests.h"
#include "runtime/recorder.h"
#include "train/compile.h"
#include "train/dashboard_run.h"
#include "train/generate.h"
#include "train/checkpoint_manager.h"
#include "train/routing_files.h"
#include "train/tensorboard_run.h"
#include <signal.h>

/* A run that ends with the last of some recorded steps. */
typedef struct {
  int64_t first_step;
  int steps;
  int64_t events;         /* room for so many */
  tsr_recorder *recorder; /* made by tsr_train; can be read after it */
} tsr_recording;

/* A run that ends after some steps, of what its collectives and it itself give. */
typedef struct {
  int64_t steps; /* as many as are wanted; then as many as there are */
  int64_t first_step;
  tsr_collective_digests digests;
  float *losses;   /* of each step */
  char sha256[65]; /* of the weights at the end */
} tsr_determinism_run;

/* What looks at the steps of a run that leaves nothing. Each returns false with a diagnostic to end
 * the run. Steps count from 1. */
typedef struct {
  void *context;
  int64_t last; /* the run ends after this step */
  /* Before the first step, behind `step` of them. */
  bool (*begin)(
      void *context, tsr_executable *train, const tsr_recipe_entry *recipe, int count, int64_t step,
      tsr_diags *diags);
  bool (*before)(void *context, tsr_executable *train, int64_t step, tsr_diags *diags);
  /* The step's loss and the hash of the weights; its chain is not set. */
  bool (*after)(
      void *context, tsr_executable *train, const tsr_locked_step *step, tsr_diags *diags);
} tsr_step_observer;

/* A run.lock whose steps this run must repeat. */
typedef struct {
  const tsr_run_lock *lock;
  bool data_may_differ; /* a warning: then the step that reads what differs is found */
  int64_t last;         /* the run ends after this step; 0: as it does without */
} tsr_locked_run;

typedef struct {
  tsr_arena *arena;
  const tsr_config *config;
  const tsr_parallel *parallel;
  tsr_run_data *data;
  const tsr_kernels *kernels;
  int threads;
  const tsr_device *device; /* NULL: the CPU's threads */
  bool quiet;
  const char *out_folder; /* NULL: nothing is written */
  tsr_out_folder *out;    /* the same, of the process that writes; else NULL */
  tsr_metrics *metrics;
  bool hashes;                         /* the folder gets a run.lock */
  tsr_run_lock_writer *lock;           /* the same, of the process that writes it; else NULL */
  tsr_locked_run *locked;              /* NULL: none */
  const tsr_step_observer *observer;   /* NULL: none */
  const char *gradients;               /* the folder of each step's gradients; NULL: none */
  tsr_out_folder *gradient_folder;     /* the same, of the process that writes; else NULL */
  const char *routing;                 /* the folder that routing is recorded in; NULL: none */
  tsr_out_folder *routing_folder;      /* the same, of the process that writes; else NULL */
  tsr_tensorboard_run *tensorboard;    /* NULL: none; of all processes alike */
  tsr_dashboard_run *dashboard;        /* NULL: none, or another process draws */
  tsr_routing_replay *replay;          /* NULL: each step chooses experts itself */
  const char *mesh_text;               /* "dp=2 tp=2", for the metrics */
  volatile sig_atomic_t *stop;         /* a signal's number ends the run after the step */
  int64_t stop_at;                     /* the run ends after this step, as by a signal; 0: never */
  volatile sig_atomic_t *save;         /* set: a checkpoint is wanted after the step; NULL: never */
  tsr_checkpoint_manager_options keep; /* where the run begins, and its checkpoints */
  tsr_rank_map rank_map; /* all zero: this process is alone; else all processes train */
  double timeout_s;      /* that a process waits for others; 0: for ever */
  void (*lost)(void *context, const char *report); /* as in tsr_process_options */
  void *lost_context;
  tsr_recording *recording;         /* NULL: none */
  tsr_determinism_run *determinism; /* NULL: none; else the run is one of two that are compared */
  bool comm_trace; /* each step's communication goes to stderr (report/comm_trace.h); not while
                      recording */
} tsr_trainer_options;

enum { TSR_ENDED_BY_LIMIT = -1, TSR_ENDED_BY_STEP = -2 };
/* Evaluation and generation may be NULL. Returns false on failure; `ret_signal` is the signal that
 * ended the run early, TSR_ENDED_BY_LIMIT, TSR_ENDED_BY_STEP (stop_at), or 0. */
bool tsr_train(
    const tsr_trainer_options *options, const tsr_compiled *training,
    const tsr_compiled *evaluation, const tsr_compiled *generation, int *ret_signal,
    tsr_diags *diags);

/* Runs a graph without a loss once and prints its outputs; the first process writes
 * them into out as .npy files. */
bool tsr_run_graph(const tsr_trainer_options *options, const tsr_compiled *graph, tsr_diags *diags);
/* An error for each of a graph's inputs that cannot be made of random numbers. */
bool tsr_graph_check_inputs(const tsr_graph *graph, tsr_diags *diags);

/* SHA-256 over all parameters, unsharded and without padding, f32 little-endian, in the order of
 * their names. */
bool tsr_weights_sha256(
    tsr_arena *arena, const tsr_executable *executable, const tsr_graph *graph, char ret_text[65],
    tsr_diags *diags);

/* Continues the configuration's prompt by how.max_new_tokens, or fewer where how.is_over, then not
 * whole; appends the text of both. The configuration has the sampling. */
bool tsr_generate(
    const tsr_trainer_options *options, const tsr_generator *generator, tsr_generating how,
    int64_t *ret_count, bool *ret_is_whole, tsr_text *text, tsr_diags *diags);

#endif
