// SPDX-License-Identifier: Apache-2.0
#include "job.h"
#include "base/file_read.h"
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

const char *const job_launchers[3] = {"alone", "openmpi", "mpich"};

double job_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void job_rest(double seconds) {
  nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - (int)seconds) * 1e9)}, NULL);
}

static bool is_in_path(const char *name) {
  const char *path = getenv("PATH");
  char file[4096];
  for (const char *at = path ? path : ""; *at;) {
    size_t n = strcspn(at, ":");
    snprintf(file, sizeof file, "%.*s/%s", (int)n, at, name);
    if (!access(file, X_OK)) return true;
    at += n + (at[n] == ':');
  }
  return false;
}

bool job_has(const runner *r, job_launcher launcher) {
  const char *name = job_launchers[launcher];
  char plugin[4096];
  const char *folder = tsr_path_folder(r->arena, r->program);
  snprintf(plugin, sizeof plugin, "%s/libtessera-%s.so", folder, name);
  return is_in_path(tsr_arena_printf(r->arena, "mpirun.%s", name)) && !access(plugin, R_OK);
}

/* ---- starting ---- */

/* One process's environment is not the others': the shell in between knows which it is. */
static const char faulty_shell[] = "if [ \"${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\" = \"$0\" ]; then "
                                   "export TESSERA_FAULT=$1; fi; shift;"
                                   " exec \"$@\"";

static words command_of(runner *r, const words *program, const job_options *o) {
  words w = {{NULL}, 0};
  if (o->launcher != JOB_ALONE) {
    words_add(r, &w, "mpirun.%s", job_launchers[o->launcher]);
    if (o->launcher == JOB_OPENMPI) words_add(r, &w, "--oversubscribe");
    words_add(r, &w, "-np");
    words_add(r, &w, "%d", o->processes);
  }
  if (o->fault) {
    const char *shell[] = {"sh", "-c", faulty_shell};
    for (int i = 0; i < 3; i++) words_add(r, &w, "%s", shell[i]);
    words_add(r, &w, "%d", o->faulty);
    words_add(r, &w, "%s", o->fault);
  }
  for (int i = 0; i < program->count; i++) words_add(r, &w, "%s", program->items[i]);
  return w;
}

static void become(job *j, const words *w) {
  const char *items[WORDS_MAX + 1] = {NULL};
  int fd = open(j->log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  setenv("TESSERA_CHAOS", j->mark, 1);
  setenv("TESSERA_JOIN_TIMEOUT_S", tsr_arena_printf(j->r->arena, "%d", JOB_JOIN_S), 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* MPI keeps what it has */
  unsetenv("TESSERA_FAULT");
  if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0) _exit(126);
  close(0);
  open("/dev/null", O_RDONLY);
  for (int i = 0; i < w->count; i++) items[i] = w->items[i];
  execvp(items[0], (char *const *)items);
  _exit(127);
}

job job_start(runner *r, const words *command, const job_options *options) {
  static int count;
  job j = {.r = r, .options = *options, .begin = job_now()};
  words w = command_of(r, command, options);
  j.mark = tsr_arena_printf(r->arena, "%d.%d", (int)getpid(), ++count);
  j.log = tsr_path_join(r->arena, r->scratch, "said");
  j.text = words_text(r, &w, NULL);
  j.root = fork();
  if (!j.root) become(&j, &w);
  return j;
}

/* ---- its processes ---- */

/* "NAME=" of a process' environment, or NULL. */
static const char *variable(const char *environ, size_t length, const char *name) {
  size_t n = strlen(name);
  for (size_t at = 0; at < length; at += strlen(environ + at) + 1)
    if (!strncmp(environ + at, name, n)) return environ + at + n;
  return NULL;
}

static size_t read_environ(const char *pid, char *bytes, size_t room) {
  char path[300];
  snprintf(path, sizeof path, "/proc/%s/environ", pid);
  FILE *f = fopen(path, "r");
  size_t n = f ? fread(bytes, 1, room - 1, f) : 0;
  if (f) fclose(f);
  bytes[n] = 0;
  return n;
}

static bool runs_program(const job *j, const char *pid) {
  char path[300], exe[4096];
  snprintf(path, sizeof path, "/proc/%s/exe", pid);
  ssize_t n = readlink(path, exe, sizeof exe - 1);
  if (n < 0) return false;
  exe[n] = 0;
  return !strcmp(exe, j->r->program);
}

/* How many processes of the job there are (of the program, if `only_program`); those that run the
 * program go to their process's place. All get `signal`, if it is one. */
static int visit(job *j, int signal, bool only_program) {
  static char bytes[1 << 17];
  DIR *proc = opendir("/proc");
  int count = 0;
  for (struct dirent *e; proc && (e = readdir(proc));) {
    if (!isdigit((unsigned char)*e->d_name)) continue;
    size_t n = read_environ(e->d_name, bytes, sizeof bytes);
    const char *mark = variable(bytes, n, "TESSERA_CHAOS=");
    if (!mark || strcmp(mark, j->mark)) continue;
    bool is_program = runs_program(j, e->d_name);
    count += is_program || !only_program;
    if (signal) kill((pid_t)atoi(e->d_name), signal);
    if (!is_program) continue;
    const char *rank = variable(bytes, n, "OMPI_COMM_WORLD_RANK=");
    if (!rank) rank = variable(bytes, n, "PMI_RANK=");
    int process = rank ? atoi(rank) : 0;
    if (process < JOB_PROCESSES_MAX) j->processes[process] = (pid_t)atoi(e->d_name);
  }
  if (proc) closedir(proc);
  return count;
}

static bool all_found(const job *j) {
  for (int w = 0; w < j->options.processes; w++)
    if (!j->processes[w]) return false;
  return true;
}

bool job_find_processes(job *j) {
  enum { TIMEOUT_S = 30 };
  while (!all_found(j)) {
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)j->root, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid)
      return false;
    if (job_now() - j->begin > TIMEOUT_S) return false;
    visit(j, 0, false);
    job_rest(0.005);
  }
  return true;
}

/* ---- the end ---- */

static const char *text_of(runner *r, const char *path) {
  char *text;
  size_t length;
  tsr_diags *diags = tsr_diags_new(r->arena);
  return tsr_file_read(r->arena, path, 1 << 24, TSR_NOWHERE, &text, &length, diags) ? text : "";
}

bool job_has_ended(job *j, ending *ret) {
  int status;
  if (waitpid(j->root, &status, WNOHANG) != j->root) return false;
  *ret = (ending){
      WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), job_now() - j->begin,
      text_of(j->r, j->log)};
  return true;
}

bool job_wait(job *j, double seconds, ending *ret) {
  for (double begin = job_now(); job_now() - begin < seconds; job_rest(0.002))
    if (job_has_ended(j, ret)) return true;
  j->hung = visit(j, 0, true);
  visit(j, SIGKILL, false);
  while (!job_has_ended(j, ret)) job_rest(0.01);
  return false;
}

int job_left_behind(job *j, double seconds) {
  int count = 0;
  for (double begin = job_now(); (count = visit(j, 0, false)) && job_now() - begin < seconds;)
    job_rest(0.02);
  if (count) visit(j, SIGKILL, false);
  return count;
}
