// SPDX-License-Identifier: Apache-2.0
/* Deadlines of calls into a library that cannot be interrupted: a thread waits for their end. */
#include "base/terminal.h"
#include "job/job.h"
#include "job/missing_processes.h"
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
  pthread_t thread;
  pthread_cond_t ended_now;
  bool is_set, has_ended;
  struct timespec end;
  double seconds;
  const char *what;
} deadline;

static void report(void) {
  const char *ranks[] = {getenv("OMPI_COMM_WORLD_RANK"), getenv("PMI_RANK"), getenv("PMIX_RANK")};
  const char *rank = ranks[0] ? ranks[0] : ranks[1] ? ranks[1] : ranks[2] ? ranks[2] : "?";
  tsr_text text = {0};
  tsr_text_add(
      &text, "error: process %.16s: the job has not %s in %.0f s: ", rank, deadline.what,
      deadline.seconds);
  size_t length = text.length;
  tsr_missing_processes_describe(tsr_arena_new(), &text);
  if (text.length == length)
    tsr_text_add(
        &text, "another process is stopped or dead, its link is cut, or it has another "
               "TESSERA_TRANSPORT");
  tsr_text_add(&text, "\n");
  tsr_terminal_leave();
  if (write(STDERR_FILENO, text.data, text.length) < 0) _exit(1);
}

static void *wait_for_end(void *unused) {
  (void)unused;
  int waited = 0;
  pthread_mutex_lock(&mutex);
  while (!deadline.has_ended && waited != ETIMEDOUT)
    waited = pthread_cond_timedwait(&deadline.ended_now, &mutex, &deadline.end);
  if (!deadline.has_ended) {
    report();
    _exit(1);
  }
  pthread_mutex_unlock(&mutex);
  return NULL;
}

void tsr_job_set_deadline(double seconds, const char *what) {
  pthread_condattr_t monotonic;
  sigset_t all, before;
  deadline.seconds = ceil(seconds);
  deadline.what = what;
  deadline.has_ended = false;
  clock_gettime(CLOCK_MONOTONIC, &deadline.end);
  deadline.end.tv_sec += (time_t)deadline.seconds;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&deadline.ended_now, &monotonic);
  pthread_condattr_destroy(&monotonic);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the other threads */
  deadline.is_set = !pthread_create(&deadline.thread, NULL, wait_for_end, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void tsr_job_end_deadline(void) {
  if (!deadline.is_set) return;
  pthread_mutex_lock(&mutex);
  deadline.has_ended = true;
  pthread_cond_signal(&deadline.ended_now);
  pthread_mutex_unlock(&mutex);
  pthread_join(deadline.thread, NULL);
  pthread_cond_destroy(&deadline.ended_now);
  deadline.is_set = false;
}
