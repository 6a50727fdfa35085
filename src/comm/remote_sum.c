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
 * parts, are what is sent. Where a larger node's leaves are several workers' of one host, they send
 * their parts to the owner's relay on that host, who adds them and sends the sum; and an owner
 * sends the sums of all_reduce to its relay on each other host, who hands them on. So where each
 * host holds a subtree, 2 N (H - 1) / H go out of each of H hosts.
 *
 * Order of messages, the same for all pairs. In step t: sums of round t - 6 are handed on, those of
 * round t - 4 go from their owners, what relays have added of round t - 2 goes to owners, and the
 * summands of round t are sent. Each entry waits for earlier ones only, on whichever worker, so
 * nobody waits in a circle. */
#include "comm/remote_internal.h"
#include <assert.h>
#include <string.h>

enum { BLOCK = TSR_REMOTE_BLOCK, DEPTH_MAX = 20, GRAIN = 16 << 10, WINDOW = TSR_REMOTE_WINDOW };

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- adding ---- */

void tsr_remote_add_leaves(
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
  int64_t staged; /* where the slot begins in `incoming` or `joins`, in elements */
  float *out;     /* of the chunk */
  bool spreads;   /* to this worker's other members that get the slice */
} adding;

static void copy_to_others(const tsr_remote *r, int slice, int64_t begin, int64_t end) {
  int first = tsr_remote_next_target(r, r->me, slice, -1);
  const float *sums = r->c.out[first] + begin;
  for (int m = first; (m = tsr_remote_next_target(r, r->me, slice, m)) >= 0;)
    memcpy(r->c.out[m] + begin, sums, sizeof(float) * (size_t)(end - begin));
}

static void add_range(void *context, int64_t begin, int64_t end) {
  const adding *a = context;
  const tsr_remote_sum *s = &a->r->sum;
  for (int64_t i = begin, n; i < end; i += n) {
    int64_t at = a->chunk.begin + i, column = at % s->run;
    n = smaller(smaller(s->run - column, end - i), BLOCK);
    tsr_remote_add_leaves(
        a->r->c.k, a->leaves, a->leaves_count,
        at / s->run * s->whole + a->chunk.slice * s->run + column, a->staged + i, a->out + i, n);
    if (a->spreads) copy_to_others(a->r, a->chunk.slice, at, at + n);
  }
}

static void add_own_chunk(const tsr_remote *r, int round) {
  const tsr_remote_sum *s = &r->sum;
  tsr_remote_piece p = tsr_remote_find_chunk(r, r->me, round);
  if (p.begin == p.end) return;
  adding a = {r, s->leaves, s->leaves_count, p, .spreads = true};
  a.staged = (int64_t)(round % WINDOW) * s->away_count * s->chunk;
  a.out = r->c.out[tsr_remote_next_target(r, r->me, p.slice, -1)] + p.begin;
  tsr_remote_spread(r, add_range, &a, p.end - p.begin, GRAIN);
}

/* Chunk-sized places of a round: [window][outer][inner]. */
static int64_t find_place(const tsr_remote *r, int round, int outers, int outer, int inners) {
  return ((int64_t)(round % WINDOW) * outers + outer) * inners * r->sum.chunk;
}

/* What this host has of the owners' chunks that this worker is a relay for. */
static void add_joined(const tsr_remote *r, int round) {
  const tsr_remote_sum *s = &r->sum;
  for (int i = 0; i < s->relayed_count; i++) {
    tsr_remote_piece p = tsr_remote_find_chunk(r, s->relayed[i], round);
    for (int j = 0; j < s->joined_count && p.begin < p.end; j++) {
      tsr_remote_joined joined = s->joined[j];
      adding a = {
          r, s->joined_leaves + joined.leaves_begin, joined.leaves_end - joined.leaves_begin, p};
      a.staged = find_place(r, round, s->relayed_count, i, s->mates_count);
      a.out = s->sums + find_place(r, round, s->relayed_count, i, s->joined_count) + j * s->chunk;
      tsr_remote_spread(r, add_range, &a, p.end - p.begin, GRAIN);
    }
  }
}

/* A part's summands of another worker's chunk as they lie, or added or packed. */
static float *find_summands(
    const tsr_remote *r, tsr_remote_part part, tsr_remote_piece chunk, int round, int owner) {
  const tsr_remote_sum *s = &r->sum;
  if (part.packed < 0) return r->c.in[part.begin] + chunk.slice * s->run + chunk.begin;
  int others = r->workers_count - 1, place = owner < r->me ? owner : owner - 1;
  adding a = {r, s->inside + part.begin, part.end - part.begin, chunk};
  a.out = s->outgoing + find_place(r, round, others, place, s->packed) + part.packed * s->chunk;
  tsr_remote_spread(r, add_range, &a, chunk.end - chunk.begin, GRAIN);
  return a.out;
}

/* ---- messages ---- */

