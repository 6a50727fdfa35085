// SPDX-License-Identifier: Apache-2.0
/* Bits that are inverted in one rank's copy of a parameter or of optimizer state are found, with the
 * tensor and the ranks, by one process and by several, on every mesh; and what has no replica is
 * not compared. Which ranks hold a part is written by hand here. */
#include "comm/transport_threads.h"
#include "harness.h"
#include "runtime/executable_internal.h"
#include "runtime/replica_check.h"
#include "tests/check.h"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { RANKS_MAX = 8, STEPS = 2 };

typedef struct {
  const char *inputs, *params, *calls;
} model;

/* What tp splits by rows and by columns, what it replicates, a table that two stages use, and
 * experts. */
static const model dense = {
    "tokens $B,8 tokens; targets $B,8 tokens", "wte 24,16 0; ln 16; wq 16,16 0; wo 16,16 1; lnf 16",
    "x: embedding(tokens, wte); h: rmsnorm(x, ln); q: linear(h, wq); a: tanh(q)\n"
    "o: linear(a, wo); x1: add(x, o); hf: rmsnorm(x1, lnf); logits: linear(hf, wte)\n"
    "loss: cross_entropy(logits, targets, valid: 21)"};
static const model mixture = {
    "tokens $B,8 tokens; targets $B,8 tokens",
    "wte 24,16 0; ln 16; r 8,16; up 8,12,16 experts 0; down 8,16,12 experts 0; lnf 16",
    "x: embedding(tokens, wte); h: rmsnorm(x, ln); s: router(h, r); p: softmax(s)\n"
    "c: choose_experts(p, k: 2); w: expert_weights(p, c, normalize: 1); plan: expert_plan(c, up)\n"
    "e: permute_experts(h, plan); u: expert_linear(e, up, plan); m: gelu(u)\n"
    "d: expert_linear(m, down, plan); f: combine_experts(d, w, plan); x1: add(x, f)\n"
    "hf: rmsnorm(x1, lnf); logits: linear(hf, wte)\n"
    "loss: cross_entropy(logits, targets, valid: 21)"};

/* `named`: the ranks that are named; -1 ends them. None: the part has one holder. */
typedef struct {
  const char *name;
  harness_options o;
  const model *model;
  const char *tensor;
  int rank;
  int holders;
  bool has_majority;
  int named[RANKS_MAX + 1];
} fault;

/* Ranks are numbered with tp fastest, then cp, ep, dp and pp. */
/* clang-format off */
static const fault faults[] = {
    {"dp", {.dp = 4, .tp = 1}, &dense, "wq", 2, 4, true, {2, -1}},
    {"dp, m", {.dp = 4, .tp = 1}, &dense, "ln.m", 0, 4, true, {0, -1}},
    {"dp, v", {.dp = 4, .tp = 1}, &dense, "wte.v", 3, 4, true, {3, -1}},
    {"dp of two", {.dp = 2, .tp = 1}, &dense, "wq.v", 0, 2, false, {0, 1, -1}},
    {"dp x tp, split by rows", {.dp = 2, .tp = 2}, &dense, "wq", 1, 2, false, {1, 3, -1}},
    {"dp x tp, split by columns", {.dp = 4, .tp = 2}, &dense, "wo.m", 5, 4, true, {5, -1}},
    {"dp x tp, replicated", {.dp = 2, .tp = 2}, &dense, "ln.v", 3, 4, true, {3, -1}},
    {"tp, replicated", {.dp = 1, .tp = 4}, &dense, "lnf", 0, 4, true, {0, -1}},
    {"tp, split", {.dp = 1, .tp = 2}, &dense, "wq.m", 1, 1, false, {-1}},
    {"pp x dp, tied", {.pp = 2, .dp = 4, .tp = 1}, &dense, "wte", 1, 4, true, {1, -1}},
    {"pp x dp, the last stage", {.pp = 2, .dp = 2, .tp = 1}, &dense, "lnf.m", 3, 2, false, {2, 3, -1}},
    {"pp, tied", {.pp = 2, .dp = 1, .tp = 1}, &dense, "wte", 0, 1, false, {-1}},
    {"cp", {.dp = 1, .cp = 4, .tp = 1, .sequence_units = 8}, &dense, "wq.m", 2, 4, true, {2, -1}},
    {"cp, zigzag", {.dp = 2, .cp = 2, .tp = 1, .sequence_units = 8, .zigzag = true}, &dense, "wte", 3, 4, true,
     {3, -1}},
    {"zero 1", {.dp = 4, .tp = 1, .zero = 1}, &dense, "wq", 1, 1, false, {-1}},
    {"zero 2", {.dp = 4, .tp = 1, .zero = 2}, &dense, "wq.m", 1, 1, false, {-1}},
    {"zero 3", {.dp = 4, .tp = 1, .zero = 3}, &dense, "wq.v", 1, 1, false, {-1}},
    {"zero 1 x tp", {.dp = 2, .tp = 2, .zero = 1}, &dense, "ln", 3, 2, false, {2, 3, -1}},
    {"zero 2 x tp", {.dp = 2, .tp = 4, .zero = 2}, &dense, "ln.m", 1, 4, true, {1, -1}},
    {"zero 3 x tp", {.dp = 2, .tp = 2, .zero = 3}, &dense, "lnf.v", 0, 2, false, {0, 1, -1}},
    {"zero 3 x cp", {.dp = 2, .cp = 4, .tp = 1, .zero = 3, .sequence_units = 8}, &dense, "wo", 6, 4, true, {6, -1}},
    {"zero 3 in groups", {.dp = 4, .tp = 1, .zero = 3, .zero_groups = 2}, &dense, "wq", 3, 2, false, {1, 3, -1}},
    {"zero 1 of owners", {.dp = 4, .tp = 1, .zero = 1, .zero_owners = true}, &dense, "wq.m", 1, 1, false, {-1}},
    {"zero 2 of owners in groups", {.dp = 4, .tp = 1, .zero = 2, .zero_groups = 2, .zero_owners = true}, &dense,
     "wo", 3, 2, false, {1, 3, -1}},
    {"experts", {.dp = 2, .ep = 2, .tp = 1}, &mixture, "up", 2, 2, false, {0, 2, -1}},
    {"experts over dp", {.dp = 4, .ep = 2, .tp = 1}, &mixture, "down.v", 5, 4, true, {5, -1}},
    {"a router", {.dp = 2, .ep = 2, .tp = 1}, &mixture, "r.m", 1, 4, true, {1, -1}},
    {"experts, zero 3", {.dp = 2, .ep = 2, .tp = 1, .zero = 3}, &mixture, "up.m", 2, 1, false, {-1}},
    {"bf16", {.dp = 4, .tp = 1, .precision = TSR_BF16}, &dense, "wq", 1, 4, true, {1, -1}},
    {"bf16, what Kahan's sums keep", {.dp = 2, .tp = 2, .precision = TSR_BF16}, &dense, "ln.compensation", 2, 4, true, {2, -1}},
};
/* clang-format on */

