// SPDX-License-Identifier: Apache-2.0
/* The metrics of a run that forks (--fork): those of the steps that the other run has made for it,
 * which are the same bits, and then its own. */
#ifndef TSR_TRAIN_FORK_METRICS_H
#define TSR_TRAIN_FORK_METRICS_H
#include "train/trainer_internal.h"

/* Whether the run begins in files of its own, which have nothing of the other run's. */
bool tsr_fork_begins_files(const tsr_trainer_options *options);

/* Behind the start of the metrics: adds the other run's lines, from metrics.jsonl of the folder
 * that holds its checkpoints. Evaluations and samples only where both runs evaluate alike; those of
 * the run's last step are its own. A note where the lines are missing. */
void tsr_fork_metrics_add(tsr_trainer *trainer);

#endif
