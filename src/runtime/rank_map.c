// SPDX-License-Identifier: Apache-2.0
#include "runtime/rank_map.h"
#include <stdlib.h>
#include <string.h>

/* Ranks in the order in which they are laid: axes as in the mesh, but tp last. */
static void order_ranks(const tsr_parallel *p, int *order) {
  int axes[TSR_AXES], count = 0;
  for (int i = 0; i < p->ndim; i++)
    if (p->axis_of_dim[i] != TSR_TP) axes[count++] = p->axis_of_dim[i];
  if (p->size[TSR_TP] > 1) axes[count++] = TSR_TP;
  for (int i = 0; i < p->ranks; i++) {
    int rest = i, rank = 0;
    for (int a = count; a-- > 0; rest /= p->size[axes[a]])
      rank += rest % p->size[axes[a]] * p->stride[axes[a]];
    order[i] = rank;
  }
}

static const int *find_hosts(tsr_arena *arena, const tsr_transport *t) {
  int *hosts = tsr_arena_array(arena, int, t->processes);
  for (int w = 0; w < t->processes; w++)
    while (strcmp(t->table->host(t->state, hosts[w]), t->table->host(t->state, w))) hosts[w]++;
  return hosts;
}

bool tsr_rank_map_make(
    tsr_arena *arena, const tsr_parallel *p, tsr_transport *t, tsr_rank_map *ret,
    tsr_diags *diags) {
  *ret = (tsr_rank_map){.processes = 1};
  if (!t || !t->table || t->processes == 1) return true;
  if (t->processes > p->ranks) {
    tsr_diag_error(
        diags, TSR_NOWHERE,
        "%d processes were started for %d rank%s: %d of them would have nothing to do",
        t->processes, p->ranks, p->ranks == 1 ? "" : "s", t->processes - p->ranks);
    tsr_diag_hint(diags, "start %d, or a larger mesh", p->ranks);
    return false;
  }
  int *order = tsr_arena_array(arena, int, p->ranks), *of = tsr_arena_array(arena, int, p->ranks);
  order_ranks(p, order);
  for (int w = 0; w < t->processes; w++)
    for (int64_t i = (int64_t)w * p->ranks / t->processes;
         i < (int64_t)(w + 1) * p->ranks / t->processes; i++)
      of[order[i]] = w;
  *ret = (tsr_rank_map){t, t->process, t->processes, of};
  ret->hosts = find_hosts(arena, t);
  ret->groups = tsr_arena_array(arena, void *, (int64_t)TSR_AXES * p->ranks);
  return true;
}

/* ---- groups ---- */

typedef struct {
  int stage; /* whose collectives it adds for; -1: those over pp */
  int count, *processes;
  void *formed; /* NULL: this process is none of them */
} group;

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

int tsr_rank_map_processes(
    const tsr_parallel *p, const tsr_rank_map *h, int axis, int first, int *ret_processes) {
  int count = 0, kept = 1;
  for (int m = 0; m < p->size[axis]; m++)
    ret_processes[count++] = tsr_rank_map_process(h, tsr_parallel_member(p, first, axis, m));
  qsort(ret_processes, (size_t)count, sizeof *ret_processes, compare);
  for (int i = 1; i < count; i++)
    if (ret_processes[i] != ret_processes[kept - 1]) ret_processes[kept++] = ret_processes[i];
  return kept;
}

static group
find_group(const tsr_parallel *p, const tsr_rank_map *h, int axis, int first, int *room) {
  int stage = axis == TSR_PP ? -1 : tsr_parallel_coord(p, first, TSR_PP);
  return (group){stage, tsr_rank_map_processes(p, h, axis, first, room), room, NULL};
}

static bool is_same(const group *a, const group *b) {
  return a->stage == b->stage && a->count == b->count &&
         !memcmp(a->processes, b->processes, sizeof(int) * (size_t)a->count);
}

/* All processes go through all groups in one order, so there is no deadlock. */
static bool form(
    const tsr_rank_map *h, tsr_arena *arena, group like, group **all, int *count, void **ret,
    char *why) {
  for (int i = 0; i < *count; i++)
    if (is_same(all[i], &like)) return *ret = all[i]->formed, true;
  group *g = all[(*count)++] = tsr_arena_alloc(arena, sizeof *g);
  *g = like;
  g->processes = tsr_arena_array(arena, int, like.count);
  memcpy(g->processes, like.processes, sizeof(int) * (size_t)like.count);
  bool is_here = bsearch(&h->process, g->processes, (size_t)g->count, sizeof(int), compare);
  const tsr_transport *t = h->transport;
  if (is_here && !t->table->form(t->state, g->processes, g->count, &g->formed, why)) return false;
  *ret = g->formed;
  return true;
}

bool tsr_rank_map_form_groups(
    tsr_arena *arena, const tsr_parallel *p, const tsr_rank_map *h, char *why) {
  int count = 0, groups = 0;
  if (h->processes == 1 || !h->transport->table->form) return true;
  for (int axis = 0; axis < TSR_AXES; axis++)
    groups += p->size[axis] > 1 ? p->ranks / p->size[axis] : 0;
  group **all = tsr_arena_array(arena, group *, groups);
  int *room = tsr_arena_array(arena, int, p->ranks);
  for (int axis = 0; axis < TSR_AXES; axis++)
    for (int first = 0; p->size[axis] > 1 && first < p->ranks; first++) {
      if (tsr_parallel_coord(p, first, axis)) continue;
      group like = find_group(p, h, axis, first, room);
      void **location = &h->groups[axis * p->ranks + first];
      if (like.count > 1 && !form(h, arena, like, all, &count, location, why)) return false;
    }
  return true;
}

void tsr_rank_map_print(const tsr_rank_map *h, int ranks, tsr_text *text) {
  if (h->processes == 1) return;
  tsr_text_add(text, "processes: %d, %s;", h->processes, h->transport->why);
  for (int w = 0; w < h->processes; w++) {
    tsr_text_add(text, "%s", w ? ", " : " ranks ");
    int shown = 0;
    for (int r = 0; r < ranks; r++) {
      if (h->process_of[r] != w) continue;
      int last = r;
      while (last + 1 < ranks && h->process_of[last + 1] == w) last++;
      if (last > r) tsr_text_add(text, "%s%d-%d", shown++ ? " " : "", r, last);
      else tsr_text_add(text, "%s%d", shown++ ? " " : "", r);
      r = last;
    }
    tsr_text_add(text, " on %s", h->transport->table->host(h->transport->state, w));
  }
  tsr_text_add(text, "\n");
}