/* ---- what processes send ---- */

static const tsr_transport_table *threads_table;
static _Thread_local int64_t largest; /* bytes of a message of this process */

static bool count_send(
    void *state, int to, int tag, const void *from, int64_t bytes, tsr_message *m, char *why) {
  if (bytes > largest) largest = bytes;
  return threads_table->send(state, to, tag, from, bytes, m, why);
}

/* ---- a job ---- */

typedef struct job job;
struct job {
  const fault *fault;
  int processes;
  void (*run)(const fault *f, const harness *h, tsr_replica_check *check, tsr_text *text);
};

/* A process, and what it reports. */
typedef struct {
  const job *job;
  tsr_transport transport;
  tsr_text text;
} member;

static tsr_graph *make_graph(tsr_arena *arena, const fault *f, const harness_options *o) {
  tsr_graph *g =
      tsr_graph_new(arena, f->name, (tsr_units){o->batch_units, o->sequence_units, o->tp_units});
  int64_t batch = 8 / o->microbatches;
  harness_inputs(g, harness_sized(arena, f->model->inputs, batch, 8));
  harness_params(g, f->model->params);
  harness_calls(g, harness_sized(arena, f->model->calls, batch, 8));
  g->loss = harness_find(g, "loss");
  tsr_graph_output(g, "loss", g->loss);
  return g;
}

static void open_process(tsr_arena *arena, member *m, harness *h) {
  static const tsr_optimizer f32 = HARNESS_ADAMW(0.25);
  static tsr_optimizer bf16 = HARNESS_ADAMW(0.25);
  const fault *f = m->job->fault;
  tsr_diags *diags = tsr_diags_new(arena);
  harness_options o = f->o;
  o.threads = 1;
  o.batch_units = 8;
  o.tp_units = 4;
  o.microbatches = o.pp > 1 ? 2 : 1;
  o.pipeline = TSR_PIPELINE_1F1B;
  o.vocabulary = 21;
  o.expert_units = 8;
  bf16.store = TSR_STORE_KAHAN;
  o.optimizer = o.precision ? &bf16 : &f32;
  bool ok = harness_compile(make_graph(arena, f, &o), &o, h, diags);
  tsr_parallel *parallel = tsr_arena_alloc(arena, sizeof *parallel);
  *parallel = h->parallel;
  tsr_process_options w = {.parallel = parallel, .kernels = h->cpu.k, .threads = 1};
  w.seed = HARNESS_SEED;
  ok = ok && tsr_rank_map_make(arena, parallel, &m->transport, &w.rank_map, diags) &&
       tsr_process_open(arena, &w, &h->programs, 1, &h->process, &h->executable, diags);
  if (ok) return;
  tsr_diags_print(diags, stderr);
  abort();
}

