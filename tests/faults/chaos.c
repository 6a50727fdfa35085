// SPDX-License-Identifier: Apache-2.0
/* A job of four processes that something happens to goes on with others, and ends with the same
 * bits.
 *
 * usage: chaos PROGRAM SEED COUNT
 *
 * Each of COUNT cases, as many at a time as there are cores, runs four processes under Open MPI or
 * MPICH on a mesh of 4 to 8 ranks, and does one thing to it at a step or a time of chance: kills a
 * process, stops one for ever or for a while, fills the disk of one, ends mpirun. No run hangs for
 * longer than the deadline and ten seconds, all processes end, the reports name the process that
 * was stopped, every checkpoint that has a name is whole; and the run that goes on, on 1 to 4
 * processes and a mesh drawn anew, ends with the weights and the losses of a run that nothing
 * happened to.
 *
 * The run that is hit has no end of its own, so that it does not come to it first, however fast the
 * machine; the one that goes on ends at a step that the first has not reached. */
#include "base/file_read.h"
#include "job.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 4, STEPS = 24, LAST_FAULT_STEP = 16, TIMEOUT_S = 3, SPARE_S = 10 };
enum { ENDLESS = 1000000 }; /* steps */
enum { END_S = 120 };       /* of a run that nothing happens to, on a busy machine */

typedef enum { KILL, STOP, STOP_AT_START, PAUSE, FULL, END, KINDS } kind;
static const char *const kind_names[KINDS] = {"SIGKILL of a process",     "SIGSTOP of a process",
                                              "SIGSTOP while they start", "SIGSTOP, then SIGCONT",
                                              "a full disk on one",       "SIGTERM to mpirun"};

typedef struct {
  int index, kind;
  bool ok;
  double seconds; /* from the fault to the job's end */
} verdict;

/* A run that nothing happened to. */
typedef struct {
  int steps;
  const char *sha256;
  const char *const *losses;
} reference;

typedef struct {
  runner *r;
  int steps; /* of the next start */
  const char *folder, *checkpoints, *metrics;
  const char *story;
  bool begun;
  double seconds;
} attempt;

static bool wrong(attempt *a, const char *what, const ending *e) {
  printf("WRONG: %s\n%s", what, a->story);
  if (e) printf("-> %d, and it said:\n%s", e->status, e->said);
  printf("----\n");
  return false;
}

static void tell(attempt *a, const char *format, const char *text) {
  a->story = tsr_arena_printf(a->r->arena, "%s", a->story);
  a->story = tsr_arena_printf(a->r->arena, format, a->story, text);
}

/* ---- commands ---- */

static void set(runner *r, words *w, const char *text) {
  words_add(r, w, "--set");
  words_add(r, w, "%s", text);
}

/* The 8 samples of a step are 4 units. */
static void add_mesh(runner *r, words *w) {
  static const struct {
    const char *axes, *shape, *rest[2];
  } meshes[] = {
      {"dp,tp", "4,2", {"training_config.batch_size=8"}},
      {"dp,tp",
       "2,2",
       {"training_config.batch_size=4", "training_config.gradient_accumulation_steps=2"}},
      {"dp", "4", {"training_config.batch_size=8", "zero.stage=3"}},
      {"dp,tp", "2,2", {"training_config.batch_size=8", "zero.stage=2"}},
      {"dp,pp", "2,2", {"pipeline.microbatches=2", "pipeline.schedule=1f1b"}},
      {"tp,pp", "2,2", {"pipeline.microbatches=4", "pipeline.schedule=zb_h1"}},
      {"cp,dp",
       "2,2",
       {"training_config.batch_size=4", "training_config.gradient_accumulation_steps=2"}}};
  size_t i = draw(r, sizeof meshes / sizeof *meshes);
  set(r, w, tsr_arena_printf(r->arena, "mesh.axes=[%s]", meshes[i].axes));
  set(r, w, tsr_arena_printf(r->arena, "mesh.shape=[%s]", meshes[i].shape));
  for (int k = 0; k < 2 && meshes[i].rest[k]; k++) set(r, w, meshes[i].rest[k]);
  set(r, w, draw(r, 2) ? "schedule.overlap=true" : "schedule.overlap=false");
  set(r, w, draw(r, 3) ? "checkpoint.background=true" : "checkpoint.background=false");
}

