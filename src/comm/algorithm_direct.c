// SPDX-License-Identifier: Apache-2.0
/* Rounds of chunks: in each round every process sends the next chunk to each other process that it
 * has something for, and receives one from each. What goes between two processes are the slices of
 * pairs of members, one after the other, by the sender's member first. Where a chunk lies in one
 * piece it is sent from the tensor and received into it.
 *
 * Bytes: each process sends what its members have for others' once for each process that gets it,
 * which is the least there can be. */
#include "comm/algorithm.h"
#include "comm/chunks.h"
#include "comm/slices.h"

enum { LOCAL, EXCHANGE, UNPACK, PHASES };

typedef struct {
  tsr_list_builder b;
  const tsr_collective *c;
  const tsr_layout *l;
  int64_t elements;
  int chunks;           /* of one slice */
  bool *leads;          /* per member: the first of its process that gets the same */
  int *sent, *received; /* per process: slices */
  int place_in;         /* the first place of what comes; before it are those of what goes */
} direct;

/* Members [begin, end) that get the same from `from`, `to` among them. */
static void find_sharers(const tsr_collective *c, int to, int *ret_begin, int *ret_end) {
  int each = tsr_collective_sharers(c);
  *ret_begin = to / each * each;
  *ret_end = *ret_begin + each;
}

static void find_leads(direct *d, tsr_arena *scratch) {
  int *seen = tsr_arena_array(scratch, int, d->l->processes); /* the last group's begin + 1 */
  for (int m = 0; m < d->c->members; m++) {
    int begin, end, *last = &seen[d->l->process_of[m]];
    find_sharers(d->c, m, &begin, &end);
    d->leads[m] = *last != begin + 1;
    *last = begin + 1;
  }
}

static tsr_step describe(direct *d, tsr_step_kind kind, int from, int to) {
  tsr_slice source = tsr_collective_source_slice(d->c, to),
            target = tsr_collective_target_slice(d->c, from);
  tsr_step step = {.kind = (uint8_t)kind, .end = d->elements};
  step.from_view = tsr_list_add_view(&d->b, source.view);
  step.to_view = tsr_list_add_view(&d->b, target.view);
  step.from_at = source.at, step.to_at = target.at;
  return step;
}

/* A process's, among the others'. */
static int find_place(const direct *d, int first, int peer) {
  return first + (peer < d->l->me ? peer : peer - 1);
}

static int add_operand(direct *d, tsr_buffer buffer, int member, int via) {
  return tsr_list_add_operand(
      &d->b, (tsr_operand){.buffer = (uint8_t)buffer, .index = member, .via = via});
}

/* To members of this process in [begin, end). */
static int add_targets(direct *d, int begin, int end, tsr_step *step) {
  step->to = d->b.operands_count;
  step->to_count = 0;
  for (int m = begin; m < end; m++)
    if (tsr_layout_is_local(d->l, m)) add_operand(d, TSR_BUFFER_OUT, m, -1), step->to_count++;
  return step->to_count;
}

static void add_local_copy(direct *d, int from, int begin, int end, int to) {
  tsr_step step = describe(d, TSR_STEP_COPY, from, to);
  step.from = add_operand(d, TSR_BUFFER_IN, from, -1);
  step.from_count = 1;
  step.whole = true;
  add_targets(d, begin, end, &step);
  tsr_list_add_step(&d->b, LOCAL, step);
}

static void add_send(direct *d, int from, int to) {
  int peer = d->l->process_of[to];
  tsr_step step = describe(d, TSR_STEP_SEND, from, to);
  bool pieces = d->b.list.views[step.from_view].run < d->elements;
  step.peer = peer;
  step.first = d->sent[peer]++ * d->chunks;
  step.from = add_operand(d, TSR_BUFFER_IN, from, pieces ? find_place(d, 0, peer) : -1);
  step.from_count = 1;
  tsr_list_add_step(&d->b, EXCHANGE, step);
}

static void add_receive(direct *d, int from, int to) {
  int begin, end, peer = d->l->process_of[from];
  tsr_step step = describe(d, TSR_STEP_RECEIVE, from, to);
  bool pieces = d->b.list.views[step.to_view].run < d->elements;
  step.peer = peer;
  step.first = d->received[peer]++ * d->chunks;
  step.to = add_operand(d, TSR_BUFFER_OUT, to, pieces ? find_place(d, d->place_in, peer) : -1);
  step.to_count = 1;
  tsr_list_add_step(&d->b, EXCHANGE, step);
  tsr_step unpack = step;
  unpack.kind = TSR_STEP_COPY;
  unpack.from = step.to, unpack.from_count = 1;
  unpack.from_view = step.to_view, unpack.from_at = step.to_at;
  find_sharers(d->c, to, &begin, &end);
  if (add_targets(d, begin, end, &unpack) > 1 || pieces) tsr_list_add_step(&d->b, UNPACK, unpack);
}

