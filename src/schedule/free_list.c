// SPDX-License-Identifier: Apache-2.0
#include "schedule/free_list.h"
#include <string.h>

static void insert_free(tsr_free_list *m, int at, tsr_free_block b) {
  tsr_arena_grow(m->arena, (void **)&m->free, sizeof *m->free, m->free_count, &m->free_capacity);
  memmove(m->free + at + 1, m->free + at, sizeof *m->free * (size_t)(m->free_count - at));
  m->free[at] = b;
  m->free_count++;
}

static void remove_free(tsr_free_list *m, int at) {
  memmove(m->free + at, m->free + at + 1, sizeof *m->free * (size_t)(m->free_count - at - 1));
  m->free_count--;
}

int64_t tsr_free_list_take(tsr_free_list *m, int64_t size) {
  int best = -1;
  for (int i = 0; i < m->free_count; i++)
    if (m->free[i].size >= size && (best < 0 || m->free[i].size < m->free[best].size)) best = i;
  if (best >= 0) {
    int64_t offset = m->free[best].offset;
    m->free[best].offset += size;
    m->free[best].size -= size;
    if (!m->free[best].size) remove_free(m, best);
    return offset;
  }
  int64_t offset = m->top;
  if (m->free_count &&
      m->free[m->free_count - 1].offset + m->free[m->free_count - 1].size == m->top)
    offset = m->free[--m->free_count].offset; /* grow the last free block */
  m->top = offset + size;
  return offset;
}

void tsr_free_list_give_back(tsr_free_list *m, int64_t offset, int64_t size) {
  int at = 0, high = m->free_count;
  while (at < high) {
    int mid = (at + high) / 2;
    if (m->free[mid].offset < offset) at = mid + 1;
    else high = mid;
  }
  bool before = at > 0 && m->free[at - 1].offset + m->free[at - 1].size == offset;
  bool after = at < m->free_count && offset + size == m->free[at].offset;
  if (before && after) {
    m->free[at - 1].size += size + m->free[at].size;
    remove_free(m, at);
  } else if (before) {
    m->free[at - 1].size += size;
  } else if (after) {
    m->free[at].offset -= size;
    m->free[at].size += size;
  } else {
    insert_free(m, at, (tsr_free_block){offset, size});
  }
}