/* No rate may follow the run's end, which comes to be another one. */
static words endless_words(runner *r, const char *folder, int steps) {
  words w = words_run(r, folder);
  set(r, &w, "scheduler_config.type=constant");
  set(r, &w, "training_config.num_epochs=1000000");
  set(r, &w, tsr_arena_printf(r->arena, "training_config.max_steps=%d", steps));
  return w;
}

static words command(attempt *a) {
  words w = endless_words(a->r, a->folder, a->steps);
  if (a->begun) words_add(a->r, &w, "--resume");
  add_mesh(a->r, &w);
  set(a->r, &w, tsr_arena_printf(a->r->arena, "collectives.timeout_s=%d", TIMEOUT_S));
  a->begun = true;
  return w;
}

static job_launcher draw_launcher(runner *r) {
  bool have[] = {false, job_has(r, JOB_OPENMPI), job_has(r, JOB_MPICH)};
  job_launcher first = draw(r, 2) ? JOB_OPENMPI : JOB_MPICH;
  return have[first] ? first : first == JOB_OPENMPI ? JOB_MPICH : JOB_OPENMPI;
}

static job start(attempt *a, const job_options *o) {
  words w = command(a);
  job j = job_start(a->r, &w, o);
  tell(a, "%s%s\n", j.text);
  return j;
}

/* ---- the fault ---- */

static bool has_step(const char *path, int step) {
  char line[4096], want[32];
  bool found = false;
  FILE *f = fopen(path, "r");
  if (!f) return false;
  snprintf(want, sizeof want, "\"step\":%d,", step);
  while (!found && fgets(line, sizeof line, f)) found = strstr(line, want) != NULL;
  fclose(f);
  return found;
}

static int last_step(const char *path) {
  int step = 0;
  while (has_step(path, step + 1)) step++;
  return step;
}

static bool wait_for_step(attempt *a, job *j, int step) {
  ending e;
  for (double begin = job_now(); !has_step(a->metrics, step); job_rest(0.001)) {
    if (job_now() - begin > END_S) return wrong(a, "no step comes", NULL);
    siginfo_t info = {0};
    waitid(P_PID, (id_t)j->root, &info, WEXITED | WNOHANG | WNOWAIT);
    if (info.si_pid && job_wait(j, 1, &e)) return wrong(a, "it ended by itself", &e);
  }
  return true;
}

/* Until a step's line is there, and a little longer. */
static bool wait_for_moment(attempt *a, job *j) {
  if (!wait_for_step(a, j, 1 + (int)draw(a->r, LAST_FAULT_STEP))) return false;
  job_rest((double)draw(a->r, 40) / 1000);
  return true;
}

static bool find(attempt *a, job *j) {
  if (job_find_processes(j)) return true;
  ending e;
  job_wait(j, 1, &e);
  return wrong(a, "its processes are not to be found", &e);
}

/* The end of a job that must not take longer than the deadline and a little. */
static bool check_ending(attempt *a, job *j, bool starts, double fault, ending *e) {
  double most = (starts ? JOB_JOIN_S : TIMEOUT_S) + SPARE_S;
  bool ended = job_wait(j, most - (job_now() - fault), e);
  /* While MPI begins and ends, mpirun itself may crash or hang (Open MPI 4.1): the processes do
   * not.
   */
  if (!ended && (!starts || j->hung)) return wrong(a, "it hangs", e);
  a->seconds = job_now() - fault;
  int left = job_left_behind(j, 3);
  if (left) return wrong(a, tsr_arena_printf(a->r->arena, "%d processes are left", left), e);
  /* MPICH's mpirun that gets SIGTERM passes it on, and may end with 0 whatever the processes'
   * code. */
  bool stopped = j->options.launcher == JOB_MPICH && strstr(e->said, "stopped: step ");
  return e->status != 0 || stopped || wrong(a, "it ended as if nothing had been", e);
}