static int64_t bytes_of(tsr_remote_piece p) { return (p.end - p.begin) * (int64_t)sizeof(float); }

/* What comes for this worker's own chunk: from workers, or (joined) from relays. */
static bool receive_summands(tsr_remote *r, int round, bool joined) {
  tsr_remote_sum *s = &r->sum;
  tsr_remote_piece p = tsr_remote_find_chunk(r, r->me, round);
  float *staging = s->incoming + find_place(r, round, 1, 0, s->away_count);
  for (int i = 0; i < s->away_count && p.begin < p.end; i++, staging += s->chunk) {
    if (s->away[i].joined != joined) continue;
    int *left = &s->slots[round % WINDOW].receives;
    if (!tsr_remote_post(r, true, s->away[i].worker, staging, bytes_of(p), left)) return false;
    tsr_remote_last_message(r)->of_host = joined;
  }
  return true;
}

/* Of an owner's chunk: the parts that go to it, or (joins) to its relay here. */
static bool send_summands(tsr_remote *r, int round, int owner, int to, bool joins) {
  tsr_remote_sum *s = &r->sum;
  tsr_remote_piece p = tsr_remote_find_chunk(r, owner, round);
  bool near = tsr_remote_shares_host(r, owner, r->me);
  for (int j = 0; j < s->own_count && p.begin < p.end; j++) {
    if ((s->own[j].joins && !near) != joins) continue;
    if (!tsr_remote_post(
            r, false, to, find_summands(r, s->own[j], p, round, owner), bytes_of(p),
            &s->slots[round % WINDOW].sends))
      return false;
  }
  return true;
}

/* The parts that relays add: those that this one does, then those of this worker. */
static bool post_joins(tsr_remote *r, int round) {
  tsr_remote_sum *s = &r->sum;
  tsr_remote_slot *slot = &s->slots[round % WINDOW];
  for (int i = 0; i < s->relayed_count; i++) {
    tsr_remote_piece p = tsr_remote_find_chunk(r, s->relayed[i], round);
    float *staging = s->joins + find_place(r, round, s->relayed_count, i, s->mates_count);
    for (int k = 0; k < s->mates_count && p.begin < p.end; k++, staging += s->chunk)
      if (!tsr_remote_post(r, true, s->mates[k], staging, bytes_of(p), &slot->joins)) return false;
  }
  for (int owner = 0; owner < r->workers_count; owner++) {
    bool near = tsr_remote_shares_host(r, owner, r->me);
    if (near || s->relay[owner] == r->me) continue;
    if (!send_summands(r, round, owner, s->relay[owner], true)) return false;
  }
  return true;
}

static bool post_summands(tsr_remote *r, int round) {
  tsr_remote_slot *slot = &r->sum.slots[round % WINDOW];
  bool hosts = r->machines_count > 1;
  assert(!slot->adding && !slot->joining && !slot->sends);
  slot->adding = true;
  slot->joining = slot->expects = hosts;
  slot->round = round;
  if (!receive_summands(r, round, false)) return false;
  for (int i = 1; i < r->workers_count; i++) {
    int host = (r->me + i) % r->workers_count; /* so that not all begin with the same */
    if (!send_summands(r, round, host, host, false)) return false;
  }
  return !hosts || post_joins(r, round);
}

/* What relays have added. */
static bool post_joined(tsr_remote *r, int round) {
  tsr_remote_sum *s = &r->sum;
  tsr_remote_slot *slot = &s->slots[round % WINDOW];
  slot->expects = false;
  if (!receive_summands(r, round, true)) return false;
  for (int i = 0; i < s->relayed_count; i++) {
    tsr_remote_piece p = tsr_remote_find_chunk(r, s->relayed[i], round);
    float *sums = s->sums + find_place(r, round, s->relayed_count, i, s->joined_count);
    for (int j = 0; j < s->joined_count && p.begin < p.end; j++, sums += s->chunk)
      if (!tsr_remote_post(r, false, s->relayed[i], sums, bytes_of(p), &slot->sends)) return false;
  }
  return true;
}

/* Whether sums cross to a host once, and are handed on there. */
static bool hands_on(const tsr_remote *r) {
  return r->machines_count > 1 && r->c.op == TSR_OP_ALL_REDUCE;
}

/* The sums of an owner's chunk, from one worker to another, of whom one is this. */
static bool post_sums(tsr_remote *r, int round, int owner, int from, int to, int *left) {
  tsr_remote_piece p = tsr_remote_find_chunk(r, owner, round);
  if (p.begin == p.end || tsr_remote_next_target(r, to, p.slice, -1) < 0) return true;
  bool receives = to == r->me;
  float *sums = r->c.out[tsr_remote_next_target(r, r->me, p.slice, -1)] + p.begin;
  return tsr_remote_post(r, receives, receives ? from : to, sums, bytes_of(p), left);
}

static bool gets_from_owner(const tsr_remote *r, int owner, int to) {
  return !hands_on(r) || tsr_remote_shares_host(r, owner, to) || tsr_remote_is_relay(r, to, owner);
}

