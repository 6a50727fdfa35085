// SPDX-License-Identifier: Apache-2.0
#include "comm/engine_transport.h"
#include "comm/chunk_ops.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Bytes for a thread, at least. */
enum { ALIGNMENT = 64, GRAIN_BYTES = 64 << 10 };

typedef struct {
  tsr_message handle;
  int step;  /* of the list */
  int *left; /* of the messages that began together: those that are not done */
} message;

struct tsr_pending {
  tsr_pending_call call;
  tsr_step_buffers buffers;
  const tsr_kernels *kernels;
  tsr_sequence sequence;
  tsr_pending_state state;
  int active;
  message *messages;
  int *order; /* of messages: first the active ones, then free ones */
  char why[TSR_WHY_BYTES + 64];
};

/* ---- memory ---- */

/* Laid out one after the other; base NULL: it is only counted. */
typedef struct {
  char *base;
  int64_t used;
} room;

static void *take(room *r, int64_t bytes) {
  void *taken = r->base ? r->base + r->used : NULL;
  r->used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  return taken;
}

typedef struct {
  tsr_pending *pending;
  float **in, **out;
  message *messages;
  int *order;
  char *staging;
} parts;

static parts lay_out(room *r, const tsr_step_list *l, int members) {
  parts p;
  p.pending = take(r, (int64_t)sizeof *p.pending);
  p.in = take(r, (int64_t)sizeof *p.in * members);
  p.out = take(r, (int64_t)sizeof *p.out * members);
  p.messages = take(r, (int64_t)sizeof *p.messages * l->messages);
  p.order = take(r, (int64_t)sizeof *p.order * l->messages);
  p.staging = take(r, tsr_step_list_staging_bytes(l));
  return p;
}

int64_t tsr_pending_bytes(const tsr_step_list *list, int members) {
  room counted = {0};
  lay_out(&counted, list, members);
  return counted.used;
}

/* ---- threads ---- */

typedef struct {
  const tsr_pending *pending;
  tsr_chunk chunk;
  bool packs;
  int jobs;
} spread;

static void run_part(const spread *s, int64_t begin, int64_t end) {
  const tsr_pending *p = s->pending;
  if (s->packs) tsr_chunk_pack(&p->buffers, &s->chunk, begin, end);
  else tsr_chunk_run(p->kernels, &p->buffers, &s->chunk, begin, end);
}

static void run_job(void *context, int job) {
  const spread *s = context;
  int64_t count = s->chunk.end - s->chunk.begin;
  int64_t begin = count * job / s->jobs, end = count * (job + 1) / s->jobs;
  if (begin < end) run_part(s, s->chunk.begin + begin, s->chunk.begin + end);
}

/* On as many threads as are worth it. */
static void run_chunk(const tsr_pending *p, const tsr_chunk *chunk, bool packs) {
  spread s = {p, *chunk, packs, p->call.run ? p->call.threads : 1};
  int64_t most = (chunk->end - chunk->begin) * p->call.list->element / GRAIN_BYTES;
  if (s.jobs > most) s.jobs = (int)most;
  if (s.jobs > 1) p->call.run(p->call.pool, run_job, &s, s.jobs);
  else run_part(&s, chunk->begin, chunk->end);
}

/* ---- messages ---- */

static bool is_library(const tsr_step *s) {
  return s->kind == TSR_STEP_VENDOR_SUM || s->kind == TSR_STEP_VENDOR_SUM_SLICES;
}

static void fail(tsr_pending *p, const tsr_step *s, const char *why) {
  p->state = TSR_PENDING_FAILED;
  if (is_library(s)) snprintf(p->why, sizeof p->why, "the transport's sum: %s", why);
  else
    snprintf(
        p->why, sizeof p->why, "%s process %d: %s",
        s->kind == TSR_STEP_RECEIVE ? "receiving from" : "sending to",
        p->call.layout->number[s->peer], why);
}

static bool
begin_library_sum(const tsr_pending *p, const tsr_chunk *c, tsr_message *ret, char *why) {
  const tsr_transport_table *t = p->call.transport->table;
  const tsr_operand *from = &p->call.list->operands[c->step->from];
  const tsr_operand *to = &p->call.list->operands[c->step->to];
  const float *in = tsr_chunk_address(&p->buffers, c, from, false, 0);
  float *out = tsr_chunk_address(&p->buffers, c, to, true, 0);
  if (c->step->kind == TSR_STEP_VENDOR_SUM) return t->sum(p->call.group, in, out, c->end, ret, why);
  return t->sum_slices(p->call.group, in, out, p->call.list->counts, ret, why);
}

static bool begin_transfer(const tsr_pending *p, const tsr_chunk *c, tsr_message *ret, char *why) {
  const tsr_transport *t = p->call.transport;
  int peer = p->call.layout->number[c->step->peer];
  void *address = tsr_chunk_message_address(&p->buffers, c);
  int64_t bytes = (c->end - c->begin) * p->call.list->element;
  if (c->step->kind == TSR_STEP_RECEIVE)
    return t->table->receive(t->state, peer, p->call.tag, address, bytes, ret, why);
  if (tsr_chunk_is_staged(&p->buffers, c, tsr_chunk_message(&p->buffers, c), false))
    run_chunk(p, c, true);
  return t->table->send(t->state, peer, p->call.tag, address, bytes, ret, why);
}

