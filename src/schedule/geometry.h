// SPDX-License-Identifier: Apache-2.0
/* The geometry of a task on one rank: which rows, units and elements of its operands the rank has,
 * and where they are. It is the same for every device. */
#ifndef TSR_SCHEDULE_GEOMETRY_H
#define TSR_SCHEDULE_GEOMETRY_H
#include "base/tensor_slice.h"
#include "schedule/program.h"

/* The memory of one rank and its coordinates on the mesh. */
typedef struct {
  char *base[TSR_SEGMENTS];
  int coord[TSR_AXES];
  int rank;
} tsr_rank_memory;

/* What a step's random numbers and samples depend on. */
typedef struct {
  uint64_t seed;
  int64_t step, microbatch;
} tsr_step_context;

/* One execution of a task: by a rank, in a microbatch. */
typedef struct {
  const tsr_program *program;
  const tsr_task *task;
  const tsr_rank_memory *rank; /* NULL: functions of sizes alone may be called */
  tsr_step_context at;
} tsr_task_call;

/* ---- addresses ---- */

static inline void *tsr_operand_address(const tsr_task_call *c, const tsr_tensor *t) {
  return c->rank->base[t->segment] + tsr_tensor_offset(c->program, t, c->at.microbatch);
}
/* The kernel's scratch, behind the copies of operands. */
static inline void *tsr_task_scratch(const tsr_task_call *c) {
  return c->rank->base[TSR_SEGMENT_WORK] + c->task->scratch_offset + c->task->cast_bytes;
}
static inline const tsr_attrs *tsr_task_attrs(const tsr_task_call *c) {
  return &c->program->graph->nodes[c->task->node].attr;
}

/* ---- sizes ---- */

static inline int64_t tsr_tensor_last(const tsr_tensor *t) { return t->shape[t->ndim - 1]; }
/* All dimensions but the last. */
static inline int64_t tsr_tensor_rows(const tsr_tensor *t) {
  return tsr_tensor_elements(t) / tsr_tensor_last(t);
}
/* How many elements lie between neighbours along each dimension. */
void tsr_tensor_strides(const tsr_tensor *t, int64_t ret_stride[TSR_DIMS_MAX]);
/* Elements of one block of the first output (sum_order.h): all but the units that it keeps apart.
 * */
int64_t tsr_task_block_elements(const tsr_task *task);
/* Leaves of all blocks of the task's sum. */
int64_t tsr_task_leaves(const tsr_task *task);
/* Bytes of the stack on which the tree adds leaves of so many f32 elements; entry 0 is the output.
 * */
int64_t tsr_task_stack_bytes(const tsr_task *task, int64_t elements);
/* The first of the rank's experts, of a task on their rows. */
int64_t tsr_task_first_expert(const tsr_task_call *call);
/* Rows of a loss: the targets' number, since tp may split the logits. */
int64_t tsr_task_loss_rows(const tsr_task *task);
/* Whether the recipe splits the sequence, so that attention over a whole one is a sum of units too.
 */
bool tsr_program_splits_sequences(const tsr_program *program);

/* ---- the rank's part of a tensor ---- */

static inline const tsr_value *tsr_operand_value(const tsr_task_call *c, const tsr_tensor *t) {
  return &c->program->graph->values[t->value];
}
/* Where the part begins along a dimension. */
int64_t tsr_operand_offset(const tsr_task_call *call, const tsr_tensor *t, int dim);
tsr_tensor_slice tsr_operand_slice(const tsr_task_call *call, const tsr_tensor *t);
/* The same of an activation, whose samples are counted over the whole step. */
tsr_tensor_slice tsr_operand_sample_slice(const tsr_task_call *call, const tsr_tensor *t);
/* What pads the parameter that an operand is. */
const tsr_padding *tsr_operand_padding(const tsr_task_call *call, const tsr_tensor *t);
/* Whether cp splits a dimension and the part is two runs of it (base/sequence_layout.h); where an
 * even number of ranks of tp share them, each has one run. */
bool tsr_operand_is_zigzag(const tsr_task_call *call, const tsr_tensor *t, int dim);
/* That dimension, or -1. */
int tsr_operand_zigzag_dim(const tsr_task_call *call, const tsr_tensor *t);
/* The slice of the i-th run of a zigzag part. `whole` is the part's slice as if its positions were
 * neighbours; each index of the dimensions before `dim` has two runs, one behind the other in
 * memory. */
tsr_tensor_slice tsr_operand_run_slice(
    const tsr_task_call *call, const tsr_tensor *t, const tsr_tensor_slice *whole, int dim,
    int64_t i);

/* Into how many equal pieces the recipe's units split what a rank holds of a dimension. */
int64_t tsr_tensor_unit_pieces(const tsr_program *program, const tsr_tensor *t, int dim);
/* Runs of rows (all dimensions but the last) of one length: the units of the batch, or where
 * positions are split, those of each sample: also on a rank that has one unit of them, where all
 * its rows lie one after the other, for other meshes have several. */
int64_t tsr_tensor_row_runs(const tsr_program *program, const tsr_tensor *t);

/* ---- sums over ranks ---- */

/* 1 / the number of elements over which a squared error is the mean, of the whole step; of a loss
 * by sample only real samples count. */
double tsr_task_squared_factor(const tsr_task_call *call);
/* Whether this rank's copy of an input counts in a sum over the output's partial axes. The copy of
 * another stage does not. Where the input is split, or partial itself, over such an axis every rank
 * counts; where it is replicated the first one does, and where it is owned the first owner. */
bool tsr_task_counts(const tsr_task_call *call, int input);
/* The rectangles of the gradient of which the task's norm is made (norm_pieces.h), on this rank. */
tsr_norm_grid tsr_task_norm_grid(const tsr_task_call *call);

#endif
