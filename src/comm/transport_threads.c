// SPDX-License-Identifier: Apache-2.0
#include "comm/transport_threads.h"
#include "base/arena.h"
#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

enum { SUM_TAG = TSR_TRANSPORT_TAGS, SUM_BLOCK = 4096 };

/* A send or a receive. While nothing matches it, it is in a list of its receiver's. */
typedef struct operation {
  struct operation *next, *partner;
  bool is_send;
  int from, to, tag;
  void *data;
  int64_t bytes, came; /* `came`: of a receive, the bytes that the sender sent */
  uint64_t due;        /* of a send */
  tsr_message_state state;
} operation;

/* A sum of a group: each of its processes has begun it, or will. */
typedef struct sum {
  struct sum *next; /* the group's next one */
  struct part {
    const float *in;
    float *out;
    int64_t count;     /* of `in` */
    const int *counts; /* NULL: all get all */
  } * parts;           /* per process of the group */
  int begun;
  tsr_message_state state;
} sum;

typedef struct group {
  struct group *next;
  tsr_threads *threads;
  int *processes, count;
  struct member {
    struct group *group;
    int index; /* among its processes */
    bool formed;
    sum **next; /* where the sum stands that it begins next */
  } * members;
  sum *first;
} group;
typedef struct member member;

typedef struct {
  tsr_threads *threads;
  int process;
  char host[24];
  tsr_threads_fate fate;
  operation *sends, *receives; /* to this process, without a partner; the oldest first */
} endpoint;

struct tsr_threads {
  tsr_arena *arena;
  tsr_threads_options options;
  pthread_mutex_t mutex; /* of all below, and of the endpoints' fates and lists */
  endpoint *endpoints;
  operation *spare;
  group *groups;
  uint64_t clock, random; /* the clock counts calls of test */
  bool ended;
  int ended_by, ended_code;
};

