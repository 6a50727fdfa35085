/* Collectives between workers: memory, messages, and what both kinds (remote_sum.c, remote_move.c)
 * have in common. */
#include "comm/remote_internal.h"
#include <assert.h>
#include <string.h>

enum { ALIGNMENT = 64 };

bool tsr_remote_adds(const tsr_collective *c) {
  return c->op == TSR_OP_ALL_REDUCE || c->op == TSR_OP_REDUCE_SCATTER;
}

int64_t tsr_remote_chunk_bytes(int64_t chunks) {
  int64_t bytes = TSR_REMOTE_STAGING_BYTES / (chunks > 0 ? chunks : 1);
  if (bytes < TSR_REMOTE_CHUNK_BYTES_MIN) bytes = TSR_REMOTE_CHUNK_BYTES_MIN;
  if (bytes > TSR_REMOTE_CHUNK_BYTES) bytes = TSR_REMOTE_CHUNK_BYTES;
  return bytes / ALIGNMENT * ALIGNMENT;
}

void *tsr_remote_take(tsr_remote_memory *memory, int64_t bytes) {
  void *taken = memory->base ? memory->base + memory->used : NULL;
  memory->used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  return taken;
}

/* ---- memory ---- */

/* The workers that host a member, one after the other. Their numbers, and their machines', mostly
 * rise with the members, and what is larger than all before is new without a search. */
typedef struct {
  const tsr_remote_call *call;
  int member;                      /* of the worker that was found; -1: none yet */
  bool has_machine;                /* it is the first on its machine */
  int most, machine_most, machine; /* of what was found so far; machine: the last one's */
} worker_search;

static bool has_before(const worker_search *s, int worker) {
  for (int m = 0; m < s->member; m++)
    if (s->call->worker_of[m] == worker) return true;
  return false;
}

static bool has_machine_before(const worker_search *s, int machine) {
  for (int m = 0; m < s->member; m++)
    if (tsr_remote_machine(s->call, s->call->worker_of[m]) == machine) return true;
  return false;
}

static bool next_worker(worker_search *s) {
  const int *worker_of = s->call->worker_of;
  while (++s->member < s->call->collective->members) {
    int worker = worker_of[s->member];
    bool again = s->member > 0 && worker == worker_of[s->member - 1];
    if (again || (worker <= s->most && has_before(s, worker))) continue;
    int machine = tsr_remote_machine(s->call, worker);
    bool larger = machine > s->machine_most;
    s->has_machine = larger || (machine != s->machine && !has_machine_before(s, machine));
    if (worker > s->most) s->most = worker;
    if (larger) s->machine_most = machine;
    s->machine = machine;
    return true;
  }
  return false;
}

static worker_search search_workers(const tsr_remote_call *call) {
  return (worker_search){.call = call, .member = -1, .most = -1, .machine_most = -1, .machine = -1};
}

/* Counts the workers that host a member, and their machines. */
static void find_workers(tsr_remote *r) {
  int own = tsr_remote_machine(&r->call, r->call.transport->worker);
  for (worker_search s = search_workers(&r->call); next_worker(&s);) {
    r->workers_count++;
    r->machines_count += s.has_machine;
    r->mates_count += own == s.machine;
  }
}

bool tsr_remote_is_library(tsr_op op, int groups, int64_t elements) {
  bool has = op == TSR_OP_ALL_REDUCE || (op == TSR_OP_REDUCE_SCATTER && groups == 1);
  return has && elements > 0 && elements <= TSR_TRANSPORT_SUM_MAX;
}

static const tsr_remote_kind *kind_of(const tsr_remote *r) {
  const tsr_collective *c = &r->c;
  if (r->call.group &&
      tsr_remote_is_library(c->op, c->groups, tsr_collective_elements(c, 0, c->ndim)))
    return &tsr_remote_library_sums;
  return tsr_remote_adds(c) ? &tsr_remote_sums : &tsr_remote_moves;
}

