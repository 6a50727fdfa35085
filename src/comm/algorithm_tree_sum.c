// SPDX-License-Identifier: Apache-2.0
/* A slice is what some members get: the whole tensor of all_reduce and of reduce, the blocks of
 * reduce_scatter. In round k everybody sends its summands of each owner's k-th chunk to the owner,
 * who adds them and sends the sum to those that get the slice. So of N elements among P processes
 * each sends and receives 2 N (P - 1) / P for all_reduce, half of that for reduce_scatter; a
 * reduce's root receives N (P - 1). Where each of H hosts holds a subtree, 2 N (H - 1) / H go out
 * of each host.
 *
 * Every phase of a round waits for earlier phases, or earlier rounds, on whichever process; so
 * there is no deadlock. A round's sums are received where its summands may lie (in place): so
 * they wait until those are sent and added. */
#include "comm/algorithm.h"
#include "comm/chunks.h"
#include "comm/tree_sum_layout.h"

/* In the sequence of a round: the lags make a round's later phases stand before the next rounds'
 * earlier ones. */
enum { HAND_ON, SUMS, JOINED, JOIN, SUMMANDS, ADD_JOINED, ADD, COPY, PHASES };

/* Members [begin, end), this process's, and a node of the tree. */
typedef struct {
  int begin, end;
  bool joins;   /* it is added to others of its host before it leaves the host */
  int operands; /* its members, as a sum of their own */
} own_part;

/* A summand that comes for this process's chunks. */
typedef struct {
  int process;
  bool joined; /* the process, on another host, has it from several of that host */
} remote_part;

/* A span of several processes on this host, which this one adds for owners on other hosts. */
typedef struct {
  int begin, end;
} joined_span;

typedef struct {
  tsr_list_builder b;
  const tsr_collective *c;
  const tsr_layout *l;
  tsr_sum_slices slices;
  tsr_sum_layout layout;
  int in_view, out_view;
  bool pieces;                  /* a slice of a summand is in several pieces */
  bool packs;                   /* and reductions cannot read them so */
  int operands, operands_count; /* of the sums that this process adds */
  own_part *own;
  int own_members, own_count, packed; /* packed: the parts that are laid out before they are sent */
  remote_part *remote;
  int remote_count;
  joined_span *joined;
  int joined_count;
  int *mates, mates_count; /* processes whose parts are in `joined`, one after the other */
  int *near, near_count;   /* the other processes of this host */
  int *relay;              /* per owner: who adds for it on this host; itself, if it is here */
  int outgoing, joins, sums, vias; /* the first places of each kind */
} tree_sum;

static int add_operand(tree_sum *s, tsr_buffer buffer, int index, int merges, int via) {
  return tsr_list_add_operand(&s->b, (tsr_operand){(uint8_t)buffer, (uint8_t)merges, index, via});
}

static bool shares_host(const tree_sum *s, int process) {
  return tsr_layout_shares_host(s->l, process, s->l->me);
}

static bool is_relayed(const tree_sum *s, int owner) {
  return !shares_host(s, owner) && s->relay[owner] == s->l->me;
}

/* ---- who adds what ---- */

/* Members of a part as operands of a sum of which they are a node; of the part's own sum, where
 * `alone`. vias: the places in which they may be laid out; -1: none. */
static void add_members(tree_sum *s, int begin, int end, bool alone, int vias) {
  for (int m = begin; m < end; m++) {
    int via = vias < 0 ? -1 : vias + m - begin;
    int merges = s->layout.merges[m];
    if (alone && m == end - 1) merges -= tsr_sum_layout_merges_left(&s->layout, begin, end);
    add_operand(s, TSR_BUFFER_IN, m, merges, via);
  }
}

static void add_remote_operand(tree_sum *s, int begin, int end, int process, bool joined) {
  int merges = tsr_sum_layout_merges_left(&s->layout, begin, end);
  add_operand(s, TSR_BUFFER_STAGING, s->remote_count, merges, -1);
  s->remote[s->remote_count++] = (remote_part){process, joined};
}

