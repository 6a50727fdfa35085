/* all_reduce and reduce_scatter between workers.
 *
 * A slice is what some members get: the whole tensor of all_reduce, the blocks of reduce_scatter.
 * The workers that host those members own equal pieces of it, cut in chunks. In round k everybody
 * sends its summands of each owner's k-th chunk to the owner, who adds them in the tree over all
 * members and sends the sum to those that get the slice. So of N elements among W workers each
 * sends and receives 2 N (W - 1) / W for all_reduce (Rabenseifner 2004), half of that for
 * reduce_scatter.
 *
 * The tree's nodes whose leaves are all one worker's are added there, and the largest of them, the
 * parts, are what is sent.
 *
 * Order of messages, the same for all pairs: the summands of rounds 0 to window - 1, then in turn
 * the sums of round 0, the summands of round window, the sums of round 1, and so on. Each entry
 * waits for earlier ones only, on whichever worker, so nobody waits in a circle. */
#include "base/tree.h"
#include "comm/remote_internal.h"
#include <assert.h>
#include <string.h>

enum { BLOCK = 1024, DEPTH_MAX = 20, GRAIN = 16 << 10, WINDOW = TSR_REMOTE_WINDOW };

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- parts ---- */

typedef struct {
  int begin, worker; /* -1: several */
} node;

typedef struct {
  int all, own, own_summed; /* own ones; of these the ones of several members */
} part_counts;

static void end_part(node n, int end, int own_worker, int *length, part_counts *counts) {
  if (n.worker < 0) return;
  if (length) length[n.begin] = end - n.begin;
  counts->all++;
  if (n.worker != own_worker) return;
  counts->own++;
  counts->own_summed += end - n.begin > 1;
}

/* Runs the tree's stack machine over who hosts what. length[first member of a part] = members. */
static part_counts find_parts(int members, const int *worker_of, int own_worker, int *length) {
  node stack[DEPTH_MAX];
  int top = 0;
  part_counts counts = {0};
  for (int m = 0; m < members; m++) {
    assert(top < DEPTH_MAX);
    stack[top++] = (node){m, worker_of[m]};
    for (int merges = tsr_tree_merges(members, m); merges; merges--) {
      node *lower = &stack[top - 2], upper = stack[--top];
      if (lower->worker == upper.worker) continue; /* also when neither has one */
      end_part(*lower, upper.begin, own_worker, length, &counts);
      end_part(upper, m + 1, own_worker, length, &counts);
      lower->worker = -1;
    }
  }
  return counts;
}

/* ---- memory ---- */

static void describe_slices(const tsr_collective *c, tsr_remote_sum *s) {
  if (c->op == TSR_OP_ALL_REDUCE) {
    s->slices = 1, s->rows = 1;
    s->run = s->whole = tsr_remote_product(c, 0, c->ndim);
    return;
  }
  s->slices = c->members / c->groups;
  s->rows = tsr_remote_product(c, 0, c->to);
  s->whole = tsr_remote_product(c, c->to, c->ndim);
  s->run = s->whole / s->slices;
}

void tsr_remote_sum_lay_out(tsr_remote *r, tsr_remote_memory *memory) {
  tsr_remote_sum *s = &r->sum;
  int members = r->c.members, others = r->workers_count - 1;
  part_counts parts = find_parts(members, r->call.worker_of, r->call.transport->worker, NULL);
  describe_slices(&r->c, s);
  s->own_count = parts.own;
  s->away_count = parts.all - parts.own;
  s->packed = s->rows > 1 ? parts.own : parts.own_summed;
  int64_t piece = s->rows * s->run; /* at most */
  if (s->slices == 1) piece = (piece + others) / r->workers_count;
  /* The same on all, so of what all know. */
  int64_t chunk = tsr_remote_chunk_bytes(2 * WINDOW * (int64_t)parts.all) / (int64_t)sizeof(float);
  s->chunk = smaller(chunk, (piece + 15) / 16 * 16);
  s->length = TSR_REMOTE_TAKE(memory, int, members);
  s->own = TSR_REMOTE_TAKE(memory, tsr_remote_part, s->own_count);
  s->away = TSR_REMOTE_TAKE(memory, int, s->away_count);
  s->leaves = TSR_REMOTE_TAKE(memory, tsr_remote_leaf, members);
  s->inside = TSR_REMOTE_TAKE(memory, tsr_remote_leaf, members);
  s->pieces_begin = TSR_REMOTE_TAKE(memory, int, r->workers_count + 1);
  s->pieces = TSR_REMOTE_TAKE(memory, tsr_remote_piece, members);
  int64_t window = WINDOW * s->chunk;
  s->outgoing = TSR_REMOTE_TAKE(memory, float, window *others * s->packed);
  s->incoming = TSR_REMOTE_TAKE(memory, float, window * s->away_count);
  r->messages_count = WINDOW * (others * s->own_count + s->away_count + 2 * others);
}

/* ---- the plan ---- */

/* Own members of a part as leaves of its own sum. Returns the merges of its last leaf that are left
 * to the owner. */
