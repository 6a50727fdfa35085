// SPDX-License-Identifier: Apache-2.0
/* Shared by the files that bind tasks to kernels. */
#ifndef TSR_DEVICE_CPU_OPS_H
#define TSR_DEVICE_CPU_OPS_H
#include "base/sequence.h"
#include "base/tree.h"
#include "device/cpu.h"
#include "graph/graph.h"

typedef tsr_cpu_call cpu_call;

static inline float *cpu_address(const cpu_call *c, const tsr_tensor *t) {
  int64_t offset = tsr_tensor_offset(c->program, t, c->moment.microbatch);
  return (float *)(void *)(c->rank->base[t->segment] + offset);
}

/* ---- copies in f32 (cpu_half.c): they stand before what the op needs in the task's scratch ----
 */

bool cpu_is_copied(const tsr_task *task, const tsr_tensor *t);
/* Where the copy of one of the task's tensors is in its scratch; with NULL, what follows them. */
int64_t cpu_copy_offset(const tsr_task *task, const tsr_tensor *t);
/* Rows of a table of tokens [v_begin, v_end), where the table or the result is in half precision.
 */
void cpu_embedding_half(
    const cpu_call *call, int64_t v_begin, int64_t v_end, int64_t begin, int64_t end);

static inline char *cpu_task_scratch(const cpu_call *c) {
  return c->rank->base[TSR_SEGMENT_WORK] + c->task->scratch_offset;
}
/* A tensor as kernels take it. */
static inline float *cpu_tensor(const cpu_call *c, const tsr_tensor *t) {
  if (!tsr_dtype_is_half(t->dtype) || !cpu_is_copied(c->task, t)) return cpu_address(c, t);
  return (float *)(void *)(cpu_task_scratch(c) + cpu_copy_offset(c->task, t));
}
static inline float *cpu_in(const cpu_call *c, int i) { return cpu_tensor(c, &c->task->inputs[i]); }
static inline const int32_t *cpu_tokens(const cpu_call *c, int i) {
  return (const int32_t *)(const void *)cpu_in(c, i);
}
static inline float *cpu_out(const cpu_call *c, int i) {
  return cpu_tensor(c, &c->task->outputs[i]);
}
static inline void *cpu_scratch(const cpu_call *c) {
  return cpu_task_scratch(c) + cpu_copy_offset(c->task, NULL);
}
static inline const tsr_attrs *cpu_attrs(const cpu_call *c) {
  return &c->program->graph->nodes[c->task->node].attr;
}
static inline float cpu_hyper(const cpu_call *c, int input, tsr_hyper which) {
  return cpu_in(c, input)[which];
}

static inline int64_t cpu_last(const tsr_tensor *t) { return t->shape[t->ndim - 1]; }
static inline int64_t cpu_rows(const tsr_tensor *t) { return tsr_tensor_elements(t) / cpu_last(t); }
static inline const tsr_value *cpu_value(const cpu_call *c, const tsr_tensor *t) {
  return &c->program->graph->values[t->value];
}

/* Where this rank's part of a tensor begins along a dimension. */
int64_t cpu_offset(const cpu_call *c, const tsr_tensor *t, int dim);
/* The same for activations, whose samples count those of the whole step. */
tsr_box cpu_sample_box(const cpu_call *c, const tsr_tensor *t);

/* Whether a dimension is split over cp and lies there in two runs (base/sequence.h). */
bool cpu_is_zigzag(const cpu_call *c, const tsr_tensor *t, int dim);
/* That dimension, or -1; and the box of the i-th half of a tensor whose box would be `whole` if its
 * positions were neighbours: each index of the dimensions before has two halves, one behind the
 * other in memory. */
int cpu_zigzag_dim(const cpu_call *c, const tsr_tensor *t);
tsr_box
cpu_half_box(const cpu_call *c, const tsr_tensor *t, const tsr_box *whole, int dim, int64_t i);

/* Elements of one block of a task's first output (tsr_reduction): all but the units that it keeps
 * apart. */
static inline int64_t cpu_block_elements(const tsr_task *t) {
  return tsr_tensor_elements(&t->outputs[0]) / (t->outputs[0].units ? t->outputs[0].units : 1);
}

/* How many elements lie between neighbours along each dimension of a whole tensor. */
void cpu_steps_of(const tsr_tensor *t, int64_t ret_step[TSR_DIMS_MAX]);
/* The logits may be split where the loss is not: the targets say how many rows it has. */
int64_t cpu_rows_of_loss(const tsr_task *task);
/* Of the mean over all elements of the step. */
double cpu_squared_factor(const cpu_call *call);
/* The function of a unary op, of a gated one or of its gradient. */
tsr_unary cpu_unary_of(tsr_op op);
/* Of the task's queries and keys; without a rank, sizes alone. */
tsr_attention cpu_attention_of(const cpu_call *call);
tsr_attention_cached cpu_attention_cached_of(const cpu_call *call);
/* The same over units; `step` is a ring's op's. */
tsr_attention_ring cpu_ring_of(const cpu_call *call);
/* Whether the recipe cuts the sequence, so that attention over whole ones is a sum of units too. */
bool cpu_has_units(const tsr_program *program);

/* Where an update's weight, its first input, lies in the whole one. */
tsr_box cpu_weight_box(const cpu_call *call);

/* Whether this rank's copy of an input counts in a sum that is owed over the output's partial axes:
 * another stage's does not; where the input is split, or owed itself, over such an axis every rank
 * counts, where it is not only the first does. */
bool cpu_counts(const cpu_call *call, int input);

/* A rectangle of the gradient that the task's norm is made of (schedule/norm_pieces.h). */
tsr_rectangle cpu_norm_rectangle(const cpu_call *call, int64_t unit, int64_t piece);

/* Adds the leaves of one block of the task's sum, made one after the other by `make`, in the tree's
 * order. The result ends in `out`; `scratch` holds the other stack entries, `stride` floats apart.
 * Only elements [begin, end) of each are touched by the additions. */
typedef void
cpu_make_leaf(const cpu_call *c, void *context, int64_t block, int64_t leaf, float *into);
void cpu_add_leaves(
    const cpu_call *c, int64_t block, float *out, float *scratch, int64_t stride, int64_t begin,
    int64_t end, cpu_make_leaf *make, void *context);
/* Scratch for it, in bytes. */
static inline int64_t cpu_stack_bytes(const tsr_task *t, int64_t elements) {
  return (tsr_reduction_depth(&t->sum) - 1) * elements * 4;
}

int64_t cpu_items_elements(const tsr_task *task); /* of output 0 */
int64_t cpu_items_rows(const tsr_task *task);     /* of output 0 */

/* The functions of ops' tasks; `cpu_collective` stands for those of collectives. */
#define OP(id, name, min, max, outputs, attrs, facts, infer, gradient, place, lower, cost)         \
  extern const tsr_cpu_op cpu_##lower;
#include "graph/ops.def"
#undef OP

#endif
