// SPDX-License-Identifier: Apache-2.0
#include "collective_case.h"
#include "collective_oracle.h"
#include <assert.h>
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD_BYTES = 64, GUARD = 0x77, POISON = 0xdb, POOL_THREADS = 3 };

uint64_t case_draw(uint64_t *state, uint64_t below) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return below ? z % below : z;
}

/* ---- tensors between guards ---- */

static int64_t guarded_bytes(int64_t bytes) { return (bytes + 63) / 64 * 64 + 2 * GUARD_BYTES; }

static char *guarded_fill(char *block, int64_t bytes, int fill) {
  memset(block, GUARD, (size_t)guarded_bytes(bytes));
  memset(block + GUARD_BYTES, fill, (size_t)bytes);
  return block + GUARD_BYTES;
}

static char *guarded_new(int64_t bytes, int fill) {
  char *block = aligned_alloc(64, (size_t)guarded_bytes(bytes));
  if (!block) abort();
  return guarded_fill(block, bytes, fill);
}

static bool guarded_is_whole(const char *memory, int64_t bytes) {
  int64_t end = (bytes + 63) / 64 * 64 + GUARD_BYTES;
  bool whole = true;
  for (int64_t i = -GUARD_BYTES; i < end; i++) {
    if (i == 0) i = bytes;
    whole = whole && (i >= end || memory[i] == GUARD);
  }
  return whole;
}

static void guarded_free(void *memory) {
  if (memory) free((char *)memory - GUARD_BYTES);
}

static bool adds_up(tsr_op op) {
  return op == TSR_OP_ALL_REDUCE || op == TSR_OP_REDUCE_SCATTER || op == TSR_OP_REDUCE;
}

static int64_t count_elements(const tsr_collective *c, bool after) {
  int64_t n = 1, blocks = c->members / c->groups;
  for (int d = 0; d < c->ndim; d++) n *= c->shape[d];
  if (c->op == TSR_OP_REDUCE_SCATTER && after) n /= blocks;
  if (c->op == TSR_OP_ALL_GATHER && !after) n /= blocks;
  if (c->op == TSR_OP_ALL_TO_ALL) n /= c->members;
  return n;
}

static int64_t count_bytes(const collective_case *c, bool after) {
  return count_elements(&c->c, after) * c->c.element;
}

/* Numbers whose sum depends on the order; some are -0. Member -1: what a sum is onto. */
static void fill_member(const collective_case *c, int member, float *in) {
  uint64_t state = c->seed * 31 + (uint64_t)member;
  int64_t bytes = count_bytes(c, false);
  bool adds = adds_up(c->c.op);
  for (int64_t i = 0; !adds && i < bytes; i += 8) {
    uint64_t bits = case_draw(&state, 0);
    memcpy((char *)in + i, &bits, (size_t)(bytes - i < 8 ? bytes - i : 8));
  }
  for (int64_t i = 0; adds && i < bytes / c->c.element; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u; /* Knuth's, for speed */
    float x = (float)(int32_t)(state >> 32) * (state >> 40 & 1 ? 1e-9f : 1e-6f);
    if ((state >> 41 & 0xf) == 0) x = -0.0f;
    collective_oracle_write(c->c.dtype, in, i, x);
  }
}

/* ---- cases ---- */

