// SPDX-License-Identifier: Apache-2.0
/* How long a step takes on a machine.
 *
 * Where each rank has a device of its own, a stage's rank does its tasks one after another; a
 * collective holds it up for as long as the links need (plan/machine.h), unless it is one of those
 * that only begin and are waited for later, which share the links one after another behind the
 * tasks between. Copies of activations to the host and back share its link to the host alike.
 * Actions of the pipeline take what their tasks do, and what they need from another stage takes a
 * send. What comes before the first action and after the last one waits for other stages where it
 * must.
 *
 * On a machine with `threads` there is one device: all tasks of all ranks stand one after another,
 * and collectives are its work as well. */
#ifndef TSR_PLAN_ESTIMATE_H
#define TSR_PLAN_ESTIMATE_H
#include "plan/plan.h"

typedef struct {
  const tsr_programs *programs;
  const tsr_graph *graph; /* before placement, in which the model's work is counted */
  const tsr_parallel *parallel;
  const tsr_machine *machine;
  bool tf32; /* f32 products may use it where the machine has it */
  tsr_all_reduce_algorithm all_reduce;
} tsr_estimate_options;

/* One kind of collective over one axis, in a step of one rank; with `threads` in all of them. Those
 * whose transport the graph names are a kind of their own. */
typedef struct {
  tsr_op op;
  int axis;
  const tsr_node *nccl; /* the first that requires NCCL; NULL: none does */
  const char *path;     /* path.h */
  int64_t count;
  double bytes; /* what one member holds before */
  double sent;  /* by one member, over all links */
  double sent_over[TSR_MACHINE_LINKS_MAX];
  double seconds;
} tsr_estimate_transfer;

typedef struct {
  double flops;   /* of one rank; seconds are of one rank, or with `threads` of all of the stage */
  double compute; /* seconds of its tasks */
  double waits;   /* seconds in which it only waits for its own collectives */
  double copied;  /* bytes of activations that are copied to the host, and as many back */
  double copies;  /* seconds of these copies */
  double copies_open; /* of them seconds in which it only waits for them */
  double idle;        /* the rest of the step */
  tsr_estimate_transfer *transfers;
  int transfers_count;
  double communication; /* seconds of all transfers, waited for or not */
} tsr_estimate_stage;

typedef struct {
  tsr_estimate_stage *stages;
  tsr_pipeline_costs costs; /* of the pipeline's actions; seconds */
  tsr_pipeline_times times; /* as if each stage had a device, whatever the machine */
  double before, after;     /* of the step: before the first action, after the last one */
  double step;
  tsr_machine_dtype dtype; /* of most of the products' work */
  int64_t devices;         /* that share the work: the ranks, or 1 */
  tsr_model_work model;
  double utilization; /* of the model's work: what share of all devices' peak (MFU) */
} tsr_estimate;

void tsr_estimate_make(
    tsr_arena *arena, const tsr_estimate_options *options, tsr_estimate *ret_estimate);

/* The work of a task on a machine with `threads`, for all `ranks` of its stage together; `calls`
 * are those that stand one after another. */
tsr_machine_work
tsr_host_work(const tsr_program *program, const tsr_task *task, int64_t ranks, int threads);
/* What a task computes in. */
tsr_machine_dtype tsr_task_dtype(const tsr_task *task, bool tf32);

#endif
