// SPDX-License-Identifier: Apache-2.0
/* When a process does not come: what each of the others says, word for word. Processes are threads
 * here; what the kernel shows of the one at fault is that of a child process which is stopped, dead
 * or asleep, or of a host that cannot be seen. */
#include "comm/bootstrap.h"
#include "comm/peers.h"
#include "comm/transport_threads.h"
#include "harness.h"
#include "tests/check.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES_MAX = 4, REPORT_BYTES = 4096 };
static const double timeout_s = 1, spare_s = 10;

typedef enum { STOPPED, DEAD, ASLEEP, ELSEWHERE } sight;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void rest(double seconds) {
  nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - (int)seconds) * 1e9)}, NULL);
}

/* ---- a process to look at ---- */

static void tell_self(int to) {
  tsr_peer self;
  tsr_peer_self(&self);
  if (write(to, &self, sizeof self) != sizeof self) _exit(1);
}

/* A child that is so; what it would have told of itself. */
static pid_t make_child(sight as, tsr_peer *ret) {
  int pipes[2];
  if (pipe(pipes)) abort();
  pid_t child = fork();
  if (!child) {
    tell_self(pipes[1]);
    for (;;) pause();
  }
  if (read(pipes[0], ret, sizeof *ret) != sizeof *ret) abort();
  close(pipes[0]);
  close(pipes[1]);
  if (as == STOPPED) kill(child, SIGSTOP), waitpid(child, NULL, WUNTRACED);
  if (as == DEAD) kill(child, SIGKILL), waitpid(child, NULL, 0);
  if (as == ELSEWHERE) snprintf(ret->host, sizeof ret->host, "far.away");
  if (as == ASLEEP) rest(0.05);
  return child;
}

static void end_child(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
}

/* ---- a job of threads ---- */

typedef enum { IN_A_STEP, BETWEEN_STEPS } moment;

typedef struct {
  int processes, absent, steps; /* the absent one leaves after so many steps */
  moment at;
  tsr_threads_fate fate; /* of the absent one's messages */
  harness_options options;
  bool pipeline;
  bool evaluates; /* the others, when the absent one has left */
  tsr_threads *threads;
  tsr_peer peers[PROCESSES_MAX];
  pthread_mutex_t mutex;
  int reported;
  char reports[PROCESSES_MAX][REPORT_BYTES];
  double ended[PROCESSES_MAX]; /* seconds after the job's begin */
  double begin;
} job;

typedef struct {
  job *job;
  int process;
  tsr_transport transport;
} member;

static bool all_reported(job *j) {
  pthread_mutex_lock(&j->mutex);
  bool all = j->reported == j->processes - 1;
  pthread_mutex_unlock(&j->mutex);
  return all;
}

/* As the program's: says it, lets the others say theirs, and ends the job. */
static void lost(void *context, const char *report) {
  member *m = context;
  job *j = m->job;
  pthread_mutex_lock(&j->mutex);
  snprintf(j->reports[m->process], REPORT_BYTES, "%s", report);
  j->ended[m->process] = now() - j->begin;
  j->reported++;
  pthread_mutex_unlock(&j->mutex);
  for (double begin = now(); !all_reported(j) && now() - begin < spare_s;) rest(0.01);
  m->transport.table->abort(m->transport.state, 1);
}

static tsr_graph *make_graph(tsr_arena *arena, const job *j) {
  tsr_graph *g = tsr_graph_new(arena, "watched", (tsr_units){8, 1, 2});
  harness_inputs(g, j->pipeline ? "x 4,6; y 4,4" : "x 8,6; y 8,4");
  harness_params(g, "w1 8,6 0; w2 8,8 1; w3 4,8");
  harness_calls(
      g, "a: linear(x, w1); b: tanh(a); c: linear(b, w2); d: tanh(c); z: linear(d, w3)\n"
         "loss: mse(z, y)");
  g->loss = harness_find(g, "loss");
  tsr_graph_output(g, "loss", g->loss);
  return g;
}

