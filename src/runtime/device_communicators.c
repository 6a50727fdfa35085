// SPDX-License-Identifier: Apache-2.0
#include "runtime/device_communicators.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
  tsr_arena *arena;
  const tsr_parallel *parallel;
  const tsr_rank_map *rank_map;
  const tsr_device *device;
  tsr_device_communicator **all;
  int count;
  int first_split, splits; /* those of the axis, up to how many there are */
} forming;

bool tsr_device_communicators_fit(const tsr_parallel *p, const tsr_rank_map *h) {
  for (int w = 0; w < h->processes; w++) {
    int stage = -1;
    for (int r = 0; r < p->ranks; r++) {
      if (tsr_rank_map_process(h, r) != w) continue;
      int of = tsr_parallel_coord(p, r, TSR_PP);
      if (stage >= 0 && of != stage) return false;
      stage = of;
    }
  }
  return true;
}

static bool is_same(const tsr_device_communicator *a, const tsr_device_communicator *b) {
  return a->axis == b->axis && a->stage == b->stage && a->to == b->to && a->count == b->count &&
         !memcmp(a->processes, b->processes, sizeof *a->processes * (size_t)a->count);
}

static bool has_process(const tsr_device_communicator *c, int process) {
  for (int i = 0; i < c->count; i++)
    if (c->processes[i] == process) return true;
  return false;
}

static bool is_disjoint(const tsr_device_communicator *a, const tsr_device_communicator *b) {
  for (int i = 0; i < a->count; i++)
    if (has_process(b, a->processes[i])) return false;
  return true;
}

/* The first split of the axis in which all others have other processes. */
static int find_split(forming *f, const tsr_device_communicator *c) {
  for (int split = f->first_split; split < f->splits; split++) {
    bool fits = true;
    for (int i = 0; fits && i < f->count; i++)
      fits = f->all[i]->split != split || is_disjoint(f->all[i], c);
    if (fits) return split;
  }
  return f->splits++;
}

static const tsr_device_communicator *add(forming *f, tsr_device_communicator like) {
  for (int i = 0; i < f->count; i++)
    if (is_same(f->all[i], &like)) return f->all[i];
  int *processes = tsr_arena_array(f->arena, int, like.count);
  memcpy(processes, like.processes, sizeof *processes * (size_t)like.count);
  like.split = find_split(f, &like);
  like.processes = processes;
  like.number = f->count;
  tsr_device_communicator *c = tsr_arena_alloc(f->arena, sizeof *c);
  *c = like;
  return f->all[f->count++] = c;
}

static void add_groups(forming *f, const tsr_device_communicator **of_group, int *room) {
  const tsr_parallel *p = f->parallel;
  for (int axis = 0; axis < TSR_AXES; axis++) {
    f->first_split = f->splits;
    for (int first = 0; p->size[axis] > 1 && first < p->ranks; first++) {
      if (tsr_parallel_coord(p, first, axis)) continue;
      tsr_device_communicator like = {.axis = axis, .to = -1, .processes = room};
      like.stage = axis == TSR_PP ? -1 : tsr_parallel_coord(p, first, TSR_PP);
      like.count = tsr_rank_map_processes(p, f->rank_map, axis, first, room);
      if (like.count > 1) of_group[axis * p->ranks + first] = add(f, like);
    }
  }
}

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* The processes of two stages, ascending. */
static int processes_of(const forming *f, int one, int other, int *room) {
  int count = 0, kept = 0;
  for (int r = 0; r < f->parallel->ranks; r++) {
    int stage = tsr_parallel_coord(f->parallel, r, TSR_PP);
    if (stage == one || stage == other) room[count++] = tsr_rank_map_process(f->rank_map, r);
  }
  qsort(room, (size_t)count, sizeof *room, compare);
  for (int i = 0; i < count; i++)
    if (!kept || room[i] != room[kept - 1]) room[kept++] = room[i];
  return kept;
}

/* The last stage and the first one are neighbours, too: of chunks. */
static void add_stages(forming *f, const tsr_device_communicator **of_stages, int *room) {
  int stages = f->parallel->size[TSR_PP];
  f->first_split = f->splits;
  for (int from = 0; stages > 1 && from < stages; from++)
    for (int by = -1; by <= 1; by += 2) {
      int to = (from + by + stages) % stages;
      tsr_device_communicator like = {.axis = TSR_PP, .stage = from, .to = to, .processes = room};
      like.count = processes_of(f, from, to, room);
      of_stages[from * stages + to] = add(f, like);
    }
}

/* All processes go through all splits in one order, so there is no deadlock. */
static bool split(const forming *f, char *why) {
  const tsr_device *d = f->device;
  int process = f->rank_map->process, mine = 0;
  for (int i = 0; i < f->count; i++) mine += has_process(f->all[i], process);
  for (int split = 0; split < f->splits; split++) {
    tsr_device_communicator *c = NULL;
    for (int i = 0; !c && i < f->count; i++)
      if (f->all[i]->split == split && has_process(f->all[i], process)) c = f->all[i];
    int key = 0;
    while (c && c->processes[key] != process) key++;
    void *none;
    if (!d->form_communicator(d->state, c ? c->number : -1, key, mine, c ? &c->group : &none, why))
      return false;
  }
  return true;
}

bool tsr_device_communicators_form(
    tsr_arena *arena, const tsr_parallel *p, const tsr_rank_map *h, const tsr_device *device,
    bool fast, const tsr_device_communicators **ret_communicators, char *why) {
  int stages = p->size[TSR_PP], most = 2 * stages;
  for (int axis = 0; axis < TSR_AXES; axis++) most += p->ranks / p->size[axis];
  forming f = {arena, p, h, device, tsr_arena_array(arena, tsr_device_communicator *, most)};
  int *room = tsr_arena_array(arena, int, p->ranks);
  const tsr_device_communicator **of_group =
      tsr_arena_array(arena, const tsr_device_communicator *, TSR_AXES * p->ranks);
  const tsr_device_communicator **of_stages =
      tsr_arena_array(arena, const tsr_device_communicator *, stages *stages);
  add_groups(&f, of_group, room);
  add_stages(&f, of_stages, room);
  if (!split(&f, why)) return false;
  tsr_device_communicators *communicators = tsr_arena_alloc(arena, sizeof *communicators);
  *communicators = (tsr_device_communicators){
      of_group, of_stages, (const tsr_device_communicator *const *)f.all, f.count, fast};
  *ret_communicators = communicators;
  return true;
}
