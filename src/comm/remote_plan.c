/* Who adds what of an all_reduce or reduce_scatter between workers (remote_sum.c): the parts, where
 * summands come from, and the pieces that workers own.
 *
 * Of the tree's nodes whose leaves are all one worker's the largest are its parts. Of those whose
 * leaves are all one host's the largest are spans; a span of several workers is added on its host
 * for each owner on another host, by the worker that is the owner's relay there. */
#include "base/tree.h"
#include "comm/remote_internal.h"
#include <assert.h>
#include <string.h>

enum { DEPTH_MAX = 20, WINDOW = TSR_REMOTE_WINDOW };

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- parts and spans ---- */

typedef struct {
  int begin, worker, machine; /* -1: several */
} node;

typedef struct {
  int all, own, own_summed; /* parts; own ones; of these the ones of several members */
  int mates, joined;        /* parts of others on this host; spans of several workers on it */
} part_counts;

/* Finds parts and spans, as in tsr_remote_sum; both lists may be NULL. */
typedef struct {
  const tsr_remote_call *call;
  int own, own_machine;
  int *length, *span;
  part_counts counts;
} finding;

static void end_part(finding *f, node n, int end) {
  if (n.worker < 0) return;
  if (f->length) f->length[n.begin] = end - n.begin;
  f->counts.all++;
  f->counts.own += n.worker == f->own;
  f->counts.own_summed += n.worker == f->own && end - n.begin > 1;
  f->counts.mates += n.worker != f->own && n.machine == f->own_machine;
}

static void end_span(finding *f, node n, int end) {
  if (n.machine < 0) return;
  if (f->span) f->span[n.begin] = end - n.begin;
  f->counts.joined += n.worker < 0 && n.machine == f->own_machine;
}

/* Runs the tree's stack machine over who hosts what. */
static void find_parts(finding *f, int members) {
  node stack[DEPTH_MAX];
  int top = 0;
  for (int m = 0; m < members; m++) {
    int worker = f->call->worker_of[m];
    assert(top < DEPTH_MAX);
    stack[top++] = (node){m, worker, tsr_remote_machine(f->call, worker)};
    for (int merges = tsr_tree_merges(members, m); merges; merges--) {
      node *lower = &stack[top - 2], upper = stack[--top];
      if (lower->worker != upper.worker) {
        end_part(f, *lower, upper.begin);
        end_part(f, upper, m + 1);
      }
      if (lower->machine != upper.machine) {
        end_span(f, *lower, upper.begin);
        end_span(f, upper, m + 1);
        lower->machine = -1;
      }
      if (lower->worker != upper.worker) lower->worker = -1;
    }
  }
}

/* The merges after the last leaf of [begin, end), a node of the tree, that are not the node's own.
 */
static int merges_left(int members, int begin, int end) {
  int left = begin + 1 - end;
  for (int i = begin; i < end; i++) left += tsr_tree_merges(members, i);
  return left;
}

/* ---- memory ---- */

static void describe_slices(const tsr_collective *c, tsr_remote_sum *s) {
  if (c->op == TSR_OP_ALL_REDUCE) {
    s->slices = 1, s->rows = 1;
    s->run = s->whole = tsr_collective_elements(c, 0, c->ndim);
    return;
  }
  s->slices = c->members / c->groups;
  s->rows = tsr_collective_elements(c, 0, c->to);
  s->whole = tsr_collective_elements(c, c->to, c->ndim);
  s->run = s->whole / s->slices;
}

static int64_t choose_chunk(const tsr_remote *r, int parts) {
  const tsr_remote_sum *s = &r->sum;
  int64_t piece = s->rows * s->run; /* at most */
  if (s->slices == 1) piece = (piece + r->workers_count - 1) / r->workers_count;
  /* The same on all, so of what all know. A relay has about as much again. */
  int64_t chunks = (r->machines_count > 1 ? 4 : 2) * WINDOW * (int64_t)parts;
  int64_t chunk = tsr_remote_chunk_bytes(chunks) / (int64_t)sizeof(float);
  return smaller(chunk, (piece + 15) / 16 * 16);
}

/* What relays need. */
static void lay_out_relays(tsr_remote *r, const part_counts *parts, tsr_remote_memory *memory) {
  tsr_remote_sum *s = &r->sum;
  int others = r->workers_count - 1, strangers = r->workers_count - r->mates_count;
  /* ceil(a machine's workers / this one's) of each other machine, at most */
  s->relayed_most = (strangers + (r->machines_count - 1) * (r->mates_count - 1)) / r->mates_count;
  s->joined_most = parts->joined;
  s->mates_most = parts->joined ? parts->mates : 0;
  s->relay = TSR_REMOTE_TAKE(memory, int, r->workers_count);
  s->relayed = TSR_REMOTE_TAKE(memory, int, s->relayed_most);
  s->joined = TSR_REMOTE_TAKE(memory, tsr_remote_joined, s->joined_most);
  s->joined_leaves = TSR_REMOTE_TAKE(memory, tsr_remote_leaf, r->c.members);
  s->mates = TSR_REMOTE_TAKE(memory, int, s->mates_most);
  int64_t window = WINDOW * s->chunk * s->relayed_most;
  s->joins = TSR_REMOTE_TAKE(memory, float, window * s->mates_most);
  s->sums = TSR_REMOTE_TAKE(memory, float, window * s->joined_most);
  r->messages_count +=
      WINDOW * (s->relayed_most * (s->mates_most + s->joined_most + r->mates_count) + others);
}