static int count_of(const char *text, const char *word) {
  int count = 0;
  for (const char *at = text; (at = strstr(at, word)); at++) count++;
  return count;
}

/* Each of the others names the one that was stopped, and nobody else is said to be. */
static bool check_named(attempt *a, const job *j, int victim, const ending *e) {
  char line[160];
  snprintf(line, sizeof line, "(pid %d): stopped (SIGSTOP)", (int)j->processes[victim]);
  int named = count_of(e->said, line), all = count_of(e->said, "): stopped (SIGSTOP)");
  snprintf(line, sizeof line, "process %d on ", victim);
  if (named == PROCESSES - 1 && all == named && strstr(e->said, line)) return true;
  return wrong(
      a,
      tsr_arena_printf(
          a->r->arena, "process %d (pid %d) was stopped; %d reports name it, and %d somebody",
          victim, (int)j->processes[victim], named, all),
      e);
}

/* Whether a checkpoint comes that has more steps. */
static bool keeps_more(attempt *a, int step) {
  for (double begin = job_now(); job_now() - begin < END_S; job_rest(0.01))
    if (look(a->checkpoints).newest > step) return true;
  return wrong(a, "no checkpoint comes", NULL);
}

/* A process that was stopped goes on, to steps that are kept; then all are told to end. */
static bool check_pause(attempt *a, job *j, pid_t process, double fault) {
  job_rest(0.2 + (double)draw(a->r, 800) / 1000);
  int step = last_step(a->metrics);
  ending e;
  kill(process, SIGCONT);
  if (!wait_for_step(a, j, step + 1) || !keeps_more(a, step + 1)) return false;
  a->seconds = job_now() - fault;
  double told = job_now(), seconds = a->seconds;
  kill(j->root, SIGTERM);
  bool ended = check_ending(a, j, false, told, &e);
  a->seconds = seconds;
  return ended;
}

/* Processes that give up end with 1. MPICH's mpirun kills those that are left, a stopped one or one
 * that is about to give up as well, and reports 9, the signal that it sent, where it sees one of
 * them end first. */
static bool check_code(attempt *a, const ending *e) {
  bool by_mpirun = e->status == 9 && strstr(e->said, "EXIT CODE: 9") &&
                   strstr(e->said, "MPI_Abort(") && strstr(e->said, ", 1) - process");
  return e->status == 1 || by_mpirun || wrong(a, "its exit code is not 1", e);
}

static bool hit(attempt *a, kind k) {
  job_options o = {.launcher = draw_launcher(a->r), .processes = PROCESSES, .faulty = -1};
  a->steps = ENDLESS;
  job j = start(a, &o);
  int victim = (int)draw(a->r, PROCESSES);
  ending e;
  if (!find(a, &j)) return false;
  if (k == STOP_AT_START) job_rest((double)draw(a->r, 300) / 1000);
  else if (!wait_for_moment(a, &j)) return false;
  double fault = job_now();
  pid_t target = k == END ? j.root : j.processes[victim];
  kill(target, k == KILL ? SIGKILL : k == END ? SIGTERM : SIGSTOP);
  tell(a, "%s# %s", kind_names[k]);
  tell(a, "%s %s\n", tsr_arena_printf(a->r->arena, "(%d, pid %d)", victim, (int)target));
  if (k == PAUSE) return check_pause(a, &j, target, fault);
  if (!check_ending(a, &j, k == STOP_AT_START, fault, &e)) return false;
  if (k == STOP && !check_named(a, &j, victim, &e)) return false;
  if (k == STOP && !check_code(a, &e)) return false;
  bool killed = strstr(e.said, "signal 9") != NULL;
  return k != KILL || killed || wrong(a, "nobody says that a process was killed", &e);
}

