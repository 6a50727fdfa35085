/* all_reduce and reduce_scatter between workers by the transport's own sums (policy fast): what
 * this worker's members hold is added here, in a tree of their own, and one sum of the group's does
 * the rest, with all of the tensor at once: the library cuts it as it likes. It begins when the
 * collective does, because a group's sums must begin in the same order everywhere. */
#include "base/tree.h"
#include "comm/remote_internal.h"
#include <assert.h>
#include <string.h>

enum { GRAIN = 16 << 10 };

static bool scatters(const tsr_remote *r) { return r->c.op == TSR_OP_REDUCE_SCATTER; }

/* ---- memory ---- */

static int count_own(const tsr_remote *r) {
  int count = 0;
  for (int m = 0; m < r->c.members; m++) count += r->call.worker_of[m] == r->call.transport->worker;
  return count;
}

/* Members stand in the order of their workers, ascending as in the group. */
static bool is_in_order(const tsr_remote *r) {
  bool ordered = true;
  for (int m = 1; m < r->c.members; m++)
    ordered = ordered && r->call.worker_of[m] >= r->call.worker_of[m - 1];
  return ordered;
}

static void lay_out(tsr_remote *r, tsr_remote_memory *memory) {
  tsr_remote_library *l = &r->library;
  const tsr_collective *c = &r->c;
  l->rows = scatters(r) ? tsr_collective_elements(c, 0, c->to) : 1;
  l->whole = tsr_collective_elements(c, scatters(r) ? c->to : 0, c->ndim);
  l->run = l->whole / (scatters(r) ? c->members : 1);
  l->own_count = count_own(r);
  l->packs = scatters(r) && (l->rows > 1 || l->own_count > 1 || !is_in_order(r));
  l->own = TSR_REMOTE_TAKE(memory, int, l->own_count);
  l->leaves = TSR_REMOTE_TAKE(memory, tsr_remote_leaf, l->own_count);
  l->order = TSR_REMOTE_TAKE(memory, int, scatters(r) ? c->members : 0);
  l->counts = TSR_REMOTE_TAKE(memory, int, scatters(r) ? r->workers_count : 0);
  l->packed = TSR_REMOTE_TAKE(memory, float, l->packs ? l->rows * l->whole : 0);
  bool several = scatters(r) && l->own_count > 1;
  l->came = TSR_REMOTE_TAKE(memory, float, several ? l->rows * l->run * l->own_count : 0);
  r->messages_count = 1;
}

/* ---- adding here ---- */

/* Elements of the slice of one member, or of the whole tensor. */
typedef struct {
  const tsr_remote *r;
  int slice;
  float *out;
} adding;

static void add_range(void *context, int64_t begin, int64_t end) {
  const adding *a = context;
  const tsr_remote_library *l = &a->r->library;
  for (int64_t at = begin, n; at < end; at += n) {
    int64_t column = at % l->run;
    n = l->run - column < end - at ? l->run - column : end - at;
    if (n > TSR_REMOTE_BLOCK) n = TSR_REMOTE_BLOCK;
    tsr_remote_add_leaves(
        a->r->c.k, l->leaves, l->own_count, at / l->run * l->whole + a->slice * l->run + column, 0,
        a->out + at, n);
  }
}

static void add_own(const tsr_remote *r, int slice, float *out) {
  adding a = {r, slice, out};
  tsr_remote_spread(r, add_range, &a, r->library.rows * r->library.run, GRAIN);
}

/* ---- the group's sum ---- */

static bool post(tsr_remote *r, const float *in, float *out) {
  const tsr_transport *t = r->call.transport;
  tsr_remote_library *l = &r->library;
  char why[TSR_WHY_BYTES] = "";
  tsr_remote_message *m = tsr_remote_new_message(r);
  *m = (tsr_remote_message){.worker = -1, .receives = true, .left = &l->left};
  bool ok = scatters(r) ? t->table->sum_slices(r->call.group, in, out, l->counts, &m->handle, why)
                        : t->table->sum(r->call.group, in, out, l->run, &m->handle, why);
  if (!ok) return tsr_remote_failed(r, m, why);
  r->active++;
  l->left++;
  return true;
}

static bool begin_all_reduce(tsr_remote *r) {
  const tsr_remote_library *l = &r->library;
  float *out = r->c.out[l->own[0]];
  if (l->own_count == 1) return post(r, r->c.in[l->own[0]], out);
  add_own(r, 0, out);
  return post(r, out, out);
}

static bool begin_reduce_scatter(tsr_remote *r) {
  const tsr_remote_library *l = &r->library;
  int64_t slice = l->rows * l->run;
  for (int i = 0; i < r->c.members && l->packs; i++) add_own(r, l->order[i], l->packed + i * slice);
  return post(
      r, l->packs ? l->packed : r->c.in[l->own[0]],
      l->own_count > 1 ? l->came : r->c.out[l->own[0]]);
}

/* The group's workers, ascending, with their members. */
static void prepare_slices(tsr_remote *r) {
  tsr_remote_library *l = &r->library;
  int next = 0, last = -1;
  for (int w = 0; w < r->workers_count; w++) {
    int least = -1, first = next; /* the next worker as the transport counts */
    for (int i = 0; i < r->workers_count; i++)
      if (r->workers[i] > last && (least < 0 || r->workers[i] < r->workers[least])) least = i;
    last = r->workers[least];
    for (int m = 0; m < r->c.members; m++)
      if (r->host[m] == least) l->order[next++] = m;
    l->counts[w] = (int)((next - first) * l->rows * l->run);
  }
}

static void prepare(tsr_remote *r) {
  tsr_remote_library *l = &r->library;
  for (int m = 0, n = 0; m < r->c.members; m++) {
    if (r->host[m] != r->me) continue;
    l->leaves[n] = (tsr_remote_leaf){r->c.in[m], tsr_tree_merges(l->own_count, n), false};
    l->own[n++] = m;
  }
  if (scatters(r)) prepare_slices(r);
  if (scatters(r)) begin_reduce_scatter(r);
  else begin_all_reduce(r);
}

/* ---- going on ---- */

static void copy_own(const tsr_remote *r) {
  const tsr_remote_library *l = &r->library;
  size_t bytes = sizeof(float) * (size_t)(l->rows * l->run);
  for (int i = 0; i < l->own_count && l->own_count > 1; i++) {
    float *out = r->c.out[l->own[i]];
    if (scatters(r)) memcpy(out, l->came + i * l->rows * l->run, bytes);
    else if (i > 0) memcpy(out, r->c.out[l->own[0]], bytes);
  }
}

static bool go_on(tsr_remote *r) {
  tsr_remote_library *l = &r->library;
  if (l->left || l->ended) return false;
  copy_own(r);
  return l->ended = true;
}

static bool is_done(const tsr_remote *r) { return r->library.ended; }

const tsr_remote_kind tsr_remote_library_sums = {lay_out, prepare, go_on, is_done};
