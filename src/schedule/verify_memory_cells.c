// SPDX-License-Identifier: Apache-2.0
/* A program's memory split into cells: bytes that always are of the same tensors are one. Segments
 * stand one behind the other, so that one ascending list of edges defines where cells begin. */
#include "base/reduction_tree.h"
#include "schedule/verify_checks.h"
#include <stdlib.h>

bool tsr_verify_is_sum(const tsr_graph *g, int value) {
  const tsr_value *x = &g->values[value];
  return x->kind == TSR_VALUE_NODE && tsr_node_accumulates(&g->nodes[x->node]);
}

int64_t tsr_verify_bytes(const tsr_program *p, int value) {
  return tsr_verify_aligned(tsr_tensor_bytes(&p->tensors[value])) *
         tsr_program_stack_entries(p, value);
}

bool tsr_verify_has_bytes(const tsr_verify_subject *s, int value) {
  return s->owner[value] == value && s->p->tensors[value].segment != TSR_SEGMENT_ABSENT &&
         tsr_program_holds(s->p, value, s->coord);
}

static int slots_of(const tsr_program *p, int value) {
  int slot_group = p->tensors[value].slot_group;
  return slot_group < 0 ? 1 : p->slot_groups[slot_group].slots;
}

/* Of a value in a slot of its slot group. */
static int64_t begin_of(const tsr_verify_map *m, const tsr_program *p, int value, int slot) {
  const tsr_tensor *t = &p->tensors[value];
  int64_t slot_bytes = t->slot_group < 0 ? 0 : p->slot_groups[t->slot_group].bytes;
  return m->base[t->segment] + t->offset + slot * slot_bytes;
}

static int64_t scratch_begin(const tsr_verify_map *m, const tsr_task *t) {
  return m->base[TSR_SEGMENT_WORK] + t->scratch_offset;
}

static int compare(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static void add_range(tsr_verify_map *m, int64_t begin, int64_t bytes) {
  m->edges[m->edges_count++] = begin;
  m->edges[m->edges_count++] = begin + bytes;
}

static void sort_edges(tsr_verify_map *m) {
  int unique = 0;
  qsort(m->edges, (size_t)m->edges_count, sizeof *m->edges, compare);
  for (int i = 0; i < m->edges_count; i++)
    if (!unique || m->edges[i] != m->edges[unique - 1]) m->edges[unique++] = m->edges[i];
  m->edges_count = unique;
}

/* The cells of a range whose ends are edges. */
static tsr_verify_cells find_cells(const tsr_verify_map *m, int64_t begin, int64_t bytes) {
  tsr_verify_cells found;
  int low = 0, high = m->edges_count - 1;
  while (low < high) {
    int middle = (low + high) / 2;
    if (m->edges[middle] < begin) low = middle + 1;
    else high = middle;
  }
  found.first = low;
  while (m->edges[low] < begin + bytes) low++;
  found.end = low;
  return found;
}

static void find_edges(tsr_arena *arena, tsr_verify_map *m, const tsr_verify_subject *s) {
  const tsr_program *p = s->p;
  int ranges = p->tasks_count;
  for (int x = 0; x < p->graph->values_count; x++) {
    m->place_of[x] = ranges - p->tasks_count;
    if (tsr_verify_has_bytes(s, x)) ranges += slots_of(p, x);
  }
  m->edges = tsr_arena_array(arena, int64_t, 2 * ranges + 1);
  m->places = tsr_arena_array(arena, tsr_verify_cells, ranges + 1);
  for (int x = 0; x < p->graph->values_count; x++)
    for (int k = 0; tsr_verify_has_bytes(s, x) && k < slots_of(p, x); k++)
      add_range(m, begin_of(m, p, x, k), tsr_verify_bytes(p, x));
  for (int i = 0; i < p->tasks_count; i++)
    if (p->tasks[i].scratch_bytes)
      add_range(m, scratch_begin(m, &p->tasks[i]), tsr_verify_aligned(p->tasks[i].scratch_bytes));
  sort_edges(m);
}

tsr_verify_map tsr_verify_map_make(tsr_arena *arena, const tsr_verify_subject *s) {
  const tsr_program *p = s->p;
  tsr_verify_map m = {.edges_count = 0};
  int64_t end = 0;
  for (int k = 0; k < TSR_SEGMENTS; k++) {
    m.base[k] = end;
    end += tsr_verify_aligned(p->bytes[k]) + 64; /* ranges of two segments never touch */
  }
  m.place_of = tsr_arena_array(arena, int, p->graph->values_count + 1);
  m.scratch = tsr_arena_array(arena, tsr_verify_cells, p->tasks_count + 1);
  find_edges(arena, &m, s);
  for (int x = 0; x < p->graph->values_count; x++)
    for (int k = 0; tsr_verify_has_bytes(s, x) && k < slots_of(p, x); k++)
      m.places[m.place_of[x] + k] = find_cells(&m, begin_of(&m, p, x, k), tsr_verify_bytes(p, x));
  for (int i = 0; i < p->tasks_count; i++)
    if (p->tasks[i].scratch_bytes)
      m.scratch[i] = find_cells(
          &m, scratch_begin(&m, &p->tasks[i]), tsr_verify_aligned(p->tasks[i].scratch_bytes));
  return m;
}

const char *tsr_verify_cell_address(tsr_verify *v, const tsr_verify_map *m, int cell) {
  int s = 0;
  while (s < TSR_SEGMENTS - 1 && m->base[s + 1] <= m->edges[cell]) s++;
  return tsr_verify_address(v, (tsr_segment)s, m->edges[cell] - m->base[s]);
}
