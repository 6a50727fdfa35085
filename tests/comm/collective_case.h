// SPDX-License-Identifier: Apache-2.0
/* Seeded collectives with their tensors: what they give where one process has all the members, and
 * the same on any processes, by a transport or by device communicators. */
#ifndef TSR_TESTS_COMM_COLLECTIVE_CASE_H
#define TSR_TESTS_COMM_COLLECTIVE_CASE_H
#include "comm/algorithm.h"
#include "comm/device_exchange.h"
#include "comm/in_process.h"
#include "comm/pending.h"

enum { CASE_MEMBERS_MAX = 24, CASE_WORKERS_MAX = 16 };

typedef struct {
  tsr_collective c; /* in, out: of the reference */
  int worker_of[CASE_MEMBERS_MAX];
  const int *hosts; /* per worker; NULL: all are on one */
  bool in_place;    /* all_reduce */
  bool pool;        /* adds and copies in jobs, last one first or on threads */
  uint64_t seed;
  char name[200];
} collective_case;

/* One of all there may be for so many workers; `scale`: tensors have up to so many elements, of
 * more than four members fewer. free: the reference's tensors. */
void collective_case_draw(collective_case *c, uint64_t seed, int workers, int64_t scale);
/* Of one dimension, one member on each worker; all_gather and all_reduce. */
void collective_case_plain(collective_case *c, tsr_op op, int workers, int64_t elements);
/* Compared with the oracle; a difference ends the test. */
void collective_case_reference(collective_case *c);
void collective_case_free(collective_case *c);

/* A worker's groups of the transport's own sums, per set of workers (a bit each), which are formed
 * when they are first needed: all workers have the same cases in the same order. */
typedef struct {
  void *of[1 << 8];
  int64_t sums, others; /* elements that were such a sum; that are not the tree's bits */
} case_groups;

/* A worker's part of it. */
typedef struct {
  const collective_case *of;
  case_groups *groups; /* NULL: sums are the tree's */
  tsr_transport transport;
  float *in[CASE_MEMBERS_MAX], *out[CASE_MEMBERS_MAX];
  char *staging;
  int64_t staging_bytes;
  tsr_arena *arena;     /* of its list */
  tsr_pending *pending; /* NULL: this worker hosts no member */
  tsr_pending_state state;
} case_worker;

void case_worker_begin(
    case_worker *w, const collective_case *c, const tsr_transport *t, int tag, case_groups *groups);
/* The same by a device, whose groups are lists of workers; all of it is done on return. */
void case_worker_run(
    case_worker *w, const collective_case *c, int worker, const tsr_device *device);
/* Compares with the reference, bit for bit (the transport's own sums: within rounding), looks at
 * what must not have been written, and frees. How many checks failed; each is printed. */
int case_worker_end(case_worker *w);
void case_worker_free(case_worker *w);

/* In [0, below); any where below is 0. */
uint64_t case_draw(uint64_t *state, uint64_t below);

#endif