static void *run_member(void *context) {
  member *m = context;
  tsr_arena *arena = tsr_arena_new();
  harness h;
  tsr_replica_check *check;
  open_process(arena, m, &h);
  if (!tsr_replica_check_open(arena, h.executable, &check, tsr_diags_new(arena))) abort();
  for (int step = 0; step < STEPS; step++) harness_step(&h, step);
  m->job->run(m->job->fault, &h, check, &m->text);
  tsr_process_close(h.process);
  tsr_arena_free(arena);
  return NULL;
}

/* Each process is on a host of its own. All report `want`. */
static void run_job(const job *j, const char *want) {
  member members[RANKS_MAX];
  pthread_t threads[RANKS_MAX];
  tsr_threads_options o = {.processes = j->processes, .per_host = 1};
  tsr_threads *all = tsr_threads_new(&o);
  tsr_transport_table counted;
  for (int w = 0; w < j->processes; w++) {
    members[w] = (member){.job = j};
    tsr_threads_endpoint(all, w, &members[w].transport);
    threads_table = members[w].transport.table;
    counted = *threads_table;
    counted.send = count_send;
    members[w].transport.table = &counted;
  }
  for (int w = 0; w < j->processes; w++)
    if (pthread_create(&threads[w], NULL, run_member, &members[w])) abort();
  for (int w = 0; w < j->processes; w++) pthread_join(threads[w], NULL);
  tsr_threads_free(all);
  for (int w = 0; w < j->processes; w++) {
    const char *got = members[w].text.data ? members[w].text.data : "";
    CHECK_AT(
        !strcmp(got, want), "%s, process %d of %d reports\n%snot\n%s", j->fault->name, w,
        j->processes, got, want);
    tsr_text_free(&members[w].text);
  }
}

/* ---- faults ---- */

/* Inverts a bit, if the rank is here; bits count from the part's begin, or backwards from -1. */
static void invert(const harness *h, const char *tensor, int rank, int64_t bit) {
  tsr_executable *b = h->executable;
  int value = harness_find(h->placed, tensor);
  if (!tsr_executable_has(b, value, rank)) return;
  const tsr_program *p = tsr_executable_program(b, rank);
  if (bit < 0) bit += 8 * tsr_tensor_bytes(&p->tensors[value]);
  unsigned char *part = tsr_executable_address(b, value, rank, 0);
  part[bit / 8] ^= (unsigned char)(1u << bit % 8);
}

/* What a check finds, one line for each part: "2 values: 'wq', of 4 ranks wrong: rank 2 (…)". No
 * more than a 64-bit number goes from one process to another at once. */
static void report(const harness *h, tsr_replica_check *check, tsr_text *text) {
  largest = 0;
  bool equal = tsr_replica_check_run(check);
  if (largest > 8) tsr_text_add(text, "a message of %lld bytes\n", (long long)largest);
  if (equal) {
    tsr_text_add(text, "equal\n");
    return;
  }
  tsr_arena *arena = tsr_arena_new();
  tsr_replica_report r = tsr_replica_check_find(arena, check);
  for (int i = 0; i < r.count; i++) {
    const tsr_replica_difference *d = &r.differences[i];
    tsr_text_add(
        text, "%d values: '%s', of %d ranks %s:", r.values, h->placed->values[d->value].name,
        d->holders, d->has_majority ? "wrong" : "different");
    for (int k = 0; k < d->count; k++)
      tsr_text_add(text, " %s", tsr_executable_rank_text(arena, h->executable, d->ranks[k]));
    tsr_text_add(text, "\n");
  }
  tsr_arena_free(arena);
}

static int ranks_of(const harness_options *o) {
  return (o->pp ? o->pp : 1) * o->dp * (o->ep ? o->ep : 1) * (o->cp ? o->cp : 1) * o->tp;
}

/* Processes have blocks of ranks. */
static void add_rank(const fault *f, int processes, int rank, tsr_text *text) {
  int process = 0, ranks = ranks_of(&f->o);
  char host[64] = "";
  gethostname(host, sizeof host - 1);
  while ((process + 1) * ranks / processes <= rank) process++;
  if (processes == 1) tsr_text_add(text, " rank %d (on %s, cpu)", rank, host);
  else tsr_text_add(text, " rank %d (process %d on host%d, cpu)", rank, process, process);
}

static void add_expected(const fault *f, int processes, tsr_text *text) {
  if (f->named[0] < 0) {
    tsr_text_add(text, "equal\n");
    return;
  }
  tsr_text_add(
      text, "1 values: '%s', of %d ranks %s:", f->tensor, f->holders,
      f->has_majority ? "wrong" : "different");
  for (int i = 0; f->named[i] >= 0; i++) add_rank(f, processes, f->named[i], text);
  tsr_text_add(text, "\n");
}

