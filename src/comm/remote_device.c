/* One pass over a collective counts what it needs, and another one begins it: the same code, which
 * in the first has no memory. */
#include "comm/remote_device.h"
#include "base/tree.h"
#include <assert.h>
#include <string.h>

enum { ALIGNMENT = 256 };

typedef struct {
  const tsr_device_call *call;
  const tsr_device *d;
  const tsr_collective *c;
  bool counts;
  char *memory;
  int64_t used;
  tsr_device_message *messages;
  int count, most; /* of messages */
} work;

static void *take(work *w, int64_t bytes) {
  void *taken = w->counts ? NULL : w->memory + w->used;
  w->used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  return taken;
}

/* The place of a member's worker in the group. */
static int host_of(const work *w, int member) {
  int i = 0;
  while (w->call->workers[i] != w->call->worker_of[member]) i++;
  return i;
}

static int own_place(const work *w) {
  int i = 0;
  while (w->call->workers[i] != w->call->worker) i++;
  return i;
}

static bool is_here(const work *w, int member) {
  return w->call->worker_of[member] == w->call->worker;
}

static int first_here(const work *w) {
  int m = 0;
  while (!is_here(w, m)) m++;
  return m;
}

/* ---- what the device does ---- */

static void post(work *w, bool receives, int peer, const void *address, int64_t bytes) {
  if (!bytes) return;
  if (!w->counts)
    w->messages[w->count] = (tsr_device_message){peer, receives, (void *)address, bytes};
  w->count++;
  if (w->count > w->most) w->most = w->count;
}

static void exchange(work *w) {
  if (!w->counts && w->count) w->d->exchange(w->d->state, w->call->group, w->messages, w->count);
  w->count = 0;
}

/* out[i] = sum over `in` of `elements` elements, which begin at `start`. */
static void
sum(const work *w, float *const *out, int outs, float *const *in, int members, int64_t elements,
    int64_t start) {
  if (w->counts || !elements) return;
  w->d->sum_members(w->d->state, out, outs, in, members, 1, elements, elements, start);
}

static void copy(const work *w, void *to, const void *from, int64_t bytes) {
  if (!w->counts && to != from) w->d->copy(w->d->state, to, from, bytes);
}

/* An address in a buffer, which is not there while bytes are counted. */
static void *at(const void *base, int64_t bytes) { return base ? (char *)base + bytes : NULL; }

/* ---- summands ---- */

/* Members of one summand: all of a worker's, where they are a subtree, and in one run everywhere.
 */
static int members_of_leaf(const work *w) {
  int members = w->c->members, each = members / w->call->workers_count;
  if (members % w->call->workers_count || !tsr_tree_is_subtree(members, each)) return 1;
  for (int m = 0; m < members; m++)
    if (w->call->worker_of[m] != w->call->worker_of[m / each * each]) return 1;
  return each;
}

/* A summand that is here: a member's tensor, or the sum of several, in `into`. */
static const float *leaf_here(const work *w, int leaf, int each, int64_t elements, float *into) {
  if (each == 1) return w->c->in[leaf];
  sum(w, &into, 1, &w->c->in[leaf * each], each, elements, 0);
  return into;
}

/* ---- all_reduce ---- */

/* Slices of the group's workers; the last ones may be shorter, or empty. */
static int64_t slice_begin(const work *w, int64_t n, int place) {
  int64_t each = (n + w->call->workers_count - 1) / w->call->workers_count;
  int64_t begin = (each + 63) / 64 * 64 * place;
  return begin < n ? begin : n;
}

static int64_t slice_bytes(const work *w, int64_t n, int place) {
  return 4 * (slice_begin(w, n, place + 1) - slice_begin(w, n, place));
}

static void share_slices(work *w, float *whole, int64_t n, int own) {
  for (int p = 0; p < w->call->workers_count; p++) {
    if (p == own) continue;
    post(w, false, p, at(whole, 4 * slice_begin(w, n, own)), slice_bytes(w, n, own));
    post(w, true, p, at(whole, 4 * slice_begin(w, n, p)), slice_bytes(w, n, p));
  }
  exchange(w);
}

static void all_reduce_by_tree(work *w, float *whole, int64_t n) {
  int each = members_of_leaf(w), leaves = w->c->members / each, own = own_place(w);
  int64_t begin = slice_begin(w, n, own), bytes = slice_bytes(w, n, own);
  float *in[TSR_DEVICE_MEMBERS_MAX], *out = at(whole, 4 * begin);
  for (int l = 0; l < leaves; l++) {
    int host = host_of(w, l * each);
    if (host != own) {
      post(w, true, host, in[l] = take(w, bytes), bytes);
      continue;
    }
    const float *leaf = leaf_here(w, l, each, n, whole);
    in[l] = at(leaf, 4 * begin);
    for (int p = 0; p < w->call->workers_count; p++)
      if (p != own) post(w, false, p, at(leaf, 4 * slice_begin(w, n, p)), slice_bytes(w, n, p));
  }
  exchange(w);
  sum(w, &out, 1, in, leaves, bytes / 4, 0);
  share_slices(w, whole, n, own);
}