static bool post_results(tsr_remote *r, int round) {
  tsr_remote_slot *slot = &r->sum.slots[round % WINDOW];
  slot->copying = round;
  slot->hands = hands_on(r);
  for (int i = 1; i < r->workers_count; i++) {
    int host = (r->me + i) % r->workers_count;
    if (gets_from_owner(r, host, r->me) && !post_sums(r, round, host, host, r->me, &slot->comes))
      return false;
    if (gets_from_owner(r, r->me, host) && !post_sums(r, round, r->me, r->me, host, &slot->results))
      return false;
  }
  return true;
}

static bool post_handed(tsr_remote *r, int round) {
  const tsr_remote_sum *s = &r->sum;
  tsr_remote_slot *slot = &r->sum.slots[round % WINDOW];
  slot->hands = false;
  for (int owner = 0; owner < r->workers_count; owner++) {
    if (tsr_remote_shares_host(r, owner, r->me)) continue;
    int from = s->relay[owner];
    for (int to = from == r->me ? 0 : r->me; to < r->workers_count; to++) {
      bool gets = to != from && tsr_remote_shares_host(r, to, r->me);
      if (gets && !post_sums(r, round, owner, from, to, &slot->results)) return false;
      if (from != r->me) break;
    }
  }
  return true;
}

static void copy_results(tsr_remote *r, tsr_remote_slot *slot) {
  for (int h = 0; h < r->workers_count; h++) {
    tsr_remote_piece p = tsr_remote_find_chunk(r, h, slot->copying);
    bool gets = p.begin < p.end && tsr_remote_next_target(r, r->me, p.slice, -1) >= 0;
    if (h != r->me && gets) copy_to_others(r, p.slice, p.begin, p.end);
  }
  slot->copying = -1;
}

/* ---- going on ---- */

/* In the order in which they stand in a step; each with its rounds' lag behind the step. */
typedef enum { HAND_ON, SUMS, JOINED, SUMMANDS, STAGES } stage;
static const int lags[STAGES] = {[HAND_ON] = WINDOW + 2, [SUMS] = WINDOW, [JOINED] = 2};

static int last_position(const tsr_remote_sum *s) {
  return s->rounds ? STAGES * (s->rounds + lags[HAND_ON]) : 0;
}

/* A slot's memory is a round's from its summands to the summands of the round that is a window
 * later, and its sums are under way on until then. A round's sums are received where its summands
 * may lie (in place), so they wait until those are sent and added, and until the slot's earlier
 * sums are copied. */
static bool may_begin(const tsr_remote_slot *slot, stage which) {
  if (which == HAND_ON) return !slot->comes;
  if (which == SUMS) return !slot->adding && !slot->joining && !slot->sends && slot->copying < 0;
  return which == SUMMANDS || !slot->joining;
}

/* Returns whether it was begun; a round that does not exist is nothing to do. */
static bool begin_next(tsr_remote *r) {
  static bool (*const post[STAGES])(tsr_remote *, int) = {
      post_handed, post_results, post_joined, post_summands};
  tsr_remote_sum *s = &r->sum;
  stage which = (stage)(s->position % STAGES);
  int round = s->position / STAGES - lags[which];
  bool unused = r->machines_count == 1 && (which == JOINED || which == HAND_ON);
  bool nothing = round < 0 || round >= s->rounds || unused || (which == HAND_ON && !hands_on(r));
  if (!nothing && !may_begin(&s->slots[round % WINDOW], which)) return false;
  s->position++;
  return nothing || post[which](r, round);
}

static bool go_on_slot(tsr_remote *r, tsr_remote_slot *slot) {
  bool any = false;
  if (slot->copying >= 0 && !slot->results && !slot->comes && !slot->hands)
    copy_results(r, slot), any = true;
  if (slot->joining && !slot->joins) {
    add_joined(r, slot->round);
    slot->joining = false, any = true;
  }
  if (slot->adding && !slot->receives && !slot->expects) {
    add_own_chunk(r, slot->round);
    slot->adding = false, any = true;
  }
  return any;
}

static bool go_on(tsr_remote *r) {
  tsr_remote_sum *s = &r->sum;
  bool any = false;
  for (int i = 0; i < WINDOW; i++) any = go_on_slot(r, &s->slots[i]) || any;
  while (r->state == TSR_REMOTE_PENDING && s->position < last_position(s) && begin_next(r))
    any = true;
  return any;
}

static bool is_done(const tsr_remote *r) {
  bool done = r->sum.position == last_position(&r->sum);
  for (int i = 0; i < WINDOW; i++)
    done = done && !r->sum.slots[i].adding && r->sum.slots[i].copying < 0;
  return done;
}

const tsr_remote_kind tsr_remote_sums = {
    tsr_remote_sum_lay_out, tsr_remote_sum_prepare, go_on, is_done};
