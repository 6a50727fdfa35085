// SPDX-License-Identifier: Apache-2.0
#include "job/missing_processes.h"
#include "base/file_ops.h"
#include "base/process_info.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAMED_MAX = 8, ANCESTORS_MAX = 16 };

/* The variables of Open MPI, MPICH and Slurm, which gives the number of a host's processes where
 * the step has one host. */
typedef struct {
  const char *local_rank, *local_size, *size;
} launcher_variables;

static const launcher_variables launchers[] = {
    {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"},
    {"MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_SIZE"},
    {"SLURM_LOCALID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_TASKS"},
};
enum { LAUNCHERS = sizeof launchers / sizeof *launchers };

typedef enum { ENDED, OTHER_PROGRAM, STOPPED, THERE } presence;

typedef struct {
  presence presence;
  long pid;
  const char *program; /* the other one */
} found;

typedef struct {
  tsr_arena *arena;
  const launcher_variables *names;
  long daemon; /* the nearest ancestor without the launcher's variables: it started all */
  int count;
  found *processes; /* by number on the host */
} job_scan;

/* The state's letter of /proc/PID/stat, and the parent; 0: there is no such process. */
static char state_of(tsr_arena *arena, long pid, long *ret_parent) {
  char *text, state = 0;
  size_t length;
  *ret_parent = 0;
  if (!tsr_process_read(arena, pid, "stat", &text, &length)) return 0;
  const char *name_end = strrchr(text, ')');
  if (!name_end || sscanf(name_end + 1, " %c %ld", &state, ret_parent) != 2) return 0;
  return state;
}

static long find_daemon(tsr_arena *arena, const launcher_variables *names) {
  long pid = (long)getpid(), parent;
  for (int i = 0; i < ANCESTORS_MAX && state_of(arena, pid, &parent) && parent > 0; i++) {
    if (!tsr_process_variable(arena, parent, names->local_rank)) return parent;
    pid = parent;
  }
  return 0;
}

static bool descends_from(tsr_arena *arena, long pid, long ancestor) {
  long parent;
  for (int i = 0; i < ANCESTORS_MAX && state_of(arena, pid, &parent) && parent > 0; i++) {
    if (parent == ancestor) return true;
    pid = parent;
  }
  return false;
}

static found look_at(tsr_arena *arena, long pid) {
  char *program;
  size_t length;
  long parent;
  if (!tsr_process_runs_this_program(arena, pid)) {
    bool named = tsr_process_read(arena, pid, "comm", &program, &length);
    if (named) program[strcspn(program, "\n")] = 0;
    return (found){OTHER_PROGRAM, pid, named ? program : "another program"};
  }
  char state = state_of(arena, pid, &parent);
  return (found){state == 'T' || state == 't' ? STOPPED : THERE, pid, NULL};
}

/* A launcher's script and its program have one number: what is nearest to being there counts. */
static void scan(job_scan *s) {
  DIR *folder = tsr_disk_open_folder("/proc");
  for (struct dirent *e; folder && (e = readdir(folder));) {
    long pid = strtol(e->d_name, NULL, 10), parent;
    if (pid <= 0 || state_of(s->arena, pid, &parent) == 'Z') continue;
    const char *number = tsr_process_variable(s->arena, pid, s->names->local_rank);
    if (!number || !descends_from(s->arena, pid, s->daemon)) continue;
    int index = atoi(number);
    if (index < 0 || index >= s->count) continue;
    found f = look_at(s->arena, pid);
    if (f.presence > s->processes[index].presence) s->processes[index] = f;
  }
  if (folder) closedir(folder);
}

static void add(const found *f, const char *prefix, int index, tsr_text *text) {
  tsr_text_add(text, "%sprocess %d", prefix, index);
  if (f->presence == ENDED) tsr_text_add(text, " has ended");
  if (f->presence == OTHER_PROGRAM) tsr_text_add(text, " (pid %ld) runs '%s'", f->pid, f->program);
  if (f->presence == STOPPED) tsr_text_add(text, " (pid %ld) is stopped", f->pid);
}

void tsr_missing_processes_describe(tsr_arena *arena, tsr_text *text) {
  job_scan s = {.arena = arena};
  for (int i = 0; i < LAUNCHERS && !s.names; i++)
    if (getenv(launchers[i].local_rank) && getenv(launchers[i].local_size)) s.names = &launchers[i];
  if (!s.names) return;
  const char *hosts = getenv("SLURM_STEP_NUM_NODES");
  s.count = atoi(getenv(s.names->local_size));
  const char *size = getenv(s.names->size);
  bool one_host = size && atoi(size) == s.count;
  if (s.names->local_size == s.names->size && (!hosts || atoi(hosts) != 1)) return;
  s.daemon = find_daemon(arena, s.names);
  if (!s.daemon || s.count < 1) return;
  s.processes = tsr_arena_array(arena, found, s.count);
  scan(&s);
  int named = 0, missing = 0;
  for (int i = 0; i < s.count; i++) {
    if (s.processes[i].presence == THERE) continue;
    if (++missing > NAMED_MAX) continue;
    add(&s.processes[i], named++ ? "; " : "", i, text);
    if (!one_host) tsr_text_add(text, " of this host");
  }
  if (missing > named) tsr_text_add(text, "; and %d others", missing - named);
}