static void add_own_part(tree_sum *s, int begin, int end, bool joins) {
  s->own[s->own_count++] = (own_part){begin, end, joins, 0};
  s->packed += s->pieces || end - begin > 1;
  add_members(s, begin, end, false, s->packs ? s->vias + s->own_members : -1);
  s->own_members += end - begin;
}

/* The operands of this process's own chunks, and with them all parts. */
static void add_parts(tree_sum *s) {
  const tsr_layout *l = s->l;
  s->operands = s->b.operands_count;
  for (int begin = 0, end; begin < l->members; begin = end) {
    int process = l->process_of[begin];
    bool here = shares_host(s, process), joins = s->layout.part[begin] < s->layout.span[begin];
    joins = joins && l->hosts > 1;
    end = begin + s->layout.span[begin];
    if (joins && here) s->joined[s->joined_count++] = (joined_span){begin, end};
    if (joins && !here)
      add_remote_operand(s, begin, end, tsr_layout_find_relay(l, l->me, process), true);
    for (int m = begin, next; (here || !joins) && m < end; m = next) {
      next = m + s->layout.part[m];
      bool own = tsr_layout_is_local(l, m);
      if (own) add_own_part(s, m, next, joins);
      else add_remote_operand(s, m, next, l->process_of[m], false);
      if (!own && joins) s->mates[s->mates_count++] = l->process_of[m];
    }
  }
  s->operands_count = s->b.operands_count - s->operands;
  for (int i = 0; i < s->own_count; i++) {
    s->own[i].operands = s->b.operands_count;
    add_members(s, s->own[i].begin, s->own[i].end, true, -1);
  }
}

static void find_relays(tree_sum *s, tsr_arena *scratch) {
  const tsr_layout *l = s->l;
  s->relay = tsr_arena_array(scratch, int, l->processes);
  s->near = tsr_arena_array(scratch, int, l->processes);
  for (int p = 0; p < l->processes; p++)
    if (p != l->me && shares_host(s, p)) s->near[s->near_count++] = p;
  for (int p = 0; p < l->processes; p++)
    s->relay[p] = shares_host(s, p) ? p : tsr_layout_find_relay(l, p, l->me);
}

/* ---- steps ---- */

static tsr_step describe(tsr_step_kind kind, const tsr_sum_piece *p) {
  return (tsr_step){.kind = (uint8_t)kind, .first = p->first, .begin = p->begin, .end = p->end};
}

/* Of summands. */
static void read_slice(const tree_sum *s, tsr_step *step, const tsr_sum_piece *p) {
  step->from_view = s->in_view;
  step->from_at = tsr_sum_slice_at(&s->slices, p->slice);
}

static int first_target(const tree_sum *s, int process, int slice) {
  return tsr_sum_layout_next_target(s->l, &s->slices, process, slice, -1);
}

/* This process's members that get the slice, after `member`. */
static void add_targets(tree_sum *s, tsr_step *step, int slice, int member) {
  step->to_view = s->out_view;
  step->to = s->b.operands_count;
  while ((member = tsr_sum_layout_next_target(s->l, &s->slices, s->l->me, slice, member)) >= 0)
    add_operand(s, TSR_BUFFER_OUT, member, 0, -1);
  step->to_count = s->b.operands_count - step->to;
}

static void add_message(tree_sum *s, int phase, tsr_step step, int peer, int operand) {
  step.peer = peer;
  if (step.kind == TSR_STEP_RECEIVE) step.to = operand, step.to_count = 1;
  else step.from = operand, step.from_count = 1;
  tsr_list_add_step(&s->b, phase, step);
}

static int staged(tree_sum *s, int place) {
  return add_operand(s, TSR_BUFFER_STAGING, place, 0, -1);
}

static void
receive(tree_sum *s, int phase, const tsr_sum_piece *p, int process, int place, bool of_host) {
  tsr_step step = describe(TSR_STEP_RECEIVE, p);
  step.of_host = of_host;
  step.to_view = s->out_view;
  add_message(s, phase, step, process, staged(s, place));
}

