// SPDX-License-Identifier: Apache-2.0
/* Inside the CUDA plugin: how each op's task becomes kernels. Shapes, units and placements are
 * those of the task's geometry; its addresses are the device's. */
#ifndef TSR_DEVICE_CUDA_OPS_H
#define TSR_DEVICE_CUDA_OPS_H
#include "base/sequence_layout.h"
#include "base/reduction_tree.h"
#include "device/cuda/scratch.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/gemm.h"
#include "schedule/fuse.h"

/* The device as the plugin holds it. */
typedef struct {
  tsr_cuda_stream stream;
  tsr_cuda_blas *blas;
  bool fast;  /* policy fast */
  bool wgmma; /* attention runs on it where it can (wgmma.h) */
  /* Does not return: a task cannot be run, for that reason. */
  void (*fail)(void *context, const tsr_task_call *task, const char *why);
  void *context;
  uint64_t *nan_place; /* on the device: becomes the least place of a NaN (device.h); NULL: none */
} cuda_state;

typedef struct {
  tsr_task_call call;
  const cuda_state *state;
  const uint64_t *key; /* of the task's random numbers in this step, on the device */
} cuda_call;

/* Begins a task. */
typedef void (*cuda_op)(const cuda_call *call);

static inline tsr_cuda_type cuda_type_of(tsr_dtype dtype) {
  return dtype == TSR_BF16 ? TSR_CUDA_BF16 : dtype == TSR_F16 ? TSR_CUDA_F16 : TSR_CUDA_F32;
}
static inline tsr_cuda_type cuda_type(const tsr_tensor *t) { return cuda_type_of(t->dtype); }
static inline const tsr_tensor *cuda_x(const cuda_call *c, int i) {
  return &tsr_kernel_inputs(c->call.task)[i];
}
static inline const tsr_tensor *cuda_y(const cuda_call *c, int i) {
  return &tsr_kernel_outputs(c->call.task)[i];
}
static inline void *cuda_in(const cuda_call *c, int i) {
  return tsr_operand_address(&c->call, cuda_x(c, i));
}
static inline void *cuda_out(const cuda_call *c, int i) {
  return tsr_operand_address(&c->call, cuda_y(c, i));
}
/* NULL: none. */
static inline void *cuda_at(const cuda_call *c, const tsr_tensor *t) {
  return t ? tsr_operand_address(&c->call, t) : NULL;
}
static inline void *cuda_scratch(const cuda_call *c) { return tsr_task_scratch(&c->call); }
static inline const tsr_attrs *cuda_attrs(const cuda_call *c) { return tsr_task_attrs(&c->call); }
/* The key of attention's dropout. */
static inline const uint64_t *cuda_key_of(const cuda_call *c, const tsr_attention *a) {
  return a->dropout > 0 ? c->key : NULL;
}
/* One of the step's numbers, where it lies on the device. */
static inline const float *cuda_scalar(const cuda_call *c, int input, tsr_step_scalar which) {
  return (const float *)cuda_in(c, input) + which;
}

/* Adds the leaves of one block of the task's sum in the tree's order; like cpu_add_leaves. Each is
 * made by `make`, in f32, or where the sum rounds in the output's type, as `out` and `scratch`. */
typedef void
cuda_make_leaf(const cuda_call *c, void *context, int64_t block, int64_t leaf, void *into);
void cuda_add_leaves(
    const cuda_call *c, int64_t block, void *out, void *scratch, int64_t stride, int64_t elements,
    cuda_make_leaf *make, void *context);

/* Begins a task: its op, and the casts of operands before and after it (run_task.c). */
void cuda_run_task(const cuda_call *call);

/* A linear_dw whose dy is computed while it is read, in the order of its sum: `dy` returns the
 * address of some of its rows, which are neighbours. */
typedef const void *cuda_rows_at(const cuda_call *call, void *context, int64_t first, int64_t rows);
void cuda_run_linear_dw(const cuda_call *call, cuda_rows_at *dy, void *context);

/* The parts of a loss: the losses of its task's rows, and the sum of all rows' losses, which lie in
 * the task's scratch. */
void cuda_run_ce_row_losses(const cuda_call *call, float *row_loss);
void cuda_run_ce_loss_sum(const cuda_call *call);

/* How ops' tasks run; `cuda_collective` stands for those of collectives. */
#define OP(id, name, min, max, outputs, attrs, facts, infer, gradient, place, lower, cost)         \
  extern const cuda_op cuda_##lower;
#include "graph/ops.def"
#undef OP
extern const cuda_op cuda_logits_gradient, cuda_linear_cross_entropy; /* fused tasks' */

#endif
