// SPDX-License-Identifier: Apache-2.0
/* Seeded collectives with their tensors: what they give where one process has all the members, and
 * the same on any processes, by a transport or by device communicators. */
#ifndef TSR_TESTS_COMM_COLLECTIVE_CASE_H
#define TSR_TESTS_COMM_COLLECTIVE_CASE_H
#include "comm/algorithm.h"
#include "comm/engine_device.h"
#include "comm/engine_local.h"
#include "comm/engine_transport.h"

enum { CASE_MEMBERS_MAX = 24, CASE_PROCESSES_MAX = 16 };

typedef struct {
  tsr_collective c; /* in, out: of the reference */
  int process_of[CASE_MEMBERS_MAX];
  const int *hosts; /* per process; NULL: all are on one */
  bool ignores_hosts, ring;
  /* Per process: memory that all processes have, of collective_case_shared_bytes, for its members'
   * tensors, which an all_reduce then reads and writes; NULL: each process has its own. */
  char *const *regions;
  bool in_place;                   /* all_reduce */
  float *before[CASE_MEMBERS_MAX]; /* what the outs have of a sum that is onto it; else NULL */
  bool pool;                       /* adds and copies in jobs, last one first or on threads */
  uint64_t seed;
  char name[200];
} collective_case;

/* One of all there may be for so many processes; `scale`: tensors have up to so many elements, of
 * more than four members fewer. free: the reference's tensors. */
void collective_case_draw(collective_case *c, uint64_t seed, int processes, int64_t scale);
/* Of one dimension, one member on each process; all_gather and all_reduce. */
void collective_case_plain(collective_case *c, tsr_op op, int processes, int64_t elements);
int64_t collective_case_shared_bytes(const collective_case *c, int process);
/* Compared with the oracle; a difference ends the test. */
void collective_case_reference(collective_case *c);
void collective_case_free(collective_case *c);

/* A process's groups of the transport's own sums, per set of processes (a bit each), which are
 * formed when they are first needed: all processes have the same cases in the same order. */
typedef struct {
  void *of[1 << 8];
  int64_t sums, others; /* elements that were such a sum; that are not the tree's bits */
} case_groups;

/* A process's part of it. */
typedef struct {
  const collective_case *of;
  case_groups *groups; /* NULL: sums are the tree's */
  tsr_transport transport;
  float *in[CASE_MEMBERS_MAX], *out[CASE_MEMBERS_MAX];
  char *staging;
  int64_t staging_bytes;
  tsr_arena *arena;     /* of its list */
  tsr_pending *pending; /* NULL: this process hosts no member */
  tsr_pending_state state;
} case_process;

void case_process_begin(
    case_process *w, const collective_case *c, const tsr_transport *t, int tag,
    case_groups *groups);
/* The same by a device, whose groups are lists of processes; all of it is done on return. */
void case_process_run(
    case_process *w, const collective_case *c, int process, const tsr_device *device);
/* Compares with the reference, bit for bit (the transport's own sums: within rounding), looks at
 * what must not have been written, and frees. How many checks failed; each is printed. */
int case_process_end(case_process *w);
void case_process_free(case_process *w);

/* In [0, below); any where below is 0. */
uint64_t case_draw(uint64_t *state, uint64_t below);

#endif
