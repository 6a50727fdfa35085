// SPDX-License-Identifier: Apache-2.0
/* Deadlines of calls into a library that cannot be interrupted. */
#include "job/job.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char deadline_message[256];

static void on_deadline(int number) {
  (void)number;
  if (write(STDERR_FILENO, deadline_message, strlen(deadline_message)) < 0) _exit(1);
  _exit(1);
}

void tsr_job_set_deadline(double seconds, const char *what) {
  const char *ranks[] = {getenv("OMPI_COMM_WORLD_RANK"), getenv("PMI_RANK"), getenv("PMIX_RANK")};
  const char *rank = ranks[0] ? ranks[0] : ranks[1] ? ranks[1] : ranks[2] ? ranks[2] : "?";
  snprintf(
      deadline_message, sizeof deadline_message,
      "error: process %.16s: the job has not %s in %.0f s: another process is stopped or dead, its "
      "link is cut, or it has another TESSERA_TRANSPORT\n",
      rank, what, ceil(seconds));
  signal(SIGALRM, on_deadline);
  alarm((unsigned)ceil(seconds));
}

void tsr_job_end_deadline(void) {
  alarm(0);
  signal(SIGALRM, SIG_DFL);
}
