// SPDX-License-Identifier: Apache-2.0
/* Joining a job: the transport (MPI), the identity of all processes, and one command for all. */
#include "base/memory.h"
#include "comm/bootstrap.h"
#include "comm/peers.h"
#include "job/internal.h"
#include <stdlib.h>

enum { JOIN_S = 300 };

/* The configuration has not been read yet. */
static bool read_timeout(tsr_diags *diags, double *ret_seconds) {
  const char *text = getenv("TESSERA_JOIN_TIMEOUT_S");
  char *end;
  *ret_seconds = JOIN_S;
  if (!text || !*text) return true;
  double seconds = strtod(text, &end);
  if (end == text || *end || !(seconds > 0 && seconds < 1e6))
    return tsr_diag_error(
        diags, TSR_NOWHERE, "TESSERA_JOIN_TIMEOUT_S is '%s', which is no number of seconds above 0",
        text);
  *ret_seconds = seconds;
  return true;
}

/* Without a transport the processes of a host cannot ask each other: the first one prints, and the
 * others exit after it, because their launcher ends all when one exits. One that is still there
 * then and has a transport of its own may be the only one that failed. */
static void print_on_first(tsr_job *job) {
  const char *names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"};
  const char *number = NULL;
  for (int i = 0; i < 3 && !number; i++) number = getenv(names[i]);
  job->is_silent = number && atoi(number) > 0;
  if (!job->is_silent) return;
  job_sleep(JOB_GRACE_S);
  const char *own = getenv("TESSERA_TRANSPORT");
  job->is_silent = !own || !*own;
}

bool tsr_job_require_one_process(tsr_job *job, const char *command) {
  int processes = tsr_transport_launched(job->arena);
  if (processes == 1) return true;
  tsr_diag_error(
      job->diags, TSR_NOWHERE, "%s is for one process, and %d processes were started", command,
      processes);
  tsr_diag_hint(job->diags, "start it without the launcher");
  print_on_first(job);
  return false;
}

/* Reports without allocating, and ends the job: others would wait for this process. Checkpoints
 * that are complete stay. */
static void exit_without_memory(void *context, size_t bytes) {
  tsr_job *job = context;
  const tsr_transport *t = &job->transport;
  char process[64] = "";
  if (t->table) snprintf(process, sizeof process, "process %d: ", t->process);
  fprintf(stderr, "error: %sout of memory: %zu bytes\n", process, bytes);
  if (t->table) job_end(job, 1);
  exit(1);
}

bool tsr_job_join(tsr_job *job, const char *command, bool ok) {
  tsr_memory_on_lack(exit_without_memory, job);
  double seconds;
  bool named = read_timeout(job->diags, &seconds);
  tsr_job_set_deadline(seconds, "begun");
  bool opened = tsr_transport_open(job->arena, &job->transport, job->diags);
  tsr_job_end_deadline();
  if (!opened && !job->transport.table) return print_on_first(job), false;
  char why[TSR_WHY_BYTES] = "";
  job->is_silent = job->transport.process > 0;
  if (job->is_silent) tsr_diags_quiet(job->diags);
  if (!tsr_job_is_alone(job) && !tsr_peers_exchange(job->arena, &job->transport, seconds, why))
    return tsr_job_fail_unresponsive(job, "processes cannot meet", why);
  return job_compare_commands(job, command, ok && opened && named);
}