void tsr_remote_sum_lay_out(tsr_remote *r, tsr_remote_memory *memory) {
  tsr_remote_sum *s = &r->sum;
  int members = r->c.members, others = r->workers_count - 1;
  int own = r->call.transport->worker;
  finding f = {.call = &r->call, .own = own, .own_machine = tsr_remote_machine(&r->call, own)};
  find_parts(&f, members);
  part_counts parts = f.counts;
  describe_slices(&r->c, s);
  s->own_count = parts.own;
  s->away_count = parts.all - parts.own; /* at most */
  s->packed = s->rows > 1 ? parts.own : parts.own_summed;
  s->chunk = choose_chunk(r, parts.all);
  s->length = TSR_REMOTE_TAKE(memory, int, members);
  s->span = TSR_REMOTE_TAKE(memory, int, members);
  s->own = TSR_REMOTE_TAKE(memory, tsr_remote_part, s->own_count);
  s->away = TSR_REMOTE_TAKE(memory, tsr_remote_away, s->away_count);
  s->leaves = TSR_REMOTE_TAKE(memory, tsr_remote_leaf, members);
  s->inside = TSR_REMOTE_TAKE(memory, tsr_remote_leaf, members);
  s->pieces_begin = TSR_REMOTE_TAKE(memory, int, r->workers_count + 1);
  s->pieces = TSR_REMOTE_TAKE(memory, tsr_remote_piece, members);
  int64_t window = WINDOW * s->chunk;
  s->outgoing = TSR_REMOTE_TAKE(memory, float, window *others * s->packed);
  s->incoming = TSR_REMOTE_TAKE(memory, float, window * s->away_count);
  r->messages_count = WINDOW * (others * s->own_count + s->away_count + 2 * others);
  if (r->machines_count > 1) lay_out_relays(r, &parts, memory);
}

/* ---- where summands are added ---- */

/* This worker's members of a part as leaves of its own sum. */
static void prepare_inside(tsr_remote *r, int begin, int end) {
  int members = r->c.members;
  for (int m = begin; m < end; m++)
    r->sum.inside[m] = (tsr_remote_leaf){r->c.in[m], tsr_tree_merges(members, m), false};
  r->sum.inside[end - 1].merges -= merges_left(members, begin, end);
}

static void add_own_part(tsr_remote *r, int begin, int end, bool joins, int *packed) {
  tsr_remote_sum *s = &r->sum;
  bool packs = s->rows > 1 || end - begin > 1;
  s->own[s->own_count++] = (tsr_remote_part){begin, end, joins, packs ? (*packed)++ : -1};
  prepare_inside(r, begin, end);
  for (int i = begin; i < end; i++)
    s->leaves[s->leaves_count++] =
        (tsr_remote_leaf){r->c.in[i], tsr_tree_merges(r->c.members, i), false};
}

static void add_away(tsr_remote *r, int begin, int end, int worker, bool joined) {
  tsr_remote_sum *s = &r->sum;
  s->leaves[s->leaves_count++] = (tsr_remote_leaf){
      s->incoming + s->away_count * s->chunk, merges_left(r->c.members, begin, end), true};
  s->away[s->away_count++] = (tsr_remote_away){worker, joined};
}

/* A span of several workers on this host, as this one adds it for an owner on another host. */
static void add_joined(tsr_remote *r, int begin, int end) {
  tsr_remote_sum *s = &r->sum;
  int n = s->joined_count ? s->joined[s->joined_count - 1].leaves_end : 0, first = n;
  for (int m = begin, next; m < end; m = next) {
    next = m + s->length[m];
    if (r->host[m] != r->me) {
      s->joined_leaves[n++] = (tsr_remote_leaf){
          s->joins + s->mates_count * s->chunk, merges_left(r->c.members, m, next), true};
      s->mates[s->mates_count++] = r->host[m];
      continue;
    }
    for (int i = m; i < next; i++)
      s->joined_leaves[n++] =
          (tsr_remote_leaf){r->c.in[i], tsr_tree_merges(r->c.members, i), false};
  }
  s->joined_leaves[n - 1].merges -= merges_left(r->c.members, begin, end);
  s->joined[s->joined_count++] = (tsr_remote_joined){first, n};
}

/* Who of a machine adds for an owner on another one; `near`: a worker of it, or before it. */
static int find_relay(const tsr_remote *r, int machine, int owner, int near) {
  int w = near;
  while (r->machine[w] != machine || !tsr_remote_is_relay(r, w, owner))
    w = w + 1 < r->workers_count ? w + 1 : 0;
  return w;
}

