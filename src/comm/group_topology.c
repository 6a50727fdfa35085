// SPDX-License-Identifier: Apache-2.0
#include "comm/group_topology.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Keys in the order in which they first appear. What is larger than all before is new without a
 * search, and the one before is looked at first. */
typedef struct {
  int *keys, count, most, last;
} numbering;

static int find_number(numbering *n, int key) {
  if (n->count && n->keys[n->last] == key) return n->last;
  int i = n->count;
  if (n->count && key <= n->most)
    for (i = 0; i < n->count && n->keys[i] != key;) i++;
  if (i == n->count) n->keys[n->count++] = key;
  if (n->count == 1 || key > n->most) n->most = key;
  return n->last = i;
}

/* Members often go round the processes, so the next one is looked at, too. */
static int find_process(numbering *n, int key) {
  int next = n->last + 1 < n->count ? n->last + 1 : 0;
  if (n->count && n->keys[n->last] != key && n->keys[next] == key) return n->last = next;
  return find_number(n, key);
}

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void find_ascending(tsr_arena *arena, tsr_layout *l) {
  int *sorted = tsr_arena_array(arena, int, l->processes),
      *ascending = tsr_arena_array(arena, int, l->processes);
  memcpy(sorted, l->number, sizeof(int) * (size_t)l->processes);
  qsort(sorted, (size_t)l->processes, sizeof(int), compare);
  for (int p = 0; p < l->processes; p++) {
    const int *at = bsearch(&l->number[p], sorted, (size_t)l->processes, sizeof(int), compare);
    ascending[p] = (int)(at - sorted);
  }
  l->ascending = ascending;
}

static void find_hosts(tsr_arena *arena, tsr_layout *l, const int *hosts) {
  int *host = tsr_arena_array(arena, int, l->processes),
      *position = tsr_arena_array(arena, int, l->processes),
      *size = tsr_arena_array(arena, int, l->processes);
  numbering n = {.keys = tsr_arena_array(arena, int, l->processes)};
  for (int p = 0; p < l->processes; p++) {
    host[p] = find_number(&n, hosts ? hosts[l->number[p]] : 0);
    position[p] = size[host[p]]++;
  }
  l->host = host, l->position = position, l->size = size;
  l->hosts = n.count;
}

const tsr_layout *
tsr_layout_new(tsr_arena *arena, int members, const int *numbers, const int *hosts, int own) {
  tsr_layout *l = tsr_arena_alloc(arena, sizeof *l);
  int *process_of = tsr_arena_array(arena, int, members);
  numbering n = {.keys = tsr_arena_array(arena, int, members)};
  for (int m = 0; m < members; m++) process_of[m] = find_process(&n, numbers[m]);
  *l = (tsr_layout){members, n.count, -1, process_of, n.keys};
  int *first = tsr_arena_array(arena, int, n.count), *last = tsr_arena_array(arena, int, n.count);
  for (int m = members; m-- > 0;) first[process_of[m]] = m;
  for (int m = 0; m < members; m++) last[process_of[m]] = m;
  for (int p = 0; p < n.count; p++)
    if (n.keys[p] == own) l->me = p;
  assert(l->me >= 0);
  l->first = first, l->last = last;
  find_ascending(arena, l);
  find_hosts(arena, l, hosts);
  return l;
}

const tsr_layout *tsr_layout_alone(tsr_arena *arena, int members) {
  return tsr_layout_new(arena, members, tsr_arena_array(arena, int, members), NULL, 0);
}

const tsr_layout *tsr_layout_on_one_host(tsr_arena *arena, const tsr_layout *layout) {
  tsr_layout *l = tsr_arena_alloc(arena, sizeof *l);
  *l = *layout;
  find_hosts(arena, l, NULL);
  return l;
}