static void all_reduce_by_library(work *w, float *whole, int64_t n) {
  float *in[TSR_DEVICE_MEMBERS_MAX];
  int here = 0;
  for (int m = 0; m < w->c->members; m++)
    if (is_here(w, m)) in[here++] = w->c->in[m];
  if (here > 1) sum(w, &whole, 1, in, here, n, 0);
  if (!w->counts) w->d->sum(w->d->state, w->call->group, here > 1 ? whole : in[0], whole, n);
}

static void all_reduce(work *w) {
  int64_t n = tsr_collective_elements(w->c, 0, w->c->ndim);
  int first = first_here(w);
  float *whole = w->c->out[first];
  if (w->call->fast) all_reduce_by_library(w, whole, n);
  else all_reduce_by_tree(w, whole, n);
  for (int m = first + 1; m < w->c->members; m++)
    if (is_here(w, m)) copy(w, w->c->out[m], whole, 4 * n);
}

/* ---- reduce_scatter ---- */

/* A summand with its blocks one after the other. */
static const float *
pack_blocks(work *w, const float *leaf, int64_t outer, int64_t whole, int blocks) {
  int64_t part = whole / blocks;
  if (outer == 1) return leaf;
  float *packed = take(w, 4 * outer * whole);
  if (!w->counts)
    w->d->move(
        w->d->state, packed, (int64_t[]){outer * part, part, 1}, leaf, (int64_t[]){part, whole, 1},
        4, 3, (int64_t[]){blocks, outer, part});
  return packed;
}

/* The members here that get the block; how many they are. */
static int targets_here(const work *w, int block, int blocks, float **ret_out) {
  int count = 0;
  for (int m = block; m < w->c->members; m += blocks)
    if (is_here(w, m)) ret_out[count++] = w->c->out[m];
  return count;
}

/* A block's owner is the first member's worker; the other groups' members get it from there. */
static void hand_on(work *w, int blocks, int64_t elements) {
  int own = own_place(w);
  float *out[TSR_DEVICE_MEMBERS_MAX];
  for (int b = 0; b < blocks; b++) {
    int owner = host_of(w, b), here = targets_here(w, b, blocks, out);
    if (owner != own && here) post(w, true, owner, out[0], 4 * elements);
    for (int p = 0; owner == own && p < w->call->workers_count; p++) {
      bool gets = false;
      for (int m = b; m < w->c->members; m += blocks) gets |= p != own && host_of(w, m) == p;
      if (gets) post(w, false, p, out[0], 4 * elements);
    }
  }
  exchange(w);
  for (int b = 0; b < blocks; b++) {
    int here = host_of(w, b) == own ? 0 : targets_here(w, b, blocks, out);
    for (int i = 1; i < here; i++) copy(w, out[i], out[0], 4 * elements);
  }
}

static void reduce_scatter_by_tree(work *w) {
  const tsr_collective *c = w->c;
  int blocks = c->members / c->groups, each = members_of_leaf(w), leaves = c->members / each;
  int64_t outer = tsr_collective_elements(c, 0, c->to),
          whole = tsr_collective_elements(c, c->to, c->ndim);
  int64_t elements = outer * whole / blocks;
  const float *packed[TSR_DEVICE_MEMBERS_MAX] = {0};
  float *came[TSR_DEVICE_MEMBERS_MAX], *in[TSR_DEVICE_MEMBERS_MAX], *out[TSR_DEVICE_MEMBERS_MAX];
  int own = own_place(w);
  for (int l = 0; l < leaves; l++) {
    if (host_of(w, l * each) != own) continue;
    float *into = each > 1 ? take(w, 4 * outer * whole) : NULL;
    packed[l] = pack_blocks(w, leaf_here(w, l, each, outer * whole, into), outer, whole, blocks);
  }
  for (int b = 0; b < blocks; b++) {
    int owner = host_of(w, b);
    came[b] = owner == own ? take(w, 4 * elements * leaves) : NULL;
    for (int l = 0; l < leaves; l++) {
      int host = host_of(w, l * each);
      if (host == own && owner != own)
        post(w, false, owner, at(packed[l], 4 * b * elements), 4 * elements);
      if (host != own && owner == own)
        post(w, true, host, at(came[b], 4 * l * elements), 4 * elements);
    }
  }
  exchange(w);
  for (int b = 0; b < blocks; b++) {
    if (host_of(w, b) != own) continue;
    for (int l = 0; l < leaves; l++)
      in[l] = host_of(w, l * each) == own ? at(packed[l], 4 * b * elements)
                                          : at(came[b], 4 * l * elements);
    sum(w, out, targets_here(w, b, blocks, out), in, leaves, elements, 0);
  }
  if (c->groups > 1) hand_on(w, blocks, elements);
}