static void name_case(collective_case *c) {
  static const char *names[] = {
      [TSR_OP_ALL_REDUCE] = "all_reduce", [TSR_OP_REDUCE_SCATTER] = "reduce_scatter",
      [TSR_OP_ALL_GATHER] = "all_gather", [TSR_OP_RING_SHIFT] = "ring_shift",
      [TSR_OP_ALL_TO_ALL] = "all_to_all", [TSR_OP_BROADCAST] = "broadcast",
      [TSR_OP_REDUCE] = "reduce",
  };
  const tsr_collective *k = &c->c;
  int n = snprintf(
      c->name, sizeof c->name,
      "%s seed %llu groups %d dims %d->%d root %d by %d element %d%s%s%s%s%s%s shape", names[k->op],
      (unsigned long long)c->seed, k->groups, k->from, k->to, k->root, k->by, (int)k->element,
      k->zigzag ? " zigzag" : "", c->in_place ? " in place" : "",
      k->tree == TSR_TREE_FLAT ? " flat" : "", k->onto ? " onto" : "", c->ring ? " ring" : "",
      k->dtype == TSR_BF16  ? " bf16"
      : k->dtype == TSR_F16 ? " f16"
                            : "");
  for (int d = 0; d < k->ndim; d++)
    n += snprintf(c->name + n, sizeof c->name - (size_t)n, " %lld", (long long)k->shape[d]);
  n += snprintf(c->name + n, sizeof c->name - (size_t)n, " on ");
  for (int m = 0; m < k->members; m++)
    n += snprintf(c->name + n, sizeof c->name - (size_t)n, "%x", c->process_of[m]);
}

static void *find_group(const collective_case *c, const tsr_transport *t, case_groups *groups) {
  int processes[CASE_PROCESSES_MAX], count = 0, set = 0;
  char why[TSR_WHY_BYTES];
  for (int m = 0; m < c->c.members; m++) set |= 1 << c->process_of[m];
  for (int w = 0; w < t->processes; w++)
    if (set >> w & 1) processes[count++] = w;
  if (!groups->of[set] && !t->table->form(t->state, processes, count, &groups->of[set], why))
    abort();
  return groups->of[set];
}

/* Blocks, in turn, uneven blocks, one process has all, all but one, or anyhow. */
static void draw_hosting(collective_case *c, uint64_t *state, int processes) {
  int members = c->c.members, kind = (int)case_draw(state, 8), split = 1;
  int one = (int)case_draw(state, (uint64_t)processes), process = one;
  for (int m = 0; m < members; m++) {
    int *w = &c->process_of[m];
    if (kind <= 1) *w = (int)((int64_t)m * processes / members);
    else if (kind <= 3) *w = m % processes;
    else if (kind == 4) *w = process = (process + (case_draw(state, 3) == 0)) % processes;
    else if (kind == 5) *w = (one + (m >= split)) % processes;
    else if (kind == 6 && case_draw(state, 4)) *w = one;
    else *w = (int)case_draw(state, (uint64_t)processes);
  }
}

static void draw_shape(collective_case *c, uint64_t *state, int64_t scale) {
  tsr_collective *k = &c->c;
  int blocks = k->members / k->groups;
  int64_t elements = 1;
  k->ndim = 1 + (int)case_draw(state, k->op == TSR_OP_ALL_TO_ALL ? 3 : 4);
  if (k->op == TSR_OP_ALL_TO_ALL) k->ndim++;
  for (int d = 0; d < k->ndim; d++) k->shape[d] = 1 + (int64_t)case_draw(state, 5);
  if (k->op == TSR_OP_ALL_GATHER || k->op == TSR_OP_ALL_TO_ALL)
    k->from = (int)case_draw(state, (uint64_t)k->ndim);
  if (k->op == TSR_OP_REDUCE_SCATTER) k->to = (int)case_draw(state, (uint64_t)k->ndim);
  if (k->op == TSR_OP_ALL_TO_ALL)
    k->to = (k->from + 1 + (int)case_draw(state, (uint64_t)k->ndim - 1)) % k->ndim;
  if (k->from >= 0) k->shape[k->from] *= blocks * (k->zigzag ? 2 : 1);
  if (k->to >= 0) k->shape[k->to] *= blocks;
  for (int d = 0; d < k->ndim; d++) elements *= k->shape[d];
  int longer = (int)case_draw(state, (uint64_t)k->ndim);
  int64_t factor = scale / elements;
  if (factor > 1) k->shape[longer] *= 1 + (int64_t)case_draw(state, (uint64_t)factor);
}