/* A part of another owner's chunk, as it lies, or added, or laid out. */
static void send_part(tree_sum *s, int phase, const tsr_sum_piece *p, int part, int place, int to) {
  const own_part *own = &s->own[part];
  tsr_step send = describe(TSR_STEP_SEND, p);
  read_slice(s, &send, p);
  if (own->end - own->begin == 1) {
    int via = s->pieces ? place : -1;
    add_message(s, phase, send, to, add_operand(s, TSR_BUFFER_IN, own->begin, 0, via));
    return;
  }
  tsr_step reduce = describe(TSR_STEP_REDUCE, p);
  read_slice(s, &reduce, p);
  reduce.from = own->operands, reduce.from_count = own->end - own->begin;
  reduce.to = staged(s, place), reduce.to_count = 1;
  reduce.to_view = s->out_view;
  tsr_list_add_step(&s->b, phase, reduce);
  add_message(s, phase, send, to, reduce.to);
}

/* Parts of another owner's chunk that go to it, or (joins) to its relay here. */
static void send_parts(tree_sum *s, const tsr_sum_piece *p, bool joins) {
  bool near = shares_host(s, p->owner);
  int to = joins ? s->relay[p->owner] : p->owner;
  int place = s->outgoing + (p->owner < s->l->me ? p->owner : p->owner - 1) * s->packed;
  for (int i = 0; i < s->own_count; i++) {
    bool packs = s->pieces || s->own[i].end - s->own[i].begin > 1;
    if ((s->own[i].joins && !near) == joins && to != s->l->me)
      send_part(s, joins ? JOIN : SUMMANDS, p, i, place, to);
    place += packs;
  }
}

/* This process's own chunk. */
static void add_own_piece(tree_sum *s, const tsr_sum_piece *p) {
  tsr_step add = describe(TSR_STEP_REDUCE, p);
  for (int i = 0; i < s->remote_count; i++) {
    bool joined = s->remote[i].joined;
    receive(s, joined ? JOINED : SUMMANDS, p, s->remote[i].process, i, joined);
  }
  read_slice(s, &add, p);
  add.from = s->operands, add.from_count = s->operands_count;
  add.onto = s->c->onto;
  add_targets(s, &add, p->slice, -1);
  tsr_list_add_step(&s->b, ADD, add);
}

/* A span's operands: own members, and what others of the host send, whose places begin at
 * `place`. */
static int add_span(tree_sum *s, const joined_span *span, int place) {
  int via = s->vias;
  for (int m = span->begin, next; m < span->end; m = next) {
    next = m + s->layout.part[m];
    if (tsr_layout_is_local(s->l, m)) {
      add_members(s, m, next, false, s->packs ? via : -1);
      via += next - m;
      continue;
    }
    int merges = tsr_sum_layout_merges_left(&s->layout, m, next);
    add_operand(s, TSR_BUFFER_STAGING, place++, merges, -1);
  }
  s->b.list.operands[s->b.operands_count - 1].merges -=
      (uint8_t)tsr_sum_layout_merges_left(&s->layout, span->begin, span->end);
  return place;
}

/* What this host has of the chunk of an owner on another host; `relayed` owners came before. */
static void relay_piece(tree_sum *s, const tsr_sum_piece *p, int relayed) {
  int join = s->joins + relayed * s->mates_count, place = join;
  for (int i = 0; i < s->mates_count; i++) receive(s, JOIN, p, s->mates[i], join + i, false);
  for (int i = 0; i < s->joined_count; i++) {
    tsr_step add = describe(TSR_STEP_REDUCE, p), send = describe(TSR_STEP_SEND, p);
    read_slice(s, &add, p);
    add.from = s->b.operands_count;
    place = add_span(s, &s->joined[i], place);
    add.from_count = s->b.operands_count - add.from;
    add.to = staged(s, s->sums + relayed * s->joined_count + i), add.to_count = 1;
    add.to_view = s->out_view;
    tsr_list_add_step(&s->b, ADD_JOINED, add);
    add_message(s, JOINED, send, p->owner, add.to);
  }
}

