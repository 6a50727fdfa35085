// SPDX-License-Identifier: Apache-2.0
#include "cli/sweep_runs.h"
#include "cli/sweep_command.h"
#include "cli/sweep_leftovers.h"
#include "base/file_read.h"
#include "base/json.h"
#include "base/new_file.h"
#include "html_report/run_metrics.h"
#include "sweep/child.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A process, and what it trains. */
typedef struct {
  pid_t pid; /* 0: there is none */
  bool is_prefix;
  int index;               /* of a run or of a node of the prefixes */
  int64_t begin;           /* of a run: the step of its newest checkpoint before; -1: it had none */
  int node;                /* that it has forked from; -1: none */
  struct timespec metrics; /* when its metrics were written last before; 0: never */
} run_process;

/* ---- starting ---- */

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
static bool start(sweep_runs *s, const sweep_job *job, run_process *p) {
  app *a = s->a;
  sweep_words words;
  if (!tsr_new_folder(job->folder))
    return tsr_file_cannot("make the folder", job->folder, errno, TSR_NOWHERE, a->diags);
  sweep_command(a, s->request, job, &words);
  fflush(stdout);
  return tsr_child_start(
      words.items, tsr_path_join(a->arena, job->folder, "log.txt"),
      a->options.launcher ? SIGTERM : SIGKILL, &p->pid, a->diags);
}

static const char *folder_of(const sweep_runs *s, const char *name) {
  return tsr_path_join(s->a->arena, s->folder, name);
}

static struct timespec time_of_metrics(const sweep_runs *s, const char *folder) {
  struct stat info;
  bool there = !stat(tsr_path_join(s->a->arena, folder, "metrics.jsonl"), &info);
  return there ? info.st_mtim : (struct timespec){0};
}

/* A run that has no checkpoint yet begins with that of a prefix. */
static bool start_run(sweep_runs *s, int run, run_process *p) {
  const tsr_sweep *sweep = &s->request->sweep;
  sweep_job job = {.run = run, .jobs = s->jobs};
  job.folder = folder_of(s, tsr_sweep_run_folder(s->a->arena, run + 1));
  if (sweep->rungs_count) job.stop_at = sweep->rungs[s->journal->rung];
  *p = (run_process){.index = run, .begin = sweep_prefixes_newest(s->a->arena, job.folder)};
  p->node = p->begin < 0 ? sweep_prefixes_of_run(&s->prefixes, run) : -1;
  p->metrics = time_of_metrics(s, job.folder);
  job.fork = sweep_prefixes_checkpoint(&s->prefixes, p->node);
  if (!s->a->options.quiet && job.fork)
    printf(
        "%s: starts behind step %" PRId64 " of %s\n", name_of(s, run),
        s->prefixes.tree.nodes[p->node].step, tsr_prefix_folder(s->a->arena, p->node));
  else if (!s->a->options.quiet) printf("%s: starts\n", name_of(s, run));
  return start(s, &job, p);
}