void collective_case_draw(collective_case *c, uint64_t seed, int processes, int64_t scale) {
  static const tsr_op ops[] = {TSR_OP_ALL_REDUCE, TSR_OP_REDUCE_SCATTER, TSR_OP_ALL_GATHER,
                               TSR_OP_RING_SHIFT, TSR_OP_ALL_TO_ALL,     TSR_OP_BROADCAST,
                               TSR_OP_REDUCE};
  uint64_t state = seed;
  *c = (collective_case){.seed = seed};
  c->c = (tsr_collective){.op = ops[case_draw(&state, 7)], .groups = 1, .from = -1, .to = -1};
  c->c.k = tsr_kernels_get(NULL);
  c->c.members = 1 + (int)case_draw(&state, case_draw(&state, 3) ? 8 : CASE_MEMBERS_MAX);
  bool adds = adds_up(c->c.op);
  c->c.element = adds ? 4 : 1 << case_draw(&state, 4);
  c->in_place = c->c.op == TSR_OP_ALL_REDUCE && case_draw(&state, 2);
  c->pool = case_draw(&state, 2);
  if (c->c.op != TSR_OP_ALL_REDUCE && c->c.op != TSR_OP_RING_SHIFT && c->c.op != TSR_OP_ALL_TO_ALL)
    for (int tries = 0; tries < 2; tries++) {
      int groups = 1 + (int)case_draw(&state, (uint64_t)c->c.members);
      if (c->c.members % groups == 0) c->c.groups = groups;
    }
  c->c.zigzag = c->c.op == TSR_OP_ALL_GATHER && case_draw(&state, 3) == 0;
  if (c->c.op == TSR_OP_BROADCAST || c->c.op == TSR_OP_REDUCE)
    c->c.root = (int)case_draw(&state, (uint64_t)(c->c.members / c->c.groups));
  if (c->c.op == TSR_OP_RING_SHIFT) c->c.by = (int)case_draw(&state, 9) - 4;
  draw_hosting(c, &state, processes);
  draw_shape(c, &state, c->c.members > 4 ? scale * 4 / c->c.members : scale);
  c->ignores_hosts = adds && case_draw(&state, 4) == 0;
  c->ring = c->c.op == TSR_OP_ALL_REDUCE && case_draw(&state, 2);
  if (adds && case_draw(&state, 3) == 0) c->c.tree = TSR_TREE_FLAT;
  c->c.onto = c->c.tree == TSR_TREE_FLAT && !c->in_place && case_draw(&state, 2);
  if (adds && case_draw(&state, 3) == 0) {
    c->c.dtype = case_draw(&state, 2) ? TSR_BF16 : TSR_F16;
    c->c.element = 2;
  }
  name_case(c);
}

void collective_case_plain(collective_case *c, tsr_op op, int processes, int64_t elements) {
  *c = (collective_case){.seed = (uint64_t)elements, .in_place = op == TSR_OP_ALL_REDUCE};
  c->c = (tsr_collective){.op = op, .members = processes, .groups = 1, .ndim = 1, .element = 4};
  c->c.k = tsr_kernels_get(NULL);
  c->c.shape[0] = elements;
  c->c.from = op == TSR_OP_ALL_GATHER ? 0 : -1;
  c->c.to = -1;
  for (int m = 0; m < processes; m++) c->process_of[m] = m;
  name_case(c);
}

/* A sum is onto the same, whichever members get it. */
static void fill_before(collective_case *c, float *whole) {
  fill_member(c, -1, whole);
  collective_oracle_place(&c->c, whole);
  for (int m = 0; m < c->c.members; m++) {
    c->before[m] = (float *)(void *)guarded_new(count_bytes(c, true), 0);
    memcpy(c->before[m], c->c.out[m], (size_t)count_bytes(c, true));
  }
}