/* The sums of a piece from one process to another, of whom one is this. */
static void add_sums(tree_sum *s, int phase, const tsr_sum_piece *p, int from, int to) {
  bool receives = to == s->l->me;
  if (first_target(s, to, p->slice) < 0) return;
  tsr_step step = describe(receives ? TSR_STEP_RECEIVE : TSR_STEP_SEND, p);
  int sums = add_operand(s, TSR_BUFFER_OUT, first_target(s, s->l->me, p->slice), 0, -1);
  step.from_view = step.to_view = s->out_view;
  add_message(s, phase, step, receives ? from : to, sums);
}

/* Whether sums cross to a host once, and are handed on there. */
static bool hands_on(const tree_sum *s) { return s->l->hosts > 1 && s->c->op == TSR_OP_ALL_REDUCE; }

static bool gets_from_owner(const tree_sum *s, int owner, int to) {
  return !hands_on(s) || tsr_layout_shares_host(s->l, owner, to) ||
         tsr_layout_is_relay(s->l, to, owner);
}

static void spread_sums(tree_sum *s, const tsr_sum_piece *p) {
  int me = s->l->me;
  for (int i = 1; p->owner == me && i < s->l->processes; i++) {
    int to = (me + i) % s->l->processes; /* so that not all begin with the same */
    if (gets_from_owner(s, me, to)) add_sums(s, SUMS, p, me, to);
  }
  if (p->owner != me && gets_from_owner(s, p->owner, me)) add_sums(s, SUMS, p, p->owner, me);
  if (p->owner == me || !hands_on(s) || shares_host(s, p->owner)) return;
  int from = s->relay[p->owner];
  if (from != me) add_sums(s, HAND_ON, p, from, me);
  for (int i = 0; from == me && i < s->near_count; i++) add_sums(s, HAND_ON, p, me, s->near[i]);
}

/* Of sums that came, to this process's other members. */
static void copy_sums(tree_sum *s, const tsr_sum_piece *p) {
  int first = first_target(s, s->l->me, p->slice);
  tsr_step copy = describe(TSR_STEP_COPY, p);
  if (p->owner == s->l->me || first < 0) return;
  copy.from_view = s->out_view;
  copy.from = add_operand(s, TSR_BUFFER_OUT, first, 0, -1), copy.from_count = 1;
  add_targets(s, &copy, p->slice, first);
  if (copy.to_count) tsr_list_add_step(&s->b, COPY, copy);
}

static void add_steps(tree_sum *s) {
  const tsr_sum_layout *y = &s->layout;
  int me = s->l->me, start = 0, relayed = 0;
  while (start < y->pieces_count && y->pieces[start].owner < me) start++;
  for (int i = 0; i < y->pieces_count; i++) { /* receives first; not all with one owner */
    const tsr_sum_piece *p = &y->pieces[(start + i) % y->pieces_count];
    if (p->owner == me) add_own_piece(s, p);
    else send_parts(s, p, false);
  }
  for (int i = 0; i < y->pieces_count; i++) {
    const tsr_sum_piece *p = &y->pieces[i];
    bool relays = p->owner != me && is_relayed(s, p->owner);
    if (p->owner != me && s->l->hosts > 1) send_parts(s, p, true);
    if (relays) relay_piece(s, p, relayed);
    relayed += relays && (i + 1 == y->pieces_count || p[1].owner != p->owner);
    spread_sums(s, p);
    copy_sums(s, p);
  }
}

/* ---- the list ---- */

static int count_relayed(const tree_sum *s) {
  int count = 0;
  for (int p = 0; p < s->l->processes; p++) count += is_relayed(s, p);
  return count;
}

/* One for each of what comes, then of own members that are laid out, of what goes, of what relays
 * add, and of their sums. */
static void find_places(tree_sum *s) {
  int relayed = count_relayed(s);
  s->outgoing = s->vias + (s->packs ? s->own_members : 0);
  s->joins = s->outgoing + (s->l->processes - 1) * s->packed;
  s->sums = s->joins + relayed * s->mates_count;
  s->b.list.places = s->sums + relayed * s->joined_count;
}

