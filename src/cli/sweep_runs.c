// SPDX-License-Identifier: Apache-2.0
#include "cli/sweep_runs.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include "base/json.h"
#include "base/new_file.h"
#include "checkpoint/folder.h"
#include "html_report/run_metrics.h"
#include "job/compute_device.h"
#include "sweep/child.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A process that trains a run. */
typedef struct {
  pid_t pid; /* 0: there is none */
  int run;
} run_process;

/* ---- the command of a run ---- */

enum { WORDS_MAX = 2 * TSR_SETS_MAX + 300 };
typedef struct {
  char *items[WORDS_MAX];
  int count;
} words;

static void add(words *w, const char *word) { w->items[w->count++] = (char *)word; }
static void add_pair(words *w, const char *option, const char *value) {
  add(w, option);
  add(w, value);
}

/* --launcher: its words, which blanks separate. */
static void add_launcher(app *a, words *w) {
  enum { LAUNCHER_WORDS_MAX = 200 };
  const char *at = a->options.launcher ? a->options.launcher : "";
  for (int i = 0; i < LAUNCHER_WORDS_MAX; i++) {
    at += strspn(at, " ");
    size_t length = strcspn(at, " ");
    if (!length) return;
    add(w, tsr_arena_strndup(a->arena, at, length));
    at += length;
  }
}

static const char *own_path(tsr_arena *arena) {
  char path[4096];
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  return n < 0 ? "tessera-train" : tsr_arena_strndup(arena, path, (size_t)n);
}

/* The threads of this process, divided among those at a time; a launcher binds its own. */
static void add_threads(sweep_runs *s, words *w) {
  const tsr_config *c = s->request->config;
  if (s->jobs < 2 || s->a->options.launcher || c->numerics.threads) return;
  int threads = tsr_compute_threads(&s->a->job) / s->jobs;
  add_pair(
      w, "--set", tsr_arena_printf(s->a->arena, "numerics.threads=%d", threads > 1 ? threads : 1));
}

static void add_command(sweep_runs *s, int run, const char *folder, words *w) {
  app *a = s->a;
  tsr_set sets[TSR_SETS_MAX];
  tsr_text own = {0};
  int count;
  sweep_request_sets(a, s->request, run, sets, &count);
  add_launcher(a, w);
  add_pair(w, own_path(a->arena), "train");
  add_pair(w, "--config", a->options.config);
  if (a->options.mesh) add_pair(w, "--mesh", a->options.mesh);
  add_threads(s, w);
  for (int i = 0; i < count; i++) add_pair(w, "--set", sets[i].text);
  const char *checkpoints = tsr_path_join(a->arena, folder, "checkpoints");
  tsr_text_add(&own, "training_config.checkpoint_dir="); /* one of the configuration is of all */
  tsr_json_add_text(&own, checkpoints, strlen(checkpoints));
  add_pair(w, "--set", tsr_arena_strdup(a->arena, own.data));
  tsr_text_free(&own);
  if (a->options.strict) add(w, "--strict");
  add_pair(w, "--out", folder);
  add(w, "--resume");
  if (s->request->sweep.rungs_count)
    add_pair(
        w, "--stop-at",
        tsr_arena_printf(a->arena, "%" PRId64, s->request->sweep.rungs[s->journal->rung]));
  add(w, "--quiet");
  add(w, NULL);
}

static const char *name_of(sweep_runs *s, int run) {
  tsr_text name = {0};
  tsr_text_add(&name, "run %d (", run + 1);
  tsr_sweep_run_print(&s->request->sweep, &s->request->runs[run], &name);
  tsr_text_add(&name, ")");
  const char *copy = tsr_arena_strdup(s->a->arena, name.data);
  tsr_text_free(&name);
  return copy;
}

/* mpirun ends its processes where it is asked to end, but not where it is killed. */
static bool start(sweep_runs *s, int run, run_process *p) {
  app *a = s->a;
  const char *name = tsr_sweep_run_folder(a->arena, run + 1);
  const char *folder = tsr_path_join(a->arena, s->folder, name);
  words command = {.count = 0};
  if (!tsr_new_folder(folder))
    return tsr_file_cannot("make the folder", folder, errno, TSR_NOWHERE, a->diags);
  add_command(s, run, folder, &command);
  p->run = run;
  if (!a->options.quiet) printf("%s: starts\n", name_of(s, run));
  fflush(stdout);
  return tsr_child_start(
      command.items, tsr_path_join(a->arena, folder, "log.txt"),
      a->options.launcher ? SIGTERM : SIGKILL, &p->pid, a->diags);
}

/* ---- what a run has given ---- */

static void fail(tsr_sweep_result *r, const char *why) {
  r->state = TSR_SWEEP_FAILED;
  r->why = why;
}

static const char *end_text(const cJSON *end, const char *key) {
  const cJSON *item = tsr_json_get(end, key);
  return cJSON_IsString(item) ? item->valuestring : "";
}