/* The same graph's forward pass. */
static void
compile_evaluation(tsr_arena *arena, const job *j, const harness_options *o, harness *h) {
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_graph *g = make_graph(arena, j);
  g->loss = -1; /* no gradients are wanted */
  if (!harness_compile(g, o, h, diags)) abort();
  h->placed->loss = harness_find(h->placed, "loss");
}

static void open_process(tsr_arena *arena, member *m, harness *h, harness *evaluation) {
  static const tsr_optimizer sgd = {.kind = TSR_RULE_SGD};
  tsr_diags *diags = tsr_diags_new(arena);
  harness_options o = m->job->options;
  o.threads = 1;
  o.batch_units = 8;
  o.tp_units = 2;
  o.optimizer = &sgd;
  if (!harness_compile(make_graph(arena, m->job), &o, h, diags)) abort();
  tsr_parallel *parallel = tsr_arena_alloc(arena, sizeof *parallel);
  *parallel = h->parallel;
  tsr_process_options w = {.parallel = parallel, .kernels = h->cpu.k, .threads = 1};
  w.seed = HARNESS_SEED;
  w.timeout_s = timeout_s;
  w.lost = lost;
  w.lost_context = m;
  if (!tsr_rank_map_make(arena, parallel, &m->transport, &w.rank_map, diags)) abort();
  compile_evaluation(arena, m->job, &o, evaluation);
  tsr_programs *programs = tsr_arena_array(arena, tsr_programs, 2);
  tsr_executable *executable[2];
  programs[0] = h->programs;
  programs[1] = evaluation->programs;
  if (!tsr_process_open(arena, &w, programs, 2, &h->process, executable, diags)) abort();
  h->executable = executable[0];
  evaluation->executable = executable[1];
}

static void *run_member(void *context) {
  member *m = context;
  job *j = m->job;
  tsr_arena *arena = tsr_arena_new();
  harness h, evaluation;
  open_process(arena, m, &h, &evaluation);
  pthread_cleanup_push((void (*)(void *))tsr_arena_free, arena);
  pthread_cleanup_push((void (*)(void *))tsr_process_close, h.process);
  for (int step = 0; step < j->steps; step++) harness_step(&h, step);
  if (m->process == j->absent) {
    while (!all_reported(j) && now() - j->begin < spare_s * 3)
      rest(j->fate == TSR_THREADS_GONE ? 0.2 : 0.01),
          tsr_threads_set_fate(j->threads, m->process, j->fate);
  } else if (j->at == BETWEEN_STEPS) {
    tsr_executable_agree(h.executable, 0);
  } else {
    harness_step(j->evaluates ? &evaluation : &h, j->steps);
  }
  pthread_cleanup_pop(1);
  pthread_cleanup_pop(1);
  return NULL;
}

static void run_job(job *j) {
  member members[PROCESSES_MAX];
  pthread_t threads[PROCESSES_MAX];
  tsr_threads_options o = {.processes = j->processes};
  pthread_mutex_init(&j->mutex, NULL);
  j->threads = tsr_threads_new(&o);
  j->begin = now();
  for (int w = 0; w < j->processes; w++) {
    if (w != j->absent) tsr_peer_self(&j->peers[w]);
    members[w] = (member){j, w, {0}};
    tsr_threads_endpoint(j->threads, w, &members[w].transport);
    members[w].transport.peers = j->peers;
  }
  for (int w = 0; w < j->processes; w++)
    if (pthread_create(&threads[w], NULL, run_member, &members[w])) abort();
  for (int w = 0; w < j->processes; w++) pthread_join(threads[w], NULL);
  tsr_threads_free(j->threads);
  pthread_mutex_destroy(&j->mutex);
}

/* ---- what they say ---- */

