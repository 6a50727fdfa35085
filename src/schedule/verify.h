// SPDX-License-Identifier: Apache-2.0
/* Proves before the first step that the programs of all ranks fit together, on the mesh that they
 * are to run on. It trusts no result of lowering and the memory plan: it knows
 * the graph with its placements, the lists of tasks, and what the executor does with them.
 *
 *   - Every node that a stage has runs once for every microbatch (or step), in its part, on tensors
 *     of the shapes that the graph's placements give, inside the planned bytes.
 *   - No task reads bytes that do not hold its value of its microbatch, and none writes bytes that
 *     somebody still needs: a whole step of every program is gone through with a memory that knows
 *     what each byte holds. What moves while other tasks run (a send until the wait that covers it,
 * a collective of a bucket until the wait for it) keeps its bytes.
 *     What one rank owns, others neither read nor write: where ranks own values, the step is gone
 *     through once for each owner.
 *   - Ranks add what they have of a token's experts in the binary tree over all experts, those of
 *     an inner axis first; what the ranks of any axis have together is a subtree of it. Nothing is
 *     moved over an axis along a dimension that an inner axis splits.
 *   - The members of a group run the same collectives over its axis in the same order; every send
 *     has its receive, and every receive its send.
 *   - No circle of waits closes: the ranks' waits are gone through until all have ended.
 *   - Sums are made of the recipe's units: each task's record (schedule/sum_order.h) sums every row
 *     once, in the unit that the row's position in the whole tensor is in, on every rank; operands
 *     are split alike, lengths divide, and a rank's units are a subtree of the recipe's. The pieces
 *     of a gradient's norm (schedule/norm_pieces.h) are each rank's part of it. Operands in FP8 are
 *     quantised in blocks that no mesh cuts, as their node says.
 *
 * Not proved: attributes and scratch sizes, which are for kernels to know; that the graph with its
 * placements computes what the user's does, which `check --prove` tries out. */
#ifndef TSR_SCHEDULE_VERIFY_H
#define TSR_SCHEDULE_VERIFY_H
#include "schedule/program.h"

/* The mesh as far as programs see it. */
typedef struct {
  int ranks;
  int size[TSR_AXES];   /* 1 for axes that are off */
  int stride[TSR_AXES]; /* rank distance of neighbours on the axis; 0 for axes that are off */
  const tsr_program *const *of_rank; /* per rank, NULL: its stage's; or NULL: all have theirs. Ranks
                                        that share a program are checked once */
  /* For tests of single rules, each of which is known by the format of its message: true leaves
   * the finding out. NULL: none. */
  bool (*leave_out)(void *context, const char *format);
  void *context;
} tsr_verify_mesh;

/* Findings are errors at the node's place. At most TSR_VERIFY_FINDINGS_MAX are said, each task's
 * first; the same programs always give the same. */
enum { TSR_VERIFY_FINDINGS_MAX = 10 };
bool tsr_programs_verify(
    tsr_arena *arena, const tsr_programs *programs, const tsr_verify_mesh *mesh, tsr_diags *diags);

#endif
