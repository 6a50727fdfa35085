// SPDX-License-Identifier: Apache-2.0
/* Whether the ranks that hold the same part of a parameter or of optimizer state hold the same bits
 * of it. Each rank's copy is hashed where it is (base/tensor_hash.h; with padding, in which every
 * NaN counts as the same one), and processes exchange 64-bit numbers alone. What no two ranks hold
 * is not compared: the shards of ZeRO, of tp, of experts. */
#ifndef TSR_RUNTIME_REPLICA_CHECK_H
#define TSR_RUNTIME_REPLICA_CHECK_H
#include "runtime/process.h"

typedef struct tsr_replica_check tsr_replica_check;

/* Finds the replicas; once in a process. All processes together, as below. Error: no memory for 8
 * bytes a copy. */
bool tsr_replica_check_open(
    tsr_arena *arena, tsr_executable *executable, tsr_replica_check **ret_check, tsr_diags *diags);
/* Whether any part has two holders: else nothing is compared. */
bool tsr_replica_check_compares(const tsr_replica_check *check);
/* Between steps: whether all replicas are equal. Equal ones always pass; of others about one in
 * 2^60 does, and such whose hashes are the same. */
bool tsr_replica_check_run(tsr_replica_check *check);

/* A part of which some ranks have other bits. */
typedef struct {
  int value;   /* of the graph */
  int holders; /* ranks that hold the part */
  /* More than half of the holders have the same bits: `ranks` are the others. Else it is not known
   * which are right, and `ranks` are all holders. */
  bool has_majority;
  int *ranks, count;
} tsr_replica_difference;

enum { TSR_REPLICA_DIFFERENCES = 4 };
typedef struct {
  tsr_replica_difference differences[TSR_REPLICA_DIFFERENCES]; /* the first, in the graph's order */
  int count;
  int values; /* that differ, in all */
} tsr_replica_report;

/* What differed in the check that was run last: the same on all processes. */
tsr_replica_report tsr_replica_check_find(tsr_arena *arena, const tsr_replica_check *check);

/* "rank 3 (process 1 on node2, cuda:0 at 0000:1b:00.0)"; all processes together. */
const char *tsr_executable_rank_text(tsr_arena *arena, const tsr_executable *executable, int rank);

#endif
