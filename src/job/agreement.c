// SPDX-License-Identifier: Apache-2.0
/* Agreement between the processes of a job, before the first step and at its checks. */
#include "base/hash.h"
#include "comm/bootstrap.h"
#include "job/internal.h"
#include <string.h>

enum { USER_ERROR = 2 }; /* an exit code */

bool tsr_job_gather(tsr_job *job, const void *mine, int64_t bytes, void *ret_all) {
  char why[TSR_WHY_BYTES] = "";
  return tsr_transport_gather(&job->transport, mine, bytes, ret_all, job->timeout_s, why) ||
         tsr_job_fail_unresponsive(job, "processes cannot agree", why);
}

bool tsr_job_collect(
    tsr_job *job, const void *mine, const int64_t *bytes, const char *what, void *ret_all) {
  char why[TSR_WHY_BYTES] = "";
  return tsr_transport_collect(&job->transport, mine, bytes, ret_all, job->timeout_s, why) ||
         tsr_job_fail_unresponsive(job, what, why);
}

bool tsr_job_share_text(tsr_job *job, const char *mine, const char *what, const char **ret_text) {
  char why[TSR_WHY_BYTES] = "";
  return tsr_transport_share_text(
             job->arena, &job->transport, mine, ret_text, job->timeout_s, why) ||
         tsr_job_fail_unresponsive(job, what, why);
}

/* The code that this process would exit with. */
static unsigned char exit_code_of(const tsr_job *job, bool ok) {
  int code = tsr_diags_exit_code(job->diags);
  return ok ? 0 : code ? (unsigned char)code : 1;
}

/* All processes know that process `first` is the first that has failed. Always false. */
static bool agree_on_failure(tsr_job *job, int first, int exit_code) {
  job->is_silent = job->transport.process != first;
  job->exit_code = exit_code;
  job->state = TSR_JOB_FAILURE_AGREED;
  return false;
}

bool tsr_job_all_succeeded(tsr_job *job, bool ok) {
  if (tsr_job_is_alone(job)) return ok;
  if (job->state == TSR_JOB_FAILURE_AGREED) return false;
  int processes = job->transport.processes, first = 0;
  unsigned char mine = exit_code_of(job, ok);
  unsigned char *all = tsr_arena_alloc(job->arena, (size_t)processes);
  if (!tsr_job_gather(job, &mine, 1, all)) return false;
  while (first < processes && !all[first]) first++;
  return first == processes || agree_on_failure(job, first, all[first]);
}

/* Of one size for every command: what a process exchanges after it depends on the command. */
typedef struct {
  char command[31];
  unsigned char exit_code; /* 0: it continues */
} intention;

static void report_commands(tsr_job *job, const intention *mine, const intention *first) {
  const tsr_transport *t = &job->transport;
  tsr_diag_error(
      job->diags, TSR_NOWHERE, "process %d on %s runs '%s', and process 0 on %s runs '%s'",
      t->process, t->table->host(t->state, t->process), mine->command, t->table->host(t->state, 0),
      first->command);
  tsr_diag_hint(job->diags, "all processes of a job run the same command");
}

bool job_compare_commands(tsr_job *job, const char *command, bool ok) {
  if (tsr_job_is_alone(job)) return ok;
  int processes = job->transport.processes, failed = 0, other = 0;
  intention mine = {.exit_code = exit_code_of(job, ok)},
            *all = tsr_arena_array(job->arena, intention, processes);
  snprintf(mine.command, sizeof mine.command, "%s", command);
  if (!tsr_job_gather(job, &mine, sizeof mine, all)) return false;
  while (failed < processes && !all[failed].exit_code) failed++;
  if (failed < processes) return agree_on_failure(job, failed, all[failed].exit_code);
  while (other < processes && !strcmp(all[other].command, all[0].command)) other++;
  if (other == processes) return true;
  if (strcmp(mine.command, all[0].command)) report_commands(job, &mine, &all[0]);
  return agree_on_failure(job, other, USER_ERROR);
}

/* The first line of `mine` that differs from that of `theirs`, process 0's. */
static bool
report_difference(tsr_job *job, const char *what, const char *mine, const char *theirs) {
  const tsr_transport *t = &job->transport;
  const char *m = mine, *other = theirs;
  for (int line = 1;; line++) {
    size_t n = strcspn(m, "\n"), k = strcspn(other, "\n");
    if (n != k || memcmp(m, other, n) || !m[n] || !other[k])
      return tsr_diag_error(
          job->diags, TSR_NOWHERE,
          "process %d on %s has another %s than process 0 on %s: line %d is '%.*s' here and '%.*s' "
          "there",
          t->process, t->table->host(t->state, t->process), what, t->table->host(t->state, 0), line,
          (int)(n < 120 ? n : 120), m, (int)(k < 120 ? k : 120), other);
    m += n + 1;
    other += k + 1;
  }
}

typedef struct {
  char hash[TSR_HASH_TEXT];
} text_hash;

/* Hashes go around first: a text only where one of them differs. */
bool tsr_job_compare_texts(
    tsr_job *job, int count, const char *const *names, const tsr_text *texts) {
  int processes = job->transport.processes;
  text_hash *mine = tsr_arena_array(job->arena, text_hash, count),
            *all = tsr_arena_array(job->arena, text_hash, count * processes);
  for (int i = 0; i < count; i++) tsr_hash_text(texts[i].data, texts[i].length, mine[i].hash);
  if (!tsr_job_gather(job, mine, (int64_t)sizeof *mine * count, all)) return false;
  for (int i = 0; i < count; i++) {
    bool any = false;
    for (int p = 1; p < processes; p++) any |= strcmp(all[p * count + i].hash, all[i].hash) != 0;
    if (!any) continue;
    const char *what = tsr_arena_printf(job->arena, "processes cannot compare their %s", names[i]);
    const char *first;
    if (!tsr_job_share_text(job, texts[i].data, what, &first)) return false;
    bool same = !strcmp(mine[i].hash, all[i].hash);
    return same || report_difference(job, names[i], texts[i].data, first);
  }
  return true;
}
