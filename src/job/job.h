// SPDX-License-Identifier: Apache-2.0
/* This process as one of the processes of a job that a launcher started (mpirun, srun): joining,
 * agreement, failures, and leaving together.
 *
 * Every function that says "collective" is called by all processes, in the same order; none of them
 * waits longer than the job's timeout. A process without a launcher is a job of one, for which all
 * of them return at once. */
#ifndef TSR_JOB_JOB_H
#define TSR_JOB_JOB_H
#include "base/diag.h"
#include "base/text.h"
#include "comm/transport.h"

/* What is known of failures. The state only moves down this list. */
typedef enum {
  TSR_JOB_RUNNING,        /* no process is known to have failed */
  TSR_JOB_FAILURE_AGREED, /* all processes know that one of them has failed */
  TSR_JOB_FAILURE_SHARED, /* this process fails and has exchanged exit codes with all others */
  TSR_JOB_PEERS_RUNNING,  /* this process fails, and others may wait for it: it aborts the job */
  TSR_JOB_PEERS_UNRESPONSIVE, /* messages fail or time out: this process aborts the job */
} tsr_job_state;

typedef struct {
  tsr_arena *arena;
  tsr_diags *diags;
  tsr_transport transport; /* a table of NULL before tsr_job_join and in a job of one */
  double timeout_s;        /* for a message of another process */
  tsr_job_state state;
  bool is_silent;  /* another process prints diagnostics and results for this one */
  int exit_code;   /* of the first process known to have failed, for all processes; 0: none */
  bool exits_last; /* this process exits with a code that is no failure: after the others, because
                      launchers end a job when a process exits with a code other than 0 */
} tsr_job;

static inline bool tsr_job_is_alone(const tsr_job *job) { return job->transport.processes <= 1; }

/* ---- join.c ---- */

/* Joins the job that started this process, if one did. Waits for the other processes for
 * TESSERA_JOIN_TIMEOUT_S seconds, 300 unless given. Collective: whether all processes run `command`
 * and none of them has failed before (`ok`); the diagnostics are those of tsr_job_all_succeeded.
 * Failures: no transport, processes that do not come. */
bool tsr_job_join(tsr_job *job, const char *command, bool ok);
/* That this process was started without a launcher, or alone by one; else an error that names the
 * command. */
bool tsr_job_require_one_process(tsr_job *job, const char *command);

/* ---- deadline.c ---- */

/* From now on the process may be inside a library that cannot be interrupted. After so many seconds
 * it writes that the job has not `what` ("begun"), and which processes of this host cannot take
 * part (missing_processes.h), and exits with 1. One deadline at a time; by one thread. */
void tsr_job_set_deadline(double seconds, const char *what);
void tsr_job_end_deadline(void);

/* ---- agreement.c ---- */

/* Collective: `bytes` bytes of every process, by process, in `ret_all`. */
bool tsr_job_gather(tsr_job *job, const void *mine, int64_t bytes, void *ret_all);
/* Collective: `bytes[p]` bytes of every process p, one after the other in process 0's `ret_all`
 * (NULL elsewhere); all processes know `bytes`. `what` is for the failure. */
bool tsr_job_collect(
    tsr_job *job, const void *mine, const int64_t *bytes, const char *what, void *ret_all);
/* Collective: the text of process 0, in the arena; `what` is for the failure. */
bool tsr_job_share_text(tsr_job *job, const char *mine, const char *what, const char **ret_text);
/* Collective: whether all processes got as far as this one. If one has not, it has added a
 * diagnostic, and the first such process prints. */
bool tsr_job_all_succeeded(tsr_job *job, bool ok);
/* Collective: that all processes have the same texts; else an error on those that differ from
 * process 0 in the first text in which any does, with the first line that does. `names` of the
 * texts are for messages. */
bool tsr_job_compare_texts(
    tsr_job *job, int count, const char *const *names, const tsr_text *texts);

/* ---- failure.c ---- */

/* This process cannot reach others: adds a failure. Always false. */
bool tsr_job_fail_unresponsive(tsr_job *job, const char *what, const char *why);
/* To be called before the diagnostics of a failure with that exit code are printed: of the
 * processes that fail alike, one prints. */
void tsr_job_share_failure(tsr_job *job, int exit_code);
/* Prints the report of a failure in the middle of a step and ends the job, with exit code 1. Does
 * not return. `job` is a tsr_job: the type is that of callbacks. */
void tsr_job_abort(void *job, const char *report);
/* Ends this process's part of the job; returns the exit code of the process, which is not 0 where
 * another one's is not. */
int tsr_job_leave(tsr_job *job, int exit_code);

#endif
