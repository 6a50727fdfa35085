/* The tasks right behind a product that add a bias and a residual to its result, or take its gelu.
 * The device does them with it: in the product's end, while the sums are still in registers, or
 * where that would have other bits in one pass behind it. */
#ifndef TSR_DEVICE_CUDA_TAIL_H
#define TSR_DEVICE_CUDA_TAIL_H
#include "device/cuda_ops.h"

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

/* Whether the end of the call's product takes its tail (cuda_products.c). */
bool cuda_linear_ends_with_tail(const cuda_call *call);

/* Whether the call's task is in the tail of one before it, which has done it then. */
bool cuda_is_in_tail(const cuda_call *call);

/* Behind the product, whose task the call's is. */
void cuda_run_tail(const cuda_call *call, const cuda_tail *tail);

#endif