static int count_remote(const tree_sum *s) {
  int count = 0;
  for (int begin = 0; begin < s->l->members;) {
    bool joins = s->l->hosts > 1 && s->layout.part[begin] < s->layout.span[begin];
    bool whole = joins && !shares_host(s, s->l->process_of[begin]);
    count += whole || !tsr_layout_is_local(s->l, begin);
    begin += whole ? s->layout.span[begin] : s->layout.part[begin];
  }
  return count;
}

static int64_t choose_chunk(const tree_sum *s, bool on_device) {
  int64_t piece = s->slices.elements; /* at most */
  if (s->slices.step == 1) piece = (piece + s->l->processes - 1) / s->l->processes;
  piece = (piece + 63) / 64 * 64;
  /* The same on all, so of what all know. A relay has about as much again. */
  int64_t chunks = (s->l->hosts > 1 ? 4 : 2) * TSR_ROUNDS_IN_FLIGHT * (int64_t)s->layout.parts;
  int64_t chunk = tsr_chunk_bytes(chunks) / s->c->element;
  if (on_device || chunk > piece) chunk = piece + (on_device ? 64 : 0); /* pieces are aligned */
  return chunk > 0 ? chunk : 1;
}

static void describe_phases(tsr_step_list *l) {
  l->phases_count = PHASES;
  l->phases[HAND_ON] = (tsr_phase){.lag = TSR_ROUNDS_IN_FLIGHT + 2, .after = TSR_RECEIVED(SUMS)};
  l->phases[SUMS] = (tsr_phase){
      .lag = TSR_ROUNDS_IN_FLIGHT,
      .after = TSR_DONE(ADD) | TSR_DONE(ADD_JOINED) | TSR_SENT(SUMMANDS) | TSR_SENT(JOIN) |
               TSR_SENT(JOINED),
      .after_earlier = TSR_DONE(COPY)};
  l->phases[JOINED] =
      (tsr_phase){.lag = 2, .after = TSR_DONE(ADD_JOINED), .after_earlier = TSR_DONE(ADD)};
  l->phases[JOIN] = (tsr_phase){.after_earlier = TSR_DONE(ADD_JOINED)};
  l->phases[SUMMANDS] = (tsr_phase){.after_earlier = TSR_DONE(ADD)};
  l->phases[ADD_JOINED] =
      (tsr_phase){.local = true, .after = TSR_RECEIVED(JOIN), .after_earlier = TSR_SENT(JOINED)};
  l->phases[ADD] =
      (tsr_phase){.local = true, .after = TSR_RECEIVED(SUMMANDS) | TSR_RECEIVED(JOINED)};
  l->phases[COPY] = (tsr_phase){.local = true, .after = TSR_DONE(SUMS) | TSR_DONE(HAND_ON)};
}

const tsr_step_list *
tsr_algorithm_tree_sum(tsr_arena *arena, const tsr_collective_request *request) {
  tree_sum s = {.c = request->collective, .l = request->layout};
  int members = s.c->members;
  tsr_list_begin(&s.b, s.c);
  tsr_arena *scratch = s.b.scratch;
  if (request->ignores_hosts) s.l = tsr_layout_on_one_host(scratch, s.l);
  describe_phases(&s.b.list);
  s.slices = tsr_collective_sum_slices(s.c);
  s.in_view = tsr_list_add_view(&s.b, s.slices.view);
  s.out_view = tsr_list_add_view(&s.b, tsr_view_contiguous(s.slices.elements));
  s.pieces = s.slices.rows > 1;
  s.packs = s.pieces && request->on_device;
  tsr_sum_layout_find_nodes(scratch, s.c, s.l, &s.layout);
  s.b.list.chunk = choose_chunk(&s, request->on_device);
  tsr_sum_layout_find_pieces(
      scratch, s.l, &s.slices, s.b.list.chunk, request->on_device ? 64 : 1, &s.layout);
  s.own = tsr_arena_array(scratch, own_part, members);
  s.remote = tsr_arena_array(scratch, remote_part, members);
  s.joined = tsr_arena_array(scratch, joined_span, members);
  s.mates = tsr_arena_array(scratch, int, members);
  find_relays(&s, scratch);
  s.vias = count_remote(&s);
  add_parts(&s);
  find_places(&s);
  add_steps(&s);
  return tsr_list_end(&s.b, arena);
}