void collective_case_reference(collective_case *c) {
  float **in = calloc(CASE_MEMBERS_MAX, sizeof *in), **out = calloc(CASE_MEMBERS_MAX, sizeof *out);
  for (int m = 0; m < c->c.members; m++) {
    in[m] = (float *)(void *)guarded_new(count_bytes(c, false), 0);
    out[m] = (float *)(void *)guarded_new(count_bytes(c, true), 0);
    fill_member(c, m, in[m]);
  }
  c->c.in = in;
  c->c.out = out;
  float *before = (float *)(void *)guarded_new(count_bytes(c, false), 0);
  if (c->c.onto) fill_before(c, before);
  tsr_arena *arena = tsr_arena_new();
  const tsr_collective_request request = {
      &c->c, tsr_layout_alone(arena, c->c.members), false, false};
  const tsr_step_list *list = tsr_algorithm_plan(arena, &request);
  /* In two parts, as two threads would, that begin anywhere. */
  int64_t items = tsr_in_process_items(list), part = items * (int64_t)(c->seed % 7) / 7;
  tsr_in_process_run_range(list, &c->c, part, items);
  tsr_in_process_run_range(list, &c->c, 0, part);
  tsr_arena_free(arena);
  int64_t wrong = collective_oracle_differences(&c->c, before);
  guarded_free(before);
  if (!wrong) return;
  fprintf(stderr, "%s: %lld elements are not what they should be\n", c->name, (long long)wrong);
  abort();
}

void collective_case_free(collective_case *c) {
  for (int m = 0; m < c->c.members; m++) {
    guarded_free(c->c.in[m]);
    guarded_free(c->c.out[m]);
    guarded_free(c->before[m]);
  }
  free((void *)c->c.in);
  free((void *)c->c.out);
}

/* ---- a process's part ---- */

/* Jobs in the other order than one would think of, or each on a thread of its own. */
static void
run_backwards(void *pool, void (*job)(void *context, int job), void *context, int jobs) {
  (void)pool;
  while (jobs) job(context, --jobs);
}

typedef struct {
  void (*job)(void *context, int job);
  void *context;
  int index;
} thread_job;

static void *run_thread_job(void *context) {
  thread_job *j = context;
  j->job(j->context, j->index);
  return NULL;
}

static void run_threads(void *pool, void (*job)(void *context, int job), void *context, int jobs) {
  pthread_t ids[POOL_THREADS];
  thread_job all[POOL_THREADS];
  (void)pool;
  assert(jobs <= POOL_THREADS);
  for (int i = 0; i < jobs; i++) {
    all[i] = (thread_job){job, context, i};
    if (pthread_create(&ids[i], NULL, run_thread_job, &all[i])) abort();
  }
  for (int i = 0; i < jobs; i++) pthread_join(ids[i], NULL);
}

/* A reduce's result is the roots' alone. */
static bool gets_nothing(const tsr_collective *c, int member) {
  return c->op == TSR_OP_REDUCE && member % (c->members / c->groups) != c->root;
}

int64_t collective_case_shared_bytes(const collective_case *c, int process) {
  int64_t each = guarded_bytes(count_bytes(c, false)) + guarded_bytes(count_bytes(c, true));
  int members = 0;
  for (int m = 0; m < c->c.members; m++) members += c->process_of[m] == process;
  return members * each;
}

/* The blocks of a member, which its process fills. */
static void find_shared(const collective_case *c, int member, char **ret_in, char **ret_out) {
  int64_t in = guarded_bytes(count_bytes(c, false)), out = guarded_bytes(count_bytes(c, true));
  char *at = c->regions[c->process_of[member]];
  for (int m = 0; m < member; m++) at += c->process_of[m] == c->process_of[member] ? in + out : 0;
  *ret_in = at;
  *ret_out = at + in;
}

static float *new_tensor(const collective_case *c, char *shared, int64_t bytes, int fill) {
  char *memory = c->regions ? guarded_fill(shared, bytes, fill) : guarded_new(bytes, fill);
  return (float *)(void *)memory;
}