static void lay_out(tsr_remote *r, const tsr_remote_call *call, tsr_remote_memory *memory) {
  int members = call->collective->members;
  r->call = *call;
  r->c = *call->collective;
  r->kind = kind_of(r);
  find_workers(r);
  r->c.in = TSR_REMOTE_TAKE(memory, float *, members);
  r->c.out = TSR_REMOTE_TAKE(memory, float *, members);
  if (r->workers_count == 1) return;
  r->workers = TSR_REMOTE_TAKE(memory, int, r->workers_count);
  r->first = TSR_REMOTE_TAKE(memory, int, r->workers_count);
  r->last = TSR_REMOTE_TAKE(memory, int, r->workers_count);
  r->host = TSR_REMOTE_TAKE(memory, int, members);
  if (r->machines_count > 1) {
    r->machine = TSR_REMOTE_TAKE(memory, int, r->workers_count);
    r->position = TSR_REMOTE_TAKE(memory, int, r->workers_count);
    r->size = TSR_REMOTE_TAKE(memory, int, r->machines_count);
  }
  r->kind->lay_out(r, memory);
  r->messages = TSR_REMOTE_TAKE(memory, tsr_remote_message, r->messages_count);
  r->order = TSR_REMOTE_TAKE(memory, int, r->messages_count);
}

int64_t tsr_remote_bytes(const tsr_remote_call *call) {
  tsr_remote counted = {0};
  tsr_remote_memory memory = {0};
  tsr_remote_take(&memory, sizeof counted);
  lay_out(&counted, call, &memory);
  return memory.used;
}

/* Machines by their first workers, and the workers of each. */
static void prepare_machines(tsr_remote *r) {
  int machines = 0, most = -1;
  memset(r->size, 0, sizeof(int) * (size_t)r->machines_count);
  for (int w = 0; w < r->workers_count; w++) {
    int machine = tsr_remote_machine(&r->call, r->workers[w]), first = w;
    if (w > 0 && machine == tsr_remote_machine(&r->call, r->workers[w - 1])) first = w - 1;
    else if (machine > most) most = machine;
    else
      for (first = 0; tsr_remote_machine(&r->call, r->workers[first]) != machine;) first++;
    r->machine[w] = first < w ? r->machine[first] : machines++;
    r->position[w] = r->size[r->machine[w]]++;
  }
  assert(machines == r->machines_count && r->size[r->machine[r->me]] == r->mates_count);
}

static void prepare(tsr_remote *r) {
  int workers = 0;
  for (worker_search s = search_workers(&r->call); next_worker(&s); workers++) {
    r->workers[workers] = r->call.worker_of[s.member];
    r->first[workers] = s.member;
  }
  r->me = -1;
  for (int i = 0; i < r->workers_count; i++)
    if (r->workers[i] == r->call.transport->worker) r->me = i;
  assert(r->me >= 0);
  for (int m = 0; m < r->c.members; m++) {
    int host = m > 0 ? r->host[m - 1] : 0;
    while (r->workers[host] != r->call.worker_of[m])
      host = host + 1 < r->workers_count ? host + 1 : 0;
    r->host[m] = host;
    r->last[host] = m;
  }
  if (r->machines_count > 1) prepare_machines(r);
  for (int i = 0; i < r->messages_count; i++) r->order[i] = i;
  r->kind->prepare(r);
}

tsr_remote *tsr_remote_begin(const tsr_remote_call *call, void *memory) {
  const tsr_collective *c = call->collective;
  assert((uintptr_t)memory % ALIGNMENT == 0);
  assert(c->element == sizeof(float) || !tsr_remote_adds(c));
  tsr_remote_memory rest = {.base = memory};
  tsr_remote *r = TSR_REMOTE_TAKE(&rest, tsr_remote, 1);
  *r = (tsr_remote){.state = TSR_REMOTE_PENDING};
  lay_out(r, call, &rest);
  memcpy((void *)r->c.in, (const void *)c->in, sizeof(float *) * (size_t)c->members);
  memcpy((void *)r->c.out, (const void *)c->out, sizeof(float *) * (size_t)c->members);
  r->call.collective = &r->c;
  if (r->workers_count > 1) prepare(r);
  else assert(call->worker_of[0] == call->transport->worker);
  r->call.worker_of = r->call.hosts = NULL; /* the caller's; `host` and `machine` have them */
  return r;
}

/* ---- threads ---- */

typedef struct {
  void (*body)(void *context, int64_t begin, int64_t end);
  void *context;
  int64_t count;
  int jobs;
} spread;

static void run_spread(void *context, int job) {
  const spread *s = context;
  int64_t begin = s->count * job / s->jobs, end = s->count * (job + 1) / s->jobs;
  if (begin < end) s->body(s->context, begin, end);
}