static bool start_prefix(sweep_runs *s, int node, run_process *p) {
  const tsr_prefix_node *n = &s->prefixes.tree.nodes[node];
  const char *name = tsr_prefix_folder(s->a->arena, node);
  sweep_job job = {.run = n->run, .stop_at = n->step, .jobs = s->jobs};
  job.folder = folder_of(s, name);
  if (sweep_prefixes_newest(s->a->arena, job.folder) < 0)
    job.fork = sweep_prefixes_checkpoint(&s->prefixes, sweep_prefixes_above(&s->prefixes, node));
  *p = (run_process){.is_prefix = true, .index = node};
  s->prefixes.states[node] = PREFIX_RUNNING;
  if (!s->a->options.quiet)
    printf("%s (to step %" PRId64 ", of several runs): starts\n", name, n->step);
  return start(s, &job, p);
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

/* The metrics' last line tells where the run has ended, and why. A launcher may report success of
 * one that has ended before `last`. */
static void
take_end(app *a, const tsr_run_metrics *m, int64_t last, tsr_arena *scratch, tsr_sweep_result *r) {
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
  if (r->step >= last || !strcmp(reason, "early_stop") || r->state == TSR_SWEEP_FAILED) return;
  r->state = TSR_SWEEP_WAITS;
  r->why =
      tsr_arena_printf(a->arena, "it has ended after step %" PRId64 " of %" PRId64, r->step, last);
}

/* The step that the run is trained to now. */
static int64_t last_step(const sweep_runs *s, int run) {
  const tsr_sweep *sweep = &s->request->sweep;
  return sweep->rungs_count ? sweep->rungs[s->journal->rung] : s->steps[run];
}

static tsr_sweep_result read_result(sweep_runs *s, int run, int status) {
  app *a = s->a;
  tsr_arena *scratch = tsr_arena_new();
  tsr_run_metrics m;
  tsr_sweep_result r = {.state = TSR_SWEEP_DONE, .rung = s->journal->rung, .objective = NAN};
  tsr_series_point last = {-1, NAN}; /* of the metric */
  r.sha256 = r.why = "";
  const char *folder = tsr_path_join(scratch, s->folder, tsr_sweep_run_folder(scratch, run + 1));
  bool evaluates = !strcmp(s->request->sweep.metric, TSR_SWEEP_LOSS_VALIDATION);
  bool read = tsr_run_metrics_read(
      scratch, tsr_path_join(scratch, folder, "metrics.jsonl"), &m, tsr_diags_new(scratch));
  if (read) {
    const tsr_series *series = &m.series[evaluates ? TSR_SERIES_VALIDATION : TSR_SERIES_LOSS];
    const tsr_series *steps = &m.series[TSR_SERIES_LOSS];
    if (series->count) last = series->points[series->count - 1];
    if (steps->count) r.step = steps->points[steps->count - 1].step;
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status)) fail(&r, tsr_child_end_text(a->arena, status));
  else if (!read) fail(&r, "it has no metrics");
  else take_end(a, &m, last_step(s, run), scratch, &r);
  r.objective = last.value;
  if (r.state == TSR_SWEEP_DONE && last.step != r.step)
    fail(&r, "its metrics lack the loss of its last step");
  tsr_arena_free(scratch);
  return r;
}

/* Whether the run has not begun, with a fork: the checkpoint is damaged, or of another
 * instruction-set level. Runs make the steps of the prefix themselves then. */
static bool cannot_fork(sweep_runs *s, const run_process *p) {
  const char *folder = folder_of(s, tsr_sweep_run_folder(s->a->arena, p->index + 1));
  struct timespec metrics = time_of_metrics(s, folder);
  bool begun = metrics.tv_sec != p->metrics.tv_sec || metrics.tv_nsec != p->metrics.tv_nsec;
  if (p->node < 0 || begun || *s->a->stop) return false;
  s->prefixes.states[p->node] = PREFIX_FAILED;
  if (!s->a->options.quiet)
    printf(
        "%s: cannot begin behind %s, see %s/log.txt\n", name_of(s, p->index),
        tsr_prefix_folder(s->a->arena, p->node), folder);
  return true;
}