/* The metrics' last line tells where the run has ended, and why. */
static void take_end(app *a, const tsr_run_metrics *m, tsr_arena *scratch, tsr_sweep_result *r) {
  cJSON *end;
  if (!m->end ||
      !tsr_json_parse(scratch, m->path, m->end, strlen(m->end), &end, tsr_diags_new(scratch))) {
    fail(r, "its metrics have no end");
    return;
  }
  const cJSON *step = tsr_json_get(end, "step");
  const char *reason = end_text(end, "reason");
  r->step = cJSON_IsNumber(step) ? (int64_t)step->valuedouble : 0;
  r->sha256 = tsr_arena_strdup(a->arena, end_text(end, "weights_sha256"));
  if (!strcmp(reason, "time_limit")) fail(r, "its time limit has ended it");
}

static tsr_sweep_result read_result(sweep_runs *s, int run, int status) {
  app *a = s->a;
  tsr_arena *scratch = tsr_arena_new();
  tsr_run_metrics m;
  tsr_sweep_result r = {.state = TSR_SWEEP_DONE, .rung = s->journal->rung, .objective = NAN};
  r.sha256 = r.why = "";
  const char *folder = tsr_path_join(scratch, s->folder, tsr_sweep_run_folder(scratch, run + 1));
  bool evaluates = !strcmp(s->request->sweep.metric, TSR_SWEEP_LOSS_VALIDATION);
  bool read = tsr_run_metrics_read(
      scratch, tsr_path_join(scratch, folder, "metrics.jsonl"), &m, tsr_diags_new(scratch));
  if (read) {
    const tsr_series *series = &m.series[evaluates ? TSR_SERIES_VALIDATION : TSR_SERIES_LOSS];
    const tsr_series *steps = &m.series[TSR_SERIES_LOSS];
    if (series->count) r.objective = series->points[series->count - 1].value;
    if (steps->count) r.step = steps->points[steps->count - 1].step;
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status)) fail(&r, tsr_child_end_text(a->arena, status));
  else if (!read) fail(&r, "it has no metrics");
  else take_end(a, &m, scratch, &r);
  tsr_arena_free(scratch);
  return r;
}

static bool take_result(sweep_runs *s, int run, int status) {
  app *a = s->a;
  tsr_sweep_result r = read_result(s, run, status);
  bool stopped = *a->stop && r.state == TSR_SWEEP_FAILED; /* it was told to end */
  if (stopped) return true;
  s->results[run] = r;
  if (!a->options.quiet && r.state == TSR_SWEEP_FAILED)
    printf(
        "%s: failed: %s, see %s/%s/log.txt\n", name_of(s, run), r.why, s->folder,
        tsr_sweep_run_folder(a->arena, run + 1));
  else if (!a->options.quiet)
    printf(
        "%s: step %" PRId64 ", %s %.4f\n", name_of(s, run), r.step, s->request->sweep.metric,
        r.objective);
  fflush(stdout);
  return tsr_sweep_journal_result(s->journal, run + 1, &r, a->diags);
}

/* ---- several at a time ---- */

static sigset_t waited_for(void) {
  static const int numbers[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP};
  sigset_t set;
  struct sigaction action;
  sigemptyset(&set);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (!sigaction(numbers[i], NULL, &action) && action.sa_handler != SIG_IGN)
      sigaddset(&set, numbers[i]); /* nohup has it ignored */
  return set;
}

void sweep_runs_block_signals(void) {
  sigset_t set = waited_for();
  sigprocmask(SIG_BLOCK, &set, NULL);
}

/* The next process that ends, which may be none; a signal to this one is app.stop's. */
static pid_t wait_for_one(app *a, int *ret_status) {
  sigset_t set = waited_for();
  for (;;) {
    pid_t pid = waitpid(-1, ret_status, WNOHANG);
    if (pid) return pid > 0 ? pid : 0;
    int number = sigwaitinfo(&set, NULL);
    if (number <= 0 || number == SIGCHLD) continue;
    *a->stop = number;
    return 0;
  }
}

static void tell(const run_process *processes, int jobs, int number) {
  for (int i = 0; i < jobs; i++)
    if (processes[i].pid) kill(processes[i].pid, number);
}

/* The next run that waits, from `from` on; -1: none. */
static int next_run(const sweep_runs *s, int from) {
  while (from < s->request->count && s->results[from].state != TSR_SWEEP_WAITS) from++;
  return from < s->request->count ? from : -1;
}

static int find_process(const run_process *processes, int jobs, pid_t pid) {
  int i = 0;
  while (i < jobs && processes[i].pid != pid) i++;
  return i;
}

bool sweep_runs_train(sweep_runs *s) {
  app *a = s->a;
  run_process *processes = tsr_arena_array(a->arena, run_process, s->jobs);
  int running = 0, next = next_run(s, 0), status;
  bool ok = true, told = false;
  while (running || (ok && !*a->stop && next >= 0)) {
    while (ok && !*a->stop && next >= 0 && running < s->jobs) {
      ok = start(s, next, &processes[find_process(processes, s->jobs, 0)]);
      running += ok;
      next = next_run(s, next + 1);
    }
    if ((!ok || *a->stop) && !told) tell(processes, s->jobs, SIGTERM), told = true;
    if (!running) break;
    pid_t pid = wait_for_one(a, &status);
    int i = find_process(processes, s->jobs, pid);
    if (!pid || i == s->jobs) continue;
    processes[i].pid = 0;
    running--;
    if (ok) ok = take_result(s, processes[i].run, status);
  }
  return ok && !*a->stop;
}
