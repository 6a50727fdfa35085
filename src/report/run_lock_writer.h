// SPDX-License-Identifier: Apache-2.0
/* Writes run.lock (report/run_lock.h) step by step. */
#ifndef TSR_REPORT_RUN_LOCK_WRITER_H
#define TSR_REPORT_RUN_LOCK_WRITER_H
#include "report/run_lock.h"

typedef struct tsr_run_lock_writer tsr_run_lock_writer;

/* Takes the file; nothing in it changes. */
bool tsr_run_lock_open(
    tsr_arena *arena, const char *path, tsr_run_lock_writer **ret_writer, tsr_diags *diags);

/* The run begins, or resumes at `head->first`, which has step and weights; of head the recipe, its
 * hash, policy, config and the last of starts count. Cuts off the lines behind that step and
 * continues the file's chain; where the file has no such step, or another recipe, it begins
 * a new chain. Failure: the file says that the step had other weights. Again in a run that returns
 * to an earlier step of its own, with all lines written. */
bool tsr_run_lock_begin(tsr_run_lock_writer *writer, const tsr_run_lock *head, tsr_diags *diags);
/* After a step; sets its chain. */
void tsr_run_lock_add(tsr_run_lock_writer *writer, tsr_locked_step *step, tsr_diags *diags);
/* At the end: a failure when lines are still not written. */
bool tsr_run_lock_finish(tsr_run_lock_writer *writer, tsr_diags *diags);
/* A file that was made and has not begun is removed. */
void tsr_run_lock_close(tsr_run_lock_writer *writer);

#endif