void tsr_remote_spread(
    const tsr_remote *r, void (*body)(void *context, int64_t begin, int64_t end), void *context,
    int64_t count, int64_t count_of_thread_min) {
  spread s = {body, context, count, r->call.run ? r->call.threads : 1};
  int64_t most = count / (count_of_thread_min > 0 ? count_of_thread_min : 1);
  if (s.jobs > most) s.jobs = (int)most;
  if (s.jobs > 1) r->call.run(r->call.pool, run_spread, &s, s.jobs);
  else if (count > 0) body(context, 0, count);
}

/* ---- messages ---- */

bool tsr_remote_failed(tsr_remote *r, const tsr_remote_message *m, const char *why) {
  r->state = TSR_REMOTE_FAILED;
  if (m->worker < 0) snprintf(r->why, sizeof r->why, "the transport's sum: %s", why);
  else
    snprintf(
        r->why, sizeof r->why, "%s worker %d: %s", m->receives ? "receiving from" : "sending to",
        m->worker, why);
  return false;
}

tsr_remote_message *tsr_remote_new_message(tsr_remote *r) {
  assert(r->active < r->messages_count);
  return &r->messages[r->order[r->active]];
}

bool tsr_remote_post(
    tsr_remote *r, bool receives, int host, void *address, int64_t bytes, int *left) {
  const tsr_transport *t = r->call.transport;
  char why[TSR_WHY_BYTES] = "";
  tsr_remote_message *m = tsr_remote_new_message(r);
  *m = (tsr_remote_message){.worker = r->workers[host], .receives = receives, .left = left};
  bool ok =
      receives
          ? t->table->receive(t->state, m->worker, r->call.tag, address, bytes, &m->handle, why)
          : t->table->send(t->state, m->worker, r->call.tag, address, bytes, &m->handle, why);
  if (!ok) return tsr_remote_failed(r, m, why);
  r->active++;
  (*left)++;
  return true;
}

/* Asks for all that are under way. */
static bool test_messages(tsr_remote *r, bool *ret_any_done) {
  const tsr_transport *t = r->call.transport;
  char why[TSR_WHY_BYTES] = "";
  for (int i = 0; i < r->active;) {
    int place = r->order[i];
    tsr_remote_message *m = &r->messages[place];
    tsr_message_state state = t->table->test(t->state, &m->handle, why);
    if (state == TSR_MESSAGE_FAILED) return tsr_remote_failed(r, m, why);
    if (state == TSR_MESSAGE_PENDING) {
      i++;
      continue;
    }
    (*m->left)--;
    r->order[i] = r->order[--r->active];
    r->order[r->active] = place;
    *ret_any_done = true;
  }
  return true;
}

/* ---- going on ---- */

static void run_local(void *context, int64_t begin, int64_t end) {
  const tsr_remote *r = context;
  tsr_collective_run(&r->c, begin, end);
}

tsr_remote_state tsr_remote_go_on(tsr_remote *r) {
  if (r->state == TSR_REMOTE_PENDING && r->workers_count == 1) {
    tsr_remote_spread(r, run_local, r, tsr_collective_items(&r->c), 1);
    r->state = TSR_REMOTE_DONE;
  }
  for (bool any = true; any && r->state == TSR_REMOTE_PENDING;) {
    any = false;
    if (!test_messages(r, &any)) break;
    any = r->kind->go_on(r) || any;
    if (r->state == TSR_REMOTE_PENDING && !r->active && r->kind->done(r))
      r->state = TSR_REMOTE_DONE;
  }
  return r->state;
}

/* The workers that a message is made by, as a bit each. */
static uint64_t sides_of(const tsr_remote *r, const tsr_remote_message *m) {
  uint64_t sides = 0;
  int other = 0;
  while (m->worker >= 0 && r->workers[other] != m->worker) other++;
  for (int w = 0; w < r->workers_count; w++) {
    bool is_side = m->worker < 0
                       ? w != r->me
                       : w == other || (m->of_host && tsr_remote_shares_host(r, w, other));
    if (is_side) sides |= UINT64_C(1) << (r->workers[w] < 63 ? r->workers[w] : 63);
  }
  return sides;
}

/* Where nothing is awaited, those that do not take what is sent to them. */
uint64_t tsr_remote_missing(const tsr_remote *r) {
  uint64_t missing[2] = {0, 0};
  if (r->state == TSR_REMOTE_DONE) return 0;
  for (int i = 0; i < r->active; i++) {
    const tsr_remote_message *m = &r->messages[r->order[i]];
    missing[m->receives] |= sides_of(r, m);
  }
  return missing[1] ? missing[1] : missing[0];
}

const char *tsr_remote_why(const tsr_remote *r) { return r->why; }
