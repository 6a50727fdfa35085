// SPDX-License-Identifier: Apache-2.0
/* The GEMMs of a task that are one call of the library: those of a batch (schedule/fuse.h) whose
 * operands lie at equal distances in memory. The distances depend on the memory plan, so on the
 * mesh; the bits do not, because a GEMM of a batch has those of a GEMM by itself
 * (kernels/cuda/gemm.h). */
#ifndef TSR_DEVICE_CUDA_GEMM_BATCH_H
#define TSR_DEVICE_CUDA_GEMM_BATCH_H
#include "device/cuda/ops.h"

typedef struct {
  tsr_batched_gemm first;
  tsr_cuda_batch steps; /* from each to the next; count 1: there is one */
} cuda_gemm_batch;

/* Splits a task's GEMMs into as few batches as distances allow, in the order of their addresses;
 * returns how many. Of a task that is no batch, the GEMM of its first two inputs. */
int cuda_gemm_batches(const cuda_call *call, cuda_gemm_batch ret[TSR_GEMMS_MAX]);

#endif
