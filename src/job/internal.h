// SPDX-License-Identifier: Apache-2.0
/* Shared by the files of this folder. */
#ifndef TSR_JOB_INTERNAL_H
#define TSR_JOB_INTERNAL_H
#include "job/job.h"

enum { JOB_GRACE_S = 2 /* for other processes to report what they wait for, or that they fail */ };

void job_sleep(int seconds);
/* Collective, before anything else: the command and `ok` as in tsr_job_join. */
bool job_compare_commands(tsr_job *job, const char *command, bool ok);
/* Has the launcher end the job, as far as it can; does not return. */
void job_end(tsr_job *job, int exit_code) __attribute__((noreturn));

#endif
