// SPDX-License-Identifier: Apache-2.0
#include "data/packing.h"
#include <assert.h>
#include <string.h>

/* ---- best fit ---- */

/* The packs that have room, in a list for each amount of it, the one that came last first. A tree
 * over the amounts tells which lists have any: node 1 is the root, 2i and 2i + 1 are below i. */
typedef struct {
  int64_t leaves; /* a power of two above the largest amount */
  bool *tree;     /* (2 leaves) */
  int64_t *first; /* (leaves) a pack of each amount; -1: none */
  int64_t *next;  /* (packs) the one behind it in its list; -1: none */
} rooms;

static rooms rooms_of(tsr_arena *arena, int64_t most, int64_t packs) {
  rooms r = {.leaves = 1};
  while (r.leaves <= most) r.leaves *= 2;
  r.tree = tsr_arena_array(arena, bool, 2 * r.leaves);
  r.first = tsr_arena_array(arena, int64_t, r.leaves);
  r.next = tsr_arena_array(arena, int64_t, packs);
  memset(r.first, -1, sizeof *r.first * (size_t)r.leaves);
  return r;
}

static void update_tree(rooms *r, int64_t room) {
  int64_t node = room + r->leaves;
  r->tree[node] = r->first[room] >= 0;
  for (node /= 2; node; node /= 2) r->tree[node] = r->tree[2 * node] || r->tree[2 * node + 1];
}

static void add_room(rooms *r, int64_t pack, int64_t room) {
  r->next[pack] = r->first[room];
  r->first[room] = pack;
  if (r->next[pack] < 0) update_tree(r, room);
}

/* The least amount from `room` that a pack has, or -1. */
static int64_t find_room(const rooms *r, int64_t room) {
  int64_t node = room + r->leaves;
  while (node > 1 && !r->tree[node]) {
    while (node > 1 && node % 2) node /= 2; /* up, as long as it is the right one of two */
    if (node > 1) node++;
  }
  if (node <= 1) return -1;
  while (node < r->leaves) node = r->tree[2 * node] ? 2 * node : 2 * node + 1;
  return node - r->leaves;
}

static int64_t take_pack(rooms *r, int64_t room) {
  int64_t pack = r->first[room];
  r->first[room] = r->next[pack];
  if (r->first[room] < 0) update_tree(r, room);
  return pack;
}

/* ---- packs ---- */

typedef struct {
  tsr_arena *arena, *scratch;
  tsr_packs *packs;
  int64_t *documents; /* those that are packed, rising */
  int64_t count;
} packer;

static void choose_documents(packer *p) {
  tsr_packs *packs = p->packs;
  p->documents = tsr_arena_array(p->scratch, int64_t, packs->end - packs->first + 1);
  for (int64_t d = packs->first; d < packs->end; d++) {
    int64_t length = tsr_pack_length(packs, d);
    bool is_long = tsr_document_length(packs->from, d) > length;
    bool dropped = is_long && packs->rule.drops;
    int64_t targets = dropped ? 0 : tsr_document_targets(packs->from, d, length);
    packs->dropped += dropped;
    packs->truncated += is_long && !dropped;
    packs->untrained += !dropped && !targets;
    if (!targets) continue;
    packs->tokens += length;
    packs->targets += targets;
    p->documents[p->count++] = d;
  }
}

/* Stable, by falling length. */
static const int64_t *sort_by_length(packer *p) {
  int64_t T = p->packs->sequence;
  int64_t *sorted = tsr_arena_array(p->scratch, int64_t, p->count + 1);
  int64_t *at = tsr_arena_array(p->scratch, int64_t, T + 2); /* of length T - i */
  for (int64_t i = 0; i < p->count; i++) at[T - tsr_pack_length(p->packs, p->documents[i]) + 1]++;
  for (int64_t i = 1; i <= T + 1; i++) at[i] += at[i - 1];
  for (int64_t i = 0; i < p->count; i++)
    sorted[at[T - tsr_pack_length(p->packs, p->documents[i])]++] = p->documents[i];
  return sorted;
}

/* The members of each pack, in the order of `sorted`. */
static void collect(packer *p, const int64_t *sorted, const int64_t *pack_of) {
  int64_t packs = p->packs->count;
  int64_t *begins = tsr_arena_array(p->arena, int64_t, packs + 1);
  int64_t *members = tsr_arena_array(p->arena, int64_t, p->count + 1);
  int64_t *at = tsr_arena_array(p->scratch, int64_t, packs + 1);
  for (int64_t i = 0; i < p->count; i++) begins[pack_of[i] + 1]++;
  for (int64_t i = 1; i <= packs; i++) begins[i] += begins[i - 1];
  memcpy(at, begins, sizeof *at * (size_t)(packs + 1));
  for (int64_t i = 0; i < p->count; i++) members[at[pack_of[i]]++] = sorted[i];
  p->packs->begins = begins;
  p->packs->members = members;
}

static void pack_best_fit(packer *p) {
  int64_t T = p->packs->sequence;
  const int64_t *sorted = sort_by_length(p);
  int64_t *pack_of = tsr_arena_array(p->scratch, int64_t, p->count + 1);
  rooms r = rooms_of(p->scratch, T, p->count + 1);
  for (int64_t i = 0; i < p->count; i++) {
    int64_t length = tsr_pack_length(p->packs, sorted[i]), room = find_room(&r, length);
    pack_of[i] = room < 0 ? p->packs->count++ : take_pack(&r, room);
    add_room(&r, pack_of[i], (room < 0 ? T : room) - length);
  }
  collect(p, sorted, pack_of);
}

static void pack_singly(packer *p) {
  int64_t *pack_of = tsr_arena_array(p->scratch, int64_t, p->count + 1);
  for (int64_t i = 0; i < p->count; i++) pack_of[i] = i;
  p->packs->count = p->count;
  collect(p, p->documents, pack_of);
}

void tsr_packs_make(
    tsr_arena *arena, const tsr_masked_documents *from, int64_t first, int64_t end,
    const tsr_packing_rule *rule, int64_t sequence, tsr_packs *ret) {
  assert(sequence > 0 && first <= end && end <= from->count);
  *ret = (tsr_packs){.from = from, .rule = *rule, .sequence = sequence, .first = first, .end = end};
  packer p = {arena, tsr_arena_new(), ret, NULL, 0};
  choose_documents(&p);
  if (rule->best_fit) pack_best_fit(&p);
  else pack_singly(&p);
  tsr_arena_free(p.scratch);
}

/* ---- samples ---- */

int64_t tsr_pack_tokens(const tsr_packs *p, int64_t pack) {
  int64_t tokens = 0;
  for (int64_t i = p->begins[pack]; i < p->begins[pack + 1]; i++)
    tokens += tsr_pack_length(p, p->members[i]);
  return tokens;
}
