// SPDX-License-Identifier: Apache-2.0
/* The tensor goes in chunks along a chain of visits: runs of neighbouring members that one process
 * has, in the order of the members. On its way a chunk has the entries of the tree's stack
 * (base/reduction_tree.h): a process pushes its members' summands onto them and hands the entries
 * on, those that it did not change as they came. The process of the last visit has the sum, which
 * goes round the ring of the processes. In one flat tree there is one entry; in the binary one of n
 * members there are as many as the number of members before has ones in binary.
 *
 * A visit is HOP rounds behind the one before it: what comes in a round is added while the messages
 * of the next one are under way, and sent in the one after that, out of the staging of the round in
 * which it came. That staging is used again IN_FLIGHT = 2 HOP rounds after, when it has been sent.
 * A phase waits for phases that stand before it in the sequence on every process; so there is no
 * deadlock. */
#include "comm/algorithm.h"
#include "comm/chunks.h"
#include "comm/slices.h"

enum { CARRY, SUMS, ADD, COPY, PHASES };
enum { HOP = TSR_ROUNDS_IN_FLIGHT / 2 };

/* Members [begin, end), of one process. */
typedef struct {
  int begin, end, process;
  int entries; /* that come to it */
} visit;

/* What a visit makes of the stack: entry k is the sum of operands [first[k], first[k + 1]). */
typedef struct {
  tsr_operand *operands;
  int operands_count;
  int first[TSR_TREE_DEPTH_MAX + 1], entries;
} symbolic_stack;

typedef struct {
  tsr_list_builder b;
  const tsr_collective *c;
  const tsr_layout *l;
  int64_t elements;
  int view; /* all buffers are whole tensors */
  visit *visits;
  int visits_count;
} ring_sum;

/* ---- visits ---- */

static void find_visits(ring_sum *r, tsr_arena *scratch) {
  const tsr_layout *l = r->l;
  int entries = r->c->onto;
  r->visits = tsr_arena_array(scratch, visit, l->members);
  for (int m = 0; m < l->members; m++) {
    if (m == 0 || l->process_of[m] != l->process_of[m - 1])
      r->visits[r->visits_count++] = (visit){m, m, l->process_of[m], entries};
    r->visits[r->visits_count - 1].end = m + 1;
    entries += 1 - tsr_collective_merges(r->c, m);
  }
}

static void push(symbolic_stack *s, tsr_operand operand, int merges) {
  s->first[s->entries++] = s->operands_count;
  operand.merges = (uint8_t)merges;
  s->operands[s->operands_count++] = operand;
  s->entries -= merges;
  s->first[s->entries] = s->operands_count;
}

/* `places`: of the entries that come. */
static void run_visit(const ring_sum *r, const visit *v, int places, symbolic_stack *ret) {
  ret->entries = ret->operands_count = 0;
  for (int k = 0; k < v->entries; k++) {
    bool onto = v->begin == 0; /* the summand that each member has where the sum will be */
    uint8_t buffer = onto ? TSR_BUFFER_OUT : TSR_BUFFER_STAGING;
    push(ret, (tsr_operand){.buffer = buffer, .index = onto ? 0 : places + k, .via = -1}, 0);
  }
  for (int m = v->begin; m < v->end; m++)
    push(
        ret, (tsr_operand){.buffer = TSR_BUFFER_IN, .index = m, .via = -1},
        tsr_collective_merges(r->c, m));
}

/* ---- steps ---- */

/* Of all elements, whose first chunk is in the round that belongs to a place in the chain. */
static tsr_step describe(const ring_sum *r, tsr_step_kind kind, int hops) {
  return (tsr_step){
      .kind = (uint8_t)kind,
      .first = hops * HOP,
      .end = r->elements,
      .from_view = r->view,
      .to_view = r->view};
}

static void
add_message(ring_sum *r, tsr_step_kind kind, int phase, int hops, int peer, tsr_operand operand) {
  tsr_step s = describe(r, kind, hops);
  int index = tsr_list_add_operand(&r->b, operand);
  s.peer = peer;
  if (kind == TSR_STEP_SEND) s.from = index, s.from_count = 1;
  else s.to = index, s.to_count = 1;
  tsr_list_add_step(&r->b, phase, s);
}

static tsr_operand staged(int place, int rounds_before) {
  return (tsr_operand){
      .buffer = TSR_BUFFER_STAGING, .index = place, .via = -1, .rounds_before = rounds_before};
}

static tsr_operand own_sum(const ring_sum *r) {
  return (tsr_operand){.buffer = TSR_BUFFER_OUT, .index = r->l->first[r->l->me], .via = -1};
}

/* Where this process's members, from the n-th on, get the sum. */
static void add_targets(ring_sum *r, int n, tsr_step *step) {
  step->to = r->b.operands_count;
  for (int m = r->l->first[r->l->me]; m <= r->l->last[r->l->me]; m++)
    if (tsr_layout_is_local(r->l, m) && n-- <= 0)
      tsr_list_add_operand(&r->b, (tsr_operand){.buffer = TSR_BUFFER_OUT, .index = m, .via = -1});
  step->to_count = r->b.operands_count - step->to;
}