static int prepare_inside(tsr_remote *r, int begin, int end) {
  int left = 0, top = 0;
  for (int m = begin; m < end; m++) {
    int all = tsr_tree_merges(r->c.members, m), merges = all < top ? all : top;
    r->sum.inside[m] = (tsr_remote_leaf){.from = r->c.in[m], .merges = merges};
    top += 1 - merges;
    left = all - merges;
  }
  assert(top == 1);
  return left;
}

static void prepare_parts(tsr_remote *r) {
  tsr_remote_sum *s = &r->sum;
  int members = r->c.members, own = 0, away = 0, n = 0;
  memset(s->length, 0, sizeof(int) * (size_t)members);
  find_parts(members, r->call.worker_of, r->workers[r->me], s->length);
  for (int m = 0, end; m < members; m = end) {
    end = m + s->length[m];
    int merges = prepare_inside(r, m, end);
    if (r->host[m] == r->me) {
      s->own[own++] = (tsr_remote_part){m, end};
      for (int i = m; i < end; i++)
        s->leaves[n++] = (tsr_remote_leaf){r->c.in[i], tsr_tree_merges(members, i), false};
    } else {
      s->leaves[n++] = (tsr_remote_leaf){s->incoming + away * s->chunk, merges, true};
      s->away[away++] = r->host[m];
    }
  }
  s->leaves_count = n;
  assert(own == s->own_count && away == s->away_count);
}

/* The first of a worker's members that get the slice, after `before` (-1: of all); -1: none. */
static int next_target(const tsr_remote *r, int host, int slice, int before) {
  int slices = r->sum.slices;
  for (int m = before < 0 ? slice : before + slices; m < r->c.members; m += slices)
    if (r->host[m] == host) return m;
  return -1;
}