/* The disk of one process is full from some operation on: the run goes on without checkpoints, and
 * ends with an error. */
static bool fill(attempt *a) {
  job_options o = {.launcher = draw_launcher(a->r), .processes = PROCESSES};
  o.faulty = (int)draw(a->r, PROCESSES);
  o.fault = tsr_arena_printf(a->r->arena, "ENOSPC@%d-", 2 + (int)draw(a->r, 30));
  double begin = job_now();
  a->steps = STEPS;
  job j = start(a, &o);
  ending e;
  bool ended = job_wait(&j, END_S, &e);
  a->seconds = job_now() - begin;
  if (!ended) return wrong(a, "it hangs", &e);
  if (job_left_behind(&j, 3)) return wrong(a, "processes are left", &e);
  /* The mark that says so may find no space, either: the others give up when its time is over. */
  const char *says =
      o.faulty ? tsr_arena_printf(a->r->arena, "process %d cannot write its part", o.faulty)
               : "No space left on device";
  const char *late = tsr_arena_printf(a->r->arena, "process %d has not written its part", o.faulty);
  if (!check_code(a, &e)) return false;
  return strstr(e.said, says) || (o.faulty && strstr(e.said, late)) ||
         wrong(a, tsr_arena_printf(a->r->arena, "no '%s'", says), &e);
}

/* ---- going on ---- */

static bool check_kept(attempt *a) {
  kept k = look(a->checkpoints);
  return k.named == k.whole ||
         wrong(
             a,
             tsr_arena_printf(
                 a->r->arena, "%d of %d checkpoints are damaged", k.named - k.whole, k.named),
             NULL);
}

static bool measure(runner *r, int steps, reference *want) {
  const char *folder = tsr_path_join(r->arena, r->scratch, "whole"), *why = "";
  words w = endless_words(r, folder, steps);
  folder_remove(folder);
  ending e = run(r, &w, NULL, -1, 0);
  int count = 0;
  *want = (reference){.steps = steps, .sha256 = sha256_of(r, e.said)};
  bool ok = !e.status && *want->sha256 &&
            read_losses(
                r, tsr_path_join(r->arena, folder, "metrics.jsonl"), &want->losses, &count, &why) &&
            count == steps;
  if (!ok) printf("the undisturbed run: exit %d %s\n%s", e.status, why, e.said);
  return ok;
}

/* To the first multiple of STEPS that the run has not reached; most cases share a few of them. */
static bool go_on(attempt *a, runner *undisturbed, reference *want) {
  a->steps = (last_step(a->metrics) / STEPS + 1) * STEPS;
  if (a->steps != want->steps && !measure(undisturbed, a->steps, want)) return false;
  job_options o = {.processes = 1 + (int)draw(a->r, PROCESSES), .faulty = -1};
  o.launcher = o.processes > 1 || draw(a->r, 2) ? draw_launcher(a->r) : JOB_ALONE;
  job j = start(a, &o);
  ending e;
  if (!job_wait(&j, END_S, &e) || e.status) return wrong(a, "it does not go on", &e);
  if (strcmp(sha256_of(a->r, e.said), want->sha256)) return wrong(a, "other weights", &e);
  const char *differs = compare_losses(a->r, a->metrics, want->losses, want->steps, want->sha256);
  if (differs) return wrong(a, differs, &e);
  if (look(a->checkpoints).newest_whole != want->steps)
    return wrong(a, "the last step has no whole checkpoint", &e);
  return true;
}

/* ---- all of them ---- */

static kind kind_of(int index) {
  static const kind kinds[] = {KILL, STOP, FULL,  STOP, KILL, PAUSE, END,
                               STOP, KILL, PAUSE, STOP, FULL, KILL,  STOP_AT_START};
  return kinds[index % (int)(sizeof kinds / sizeof *kinds)];
}

