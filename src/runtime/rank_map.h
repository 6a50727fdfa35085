// SPDX-License-Identifier: Apache-2.0
/* Which process hosts which rank.
 *
 * Ranks are laid on processes in blocks, in the order of their coordinates with tp running fastest,
 * so that a group of tp stays inside a process, and neighbours inside a host, where the counts
 * allow it. Blocks differ by one rank at most where the counts do not divide. */
#ifndef TSR_RUNTIME_RANK_MAP_H
#define TSR_RUNTIME_RANK_MAP_H
#include "comm/transport.h"
#include "parallel/parallel.h"

/* Everything in one process: no transport, process 0 hosts all. */
typedef struct {
  tsr_transport *transport; /* NULL: this process is alone */
  int process, processes;
  const int *process_of; /* per rank; NULL: process 0 */
  const int *hosts;      /* per process: the first one on its host */
  /* Of the transport's own sums, for an axis and the first member of a group over it: at axis *
   * ranks + first. NULL: the group's members are all in one process or none is here, or sums are
   * the tree's. */
  void **groups;
  /* Between the processes' devices (device_communicators.h); NULL: there are none. */
  const struct tsr_device_communicators *communicators;
} tsr_rank_map;

/* Errors: more processes than ranks. `transport` may be one without a table. */
bool tsr_rank_map_make(
    tsr_arena *arena, const tsr_parallel *parallel, tsr_transport *transport,
    tsr_rank_map *ret_hosting, tsr_diags *diags);

/* Policy fast: the groups for the transport's own sums, where it has such. All processes form them
 * together, and wait for each other; false with `why` (TSR_WHY_BYTES). Copies of `rank_map` have
 * them, too. Groups of the same processes on different stages are different ones, because stages go
 * on by themselves. */
bool tsr_rank_map_form_groups(
    tsr_arena *arena, const tsr_parallel *parallel, const tsr_rank_map *rank_map, char *why);

static inline int tsr_rank_map_process(const tsr_rank_map *h, int rank) {
  return h->process_of ? h->process_of[rank] : 0;
}

/* The processes of the group over an axis that `first` is the first member of, ascending; how
 * many. */
int tsr_rank_map_processes(
    const tsr_parallel *parallel, const tsr_rank_map *rank_map, int axis, int first,
    int *ret_processes);

/* "processes: 2, openmpi 4.1.4; ranks 0-3 on a, 4-7 on b" */
void tsr_rank_map_print(const tsr_rank_map *rank_map, int ranks, tsr_text *text);

#endif