static const char *const when_stopped[PROCESSES_MAX] = {
    [0] = "process 0 on host0 (pid N) has waited N s for others; collectives.timeout_s is 1\n"
          "  rank 0: step 3, stage 0, microbatch 0, task 3: all_reduce 'c.reduced_tp' over tp "
          "(call:1)\n"
          "    group of ranks 0 1: process 0 (rank 0) came; process 1 (rank 1) did not\n"
          "  process 1 on host0 (pid N): stopped (SIGSTOP)\n"
          "  process 2 on host0 (pid N): waits, too: step 3, stage 0, microbatch 0, task 15: "
          "all_reduce 'd.w1@a.reduced_dp' over dp (call:1)",
    [2] = "process 2 on host0 (pid N) has waited N s for others; collectives.timeout_s is 1\n"
          "  ranks 2 3: step 3, stage 0, microbatch 0, task 15: all_reduce 'd.w1@a.reduced_dp' "
          "over dp (call:1)\n"
          "    group of ranks 0 2: process 2 (rank 2) came; process 0 (rank 0) did not\n"
          "    group of ranks 1 3: process 2 (rank 3) came; process 1 (rank 1) did not\n"
          "  process 0 on host0 (pid N): waits, too: step 3, stage 0, microbatch 0, task 3: "
          "all_reduce 'c.reduced_tp' over tp (call:1)\n"
          "  process 1 on host0 (pid N): stopped (SIGSTOP)"};

static const char *const when_elsewhere[PROCESSES_MAX] = {
    [0] = "process 0 on host0 (pid N) has waited N s for others; collectives.timeout_s is 1\n"
          "  ranks 0 1: step 1, stage 0, microbatch 0, task 15: all_reduce 'd.w1@a.reduced_dp' "
          "over dp (call:1)\n"
          "    group of ranks 0 2: process 0 (rank 0) came; process 1 (rank 2) did not\n"
          "    group of ranks 1 3: process 0 (rank 1) came; process 1 (rank 3) did not\n"
          "  process 1 on host0 (pid N): does not answer: stopped, or its link is cut"};

static const char *const when_asleep[PROCESSES_MAX] = {
    [0] = "process 0 on host0 (pid N) has waited N s for others; collectives.timeout_s is 1\n"
          "  ranks 0 1: step 2, stage 0, microbatch 0, task 15: all_reduce 'd.w1@a.reduced_dp' "
          "over dp (call:1)\n"
          "    group of ranks 0 2: process 0 (rank 0) came; process 1 (rank 2) did not\n"
          "    group of ranks 1 3: process 0 (rank 1) came; process 1 (rank 3) did not\n"
          "  process 1 on host0 (pid N): does not answer: sleeping"};

static const char *const when_evaluating[PROCESSES_MAX] = {
    [0] = "process 0 on host0 (pid N) has waited N s for others; collectives.timeout_s is 1\n"
          "  ranks 0 1: evaluation after step 2, stage 0, microbatch 0, task 7: all_reduce "
          "'loss.reduced_dp' over dp (call:1)\n"
          "    group of ranks 0 2: process 0 (rank 0) came; process 1 (rank 2) did not\n"
          "    group of ranks 1 3: process 0 (rank 1) came; process 1 (rank 3) did not\n"
          "  process 1 on host0 (pid N): stopped (SIGSTOP)"};

static const char *const when_gone[PROCESSES_MAX] = {
    [0] =
        "process 0 on host0 (pid N) cannot continue: receiving from process 1: process 1 is gone\n"
        "  ranks 0 1: step 3, stage 0, microbatch 0, task 15: all_reduce 'd.w1@a.reduced_dp' "
        "over dp (call:1)\n"
        "    group of ranks 0 2: process 0 (rank 0) came; process 1 (rank 2) did not\n"
        "  process 1 on host0 (pid N): dead"};

static const char *const when_overlapped[PROCESSES_MAX] = {
    [0] = "process 0 on host0 (pid N) has waited N s for others; collectives.timeout_s is 1\n"
          "  ranks 0 1: step 2, stage 0, microbatch 0, task 18: wait 'd.w3@z.reduced_dp' (call:1)\n"
          "    all_reduce 'd.w3@z.reduced_dp' over dp\n"
          "    group of ranks 0 2: process 0 (rank 0) came; process 1 (rank 2) did not\n"
          "    group of ranks 1 3: process 0 (rank 1) came; process 1 (rank 3) did not\n"
          "  process 1 on host0 (pid N): stopped (SIGSTOP)"};

