// SPDX-License-Identifier: Apache-2.0
/* Where the members of a group are: on which processes, and these on which hosts. Processes are
 * counted by the first member that they have, hosts by their first process. */
#ifndef TSR_COMM_GROUP_TOPOLOGY_H
#define TSR_COMM_GROUP_TOPOLOGY_H
#include "base/arena.h"
#include <stdbool.h>

typedef struct {
  int members, processes, me; /* me: this process */
  const int *process_of;      /* per member */
  const int *number;          /* per process: as the transport counts */
  const int *ascending;       /* per process: its place among the group's, by their numbers */
  const int *first, *last;    /* per process: its first and its last member */
  int hosts;
  const int *host;     /* per process */
  const int *position; /* per process: among those of its host */
  const int *size;     /* per host: its processes */
} tsr_layout;

/* All members in this process. */
const tsr_layout *tsr_layout_alone(tsr_arena *arena, int members);
/* `numbers`: per member, its process as the transport counts; `hosts`: per process of the
 * transport, the same number on one host; NULL: all are on one; `own`: this process, which has a
 * member. Linear where numbers, and hosts, mostly rise with the members. */
const tsr_layout *
tsr_layout_new(tsr_arena *arena, int members, const int *numbers, const int *hosts, int own);
/* The same, with all processes on one host. */
const tsr_layout *tsr_layout_on_one_host(tsr_arena *arena, const tsr_layout *layout);

static inline bool tsr_layout_is_local(const tsr_layout *l, int member) {
  return l->process_of[member] == l->me;
}
static inline bool tsr_layout_shares_host(const tsr_layout *l, int a, int b) {
  return l->host[a] == l->host[b];
}

#endif