static bool is_first_target(const tsr_remote *r, int member) {
  return next_target(r, r->host[member], member % r->sum.slices, -1) == member;
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

/* A worker's chunk in a round; empty where it has no more. */
static tsr_remote_piece find_chunk(const tsr_remote *r, int host, int round) {
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

/* ---- adding ---- */

/* out[0..n) = the tree's sum, n <= BLOCK; `at` in a member's tensor, `staged_at` in what came. */
static void add_leaves(
    const tsr_kernels *k, const tsr_remote_leaf *leaves, int count, int64_t at, int64_t staged_at,
    float *out, int64_t n) {
  float sums[DEPTH_MAX][BLOCK];
  const float *stack[DEPTH_MAX];
  int top = 0;
  for (int i = 0; i < count; i++) {
    assert(top < DEPTH_MAX);
    stack[top++] = leaves[i].from + (leaves[i].staged ? staged_at : at);
    for (int merges = leaves[i].merges; merges; merges--, top--) {
      float *sum = i == count - 1 && merges == 1 ? out : sums[top - 2];
      k->add(sum, stack[top - 2], stack[top - 1], 0, n);
      stack[top - 2] = sum;
    }
  }
  assert(top == 1);
  if (stack[0] != out) memcpy(out, stack[0], sizeof(float) * (size_t)n);
}

typedef struct {
  const tsr_remote *r;
  const tsr_remote_leaf *leaves;
  int leaves_count;
  tsr_remote_piece chunk;
  int64_t staged; /* where the slot begins in `incoming`, in elements */
  float *out;     /* of the chunk */
  bool spreads;   /* to this worker's other members that get the slice */
} adding;

static void copy_to_others(const tsr_remote *r, int slice, int64_t begin, int64_t end) {
  int first = next_target(r, r->me, slice, -1);
  const float *sums = r->c.out[first] + begin;
  for (int m = first; (m = next_target(r, r->me, slice, m)) >= 0;)
    memcpy(r->c.out[m] + begin, sums, sizeof(float) * (size_t)(end - begin));
}

static void add_range(void *context, int64_t begin, int64_t end) {
  const adding *a = context;
  const tsr_remote_sum *s = &a->r->sum;
  for (int64_t i = begin, n; i < end; i += n) {
    int64_t at = a->chunk.begin + i, column = at % s->run;
    n = smaller(smaller(s->run - column, end - i), BLOCK);
    add_leaves(
        a->r->c.k, a->leaves, a->leaves_count,
        at / s->run * s->whole + a->chunk.slice * s->run + column, a->staged + i, a->out + i, n);
    if (a->spreads) copy_to_others(a->r, a->chunk.slice, at, at + n);
  }
}

static void add_own_chunk(const tsr_remote *r, int round) {
  const tsr_remote_sum *s = &r->sum;
  tsr_remote_piece p = find_chunk(r, r->me, round);
  if (p.begin == p.end) return;
  adding a = {r, s->leaves, s->leaves_count, p, .spreads = true};
  a.staged = (int64_t)(round % WINDOW) * s->away_count * s->chunk;
  a.out = r->c.out[next_target(r, r->me, p.slice, -1)] + p.begin;
  tsr_remote_spread(r, add_range, &a, p.end - p.begin, GRAIN);
}

/* A part's summands as they lie, or added or packed in `staging`. */
static float *
find_summands(const tsr_remote *r, tsr_remote_part part, tsr_remote_piece chunk, float **staging) {
  const tsr_remote_sum *s = &r->sum;
  if (part.end - part.begin == 1 && s->rows == 1)
    return r->c.in[part.begin] + chunk.slice * s->run + chunk.begin;
  adding a = {r, s->inside + part.begin, part.end - part.begin, chunk, .out = *staging};
  tsr_remote_spread(r, add_range, &a, chunk.end - chunk.begin, GRAIN);
  *staging += s->chunk;
  return a.out;
}

/* ---- messages ---- */

static bool post_summands(tsr_remote *r, int round) {
  tsr_remote_sum *s = &r->sum;
  tsr_remote_slot *slot = &s->slots[round % WINDOW];
  tsr_remote_piece p = find_chunk(r, r->me, round);
  float *staging = s->incoming + (int64_t)(round % WINDOW) * s->away_count * s->chunk;
  slot->adding = true;
  slot->round = round;
  for (int i = 0; i < s->away_count && p.begin < p.end; i++, staging += s->chunk)
    if (!tsr_remote_post(
            r, true, s->away[i], staging, (p.end - p.begin) * (int64_t)sizeof(float),
            &slot->receives))
      return false;
  for (int i = 1; i < r->workers_count; i++) {
    int host = (r->me + i) % r->workers_count; /* so that not all begin with the same */
    int64_t place = round % WINDOW * (r->workers_count - 1) + i - 1;
    p = find_chunk(r, host, round);
    staging = s->outgoing + place * s->packed * s->chunk;
    for (int j = 0; j < s->own_count && p.begin < p.end; j++)
      if (!tsr_remote_post(
              r, false, host, find_summands(r, s->own[j], p, &staging),
              (p.end - p.begin) * (int64_t)sizeof(float), &slot->sends))
        return false;
  }
  return true;
}

/* Between two workers, of whom `owner` has the sums. */
static bool post_sums(tsr_remote *r, int round, int owner, int host) {
  tsr_remote_piece p = find_chunk(r, owner, round);
  int other = owner == r->me ? host : owner;
  if (p.begin == p.end || next_target(r, host, p.slice, -1) < 0) return true;
  return tsr_remote_post(
      r, owner != r->me, other, r->c.out[next_target(r, r->me, p.slice, -1)] + p.begin,
      (p.end - p.begin) * (int64_t)sizeof(float), &r->sum.slots[round % WINDOW].results);
}

static bool post_results(tsr_remote *r, int round) {
  tsr_remote_slot *slot = &r->sum.slots[round % WINDOW];
  slot->copying = round;
  for (int i = 1; i < r->workers_count; i++) {
    int host = (r->me + i) % r->workers_count;
    if (!post_sums(r, round, host, r->me) || !post_sums(r, round, r->me, host)) return false;
  }
  return true;
}

static void copy_results(tsr_remote *r, tsr_remote_slot *slot) {
  for (int h = 0; h < r->workers_count; h++) {
    tsr_remote_piece p = find_chunk(r, h, slot->copying);
    if (h == r->me || p.begin == p.end || next_target(r, r->me, p.slice, -1) < 0) continue;
    copy_to_others(r, p.slice, p.begin, p.end);
  }
  slot->copying = -1;
}

/* ---- going on ---- */

/* What stands at a position of the order; a round that does not exist is nothing to do. */
static bool find_position(int position, int *ret_round) {
  bool sums = position >= WINDOW && (position - WINDOW) % 2 == 0;
  if (position < WINDOW) *ret_round = position;
  else *ret_round = sums ? (position - WINDOW) / 2 : WINDOW + (position - WINDOW) / 2;
  return sums;
}

static int last_position(const tsr_remote_sum *s) { return WINDOW + 2 * s->rounds; }

/* Returns whether it was begun. A round's sums are received where its summands may lie (in place),
 * so they wait until those are sent and added, and until the slot's earlier sums are copied. */
static bool begin_next(tsr_remote *r) {
  tsr_remote_sum *s = &r->sum;
  int round;
  bool sums = find_position(s->position, &round);
  tsr_remote_slot *slot = &s->slots[round % WINDOW];
  if (sums && (slot->adding || slot->sends || slot->copying >= 0)) return false;
  s->position++;
  if (round >= s->rounds) return true;
  return sums ? post_results(r, round) : post_summands(r, round);
}

bool tsr_remote_sum_go_on(tsr_remote *r) {
  tsr_remote_sum *s = &r->sum;
  bool any = false;
  for (int i = 0; i < WINDOW; i++) {
    tsr_remote_slot *slot = &s->slots[i];
    if (slot->copying >= 0 && !slot->results) copy_results(r, slot), any = true;
    if (!slot->adding || slot->receives) continue;
    add_own_chunk(r, slot->round);
    slot->adding = false, any = true;
  }
  while (r->state == TSR_REMOTE_PENDING && s->position < last_position(s) && begin_next(r))
    any = true;
  return any;
}

bool tsr_remote_sum_done(const tsr_remote *r) {
  bool done = r->sum.position == last_position(&r->sum);
  for (int i = 0; i < WINDOW; i++)
    done = done && !r->sum.slots[i].adding && r->sum.slots[i].copying < 0;
  return done;
}