static const char *const when_between[PROCESSES_MAX] = {
    [0] = "process 0 on host0 (pid N) has waited N s for others; collectives.timeout_s is 1\n"
          "  rank 0: after step 2, agrees with the others on what is next; nothing from process 2\n"
          "  process 1 on host0 (pid N): waits, too: after step 2, agrees with the others on what "
          "is next\n"
          "  process 2 on host0 (pid N): stopped (SIGSTOP)",
    [1] = "process 1 on host0 (pid N) has waited N s for others; collectives.timeout_s is 1\n"
          "  rank 1: after step 2, agrees with the others on what is next; nothing from process 0\n"
          "  process 0 on host0 (pid N): waits, too: after step 2, agrees with the others on what "
          "is next\n"
          "  process 2 on host0 (pid N): stopped (SIGSTOP)"};

static const char *const when_first_stopped[PROCESSES_MAX] = {
    [1] =
        "process 1 on host0 (pid N) has waited N s for others; collectives.timeout_s is 1\n"
        "  rank 1: step 2, stage 0, microbatch 1, task 12: all_reduce 'sum.d.w1@a.reduced_dp' "
        "over dp (call:1)\n"
        "    group of ranks 0 1: process 1 (rank 1) came; process 0 (rank 0) did not\n"
        "  process 0 on host0 (pid N): stopped (SIGSTOP)\n"
        "  process 2 on host0 (pid N): waits, too: step 2, stage 1, microbatch 0, task 0: receive "
        "'c.reduced_tp.stage1' (call:1)\n"
        "  process 3 on host0 (pid N): waits, too: step 2, stage 1, microbatch 1, task 13: "
        "all_reduce 'sum.d.w3@z.reduced_dp' over dp (call:1)",
    [2] =
        "process 2 on host0 (pid N) has waited N s for others; collectives.timeout_s is 1\n"
        "  rank 2: step 2, stage 1, microbatch 0, task 0: receive 'c.reduced_tp.stage1' (call:1)\n"
        "    rank 0 of stage 0, process 0, has sent nothing to rank 2\n"
        "  process 0 on host0 (pid N): stopped (SIGSTOP)\n"
        "  process 1 on host0 (pid N): waits, too: step 2, stage 0, microbatch 1, task 12: "
        "all_reduce 'sum.d.w1@a.reduced_dp' over dp (call:1)\n"
        "  process 3 on host0 (pid N): waits, too: step 2, stage 1, microbatch 1, task 13: "
        "all_reduce 'sum.d.w3@z.reduced_dp' over dp (call:1)",
    [3] =
        "process 3 on host0 (pid N) has waited N s for others; collectives.timeout_s is 1\n"
        "  rank 3: step 2, stage 1, microbatch 1, task 13: all_reduce 'sum.d.w3@z.reduced_dp' "
        "over dp (call:1)\n"
        "    group of ranks 2 3: process 3 (rank 3) came; process 2 (rank 2) did not\n"
        "  process 0 on host0 (pid N): stopped (SIGSTOP)\n"
        "  process 1 on host0 (pid N): waits, too: step 2, stage 0, microbatch 1, task 12: "
        "all_reduce 'sum.d.w1@a.reduced_dp' over dp (call:1)\n"
        "  process 2 on host0 (pid N): waits, too: step 2, stage 1, microbatch 0, task 0: receive "
        "'c.reduced_tp.stage1' (call:1)"};