/* splitmix64 */
static uint64_t draw(tsr_threads *t) {
  uint64_t z = t->random += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static operation *take_spare(tsr_threads *t) {
  operation *o = t->spare;
  if (!o) return tsr_arena_alloc(t->arena, sizeof *o);
  t->spare = o->next;
  *o = (operation){0};
  return o;
}

/* Takes the oldest that fits out of the list, or `exactly` that one; NULL if there is none. */
static operation *take_out(operation **list, const operation *like, const operation *exactly) {
  for (operation **at = list; *at; at = &(*at)->next) {
    operation *o = *at;
    if (exactly ? o != exactly : o->from != like->from || o->tag != like->tag) continue;
    *at = o->next;
    o->next = NULL;
    return o;
  }
  return NULL;
}

static operation **list_of(tsr_threads *t, const operation *o) {
  return o->is_send ? &t->endpoints[o->to].sends : &t->endpoints[o->to].receives;
}

static void begin(tsr_threads *t, const operation *what, tsr_message *ret) {
  pthread_mutex_lock(&t->mutex);
  operation *o = take_spare(t);
  *o = *what;
  o->state = TSR_MESSAGE_PENDING;
  if (o->is_send && t->options.delay)
    o->due = t->clock + draw(t) % ((uint64_t)t->options.delay + 1);
  endpoint *receiver = &t->endpoints[o->to];
  o->partner = take_out(o->is_send ? &receiver->receives : &receiver->sends, o, NULL);
  if (o->partner) o->partner->partner = o;
  else {
    operation **at = list_of(t, o);
    while (*at) at = &(*at)->next;
    *at = o;
  }
  *ret = (tsr_message){.words = {o}};
  pthread_mutex_unlock(&t->mutex);
}

static bool begin_send(
    void *state, int to, int tag, const void *from, int64_t bytes, tsr_message *ret, char *why) {
  endpoint *e = state;
  (void)why;
  assert(to >= 0 && to < e->threads->options.processes && bytes >= 0);
  assert(tag >= 0 && tag <= SUM_TAG);
  operation o = {.is_send = true, .from = e->process, .to = to, .tag = tag, .bytes = bytes};
  o.data = (void *)(uintptr_t)from; /* read only, as it is a send */
  begin(e->threads, &o, ret);
  return true;
}

static bool begin_receive(
    void *state, int from, int tag, void *to, int64_t bytes, tsr_message *ret, char *why) {
  endpoint *e = state;
  (void)why;
  assert(from >= 0 && from < e->threads->options.processes && bytes >= 0);
  assert(tag >= 0 && tag <= SUM_TAG);
  operation o = {.from = from, .to = e->process, .tag = tag, .data = to, .bytes = bytes};
  begin(e->threads, &o, ret);
  return true;
}

/* Both are posted and the delivery time has come. */
static void deliver(operation *o) {
  operation *send = o->is_send ? o : o->partner, *receive = send->partner;
  receive->came = send->bytes;
  if (send->bytes == receive->bytes && send->bytes)
    memcpy(receive->data, send->data, (size_t)send->bytes);
  receive->state = send->bytes == receive->bytes ? TSR_MESSAGE_DONE : TSR_MESSAGE_FAILED;
  send->state = TSR_MESSAGE_DONE;
  send->partner = receive->partner = NULL;
}

/* The job ended or a side is gone: the operation fails and leaves no trace. */
static void fail(tsr_threads *t, operation *o) {
  o->state = TSR_MESSAGE_FAILED;
  o->came = o->bytes;
  if (o->partner) o->partner->partner = NULL;
  else take_out(list_of(t, o), NULL, o);
  o->partner = NULL;
}

static void explain(tsr_threads *t, const operation *o, char *why) {
  int gone = t->endpoints[o->from].fate == TSR_THREADS_GONE ? o->from : o->to;
  long long came = o->came, bytes = o->bytes;
  if (came > bytes)
    snprintf(
        why, TSR_WHY_BYTES, "process %d sent more than the %lld bytes that were asked for (tag %d)",
        o->from, bytes, o->tag);
  else if (came < bytes)
    snprintf(
        why, TSR_WHY_BYTES, "process %d sent %lld of the %lld bytes that were asked for (tag %d)",
        o->from, came, bytes, o->tag);
  else if (t->ended)
    snprintf(
        why, TSR_WHY_BYTES, "process %d ended the job with code %d", t->ended_by, t->ended_code);
  else snprintf(why, TSR_WHY_BYTES, "process %d is gone", gone);
}

/* ---- sums of groups ---- */

static group *new_group(tsr_threads *t, const int *processes, int count) {
  group *g = tsr_arena_alloc(t->arena, sizeof *g);
  *g = (group){.next = t->groups, .threads = t, .count = count};
  g->processes = tsr_arena_array(t->arena, int, count);
  memcpy(g->processes, processes, sizeof(int) * (size_t)count);
  g->members = tsr_arena_array(t->arena, member, count);
  for (int i = 0; i < count; i++)
    g->members[i] = (member){.group = g, .index = i, .next = &g->first};
  return t->groups = g;
}

/* Groups of the same processes are told apart by the order in which they are formed. */
static bool form_group(void *state, const int *processes, int count, void **ret_group, char *why) {
  endpoint *e = state;
  tsr_threads *t = e->threads;
  int own = 0;
  (void)why;
  while (processes[own] != e->process) own++;
  pthread_mutex_lock(&t->mutex);
  group *found = NULL; /* the oldest that it is not in */
  for (group *g = t->groups; g; g = g->next)
    if (g->count == count && !memcmp(g->processes, processes, sizeof(int) * (size_t)count) &&
        !g->members[own].formed)
      found = g;
  if (!found) found = new_group(t, processes, count);
  found->members[own].formed = true;
  pthread_mutex_unlock(&t->mutex);
  *ret_group = &found->members[own];
  return true;
}

static bool begin_part(void *of, struct part part, tsr_message *ret) {
  member *m = of;
  tsr_threads *t = m->group->threads;
  pthread_mutex_lock(&t->mutex);
  if (!*m->next) {
    *m->next = tsr_arena_alloc(t->arena, sizeof(sum));
    **m->next = (sum){.parts = tsr_arena_array(t->arena, struct part, m->group->count)};
  }
  sum *s = *m->next;
  s->parts[m->index] = part;
  s->begun++;
  m->next = &s->next;
  *ret = (tsr_message){.words = {s, m}};
  pthread_mutex_unlock(&t->mutex);
  return true;
}

static bool
begin_sum(void *of, const float *in, float *out, int64_t count, tsr_message *ret, char *why) {
  (void)why;
  return begin_part(of, (struct part){in, out, count, NULL}, ret);
}

static bool begin_sum_of_slices(
    void *of, const float *in, float *out, const int *counts, tsr_message *ret, char *why) {
  int64_t count = 0;
  (void)why;
  for (int i = 0; i < ((member *)of)->group->count; i++) count += counts[i];
  return begin_part(of, (struct part){in, out, count, counts}, ret);
}

/* From the last process to the first, which is not the order of the tree. */
static tsr_message_state add_parts(const group *g, const sum *s) {
  const struct part *first = s->parts;
  for (int i = 1; i < g->count; i++)
    if (s->parts[i].count != first->count || !s->parts[i].counts != !first->counts)
      return TSR_MESSAGE_FAILED;
  int owner = 0;
  for (int64_t i = 0, begin = 0; i < first->count; i++) {
    float sum_of_all = s->parts[g->count - 1].in[i];
    for (int w = g->count - 2; w >= 0; w--) sum_of_all += s->parts[w].in[i];
    while (first->counts && i - begin == first->counts[owner]) begin += first->counts[owner++];
    for (int w = 0; w < g->count; w++)
      if (!first->counts) s->parts[w].out[i] = sum_of_all;
      else if (w == owner) s->parts[w].out[i - begin] = sum_of_all;
  }
  return TSR_MESSAGE_DONE;
}

/* With the mutex. */
static tsr_message_state test_sum(const member *m, sum *s, char *why) {
  const group *g = m->group;
  tsr_threads *t = g->threads;
  bool runs = true;
  for (int i = 0; i < g->count && s->state == TSR_MESSAGE_PENDING; i++) {
    tsr_threads_fate fate = t->endpoints[g->processes[i]].fate;
    runs = runs && fate == TSR_THREADS_RUNS;
    if (fate == TSR_THREADS_GONE)
      snprintf(why, TSR_WHY_BYTES, "process %d is gone", g->processes[i]);
    if (fate == TSR_THREADS_GONE) return TSR_MESSAGE_FAILED;
  }
  if (s->state == TSR_MESSAGE_PENDING && t->ended) {
    snprintf(
        why, TSR_WHY_BYTES, "process %d ended the job with code %d", t->ended_by, t->ended_code);
    return TSR_MESSAGE_FAILED;
  }
  if (s->state == TSR_MESSAGE_PENDING && runs && s->begun == g->count) s->state = add_parts(g, s);
  if (s->state == TSR_MESSAGE_FAILED)
    snprintf(why, TSR_WHY_BYTES, "the group's processes do not mean the same sum");
  return s->state;
}

static tsr_message_state test_message(void *state, tsr_message *message, char *why) {
  endpoint *e = state;
  tsr_threads *t = e->threads;
  if (message->words[1]) {
    pthread_mutex_lock(&t->mutex);
    tsr_message_state of = test_sum(message->words[1], message->words[0], why);
    pthread_mutex_unlock(&t->mutex);
    return of;
  }
  operation *o = message->words[0];
  pthread_mutex_lock(&t->mutex);
  t->clock++;
  if (o->state == TSR_MESSAGE_PENDING) {
    tsr_threads_fate from = t->endpoints[o->from].fate, to = t->endpoints[o->to].fate;
    if (t->ended || from == TSR_THREADS_GONE || to == TSR_THREADS_GONE) fail(t, o);
    else if (from == TSR_THREADS_RUNS && to == TSR_THREADS_RUNS && o->partner) {
      if (t->clock >= (o->is_send ? o : o->partner)->due) deliver(o);
    }
  }
  tsr_message_state now = o->state;
  if (now == TSR_MESSAGE_FAILED) explain(t, o, why);
  if (now != TSR_MESSAGE_PENDING) {
    o->next = t->spare;
    t->spare = o;
    message->words[0] = NULL;
  }
  pthread_mutex_unlock(&t->mutex);
  return now;
}

static bool finish(endpoint *e, tsr_message *message, char *why) {
  for (;;) {
    tsr_message_state now = test_message(e, message, why);
    if (now != TSR_MESSAGE_PENDING) return now == TSR_MESSAGE_DONE;
    sched_yield();
  }
}

static bool pass(endpoint *e, bool is_send, int peer, float *numbers, int64_t count, char *why) {
  tsr_message message;
  int64_t bytes = count * (int64_t)sizeof(float);
  if (is_send) begin_send(e, peer, SUM_TAG, numbers, bytes, &message, why);
  else begin_receive(e, peer, SUM_TAG, numbers, bytes, &message, why);
  return finish(e, &message, why);
}

/* Process 0 adds the summands in the order of the processes, and sends the sum back. */
static bool sum_all(void *state, float *numbers, int64_t count, char *why) {
  endpoint *e = state;
  int processes = e->threads->options.processes;
  for (int64_t at = 0; at < count; at += SUM_BLOCK) {
    float other[SUM_BLOCK], *own = numbers + at;
    int64_t n = count - at < SUM_BLOCK ? count - at : SUM_BLOCK;
    if (e->process) {
      if (!pass(e, true, 0, own, n, why) || !pass(e, false, 0, own, n, why)) return false;
      continue;
    }
    for (int w = 1; w < processes; w++) {
      if (!pass(e, false, w, other, n, why)) return false;
      for (int64_t i = 0; i < n; i++) own[i] += other[i];
    }
    for (int w = 1; w < processes; w++)
      if (!pass(e, true, w, own, n, why)) return false;
  }
  return true;
}

static bool open_none(void **ret_state, int *ret_process, int *ret_processes, char *why) {
  (void)ret_state, (void)ret_process, (void)ret_processes;
  snprintf(why, TSR_WHY_BYTES, "endpoints of threads are made, not opened");
  return false;
}

static const char *get_version(void *state) {
  (void)state;
  return "threads";
}

static const char *get_host(void *state, int process) {
  endpoint *e = state;
  assert(process >= 0 && process < e->threads->options.processes);
  return e->threads->endpoints[process].host;
}

static void close_none(void *state) { (void)state; }

static void abort_all(void *state, int code) {
  endpoint *e = state;
  tsr_threads *t = e->threads;
  pthread_mutex_lock(&t->mutex);
  if (!t->ended) {
    t->ended = true;
    t->ended_by = e->process;
    t->ended_code = code;
  }
  pthread_mutex_unlock(&t->mutex);
  pthread_exit(NULL);
}

static const tsr_transport_table table = {
    .abi = TSR_TRANSPORT_ABI,
    .bytes = sizeof(tsr_transport_table),
    .name = "threads",
    .open = open_none,
    .version = get_version,
    .host = get_host,
    .send = begin_send,
    .receive = begin_receive,
    .test = test_message,
    .all_reduce = sum_all,
    .form = form_group,
    .sum = begin_sum,
    .sum_slices = begin_sum_of_slices,
    .close = close_none,
    .abort = abort_all,
};

tsr_threads *tsr_threads_new(const tsr_threads_options *options) {
  assert(options->processes >= 1 && options->delay >= 0);
  tsr_arena *arena = tsr_arena_new();
  tsr_threads *t = tsr_arena_alloc(arena, sizeof *t);
  *t = (tsr_threads){.arena = arena, .options = *options, .random = options->seed};
  pthread_mutex_init(&t->mutex, NULL);
  t->endpoints = tsr_arena_array(arena, endpoint, options->processes);
  for (int w = 0; w < options->processes; w++) {
    endpoint *e = &t->endpoints[w];
    *e = (endpoint){.threads = t, .process = w};
    snprintf(e->host, sizeof e->host, "host%d", options->per_host ? w / options->per_host : 0);
  }
  return t;
}

void tsr_threads_free(tsr_threads *threads) {
  pthread_mutex_destroy(&threads->mutex);
  tsr_arena_free(threads->arena);
}

void tsr_threads_endpoint(tsr_threads *threads, int process, tsr_transport *ret_transport) {
  assert(process >= 0 && process < threads->options.processes);
  *ret_transport = (tsr_transport){
      .table = &table,
      .state = &threads->endpoints[process],
      .process = process,
      .processes = threads->options.processes,
      .why = "threads of this process"};
}

void tsr_threads_set_fate(tsr_threads *threads, int process, tsr_threads_fate fate) {
  assert(process >= 0 && process < threads->options.processes);
  pthread_mutex_lock(&threads->mutex);
  threads->endpoints[process].fate = fate;
  pthread_mutex_unlock(&threads->mutex);
}

bool tsr_threads_ended(tsr_threads *threads, int *ret_process, int *ret_code) {
  pthread_mutex_lock(&threads->mutex);
  bool ended = threads->ended;
  *ret_process = threads->ended_by;
  *ret_code = threads->ended_code;
  pthread_mutex_unlock(&threads->mutex);
  return ended;
}
