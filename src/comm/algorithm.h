// SPDX-License-Identifier: Apache-2.0
/* Algorithms: how a collective (collective.h, which specifies who holds what before and after) is
 * carried out by the processes of its members. An algorithm is one function in one file,
 * algorithm_NAME.c, that makes this process's list of steps (collective_steps.h) before anything
 * runs; engines know nothing of collectives. All processes of a layout make their lists from the
 * same request, so that every send has its receive. Staging is a function of the list.
 *
 * To add one: a function here that states for which ops it is and in which order it adds, its file,
 * a case in tsr_algorithm_plan, and a test against collective_oracle.h (tests/comm). */
#ifndef TSR_COMM_ALGORITHM_H
#define TSR_COMM_ALGORITHM_H
#include "comm/group_topology.h"
#include "comm/collective_steps.h"

typedef struct {
  const tsr_collective *collective; /* op, sizes and dimensions; buffers are not looked at */
  const tsr_layout *layout;
  bool on_device; /* messages go from device to device: in few large pieces, and reductions whose
                     operands lie in different ways read them from staging */
  bool library;   /* policy fast: there is a group for a library's own sums */
  bool ignores_hosts; /* of sums: processes of one host are as far from each other as of two */
  bool ring;          /* of an all_reduce: round the ring of the processes */
  bool shared; /* of an all_reduce: all processes are on one host, and each has the addresses of all
                  members' buffers */
} tsr_collective_request;

/* All ops where one process has all members: no messages, no staging. Sums are added in the
 * tree of base/reduction_tree.h over the members. */
const tsr_step_list *
tsr_algorithm_in_process(tsr_arena *arena, const tsr_collective_request *request);

/* all_gather, broadcast, ring_shift, all_to_all: what a member has for another goes from process
 * to process, once for all members there that get the same. */
const tsr_step_list *tsr_algorithm_direct(tsr_arena *arena, const tsr_collective_request *request);

/* all_reduce, reduce_scatter (Rabenseifner, "Optimization of Collective Reduction Operations",
 * 2004, with summands that are kept apart until their owner adds them): each slice is owned in
 * equal pieces by the processes that get it; the owner receives what it has not, adds in the tree
 * of base/reduction_tree.h over all members, and sends the sum to who else gets it. Nodes of the
 * tree that one process has alone are added before they are sent; nodes that one host has alone
 * are added there, by the owner's relay on that host, and cross once; sums of an all_reduce cross
 * once to each host; but where the request ignores hosts. */
const tsr_step_list *
tsr_algorithm_tree_sum(tsr_arena *arena, const tsr_collective_request *request);

/* all_reduce, round the ring of the processes: each adds its members' summands to what its
 * neighbour sends it, in the tree's order, and hands the partial sums on; the last one's sums go
 * round. Each process sends the tensor once or twice, whatever its members' number, where the
 * owners of tsr_algorithm_tree_sum get each part of a process; of n processes each waits for n
 * messages. */
const tsr_step_list *tsr_algorithm_ring(tsr_arena *arena, const tsr_collective_request *request);

/* all_reduce where each process reads and writes all members' buffers (peer_memory.h): each adds a
 * piece, in the tree of base/reduction_tree.h, and writes the sum to all members. */
const tsr_step_list *
tsr_algorithm_shared_sum(tsr_arena *arena, const tsr_collective_request *request);

/* The same ops by a library's own sum over the group's processes, in whatever order (policy fast),
 * of what each process's members give when they are added in a tree of their own. */
const tsr_step_list *
tsr_algorithm_library_sum(tsr_arena *arena, const tsr_collective_request *request);

/* Whether a transport's library can do it, of `elements` of a member's tensor, which are f32;
 * `groups` as in tsr_collective. A reduce_scatter whose slices are several members' each is the
 * tree's. */
bool tsr_algorithm_has_library_sum(tsr_op op, tsr_dtype dtype, int groups, int64_t elements);
/* Whether a devices' library can: a reduce_scatter's blocks, one a process in the group's order,
 * have to lie one after the other; `outer`: what the dimensions before the one that is split
 * have. */
bool tsr_algorithm_has_device_library_sum(tsr_op op, int groups, int64_t outer, bool one_each);

/* The right one of all these. */
const tsr_step_list *tsr_algorithm_plan(tsr_arena *arena, const tsr_collective_request *request);

#endif