static const char *const when_last_stopped[PROCESSES_MAX] = {
    [0] = "process 0 on host0 (pid N) has waited N s for others; collectives.timeout_s is 1\n"
          "  rank 0: step 2, stage 0, microbatch 1, task 12: all_reduce 'sum.d.w1@a.reduced_dp' "
          "over dp (call:1)\n"
          "    group of ranks 0 1: process 0 (rank 0) came; process 1 (rank 1) did not\n"
          "  process 1 on host0 (pid N): waits, too: step 2, stage 0, microbatch 0, task 4: wait "
          "'c.reduced_tp.stage1' (call:1)\n"
          "  process 2 on host0 (pid N): waits, too: step 2, stage 1, microbatch 1, task 13: "
          "all_reduce 'sum.d.w3@z.reduced_dp' over dp (call:1)\n"
          "  process 3 on host0 (pid N): stopped (SIGSTOP)",
    [1] = "process 1 on host0 (pid N) has waited N s for others; collectives.timeout_s is 1\n"
          "  rank 1: step 2, stage 0, microbatch 0, task 4: wait 'c.reduced_tp.stage1' (call:1)\n"
          "    rank 3 of stage 1, process 3, has not taken what rank 1 sent\n"
          "  process 0 on host0 (pid N): waits, too: step 2, stage 0, microbatch 1, task 12: "
          "all_reduce 'sum.d.w1@a.reduced_dp' over dp (call:1)\n"
          "  process 2 on host0 (pid N): waits, too: step 2, stage 1, microbatch 1, task 13: "
          "all_reduce 'sum.d.w3@z.reduced_dp' over dp (call:1)\n"
          "  process 3 on host0 (pid N): stopped (SIGSTOP)",
    [2] = "process 2 on host0 (pid N) has waited N s for others; collectives.timeout_s is 1\n"
          "  rank 2: step 2, stage 1, microbatch 1, task 13: all_reduce 'sum.d.w3@z.reduced_dp' "
          "over dp (call:1)\n"
          "    group of ranks 2 3: process 2 (rank 2) came; process 3 (rank 3) did not\n"
          "  process 0 on host0 (pid N): waits, too: step 2, stage 0, microbatch 1, task 12: "
          "all_reduce 'sum.d.w1@a.reduced_dp' over dp (call:1)\n"
          "  process 1 on host0 (pid N): waits, too: step 2, stage 0, microbatch 0, task 4: wait "
          "'c.reduced_tp.stage1' (call:1)\n"
          "  process 3 on host0 (pid N): stopped (SIGSTOP)"};

/* Stage 0 of an evaluation has nothing to do but to send. */
static const char *const when_sent[PROCESSES_MAX] = {
    [0] = "process 0 on host0 (pid N) has waited N s for others; collectives.timeout_s is 1\n"
          "  rank 0: evaluation after step 1, stage 0, microbatch 0, task 4: wait "
          "'c.reduced_tp.stage1' (call:1)\n"
          "    rank 1 of stage 1, process 1, has not taken what rank 0 sent\n"
          "  process 1 on host0 (pid N): stopped (SIGSTOP)"};

/* Process ids and the time that was waited are another one each time; not every kernel shows in
 * which function a process sleeps. */
static const char *plain(const char *report) {
  static char text[REPORT_BYTES];
  size_t n = 0;
  for (const char *at = report; *at && n + 1 < sizeof text;) {
    size_t digits = strspn(at, "0123456789.");
    bool pid = at - report > 5 && !memcmp(at - 5, "(pid ", 5);
    bool waited = at - report > 7 && !memcmp(at - 7, "waited ", 7);
    if (digits && (pid || waited)) {
      text[n++] = 'N';
      at += digits;
    } else if (at - report > 8 && !memcmp(at - 8, "sleeping in", 11)) {
      at += strcspn(at, "\n");
    } else text[n++] = *at++;
  }
  text[n] = 0;
  return text;
}

static void check_job(job *j, sight as, const char *const *want) {
  pid_t child = make_child(as, &j->peers[j->absent]);
  run_job(j);
  end_child(child);
  for (int w = 0; w < j->processes; w++) {
    if (w == j->absent) continue;
    CHECK_STR(plain(j->reports[w]), want[w]);
    CHECK_AT(j->ended[w] < timeout_s + spare_s, "it took %g s", j->ended[w]);
  }
}

static const harness_options square = {.dp = 2, .tp = 2, .microbatches = 1};

static void test_evaluation(void) {
  job j = {.processes = 2, .absent = 1, .steps = 2, .options = square, .fate = TSR_THREADS_SILENT};
  j.evaluates = true;
  check_job(&j, STOPPED, when_evaluating);
}

static void test_stopped(void) {
  job j = {.processes = 3, .absent = 1, .steps = 2, .options = square, .fate = TSR_THREADS_SILENT};
  check_job(&j, STOPPED, when_stopped);
}

static void test_elsewhere(void) {
  job j = {.processes = 2, .absent = 1, .options = square, .fate = TSR_THREADS_SILENT};
  check_job(&j, ELSEWHERE, when_elsewhere);
}