/* The tensors of its members; whether it hosts any. */
static bool place_members(case_process *w) {
  const collective_case *c = w->of;
  bool hosts = false;
  for (int m = 0; m < c->c.members; m++) {
    char *in = NULL, *out = NULL;
    if (c->regions) find_shared(c, m, &in, &out);
    if (c->process_of[m] != w->transport.process) continue;
    hosts = true;
    w->in[m] = new_tensor(c, in, count_bytes(c, false), 0);
    memcpy(w->in[m], c->c.in[m], (size_t)count_bytes(c, false));
    w->out[m] = w->in[m];
    if (!c->in_place) w->out[m] = new_tensor(c, out, count_bytes(c, true), POISON);
    if (c->before[m] && !gets_nothing(&c->c, m))
      memcpy(w->out[m], c->before[m], (size_t)count_bytes(c, true));
  }
  return hosts;
}

static const tsr_layout *plan_layout(case_process *w, int process) {
  const collective_case *c = w->of;
  w->arena = tsr_arena_new();
  return tsr_layout_new(w->arena, c->c.members, c->process_of, c->hosts, process);
}

void case_process_run(
    case_process *w, const collective_case *c, int process, const tsr_device *device) {
  *w = (case_process){.of = c, .transport = {.process = process}, .state = TSR_PENDING_DONE};
  int processes[CASE_PROCESSES_MAX], count = 0;
  for (int i = 0; i < CASE_PROCESSES_MAX; i++)
    for (int m = 0; m < c->c.members; m++)
      if (c->process_of[m] == i && (!count || processes[count - 1] != i)) processes[count++] = i;
  if (!place_members(w)) return;
  tsr_collective own = c->c;
  own.in = w->in;
  own.out = w->out;
  tsr_collective_request request = {
      .collective = &own, .on_device = true, .ignores_hosts = c->ignores_hosts, .ring = c->ring};
  request.layout = plan_layout(w, process);
  tsr_device_exchange call = {
      device, tsr_algorithm_plan(w->arena, &request), request.layout, &own, processes};
  w->staging_bytes = tsr_step_list_staging_bytes(call.list);
  w->staging = guarded_new(w->staging_bytes, POISON);
  tsr_device_message *room = calloc((size_t)call.list->messages_of_phase + 1, sizeof *room);
  tsr_device_exchange_begin(&call, w->staging, room);
  free(room);
}

void case_process_begin(
    case_process *w, const collective_case *c, const tsr_transport *t, int tag,
    case_groups *groups) {
  *w = (case_process){.of = c, .groups = groups, .transport = *t, .state = TSR_PENDING_DONE};
  if (!place_members(w)) return;
  float *in[CASE_MEMBERS_MAX], *out[CASE_MEMBERS_MAX];
  tsr_collective own = c->c;
  own.in = in;
  own.out = out;
  for (int m = 0; m < own.members; m++) {
    char *shared_in = NULL, *shared_out = NULL;
    if (c->regions) find_shared(c, m, &shared_in, &shared_out);
    bool other = c->regions && !w->in[m];
    in[m] = other ? (float *)(void *)(shared_in + GUARD_BYTES) : w->in[m];
    out[m] = !other ? w->out[m] : c->in_place ? in[m] : (float *)(void *)(shared_out + GUARD_BYTES);
  }
  tsr_pending_call call = {
      .transport = &w->transport, .collective = &own, .tag = tag, .threads = 1};
  if (groups) call.group = find_group(c, t, groups);
  if (c->pool) call.run = c->seed % 2 ? run_backwards : run_threads, call.threads = POOL_THREADS;
  call.layout = plan_layout(w, t->process);
  const tsr_collective_request request = {
      &own, call.layout, false, call.group != NULL, c->ignores_hosts, c->ring, c->regions != NULL};
  call.list = tsr_algorithm_plan(w->arena, &request);
  w->staging_bytes = tsr_pending_bytes(call.list, own.members);
  w->staging = guarded_new(w->staging_bytes, POISON);
  w->state = TSR_PENDING;
  w->pending = tsr_pending_begin(&call, w->staging);
}