/* Enters what the run has given; `ret_waits`: nothing, because it is to be started again. */
static bool take_result(sweep_runs *s, const run_process *p, int status, bool *ret_waits) {
  app *a = s->a;
  int run = p->index;
  const char *folder = folder_of(s, tsr_sweep_run_folder(a->arena, run + 1));
  *ret_waits = cannot_fork(s, p);
  if (*ret_waits) return true;
  if (*a->stop) return true; /* it was told to end: one at its last step may lack its last sample */
  tsr_sweep_result r = read_result(s, run, status);
  *ret_waits = r.state == TSR_SWEEP_WAITS && sweep_prefixes_newest(a->arena, folder) > p->begin;
  if (*ret_waits) return true;
  if (r.state == TSR_SWEEP_WAITS) fail(&r, r.why);
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

static int find_process(const run_process *processes, int jobs, pid_t pid) {
  int i = 0;
  while (i < jobs && processes[i].pid != pid) i++;
  return i;
}

/* Without its checkpoint (a time limit may have ended it, too) runs make these steps themselves. */
static void take_prefix(sweep_runs *s, int node, int status) {
  bool done = tsr_file_is_folder(sweep_prefixes_checkpoint(&s->prefixes, node));
  const char *name = tsr_prefix_folder(s->a->arena, node);
  s->prefixes.states[node] = done ? PREFIX_DONE : PREFIX_FAILED;
  if (done || *s->a->stop || s->a->options.quiet) return;
  printf(
      "%s: failed: %s, see %s/%s/log.txt\n", name, tsr_child_end_text(s->a->arena, status),
      s->folder, name);
}

/* Runs that wait and are not started; prefixes that they need. */
static bool *find_waiting(sweep_runs *s) {
  bool *waiting = tsr_arena_array(s->a->arena, bool, s->request->count);
  for (int i = 0; i < s->request->count; i++) {
    const char *folder = folder_of(s, tsr_sweep_run_folder(s->a->arena, i + 1));
    waiting[i] = s->results[i].state == TSR_SWEEP_WAITS;
    if (waiting[i] && sweep_prefixes_newest(s->a->arena, folder) < 0)
      sweep_prefixes_need(&s->prefixes, i);
  }
  return waiting;
}

/* The next run whose steps before are there; -1: none. */
static int next_run(const sweep_runs *s, const bool *waiting) {
  for (int i = 0; i < s->request->count; i++)
    if (waiting[i] && sweep_prefixes_are_ready(&s->prefixes, i)) return i;
  return -1;
}

/* Starts one where it can; `ret_started`: whether it has. */
static bool start_next(sweep_runs *s, bool *waiting, run_process *p, bool *ret_started) {
  int node = sweep_prefixes_next(&s->prefixes), run = next_run(s, waiting);
  bool ok = true;
  if (node >= 0) ok = start_prefix(s, node, p);
  else if (run >= 0) ok = start_run(s, run, p);
  if (node < 0 && run >= 0) waiting[run] = false;
  if (!ok) p->pid = 0;
  *ret_started = ok && (node >= 0 || run >= 0);
  return ok;
}

/* A run that was killed may go no further; a launcher does not say which was. */
static void remove_leftovers(const sweep_runs *s, const run_process *p) {
  tsr_arena *arena = s->a->arena;
  sweep_leftovers_remove(
      s->folder, p->is_prefix ? tsr_prefix_folder(arena, p->index)
                              : tsr_sweep_run_folder(arena, p->index + 1));
}

bool sweep_runs_train(sweep_runs *s) {
  app *a = s->a;
  run_process *processes = tsr_arena_array(a->arena, run_process, s->jobs);
  bool *waiting = find_waiting(s), ok = true, told = false, more = true;
  int running = 0, status;
  for (;;) {
    while (ok && more && !*a->stop && running < s->jobs) {
      ok = start_next(s, waiting, &processes[find_process(processes, s->jobs, 0)], &more);
      running += more;
    }
    if ((!ok || *a->stop) && !told) tell(processes, s->jobs, SIGTERM), told = true;
    if (!running) return ok && !*a->stop;
    pid_t pid = wait_for_one(a, &status);
    int i = find_process(processes, s->jobs, pid);
    if (!pid || i == s->jobs) continue;
    processes[i].pid = 0;
    running--;
    more = true;
    int index = processes[i].index;
    if (status) remove_leftovers(s, &processes[i]);
    if (processes[i].is_prefix) take_prefix(s, index, status);
    else if (ok) ok = take_result(s, &processes[i], status, &waiting[index]);
  }
}