typedef struct {
  int number, of;
} lane_of_cases;

static void
work(const runner *about, reference want, lane_of_cases lane, uint64_t seed, int count, int out) {
  const char *scratch = tsr_arena_printf(about->arena, "%s/%d", about->scratch, lane.number);
  runner undisturbed = *about;
  undisturbed.scratch = scratch;
  mkdir(scratch, 0777);
  for (int i = lane.number; i < count; i += lane.of) {
    runner r = *about;
    r.arena = tsr_arena_new();
    r.scratch = scratch;
    r.random = seed * 1000003u + (uint64_t)i;
    attempt a = {&r, .story = ""};
    a.folder = tsr_path_join(r.arena, scratch, "run");
    a.checkpoints = tsr_path_join(r.arena, a.folder, "checkpoints");
    a.metrics = tsr_path_join(r.arena, a.folder, "metrics.jsonl");
    folder_remove(a.folder);
    kind k = kind_of(i);
    bool ok =
        (k == FULL ? fill(&a) : hit(&a, k)) && check_kept(&a) && go_on(&a, &undisturbed, &want);
    verdict v = {i, k, ok, a.seconds};
    if (!ok) printf("case %d of seed %llu: %s\n\n", i, (unsigned long long)seed, kind_names[k]);
    fflush(stdout);
    tsr_arena_free(r.arena);
    if (write(out, &v, sizeof v) != sizeof v) break;
  }
}

static int count_up(int in, int count) {
  int cases[KINDS] = {0}, failed[KINDS] = {0}, all = 0, all_failed = 0;
  double longest[KINDS] = {0};
  for (verdict v; read(in, &v, sizeof v) == sizeof v; all++) {
    cases[v.kind]++;
    failed[v.kind] += !v.ok;
    all_failed += !v.ok;
    if (v.seconds > longest[v.kind]) longest[v.kind] = v.seconds;
  }
  printf("%-28s %6s %6s %18s\n", "", "cases", "wrong", "ended within, s");
  for (int k = 0; k < KINDS; k++)
    if (cases[k]) printf("%-28s %6d %6d %18.1f\n", kind_names[k], cases[k], failed[k], longest[k]);
  printf("%d faults, %d wrong; deadline %d s\n", all, all_failed, TIMEOUT_S);
  return all == count && !all_failed ? 0 : 1;
}

int main(int argc, char **argv) {
  if (argc != 4) return printf("usage: chaos PROGRAM SEED COUNT\n"), 2;
  runner r = {.program = realpath(argv[1], NULL), .arena = tsr_arena_new()};
  uint64_t seed = strtoull(argv[2], NULL, 10);
  int count = atoi(argv[3]), pipes[2], code = 1;
  reference want;
  if (!r.program) return perror(argv[1]), 1;
  if (!job_has(&r, JOB_OPENMPI) && !job_has(&r, JOB_MPICH))
    return printf("skipped: neither Open MPI's nor MPICH's mpirun is here with its plugin\n"), 77;
  r.scratch = scratch_new(r.arena);
  if (!r.scratch || pipe(pipes)) return perror("chaos"), 1;
  r.config = tsr_path_join(r.arena, r.scratch, "run.yaml");
  if (measure(&r, STEPS, &want)) {
    printf("undisturbed: weights sha256 %s\n", want.sha256);
    fflush(stdout);
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    lane_of_cases lane = {.of = cores < 1 ? 1 : cores};
    for (; lane.number < lane.of; lane.number++)
      if (!fork()) work(&r, want, lane, seed, count, pipes[1]), fflush(stdout), _exit(0);
    close(pipes[1]);
    code = count_up(pipes[0], count);
    while (wait(NULL) > 0) continue;
  }
  folder_remove(r.scratch);
  tsr_arena_free(r.arena);
  free((char *)(uintptr_t)r.program);
  return code;
}
