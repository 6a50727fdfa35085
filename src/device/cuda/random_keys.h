// SPDX-License-Identifier: Apache-2.0
/* The keys of graphs' streams of random numbers in a step, in the device's memory. They stay where
 * they are, because captured work has their addresses. */
#ifndef TSR_DEVICE_CUDA_RANDOM_KEYS_H
#define TSR_DEVICE_CUDA_RANDOM_KEYS_H
#include "schedule/geometry.h"
#include <cuda_runtime_api.h>

typedef struct cuda_random_keys {
  struct cuda_random_keys *next;
  const tsr_graph *graph; /* may be gone, and another one have its address */
  int nodes_count;
  uint64_t *of_node; /* on the device, one a node */
  uint64_t *staged;  /* on the host, where they are copied from */
} cuda_random_keys;

/* Begins to copy a step's keys of a graph, whose last ones are no longer being copied; the first of
 * the list is that graph's then. Of a list that begins as NULL. */
cudaError_t cuda_random_keys_set(
    cuda_random_keys **list, const tsr_graph *graph, const tsr_step_context *step,
    cudaStream_t stream);
void cuda_random_keys_free(cuda_random_keys *list);

#endif