static void read_operands(ring_sum *r, const symbolic_stack *s, int begin, int end, tsr_step *ret) {
  ret->from = r->b.operands_count;
  ret->from_count = end - begin;
  for (int i = begin; i < end; i++) tsr_list_add_operand(&r->b, s->operands[i]);
}

/* An entry that the visit leaves, as an operand of the message that hands it on. */
static tsr_operand make_entry(ring_sum *r, int hops, const symbolic_stack *s, int entry) {
  int begin = s->first[entry], end = s->first[entry + 1];
  tsr_operand alone = s->operands[begin];
  if (end - begin == 1 && alone.buffer == TSR_BUFFER_STAGING) return staged(alone.index, HOP);
  if (end - begin == 1) return alone;
  tsr_step add = describe(r, TSR_STEP_REDUCE, hops);
  read_operands(r, s, begin, end, &add);
  int place = r->b.list.places++;
  add.to = tsr_list_add_operand(&r->b, staged(place, 0)), add.to_count = 1;
  tsr_list_add_step(&r->b, ADD, add);
  return staged(place, HOP);
}

static void add_visit(ring_sum *r, int number, symbolic_stack *stack) {
  const visit *v = &r->visits[number];
  bool is_last = number + 1 == r->visits_count;
  int places = r->b.list.places, comes = number ? v->entries : 0;
  r->b.list.places += comes;
  for (int k = 0; k < comes; k++)
    add_message(r, TSR_STEP_RECEIVE, CARRY, number, v[-1].process, staged(places + k, 0));
  run_visit(r, v, places, stack);
  for (int k = 0; k < stack->entries && !is_last; k++)
    add_message(r, TSR_STEP_SEND, CARRY, number + 1, v[1].process, make_entry(r, number, stack, k));
  if (!is_last) return;
  tsr_step add = describe(r, TSR_STEP_REDUCE, number);
  read_operands(r, stack, 0, stack->operands_count, &add);
  add_targets(r, 0, &add);
  tsr_list_add_step(&r->b, ADD, add);
}

/* From the process of the last visit on round the ring, which has the processes in the order of
 * their first members. */
static void add_sums(ring_sum *r) {
  const tsr_layout *l = r->l;
  int last = r->visits[r->visits_count - 1].process;
  int place = (l->me - last + l->processes) % l->processes, hops = r->visits_count - 1 + place;
  int before = (l->me - 1 + l->processes) % l->processes, after = (l->me + 1) % l->processes;
  if (place) {
    tsr_step copy = describe(r, TSR_STEP_COPY, hops - 1);
    add_message(r, TSR_STEP_RECEIVE, SUMS, hops - 1, before, own_sum(r));
    copy.from = tsr_list_add_operand(&r->b, own_sum(r)), copy.from_count = 1;
    add_targets(r, 1, &copy);
    if (copy.to_count) tsr_list_add_step(&r->b, COPY, copy);
  }
  if (place + 1 < l->processes) add_message(r, TSR_STEP_SEND, SUMS, hops, after, own_sum(r));
}

/* ---- the list ---- */

/* So many that all processes are busy most of the time. */
static int64_t choose_chunk(const ring_sum *r, bool on_device) {
  enum { LEAST = 4096, LEAST_ON_DEVICE = 1 << 16 };
  int64_t chunk = r->elements / (4 * r->l->processes), least = on_device ? LEAST_ON_DEVICE : LEAST;
  int64_t most = tsr_chunk_bytes(4 * TSR_ROUNDS_IN_FLIGHT) / r->c->element;
  if (chunk > most && !on_device) chunk = most;
  chunk = ((chunk < least ? least : chunk) + 63) / 64 * 64;
  if (chunk > r->elements) chunk = r->elements;
  return chunk > 0 ? chunk : 1;
}

static void describe_phases(tsr_step_list *l) {
  l->phases_count = PHASES;
  l->phases[CARRY] = (tsr_phase){.after_half = TSR_DONE(ADD) | TSR_SENT(CARRY)};
  l->phases[SUMS] = (tsr_phase){
      .lag = 1, .after = TSR_DONE(ADD) | TSR_SENT(CARRY), .after_half = TSR_RECEIVED(SUMS)};
  l->phases[ADD] = (tsr_phase){.local = true, .after = TSR_RECEIVED(CARRY)};
  l->phases[COPY] = (tsr_phase){.local = true, .after = TSR_RECEIVED(SUMS)};
}

const tsr_step_list *tsr_algorithm_ring(tsr_arena *arena, const tsr_collective_request *request) {
  ring_sum r = {.c = request->collective, .l = request->layout};
  tsr_list_begin(&r.b, r.c);
  describe_phases(&r.b.list);
  r.elements = tsr_collective_elements(r.c, 0, r.c->ndim);
  r.view = tsr_list_add_view(&r.b, tsr_view_contiguous(r.elements));
  r.b.list.chunk = choose_chunk(&r, request->on_device);
  find_visits(&r, r.b.scratch);
  symbolic_stack stack = {
      .operands = tsr_arena_array(r.b.scratch, tsr_operand, r.c->members + TSR_TREE_DEPTH_MAX)};
  for (int v = 0; v < r.visits_count; v++)
    if (r.visits[v].process == r.l->me) add_visit(&r, v, &stack);
  add_sums(&r);
  return tsr_list_end(&r.b, arena);
}
