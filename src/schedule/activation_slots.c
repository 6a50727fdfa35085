// SPDX-License-Identifier: Apache-2.0
/* requires: what is kept from one action to another, and the order in which the parts run
 * produces: slot groups, with slots for as many microbatches as are alive at once
 * invalidates: nothing
 *
 * A slot group holds what is kept through the same parts of one chunk. The chunks of a stage are
 * not at their fullest at the same moment: of what each of them keeps alike (as many bytes, for the
 * same use, through the same kinds of actions) the slot groups share their slots, which any of the
 * chunks' microbatches may take. What one chunk has more of than another one is in slot groups of
 * its own. */
#include "schedule/activation_slots.h"
#include <stdlib.h>
#include <string.h>

enum { CHUNKS_MAX = 64 / 3 };

/* What one chunk keeps for a microbatch. */
typedef struct {
  uint64_t kinds; /* of actions: its parts, as those of chunk 0 */
  int chunk, index;
  const tsr_kept *of;
} alike;

static int chunk_of(uint64_t parts) { return __builtin_ctzll(parts) / 3; }

static int compare_kinds(const alike *x, const alike *y) {
  if (x->kinds != y->kinds) return x->kinds < y->kinds ? -1 : 1;
  if (x->of->lag != y->of->lag) return x->of->lag - y->of->lag;
  if (x->of->use != y->of->use) return (int)x->of->use - (int)y->of->use;
  return (x->of->bytes > y->of->bytes) - (x->of->bytes < y->of->bytes);
}

static int compare(const void *a, const void *b) {
  int kinds = compare_kinds(a, b);
  return kinds ? kinds : ((const alike *)a)->index - ((const alike *)b)->index;
}

static int list_alike(const tsr_program *p, const tsr_kept *kept, int count, alike *list) {
  int listed = 0;
  for (int i = 0; i < count; i++) {
    int chunk = chunk_of(kept[i].parts);
    uint64_t kinds = kept[i].parts >> 3 * chunk;
    if (p->tensors[kept[i].value].segment == TSR_SEGMENT_WORK && kinds < 8) /* of one chunk */
      list[listed++] = (alike){kinds, chunk, i, &kept[i]};
  }
  qsort(list, (size_t)listed, sizeof *list, compare);
  return listed;
}

/* Of what is alike, the first tensors of all chunks belong together, then the second ones. Each
 * gets the chunks that have one of its rank. */
static void match(const alike *list, int count, uint64_t *of_rank, uint64_t *ret_chunks) {
  int seen[CHUNKS_MAX] = {0}, rank[CHUNKS_MAX] = {0};
  memset(of_rank, 0, sizeof *of_rank * (size_t)count);
  for (int i = 0; i < count; i++) of_rank[seen[list[i].chunk]++] |= (uint64_t)1 << list[i].chunk;
  for (int i = 0; i < count; i++) ret_chunks[list[i].index] = of_rank[rank[list[i].chunk]++];
}

/* Per kept value: the chunks that keep the like of it; 0 where no other chunk does. */
static uint64_t *find_chunks(const tsr_program *p, const tsr_kept *kept, int count) {
  tsr_arena *arena = p->graph->arena;
  uint64_t *chunks = tsr_arena_array(arena, uint64_t, count + 1);
  if (p->pipeline->chunks == 1) return chunks;
  uint64_t *of_rank = tsr_arena_array(arena, uint64_t, count + 1);
  alike *list = tsr_arena_array(arena, alike, count + 1);
  int listed = list_alike(p, kept, count, list);
  for (int begin = 0, end; begin < listed; begin = end) {
    for (end = begin; end < listed && !compare_kinds(&list[begin], &list[end]);) end++;
    match(list + begin, end - begin, of_rank, chunks);
  }
  for (int i = 0; i < count; i++)
    if (!(chunks[i] & (chunks[i] - 1))) chunks[i] = 0;
  return chunks;
}

/* ---- slot groups ---- */

/* The slot group of the same slots that another chunk has; -1: none yet. */
static int find_pool(const tsr_program *p, const tsr_slot_group *like) {
  uint64_t kinds = like->parts >> 3 * chunk_of(like->parts);
  for (int i = 0; i < p->slot_groups_count && like->chunks; i++) {
    const tsr_slot_group *f = &p->slot_groups[i];
    if (f->chunks == like->chunks && f->lag == like->lag &&
        f->parts >> 3 * chunk_of(f->parts) == kinds)
      return f->pool;
  }
  return -1;
}

