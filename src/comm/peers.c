// SPDX-License-Identifier: Apache-2.0
#include "comm/peers.h"
#include <ctype.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- processes ---- */

enum { STAT_BYTES = 1024, BEGUN_FIELD = 22, STATE_FIELD = 3 };

/* Field n >= 3 of /proc/PID/stat; the second one is a name in brackets, of any letters. */
static const char *field_of(const char *stat, int n) {
  const char *at = strrchr(stat, ')');
  for (int i = 2; at && i < n; i++) {
    at = strchr(at + 1, ' ');
  }
  return at ? at + 1 : "";
}

static bool read_file(char *bytes, size_t room, int64_t pid, const char *name) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%lld/%s", (long long)pid, name);
  FILE *f = fopen(path, "r");
  size_t n = f ? fread(bytes, 1, room - 1, f) : 0;
  if (f) fclose(f);
  bytes[n] = 0;
  return n > 0;
}

void tsr_peer_self(tsr_peer *ret) {
  struct stat ids;
  char text[STAT_BYTES];
  *ret = (tsr_peer){.pid = getpid()};
  gethostname(ret->host, sizeof ret->host - 1);
  if (!stat("/proc/self/ns/pid", &ids)) ret->ids = (uint64_t)ids.st_ino;
  if (read_file(text, sizeof text, ret->pid, "stat"))
    ret->begun = strtoull(field_of(text, BEGUN_FIELD), NULL, 10);
}

/* Its state's letter; 0: it is not visible to this process; 'X': it has ended. */
static char look(const tsr_transport *t, int process) {
  if (!t->peers) return 0;
  const tsr_peer *of = &t->peers[process], *own = &t->peers[t->process];
  char text[STAT_BYTES];
  if (!of->begun || of->ids != own->ids || strcmp(of->host, own->host)) return 0;
  if (!read_file(text, sizeof text, of->pid, "stat")) return 'X';
  if (strtoull(field_of(text, BEGUN_FIELD), NULL, 10) != of->begun) return 'X';
  return *field_of(text, STATE_FIELD);
}

static tsr_peer_state state_of(char letter) {
  if (!letter) return TSR_PEER_ELSEWHERE;
  if (letter == 'X' || letter == 'x' || letter == 'Z') return TSR_PEER_DEAD;
  return letter == 'T' || letter == 't' ? TSR_PEER_STOPPED : TSR_PEER_RUNS;
}

tsr_peer_state tsr_peer_look(const tsr_transport *t, int process) {
  return state_of(look(t, process));
}

void tsr_peer_name(const tsr_transport *t, int process, tsr_text *text) {
  tsr_text_add(text, "process %d on %s", process, t->table->host(t->state, process));
  if (t->peers) tsr_text_add(text, " (pid %lld)", (long long)t->peers[process].pid);
}

void tsr_peer_describe(const tsr_transport *t, int process, tsr_text *text) {
  char letter = look(t, process), in[64] = "";
  tsr_peer_state state = state_of(letter);
  if (state == TSR_PEER_ELSEWHERE) tsr_text_add(text, "stopped, or its link is cut");
  if (state == TSR_PEER_DEAD) tsr_text_add(text, "dead");
  if (state == TSR_PEER_STOPPED)
    tsr_text_add(text, letter == 'T' ? "stopped (SIGSTOP)" : "stopped by a debugger");
  if (state != TSR_PEER_RUNS) return;
  /* The kernel's function; 0 where it does not tell. */
  bool knows =
      read_file(in, sizeof in, t->peers[process].pid, "wchan") && isalpha((unsigned char)*in);
  const char *word = letter == 'R' ? "running" : letter == 'D' ? "stuck" : "sleeping";
  tsr_text_add(text, "%s", word);
  if (knows && letter != 'R') tsr_text_add(text, " in %s", in);
  if (letter == 'D') tsr_text_add(text, " (state D)");
}

/* ---- waiting ---- */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double tsr_backoff_wait(tsr_backoff *p) {
  enum { POLLS = 200, SLEEP_MIN_US = 50, SLEEP_MAX_US = 200 };
  static const double yielding_s = 1e-3;
  if (!p->since) *p = (tsr_backoff){.since = now()};
  if (++p->polls < POLLS) return 0;
  double waited = now() - p->since;
  if (waited < yielding_s) return sched_yield(), waited;
  double us = waited * 1e6 / 50; /* 50 after 2.5 ms */
  us = us < SLEEP_MIN_US ? SLEEP_MIN_US : us > SLEEP_MAX_US ? SLEEP_MAX_US : us;
  nanosleep(&(struct timespec){.tv_nsec = (long)(us * 1e3)}, NULL);
  return waited;
}