static void begin_message(tsr_pending *p, int phase, const tsr_chunk *c) {
  char why[TSR_WHY_BYTES] = "";
  assert(p->active < p->call.list->messages);
  int slot = c->round % TSR_ROUNDS_IN_FLIGHT;
  message *m = &p->messages[p->order[p->active]];
  m->step = (int)(c->step - p->call.list->steps);
  m->left = c->step->kind == TSR_STEP_SEND ? &p->sequence.in_flight[phase][slot].sending
                                           : &p->sequence.in_flight[phase][slot].receiving;
  bool ok = is_library(c->step) ? begin_library_sum(p, c, &m->handle, why)
                                : begin_transfer(p, c, &m->handle, why);
  if (!ok) {
    fail(p, c->step, why);
    return;
  }
  p->active++;
  ++*m->left;
}

/* Asks for all that are in flight; whether any is done. */
static bool test_messages(tsr_pending *p) {
  const tsr_transport *t = p->call.transport;
  char why[TSR_WHY_BYTES] = "";
  bool any = false;
  for (int i = 0; i < p->active;) {
    int place = p->order[i];
    message *m = &p->messages[place];
    tsr_message_state state = t->table->test(t->state, &m->handle, why);
    if (state == TSR_MESSAGE_FAILED) return fail(p, &p->call.list->steps[m->step], why), false;
    if (state == TSR_MESSAGE_PENDING) {
      i++;
      continue;
    }
    --*m->left;
    p->order[i] = p->order[--p->active];
    p->order[p->active] = place;
    any = true;
  }
  return any;
}

/* ---- advancing ---- */

/* Begins all that can begin; whether there was anything. */
static bool begin_phases(tsr_pending *p) {
  int phase, round;
  bool any = false;
  while (p->state == TSR_PENDING && tsr_sequence_next(&p->sequence, &phase, &round)) {
    tsr_chunk c = {.round = round};
    int at = 0;
    while (p->state == TSR_PENDING &&
           (c.step = tsr_sequence_step(&p->sequence, phase, round, &at, &c.begin, &c.end))) {
      bool adds = c.step->kind == TSR_STEP_REDUCE || c.step->kind == TSR_STEP_COPY;
      if (adds) run_chunk(p, &c, false);
      else begin_message(p, phase, &c);
      any = true;
    }
  }
  return any;
}

tsr_pending *tsr_pending_begin(const tsr_pending_call *call, void *memory) {
  const tsr_collective *c = call->collective;
  room r = {.base = memory};
  assert((uintptr_t)memory % ALIGNMENT == 0);
  parts of = lay_out(&r, call->list, c->members);
  tsr_pending *p = of.pending;
  *p = (tsr_pending){.call = *call, .kernels = c->k, .messages = of.messages, .order = of.order};
  memcpy((void *)of.in, (const void *)c->in, sizeof(float *) * (size_t)c->members);
  memcpy((void *)of.out, (const void *)c->out, sizeof(float *) * (size_t)c->members);
  p->buffers = (tsr_step_buffers){call->list, of.in, of.out, of.staging};
  p->call.collective = NULL; /* the caller's */
  for (int i = 0; i < call->list->messages; i++) p->order[i] = i;
  tsr_sequence_begin(&p->sequence, call->list);
  if (call->list->begins_at_once) begin_phases(p);
  return p;
}

tsr_pending_state tsr_pending_advance(tsr_pending *p) {
  for (bool any = true; any && p->state == TSR_PENDING;) {
    any = test_messages(p);
    any = begin_phases(p) || any;
    if (p->state == TSR_PENDING && !p->active && tsr_sequence_is_over(&p->sequence))
      p->state = TSR_PENDING_DONE;
  }
  return p->state;
}

/* The processes that a message is made by, as a bit each. */
static uint64_t sides_of(const tsr_pending *p, const tsr_step *s) {
  const tsr_layout *l = p->call.layout;
  uint64_t sides = 0;
  for (int i = 0; i < l->processes; i++) {
    bool is_side = is_library(s)
                       ? i != l->me
                       : i == s->peer || (s->of_host && tsr_layout_shares_host(l, i, s->peer));
    if (is_side) sides |= UINT64_C(1) << (l->number[i] < 63 ? l->number[i] : 63);
  }
  return sides;
}

/* Where nothing is awaited, those that do not read what is sent to them. */
uint64_t tsr_pending_missing(const tsr_pending *p) {
  uint64_t missing[2] = {0, 0};
  if (p->state == TSR_PENDING_DONE) return 0;
  for (int i = 0; i < p->active; i++) {
    const tsr_step *s = &p->call.list->steps[p->messages[p->order[i]].step];
    missing[s->kind != TSR_STEP_SEND] |= sides_of(p, s);
  }
  return missing[1] ? missing[1] : missing[0];
}

const char *tsr_pending_why(const tsr_pending *p) { return p->why; }