static void prepare_relays(tsr_remote *r) {
  tsr_remote_sum *s = &r->sum;
  s->relayed_count = s->joined_count = s->mates_count = 0;
  int mate = 0;
  while (!tsr_remote_shares_host(r, mate, r->me)) mate++;
  for (int w = 0; w < r->workers_count; w++) {
    bool here = tsr_remote_shares_host(r, w, r->me);
    s->relay[w] = here ? w : find_relay(r, r->machine[r->me], w, mate);
    if (!here && s->relay[w] == r->me) s->relayed[s->relayed_count++] = w;
  }
  assert(s->relayed_count <= s->relayed_most);
}

static void prepare_parts(tsr_remote *r) {
  tsr_remote_sum *s = &r->sum;
  int members = r->c.members, packed = 0;
  finding f = {.call = &r->call, .own = r->workers[r->me], .length = s->length, .span = s->span};
  memset(s->length, 0, sizeof(int) * (size_t)members);
  memset(s->span, 0, sizeof(int) * (size_t)members);
  find_parts(&f, members);
  if (r->machines_count == 1) s->span[0] = members;
  else prepare_relays(r);
  s->own_count = s->away_count = s->leaves_count = 0;
  for (int begin = 0, end; begin < members; begin = end) {
    int first = r->host[begin];
    bool here = tsr_remote_shares_host(r, first, r->me);
    bool joins = r->machines_count > 1 && s->length[begin] < s->span[begin];
    end = begin + s->span[begin];
    if (joins && here) add_joined(r, begin, end);
    if (joins && !here)
      add_away(r, begin, end, find_relay(r, r->machine[first], r->me, first), true);
    for (int m = begin, next; (here || !joins) && m < end; m = next) {
      next = m + s->length[m];
      if (r->host[m] == r->me) add_own_part(r, m, next, joins, &packed);
      else add_away(r, m, next, r->host[m], false);
    }
  }
  assert(packed == s->packed && s->leaves_count <= members);
  assert(s->joined_count <= s->joined_most && s->mates_count <= s->mates_most);
}

/* ---- pieces ---- */

int tsr_remote_next_target(const tsr_remote *r, int host, int slice, int before) {
  int slices = r->sum.slices, begin = r->first[host] + slices - 1 - slice;
  begin = begin / slices * slices + slice;
  for (int m = before < 0 ? begin : before + slices; m <= r->last[host]; m += slices)
    if (r->host[m] == host) return m;
  return -1;
}

static bool is_first_target(const tsr_remote *r, int member) {
  return tsr_remote_next_target(r, r->host[member], member % r->sum.slices, -1) == member;
}

/* A slice in equal pieces among the workers that get it; *next: per worker, of `pieces`. */
static void cut_slice(tsr_remote *r, int slice, int *next) {
  tsr_remote_sum *s = &r->sum;
  int64_t elements = s->rows * s->run, at = 0;
  int owners = 0;
  for (int m = slice; m < r->c.members; m += s->slices) owners += is_first_target(r, m);
  for (int m = slice, i = 0; m < r->c.members; m += s->slices) {
    if (!is_first_target(r, m)) continue;
    int host = r->host[m];
    tsr_remote_piece *p = &s->pieces[next[host]];
    *p = (tsr_remote_piece){slice, at, elements * ++i / owners, 0};
    if (next[host] > s->pieces_begin[host])
      p->first = p[-1].first + (int)((p[-1].end - p[-1].begin + s->chunk - 1) / s->chunk);
    int rounds = p->first + (int)((p->end - p->begin + s->chunk - 1) / s->chunk);
    if (rounds > s->rounds) s->rounds = rounds;
    at = p->end;
    next[host]++;
  }
}

static void prepare_pieces(tsr_remote *r) {
  tsr_remote_sum *s = &r->sum;
  int *next = s->length; /* which is not needed any more */
  memset(s->pieces_begin, 0, sizeof(int) * (size_t)(r->workers_count + 1));
  for (int m = 0; m < r->c.members; m++) s->pieces_begin[r->host[m] + 1] += is_first_target(r, m);
  for (int h = 0; h < r->workers_count; h++) {
    s->pieces_begin[h + 1] += s->pieces_begin[h];
    next[h] = s->pieces_begin[h];
  }
  for (int slice = 0; slice < s->slices; slice++) cut_slice(r, slice, next);
}

void tsr_remote_sum_prepare(tsr_remote *r) {
  prepare_parts(r);
  prepare_pieces(r);
  for (int i = 0; i < WINDOW; i++) r->sum.slots[i].copying = -1;
}

tsr_remote_piece tsr_remote_find_chunk(const tsr_remote *r, int host, int round) {
  const tsr_remote_sum *s = &r->sum;
  for (int i = s->pieces_begin[host + 1] - 1; i >= s->pieces_begin[host]; i--) {
    tsr_remote_piece p = s->pieces[i];
    if (round < p.first) continue;
    p.begin = smaller(p.begin + (round - p.first) * s->chunk, p.end);
    p.end = smaller(p.begin + s->chunk, p.end);
    return p;
  }
  return (tsr_remote_piece){0};
}