/* The first bit, the last one, and one between; each is inverted back. */
static const int64_t bits[] = {0, -1, 75};
enum { BITS = sizeof bits / sizeof *bits };

static void run_fault(const fault *f, const harness *h, tsr_replica_check *check, tsr_text *text) {
  report(h, check, text);
  for (int i = 0; i < BITS; i++) {
    invert(h, f->tensor, f->rank, bits[i]);
    report(h, check, text);
    invert(h, f->tensor, f->rank, bits[i]);
  }
  report(h, check, text);
}

static void test_fault(const fault *f) {
  for (int processes = 1; processes <= ranks_of(&f->o); processes *= 2) {
    tsr_text want = {0};
    tsr_text_add(&want, "equal\n");
    for (int i = 0; i < BITS; i++) add_expected(f, processes, &want);
    tsr_text_add(&want, "equal\n");
    run_job(&(job){f, processes, run_fault}, want.data);
    tsr_text_free(&want);
  }
}

/* ---- several faults ---- */

/* Of four copies two are equal: none of them is a majority. Of eight, three are a minority,
 * whatever their bits are. */
static void
run_several(const fault *f, const harness *h, tsr_replica_check *check, tsr_text *text) {
  for (int i = 0; f->named[i] >= 0 && i < f->holders / 2; i++) invert(h, f->tensor, f->named[i], i);
  report(h, check, text);
}

static void test_several(void) {
  static const fault split = {"two of four", {.dp = 4, .tp = 1}, &dense, "wq", 0, 4,
                              false,         {0, 1, 2, 3, -1}},
                     few = {"three of eight", {.dp = 8, .tp = 1}, &dense, "ln.v", 0, 8, true,
                            {1, 4, 6, -1}};
  const fault *const both[] = {&split, &few};
  for (int i = 0; i < 2; i++)
    for (int processes = 1; processes <= 4; processes *= 2) {
      tsr_text want = {0};
      add_expected(both[i], processes, &want);
      run_job(&(job){both[i], processes, run_several}, want.data);
      tsr_text_free(&want);
    }
}

/* All that a rank has: the tensors are counted, and the first are named. */
static void run_all(const fault *f, const harness *h, tsr_replica_check *check, tsr_text *text) {
  const tsr_graph *g = h->placed;
  for (int v = 0; v < g->values_count; v++)
    if (g->values[v].kind == TSR_VALUE_PARAM || g->values[v].kind == TSR_VALUE_STATE)
      invert(h, g->values[v].name, f->rank, 8);
  report(h, check, text);
}

static void test_all(void) {
  static const fault f = {"all of a rank", {.dp = 4, .tp = 1}, &dense, "", 2, 4, true, {2, -1}};
  static const char *const first[] = {"wte", "ln", "wq", "wo"};
  for (int processes = 1; processes <= 4; processes *= 4) {
    tsr_text want = {0};
    for (int i = 0; i < 4; i++) {
      tsr_text_add(&want, "15 values: '%s', of 4 ranks wrong:", first[i]);
      add_rank(&f, processes, 2, &want);
      tsr_text_add(&want, "\n");
    }
    run_job(&(job){&f, processes, run_all}, want.data);
    tsr_text_free(&want);
  }
}

static bool is_set(const harness *h, const char *tensor, int rank, int bit) {
  const unsigned char *part =
      tsr_executable_address(h->executable, harness_find(h->placed, tensor), rank, 0);
  return part[bit / 8] >> bit % 8 & 1;
}

/* A bit that one tensor of a rank gains and another one loses at the same place: the sum of their
 * hashes stays. */
static void
run_opposite(const fault *f, const harness *h, tsr_replica_check *check, tsr_text *text) {
  int bit = 0;
  while (is_set(h, "wq", f->rank, bit) == is_set(h, "wo", f->rank, bit)) bit++;
  invert(h, "wq", f->rank, bit);
  invert(h, "wo", f->rank, bit);
  report(h, check, text);
}

static void test_opposite(void) {
  static const fault f = {"opposite bits", {.dp = 4, .tp = 1}, &dense, "", 2, 4, true, {2, -1}};
  static const char *const both[] = {"wq", "wo"};
  tsr_text want = {0};
  for (int i = 0; i < 2; i++) {
    tsr_text_add(&want, "2 values: '%s', of 4 ranks wrong:", both[i]);
    add_rank(&f, 1, 2, &want);
    tsr_text_add(&want, "\n");
  }
  run_job(&(job){&f, 1, run_opposite}, want.data);
  tsr_text_free(&want);
}

int main(void) {
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) test_fault(&faults[i]);
  test_several();
  test_all();
  test_opposite();
  return check_done("replicas");
}
