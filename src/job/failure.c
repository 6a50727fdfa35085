// SPDX-License-Identifier: Apache-2.0
/* Failures of a job's processes, and its end: of the processes that fail alike one prints, all exit
 * with one code, and none waits for a process that has failed. */
#include "base/terminal.h"
#include "comm/peers.h"
#include "job/internal.h"
#include <math.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
  ABORT_S = 3,
  CLOSE_S = 10,                         /* for MPI to finalize when all processes leave */
  EXIT_TAG = TSR_TRANSPORT_TAGS / 2 - 2 /* programs and reports do not use it */
};

void job_sleep(int seconds) { nanosleep(&(struct timespec){.tv_sec = seconds}, NULL); }

static int deadline_exit_code;
static void on_end_deadline(int number) {
  (void)number;
  _exit(deadline_exit_code);
}

/* MPI may wait for its launcher, whose link may be cut, too. The launcher ends with this code all
 * the same, and not with the signal's number. */
void job_end(tsr_job *job, int exit_code) {
  deadline_exit_code = exit_code;
  tsr_terminal_leave();
  signal(SIGALRM, on_end_deadline);
  alarm(ABORT_S);
  job->transport.table->abort(job->transport.state, exit_code);
  _exit(exit_code);
}

bool tsr_job_fail_unresponsive(tsr_job *job, const char *what, const char *why) {
  const tsr_transport *t = &job->transport;
  job->is_silent = false; /* no other process may know of it */
  job->state = TSR_JOB_PEERS_UNRESPONSIVE;
  return tsr_diag_failure(
      job->diags, TSR_NOWHERE, "process %d on %s: %s: %s", t->process,
      t->table->host(t->state, t->process), what, why);
}

/* ---- exit codes of all processes ---- */

/* Tests those of `count` messages that are pending; how many still are. */
static int count_pending(const tsr_transport *t, tsr_message *messages, bool *done, int count) {
  char why[TSR_WHY_BYTES] = "";
  int pending = 0;
  for (int i = 0; i < count; i++) {
    if (!done[i]) done[i] = t->table->test(t->state, &messages[i], why) != TSR_MESSAGE_PENDING;
    pending += !done[i];
  }
  return pending;
}

/* Of the processes whose code has come, the first one with a user error (2), which is nearer to the
 * cause, else with any failure; -1: none. */
static int first_failed(const unsigned char *codes, const bool *done, int processes) {
  int first = -1;
  for (int pass = 0; pass < 2; pass++)
    for (int p = processes; p-- > 0;)
      if (done[2 * p] && codes[p] && (!pass || codes[p] == 2)) first = p;
  return first;
}

/* Exchanges exit codes (0 for success) with all processes, waiting for `seconds` at most. False
 * when a code has not come. *ret_first: the first process that failed, or -1. */
static bool exchange_exit_codes(tsr_job *job, int code, double seconds, int *ret_first) {
  const tsr_transport *t = &job->transport;
  unsigned char *codes = tsr_arena_alloc(job->arena, (size_t)t->processes);
  tsr_message *messages = tsr_arena_array(job->arena, tsr_message, 2 * t->processes);
  bool *done = tsr_arena_array(job->arena, bool, 2 * t->processes);
  char why[TSR_WHY_BYTES] = "";
  memset(codes, 0, (size_t)t->processes);
  codes[t->process] = (unsigned char)code;
  *ret_first = code ? t->process : -1;
  for (int p = 0; p < t->processes; p++) {
    tsr_message *in = &messages[2 * p], *out = in + 1;
    done[2 * p] = done[2 * p + 1] = p == t->process;
    if (p != t->process &&
        (!t->table->receive(t->state, p, EXIT_TAG, &codes[p], 1, in, why) ||
         !t->table->send(t->state, p, EXIT_TAG, &codes[t->process], 1, out, why)))
      return false;
  }
  tsr_backoff backoff = {0};
  int pending;
  while ((pending = count_pending(t, messages, done, 2 * t->processes)) > 0)
    if (tsr_backoff_wait(&backoff) > seconds) break;
  *ret_first = first_failed(codes, done, t->processes);
  if (*ret_first >= 0) job->exit_code = codes[*ret_first];
  return !pending;
}

void tsr_job_share_failure(tsr_job *job, int exit_code) {
  int first = job->transport.process;
  if (tsr_job_is_alone(job) || job->state != TSR_JOB_RUNNING) return;
  bool all = exchange_exit_codes(job, exit_code, JOB_GRACE_S, &first);
  job->state = all ? TSR_JOB_FAILURE_SHARED : TSR_JOB_PEERS_RUNNING;
  job->is_silent = first != job->transport.process;
}

/* ---- the end ---- */

/* In one write, so that reports of several processes do not mix. */
static void write_report(const char *report) {
  tsr_text text = {0};
  fflush(stdout);
  tsr_text_add(&text, "error: %s\n", report);
  for (size_t at = 0; at < text.length;) {
    ssize_t n = write(STDERR_FILENO, text.data + at, text.length - at);
    if (n <= 0) break;
    at += (size_t)n;
  }
}

void tsr_job_abort(void *context, const char *report) {
  tsr_job *job = context;
  tsr_terminal_leave();
  write_report(report);
  if (tsr_job_is_alone(job)) _exit(1);
  job_sleep(JOB_GRACE_S); /* for the reports of the others */
  job_end(job, 1);
}

/* All results are written: where MPI hangs while it finalizes, nothing is lost. */
static void close_transport(tsr_job *job, int exit_code) {
  deadline_exit_code = exit_code;
  signal(SIGALRM, on_end_deadline);
  alarm(CLOSE_S);
  tsr_transport_close(&job->transport);
  alarm(0);
  signal(SIGALRM, SIG_DFL);
}

int tsr_job_leave(tsr_job *job, int exit_code) {
  int first = -1;
  if (job->state >= TSR_JOB_PEERS_RUNNING) {
    /* what was printed comes before what the launcher prints */
    job_sleep(job->state == TSR_JOB_PEERS_UNRESPONSIVE ? JOB_GRACE_S : 1);
    job_end(job, exit_code);
  }
  if (!job->transport.table) return exit_code;
  bool success = !exit_code || exit_code > 128 || job->exits_last;
  tsr_job_set_deadline(job->timeout_s, "ended");
  if (!tsr_job_is_alone(job) && job->state != TSR_JOB_FAILURE_SHARED)
    exchange_exit_codes(job, success ? 0 : exit_code, INFINITY, &first);
  tsr_job_end_deadline();
  close_transport(job, exit_code);
  if (job->exits_last) job_sleep(1);
  return first >= 0 && exit_code <= 128 && !job->exits_last ? job->exit_code : exit_code;
}