/* Of a member that this process has, to one in [begin, end) of each process; a slice that several
 * get is described by any of them. */
static void add_from_local(direct *d, int from) {
  int begin, end;
  for (int to = 0; to < d->c->members; to++) {
    if (d->c->op == TSR_OP_RING_SHIFT) /* which has one receiver */
      to = (int)((((int64_t)from + d->c->by) % d->c->members + d->c->members) % d->c->members);
    if (d->c->op == TSR_OP_ALL_GATHER && !tsr_collective_moves(d->c, from, to)) {
      int each = d->c->members / d->c->groups;
      if (to < from / each * each) to = from / each * each;
      else break;
    }
    find_sharers(d->c, to, &begin, &end);
    if (tsr_collective_moves(d->c, from, to) && d->leads[to]) {
      if (tsr_layout_is_local(d->l, to)) add_local_copy(d, from, begin, end, to);
      else add_send(d, from, to);
    }
    if (d->c->op == TSR_OP_RING_SHIFT) break;
  }
}

static void add_from_remote(direct *d, const int *own, int own_count) {
  for (int from = 0; from < d->c->members; from++)
    for (int i = 0; !tsr_layout_is_local(d->l, from) && i < own_count; i++)
      if (tsr_collective_moves(d->c, from, own[i])) add_receive(d, from, own[i]);
}

/* Whole runs, where they are not longer than a chunk. */
static int64_t choose_chunk(const direct *d, bool on_device) {
  int64_t run = tsr_collective_source_slice(d->c, 0).view.run,
          target = tsr_collective_target_slice(d->c, 0).view.run;
  int64_t chunks = 2 * TSR_ROUNDS_IN_FLIGHT * (int64_t)d->l->processes;
  int64_t chunk = tsr_chunk_bytes(chunks) / d->c->element;
  if (target < run) run = target;
  if (chunk > d->elements || on_device) chunk = d->elements;
  if (run > 0 && run <= chunk) chunk -= chunk % run;
  return chunk > 0 ? chunk : 1;
}

static void describe_phases(direct *d) {
  tsr_step_list *l = &d->b.list;
  l->phases_count = PHASES;
  l->phases[EXCHANGE] = (tsr_phase){.after_earlier = TSR_DONE(UNPACK)};
  l->phases[UNPACK] = (tsr_phase){.local = true, .after = TSR_RECEIVED(EXCHANGE)};
  /* When messages are under way. */
  l->phases[LOCAL] = (tsr_phase){.lag = TSR_ROUNDS_IN_FLIGHT - 1};
}

const tsr_step_list *tsr_algorithm_direct(tsr_arena *arena, const tsr_collective_request *request) {
  direct d = {.c = request->collective, .l = request->layout};
  int members = d.c->members, own_count = 0;
  tsr_list_begin(&d.b, d.c);
  describe_phases(&d);
  d.elements = tsr_collective_moved(d.c);
  d.b.list.chunk = choose_chunk(&d, request->on_device);
  d.chunks = (int)((d.elements + d.b.list.chunk - 1) / d.b.list.chunk);
  d.leads = tsr_arena_array(d.b.scratch, bool, members);
  d.sent = tsr_arena_array(d.b.scratch, int, d.l->processes);
  d.received = tsr_arena_array(d.b.scratch, int, d.l->processes);
  bool out = tsr_collective_source_slice(d.c, 0).view.run < d.elements;
  bool in = tsr_collective_target_slice(d.c, 0).view.run < d.elements;
  d.place_in = out ? d.l->processes - 1 : 0;
  d.b.list.places = d.place_in + (in ? d.l->processes - 1 : 0);
  find_leads(&d, d.b.scratch);
  int *own = tsr_arena_array(d.b.scratch, int, members);
  for (int m = 0; m < members; m++)
    if (tsr_layout_is_local(d.l, m) && d.leads[m]) own[own_count++] = m;
  add_from_remote(&d, own, own_count); /* receives first */
  for (int m = 0; m < members; m++)
    if (tsr_layout_is_local(d.l, m)) add_from_local(&d, m);
  return tsr_list_end(&d.b, arena);
}