bool tsr_device_sum_is_library(tsr_op op, int groups, int64_t outer, bool one_each) {
  if (op == TSR_OP_ALL_REDUCE) return true;
  return op == TSR_OP_REDUCE_SCATTER && groups <= 1 && outer == 1 && one_each;
}

static bool is_librarys(const work *w) {
  const tsr_collective *c = w->c;
  bool one_each = c->members == w->call->workers_count;
  for (int m = 0; m < c->members && one_each; m++) one_each = host_of(w, m) == m;
  return w->call->fast && tsr_device_sum_is_library(
                              c->op, c->groups, tsr_collective_elements(c, 0, c->to), one_each);
}

static void reduce_scatter(work *w) {
  if (!is_librarys(w)) {
    reduce_scatter_by_tree(w);
    return;
  }
  int own = own_place(w);
  if (!w->counts)
    w->d->sum_slices(
        w->d->state, w->call->group, w->c->in[own], w->c->out[own],
        tsr_collective_elements(w->c, 0, w->c->ndim) / w->c->members);
}

/* ---- what is only moved ---- */

/* Whether the worker at that place has one of members [begin, end). */
static bool has_some(const work *w, int place, int begin, int end) {
  for (int m = begin; m < end; m++)
    if (host_of(w, m) == place) return true;
  return false;
}

/* The collective among buffers that are here by now; `in` has those that came. */
static void run_here(const work *w, float *const *in) {
  tsr_collective c = *w->c;
  c.in = in;
  if (!w->counts) tsr_collective_run_on(w->d, &c);
}

static void all_gather(work *w) {
  const tsr_collective *c = w->c;
  int blocks = c->members / c->groups, own = own_place(w);
  int64_t bytes = tsr_collective_elements(c, 0, c->ndim) / blocks * c->element;
  float *in[TSR_DEVICE_MEMBERS_MAX];
  for (int m = 0; m < c->members; m++) {
    int host = host_of(w, m), first = m / blocks * blocks;
    in[m] = c->in[m];
    for (int p = 0; host == own && p < w->call->workers_count; p++)
      if (p != own && has_some(w, p, first, first + blocks)) post(w, false, p, in[m], bytes);
    if (host != own && has_some(w, own, first, first + blocks))
      post(w, true, host, in[m] = take(w, bytes), bytes);
  }
  exchange(w);
  run_here(w, in);
}

static void ring_shift(work *w) {
  const tsr_collective *c = w->c;
  int64_t bytes = tsr_collective_elements(c, 0, c->ndim) * c->element;
  for (int to = 0; to < c->members; to++) {
    int from = tsr_collective_source(c, to);
    if (is_here(w, from) == is_here(w, to)) continue;
    if (is_here(w, from)) post(w, false, host_of(w, to), c->in[from], bytes);
    else post(w, true, host_of(w, from), c->out[to], bytes);
  }
  exchange(w);
  run_here(w, c->in);
}

static void all_to_all(work *w) {
  const tsr_collective *c = w->c;
  int64_t bytes = tsr_collective_elements(c, 0, c->ndim) / c->members / c->members * c->element;
  int64_t begin = w->used;
  for (int from = 0; from < c->members; from++)
    for (int to = 0; to < c->members; to++) {
      if (is_here(w, from) == is_here(w, to)) continue;
      void *piece = take(w, bytes);
      if (is_here(w, from) && !w->counts) tsr_collective_pack(w->d, c, from, to, piece);
      post(w, !is_here(w, from), host_of(w, is_here(w, from) ? to : from), piece, bytes);
    }
  exchange(w);
  run_here(w, c->in);
  int64_t end = w->used, piece = begin;
  for (int from = 0; from < c->members && !w->counts; from++)
    for (int to = 0; to < c->members; to++) {
      if (is_here(w, from) == is_here(w, to)) continue;
      if (is_here(w, to)) tsr_collective_unpack(w->d, c, from, to, w->memory + piece);
      piece += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
  assert(w->counts || piece == end);
}

/* ---- both passes ---- */

static void go_through(work *w) {
  w->d = w->call->device;
  w->c = w->call->collective;
  assert(w->c->members <= TSR_DEVICE_MEMBERS_MAX);
  switch ((int)w->c->op) {
  case TSR_OP_ALL_REDUCE:
    all_reduce(w);
    return;
  case TSR_OP_REDUCE_SCATTER:
    reduce_scatter(w);
    return;
  case TSR_OP_ALL_GATHER:
    all_gather(w);
    return;
  case TSR_OP_RING_SHIFT:
    ring_shift(w);
    return;
  default:
    assert(w->c->op == TSR_OP_ALL_TO_ALL);
    all_to_all(w);
  }
}

int64_t tsr_device_call_bytes(const tsr_device_call *call, int *ret_messages) {
  work w = {.call = call, .counts = true};
  go_through(&w);
  *ret_messages = w.most;
  return w.used;
}

void tsr_device_call_begin(
    const tsr_device_call *call, void *memory, tsr_device_message *messages) {
  work w = {.call = call, .memory = memory, .messages = messages};
  go_through(&w);
}
