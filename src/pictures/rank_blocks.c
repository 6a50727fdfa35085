// SPDX-License-Identifier: Apache-2.0
#include "pictures/rank_blocks.h"
#include "plan/path.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
  int64_t device;
  int rank;
} numbered;

static int by_device(const void *a, const void *b) {
  const numbered *x = a, *y = b;
  if (x->device != y->device) return x->device < y->device ? -1 : 1;
  return x->rank - y->rank;
}

static int ascending(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* The least size of at most `most` blocks that is a number of whole hosts, or where hosts are few
 * divides one. */
static int size_of(int ranks, int most, int64_t host) {
  int size = (ranks + most - 1) / most;
  if (host <= 1) return size;
  if (size > host || ranks / host >= 16) return (int)((size + host - 1) / host * host);
  while (host % size) size++;
  return size;
}

tsr_rank_blocks tsr_rank_blocks_make(tsr_arena *arena, const tsr_report *r, int most) {
  int ranks = r->parallel->ranks;
  tsr_rank_blocks b = {.ranks_count = ranks, .host_devices = tsr_path_host_devices(r->machine)};
  b.size = ranks <= most ? 1 : size_of(ranks, most, b.host_devices);
  /* Single ranks are in the order of their numbers, whatever the devices are. */
  bool scattered = b.size == 1 && r->machine->parts_count > 0;
  if (b.host_devices >= ranks || scattered) b.host_devices = 0;
  b.count = (ranks + b.size - 1) / b.size;
  b.of_rank = tsr_arena_array(arena, int, ranks);
  b.ranks = tsr_arena_array(arena, int, ranks);
  numbered *order = tsr_arena_array(arena, numbered, ranks);
  for (int i = 0; i < ranks; i++)
    order[i] = (numbered){b.size == 1 ? i : tsr_path_device(r->machine, i), i};
  qsort(order, (size_t)ranks, sizeof *order, by_device);
  for (int i = 0; i < ranks; i++) {
    b.ranks[i] = order[i].rank;
    b.of_rank[order[i].rank] = i / b.size;
  }
  for (int i = 0; i < b.count; i++) {
    int begin = i * b.size, end = begin + b.size < ranks ? begin + b.size : ranks;
    qsort(b.ranks + begin, (size_t)(end - begin), sizeof(int), ascending);
  }
  return b;
}

static int end_of_run(const int *numbers, int count, int begin) {
  int end = begin + 1;
  while (end < count && numbers[end] == numbers[end - 1] + 1) end++;
  return end;
}

tsr_short_text tsr_number_set_text(const int *numbers, int count) {
  enum { RUNS_MAX = 3 };
  tsr_short_text text = {""};
  int stride = count > 1 ? numbers[1] - numbers[0] : 1, same = 1;
  while (same < count && numbers[same] - numbers[same - 1] == stride) same++;
  if (same == count && stride > 1 && count > 2) {
    snprintf(text.text, sizeof text.text, "%d–%d by %d", numbers[0], numbers[count - 1], stride);
    return text;
  }
  size_t length = 0;
  for (int begin = 0, runs = 0, end; begin < count; begin = end, runs++) {
    const char *between = runs ? ", " : "";
    end = end_of_run(numbers, count, begin);
    char *at = text.text + length;
    size_t room = sizeof text.text - length;
    if (runs == RUNS_MAX) {
      snprintf(at, room, ", …");
      break;
    }
    int more = end - begin > 1
                   ? snprintf(at, room, "%s%d–%d", between, numbers[begin], numbers[end - 1])
                   : snprintf(at, room, "%s%d", between, numbers[begin]);
    length += (size_t)more;
  }
  return text;
}

int tsr_rank_block_members(const tsr_rank_blocks *b, int block, const int **ret_ranks) {
  int begin = block * b->size, end = begin + b->size;
  *ret_ranks = b->ranks + begin;
  return (end < b->ranks_count ? end : b->ranks_count) - begin;
}

tsr_short_text tsr_rank_block_text(const tsr_rank_blocks *b, int block) {
  const int *ranks;
  int count = tsr_rank_block_members(b, block, &ranks);
  return tsr_number_set_text(ranks, count);
}

/* The coordinates of some ranks on one axis, each once; ":": all of several. */
static tsr_short_text
coords_on(tsr_arena *arena, const tsr_parallel *p, const int *ranks, int count, int axis) {
  int *seen = tsr_arena_array(arena, int, p->size[axis]), found = 0;
  for (int i = 0; i < count; i++) seen[tsr_parallel_coord(p, ranks[i], axis)] = 1;
  for (int c = 0; c < p->size[axis]; c++)
    if (seen[c]) seen[found++] = c;
  if (found > 1 && found == p->size[axis]) return (tsr_short_text){":"};
  return tsr_number_set_text(seen, found);
}

tsr_short_text tsr_rank_block_coords(
    tsr_arena *arena, const tsr_rank_blocks *b, const tsr_parallel *p, int block, bool with_names) {
  tsr_short_text text = {""};
  const int *ranks;
  int count = tsr_rank_block_members(b, block, &ranks);
  size_t length = 0;
  for (int i = 0; i < p->ndim && length < sizeof text.text; i++) {
    int axis = p->axis_of_dim[i];
    length += (size_t)snprintf(
        text.text + length, sizeof text.text - length, "%s%s%s%s", i ? ", " : "",
        with_names ? tsr_axis_name(axis) : "", with_names ? " " : "",
        coords_on(arena, p, ranks, count, axis).text);
  }
  return text;
}

tsr_short_text tsr_rank_blocks_note(const tsr_rank_blocks *b) {
  tsr_short_text text = {""};
  int64_t host = b->host_devices;
  if (b->size == 1) return text;
  if (host && b->size == host)
    snprintf(text.text, sizeof text.text, "A cell is a host of %d ranks.", b->size);
  else if (host && b->size > host)
    snprintf(
        text.text, sizeof text.text, "A cell is %d hosts of %d ranks.", (int)(b->size / host),
        (int)host);
  else snprintf(text.text, sizeof text.text, "A cell is %d ranks.", b->size);
  return text;
}
