// SPDX-License-Identifier: Apache-2.0
/* When a run compares its replicas (runtime/replica_check.h), and what follows where they differ:
 * the run fails, continues, or returns to a checkpoint. All processes do the same. */
#ifndef TSR_TRAIN_REPLICA_CHECKS_H
#define TSR_TRAIN_REPLICA_CHECKS_H
#include "train/trainer_internal.h"

typedef enum {
  TSR_REPLICAS_PASS,   /* they are equal, or the policy is to warn: the run continues */
  TSR_REPLICAS_RETURN, /* the run is where a checkpoint was taken */
  TSR_REPLICAS_FAIL    /* with a diagnostic */
} tsr_replicas_outcome;

/* Before the first step, when the run's first state is there. */
bool tsr_replica_checks_begin(tsr_trainer *trainer);
/* Whether the step that was made is one after which replicas are compared: by the interval, or
 * because a checkpoint of it is due. */
bool tsr_replica_checks_are_due(const tsr_trainer *trainer);
/* After a step; of one that was checked nothing is done. On return the run's state, metrics and
 * run.lock are those of the step of the checkpoint. */
tsr_replicas_outcome tsr_replica_checks_run(tsr_trainer *trainer);

#endif