static int find_slot_group(tsr_program *p, tsr_slot_group like) {
  for (int i = 0; i < p->slot_groups_count; i++) {
    const tsr_slot_group *f = &p->slot_groups[i];
    if (f->parts == like.parts && f->lag == like.lag && f->segment == like.segment &&
        f->chunks == like.chunks)
      return i;
  }
  like.pool = find_pool(p, &like);
  if (like.pool < 0) like.pool = p->slot_groups_count;
  tsr_slot_group *slot_groups =
      tsr_arena_array(p->graph->arena, tsr_slot_group, p->slot_groups_count + 1);
  if (p->slot_groups_count)
    memcpy(slot_groups, p->slot_groups, sizeof *slot_groups * (size_t)p->slot_groups_count);
  p->slot_groups = slot_groups;
  slot_groups[p->slot_groups_count] = like;
  return p->slot_groups_count++;
}

/* When each microbatch needs a slot group: from the first run of its parts to the last one. */
typedef struct {
  int *begin, *end;
} spans;

static spans find_spans(const tsr_program *p, const tsr_slot_group *f) {
  int microbatches = (int)p->lowering.microbatches;
  spans s = {
      tsr_arena_array(p->graph->arena, int, microbatches),
      tsr_arena_array(p->graph->arena, int, microbatches)};
  for (int k = 0; k < microbatches; k++) s.begin[k] = p->runs_count, s.end[k] = -1;
  for (int r = 0; r < p->runs_count; r++) {
    const tsr_part *part = &p->parts[p->runs[r].part];
    int k = p->runs[r].microbatch;
    if (part->section == TSR_PROLOGUE || part->section == TSR_UPDATE) continue;
    if (!(f->parts & tsr_part_bit(part))) continue;
    if (r < s.begin[k]) s.begin[k] = r;
    if (r > s.end[k]) s.end[k] = r;
  }
  for (int k = 0; k < microbatches && f->lag; k++) {
    int until = k + f->lag < microbatches ? s.end[k + f->lag] : p->runs_count;
    if (until > s.end[k]) s.end[k] = until;
  }
  return s;
}

/* Each microbatch takes, in its slot group, the first slot that is free when it begins. */
static void find_slots(tsr_program *p, int pool, const spans *all) {
  int microbatches = (int)p->lowering.microbatches;
  int *busy_until = tsr_arena_array(p->graph->arena, int, p->slot_groups_count *microbatches),
      slots = 0;
  for (int r = 0; r < p->runs_count; r++)
    for (int i = pool; i < p->slot_groups_count; i++) {
      int k = p->runs[r].microbatch, s = 0;
      if (p->slot_groups[i].pool != pool || all[i].begin[k] != r) continue;
      while (s < slots && busy_until[s] >= r) s++;
      if (s == slots) slots++;
      p->slot_groups[i].slot_of[k] = s;
      busy_until[s] = all[i].end[k];
    }
  for (int i = pool; i < p->slot_groups_count; i++)
    if (p->slot_groups[i].pool == pool) p->slot_groups[i].slots = slots;
}

static void find_all_slots(tsr_program *p) {
  spans *all = tsr_arena_array(p->graph->arena, spans, p->slot_groups_count + 1);
  for (int i = 0; i < p->slot_groups_count; i++) {
    all[i] = find_spans(p, &p->slot_groups[i]);
    p->slot_groups[i].slot_of = tsr_arena_array(p->graph->arena, int, p->lowering.microbatches);
  }
  for (int i = 0; i < p->slot_groups_count; i++)
    if (p->slot_groups[i].pool == i) find_slots(p, i, all);
}

void tsr_program_make_slot_groups(tsr_program *p, const tsr_kept *kept, int count) {
  const uint64_t *chunks = find_chunks(p, kept, count);
  for (int i = 0; i < count; i++) {
    tsr_tensor *t = &p->tensors[kept[i].value];
    t->slot_group = find_slot_group(
        p, (tsr_slot_group){
               .parts = kept[i].parts,
               .lag = kept[i].lag,
               .segment = t->segment,
               .chunks = chunks[i]});
    t->offset = p->slot_groups[t->slot_group].bytes;
    p->slot_groups[t->slot_group].bytes += kept[i].bytes;
  }
  find_all_slots(p);
  for (int i = 0; i < p->slot_groups_count; i++) {
    tsr_slot_group *f = &p->slot_groups[i];
    if (f->segment == TSR_SEGMENT_WORK) continue;
    f->offset = p->bytes[f->segment];
    p->bytes[f->segment] += f->bytes * f->slots;
  }
}

bool tsr_program_fills(const tsr_program *p, int part, int input) {
  int slot_group = p->tensors[input].slot_group;
  if (p->parts[part].section != TSR_FORWARD) return false;
  return slot_group < 0 || p->slot_groups[slot_group].parts & tsr_part_bit(&p->parts[part]);
}