static int64_t find_difference(const void *a, const void *b, int64_t bytes) {
  if (!memcmp(a, b, (size_t)bytes)) return -1;
  int64_t at = 0;
  while (((const char *)a)[at] == ((const char *)b)[at]) at++;
  return at;
}

static int wrong(const case_process *w, int member, const char *what, int64_t at) {
  fprintf(
      stderr, "%s: process %d member %d: %s %lld\n", w->of->name, w->transport.process, member,
      what, (long long)at);
  return 1;
}

static bool is_library(const case_process *w) {
  const tsr_collective *c = &w->of->c;
  return w->groups && !c->onto &&
         tsr_algorithm_has_library_sum(c->op, c->dtype, c->groups, count_elements(c, false));
}

/* The first element that is further from the reference than two orders of the same sum of n can be:
 * n eps sum |x| (Higham, Accuracy and Stability, 4.2); -1: none. */
static int64_t find_far(const case_process *w, int member) {
  const tsr_collective *c = &w->of->c;
  int64_t count = count_elements(c, true), run = count, whole = count, slice = 0, first = -1;
  if (c->op == TSR_OP_REDUCE_SCATTER) {
    whole = 1;
    for (int d = c->to; d < c->ndim; d++) whole *= c->shape[d];
    run = whole / c->members;
    slice = member * run;
  }
  w->groups->sums += count;
  for (int64_t i = 0; i < count; i++) {
    double sizes = 0, away = (double)w->out[member][i] - (double)c->out[member][i];
    for (int m = 0; m < c->members; m++)
      sizes += fabs((double)c->in[m][i / run * whole + slice + i % run]);
    w->groups->others += away != 0;
    if (first < 0 && !(fabs(away) <= c->members * (double)FLT_EPSILON * sizes)) first = i;
  }
  return first;
}

/* The first byte that was written of a tensor that nobody was to write; -1: none. */
static int64_t find_written(const case_process *w, int member, int64_t bytes) {
  const char *out = (const char *)w->out[member];
  for (int64_t i = 0; i < bytes; i++)
    if (out[i] != (char)POISON) return i;
  return -1;
}

int case_process_end(case_process *w) {
  const collective_case *c = w->of;
  int64_t before = count_bytes(c, false), after = count_bytes(c, true);
  int failed = 0;
  if (w->state == TSR_PENDING_FAILED) failed += wrong(w, -1, tsr_pending_why(w->pending), 0);
  for (int m = 0; m < c->c.members; m++) {
    if (!w->in[m]) continue;
    int64_t at = gets_nothing(&c->c, m) ? find_written(w, m, after)
                 : is_library(w)        ? find_far(w, m)
                                        : find_difference(w->out[m], c->c.out[m], after);
    if (at >= 0) failed += wrong(w, m, "another result at", at);
    if (!guarded_is_whole((char *)w->out[m], after)) failed += wrong(w, m, "wrote beside", after);
    if (!c->in_place) {
      at = find_difference(w->in[m], c->c.in[m], before);
      if (at >= 0) failed += wrong(w, m, "its input changed at byte", at);
      if (!guarded_is_whole((char *)w->in[m], before)) failed += wrong(w, m, "wrote beside", 0);
    }
  }
  if (w->staging && !guarded_is_whole(w->staging, w->staging_bytes))
    failed += wrong(w, -1, "wrote beside the staging memory of", w->staging_bytes);
  case_process_free(w);
  return failed;
}

void case_process_free(case_process *w) {
  for (int m = 0; m < w->of->c.members; m++) {
    if (w->of->regions) continue;
    if (!w->of->in_place) guarded_free(w->out[m]);
    guarded_free(w->in[m]);
  }
  guarded_free(w->staging);
  tsr_arena_free(w->arena);
}
