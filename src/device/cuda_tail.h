/* The tasks right behind a product that add a bias and a residual to its result, or take its gelu.
 * The device does them with it: in the product's end, while the sums are still in registers, or
 * where that would have other bits in one pass behind it. */
#ifndef TSR_DEVICE_CUDA_TAIL_H
#define TSR_DEVICE_CUDA_TAIL_H
#include "device/cuda_ops.h"

/* Whether b, which comes after a, is run whenever a is. */
bool cuda_are_together(const tsr_program *program, const tsr_task *a, const tsr_task *b);

/* The task that is always run right behind one of the program's; NULL: there is none. */
const tsr_task *cuda_follower(const tsr_program *program, const tsr_task *task);

/* Whether a task adds two tensors of one shape and type, all of whose elements are here. */
bool cuda_adds_tensors(const tsr_task *task);

/* In their order; NULL: there is none. Not both a residual and gelu. */
typedef struct {
  const tsr_task *bias, *residual, *gelu;
  const tsr_task *last;   /* of these */
  const tsr_tensor *sum;  /* the product with its bias */
  const tsr_tensor *plus; /* what the residual adds to it */
} cuda_tail;

/* Of a linear task of the call's program; of any other one nothing. */
cuda_tail cuda_tail_of(const cuda_call *call, const tsr_task *task);

/* Whether the product's end has the bits that the tasks' own kernels have. Those it must have under
 * policy deterministic, for what stands behind what differs from mesh to mesh: a stage can end
 * between a product and its residual, ZeRO can gather a bias there. Half precision is rounded at
 * each step, and the library adds a residual before a bias and has a gelu of its own. */
bool cuda_tail_is_exact(const cuda_tail *tail, tsr_dtype dtype);

/* Whether the end of the call's product takes its tail. */
bool cuda_linear_ends_with_tail(const cuda_call *call);

/* Whether the call's task is in the tail of one before it, which has done it then. */
bool cuda_is_in_tail(const cuda_call *call);

bool cuda_overlap(const cuda_call *call, const tsr_tensor *a, const tsr_tensor *b);

/* Behind the product, whose task the call's is. */
void cuda_run_tail(const cuda_call *call, const cuda_tail *tail);

#endif
