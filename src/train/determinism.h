// SPDX-License-Identifier: Apache-2.0
/* --check-determinism: some steps twice from the same beginning, with other counts of threads. */
#ifndef TSR_TRAIN_DETERMINISM_H
#define TSR_TRAIN_DETERMINISM_H
#include "train/trainer.h"

/* Trains `steps` steps twice, or as many as the run has left, which a note says; none is an error.
 * With options->threads, which must be more than 1, and with one thread: scratch memory is planned
 * for the former. Compares what every collective gave to every rank of this process, the losses and
 * the weights; nothing is written but what is printed. Failure: the first collective that differs,
 * with its step, microbatch, rank, op, axis and place in the graph file; or, where all agree, the
 * loss or the weights. *ret_text says what is equal, if it is so in other processes too; NULL
 * behind a signal. Collective over the processes. */
bool tsr_determinism_check(
    const tsr_trainer_options *options, const tsr_compiled *training, int64_t steps,
    int *ret_signal, const char **ret_text, tsr_diags *diags);

#endif
