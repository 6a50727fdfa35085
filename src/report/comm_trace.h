// SPDX-License-Identifier: Apache-2.0
/* TESSERA_COMM_TRACE=1: what every rank sends and receives, one line each, in the order in which it
 * did so:
 *
 *   comm step=3 rank=1 seq=12 op=all_reduce axis=dp bytes=64 algo=tree tree=binary
 *     policy=deterministic transport=memory path=shm ms=0.013 what=d.w
 *
 * A step of evaluate and generate is a forward pass. seq counts a rank's lines from 0, over all
 * steps. bytes: what the rank brings. algo: tree, hier or ring (collectives.all_reduce.algo), whose
 * order is the recipe's; mpi or nccl, that library's own sum (policy fast, between processes); or
 * copy. tree: the shape of a sum's tree (numerics.reduce_tree), none where nothing is added or a
 * library adds. transport: memory where all members are in one process, else nccl, or the name of
 * the MPI library. path: what the messages cross (mesh.h, tsr_mesh_path_name), by the hosts that
 * the processes are on: shm or ib, and between devices nvlink, pcie or ib. A send and a receive
 * have peer, a rank, in place of algo. */
#ifndef TSR_REPORT_COMM_TRACE_H
#define TSR_REPORT_COMM_TRACE_H
#include "config/config.h"
#include "runtime/recorder.h"

typedef struct {
  int64_t *next;                /* per rank: seq */
  const tsr_rank_map *rank_map; /* NULL: this process is alone */
  bool fast;                    /* numerics.policy */
  tsr_all_reduce_algorithm all_reduce;
} tsr_comm_trace;

tsr_comm_trace tsr_comm_trace_start(tsr_arena *arena, int ranks);
/* The record's communication, as that of step `step`, counted from 1 like those of the metrics. */
void tsr_comm_trace_print(
    tsr_comm_trace *trace, const tsr_record *record, int64_t step, tsr_text *text);

/* To standard error, in writes of whole lines that several processes can make into one pipe without
 * mixing them. */
void tsr_comm_trace_write(const tsr_text *text);

/* The rank at the other end of a send, a receive or the wait for what was sent. */
int tsr_peer_of(
    const tsr_parallel *parallel, const tsr_program *program, const tsr_task *task, int rank);

#endif