static void test_asleep(void) {
  job j = {.processes = 2, .absent = 1, .steps = 1, .options = square, .fate = TSR_THREADS_SILENT};
  check_job(&j, ASLEEP, when_asleep);
}

static void test_gone(void) {
  job j = {.processes = 2, .absent = 1, .steps = 2, .options = square, .fate = TSR_THREADS_GONE};
  check_job(&j, DEAD, when_gone);
}

/* The wait for a bucket names the collective that is in flight. */
static void test_overlapped(void) {
  job j = {.processes = 2, .absent = 1, .steps = 1, .options = square, .fate = TSR_THREADS_SILENT};
  j.options.overlap = true;
  check_job(&j, STOPPED, when_overlapped);
}

static void test_between_steps(void) {
  job j = {.processes = 3, .absent = 2, .steps = 2, .at = BETWEEN_STEPS};
  j.options = square;
  j.fate = TSR_THREADS_SILENT;
  check_job(&j, STOPPED, when_between);
}

static void test_pipeline(void) {
  harness_options o = {
      .pp = 2, .dp = 2, .tp = 1, .chunks = 1, .microbatches = 2, .pipeline = TSR_PIPELINE_1F1B};
  job first = {.processes = 4, .absent = 0, .steps = 1, .options = o, .pipeline = true};
  job last = first;
  first.fate = last.fate = TSR_THREADS_SILENT;
  last.absent = 3;
  check_job(&first, STOPPED, when_first_stopped);
  check_job(&last, STOPPED, when_last_stopped);
}

static void test_pipeline_evaluation(void) {
  job j = {.processes = 2, .absent = 1, .steps = 1, .pipeline = true, .evaluates = true};
  j.options = (harness_options){
      .pp = 2, .dp = 1, .tp = 1, .chunks = 1, .microbatches = 2, .pipeline = TSR_PIPELINE_1F1B};
  j.fate = TSR_THREADS_SILENT;
  check_job(&j, STOPPED, when_sent);
}

/* ---- before the first step ---- */

static void test_gather(void) {
  tsr_threads *threads = tsr_threads_new(&(tsr_threads_options){.processes = 3});
  tsr_transport t;
  tsr_peer peers[3];
  char mine = 1, all[3], why[TSR_WHY_BYTES] = "";
  tsr_threads_endpoint(threads, 0, &t);
  CHECK(!tsr_transport_gather(&t, &mine, 1, all, 0.2, why));
  CHECK_STR(
      why, "after 0.2 s nothing from process 1 on host0: stopped, or its link is cut; process 2 on "
           "host0: "
           "stopped, or its link is cut");
  tsr_peer_self(&peers[0]);
  pid_t stopped = make_child(STOPPED, &peers[1]), dead = make_child(DEAD, &peers[2]);
  t.peers = peers;
  CHECK(!tsr_transport_gather(&t, &mine, 1, all, 0.2, why));
  CHECK_STR(
      plain(why),
      "after 0.2 s nothing from process 1 on host0 (pid N): stopped (SIGSTOP); process 2 on "
      "host0 (pid N): dead");
  CHECK_INT(tsr_peer_look(&t, 0), TSR_PEER_RUNS);
  CHECK_INT(tsr_peer_look(&t, 1), TSR_PEER_STOPPED);
  CHECK_INT(tsr_peer_look(&t, 2), TSR_PEER_DEAD);
  kill(stopped, SIGCONT);
  rest(0.1);
  CHECK_INT(tsr_peer_look(&t, 1), TSR_PEER_RUNS);
  peers[1].begun++; /* another process has its id */
  CHECK_INT(tsr_peer_look(&t, 1), TSR_PEER_DEAD);
  end_child(stopped);
  end_child(dead);
  tsr_threads_free(threads);
}

int main(void) {
  test_gather();
  test_stopped();
  test_evaluation();
  test_elsewhere();
  test_asleep();
  test_overlapped();
  test_gone();
  test_between_steps();
  test_pipeline();
  test_pipeline_evaluation();
  return check_done("run.watchdog");
}
