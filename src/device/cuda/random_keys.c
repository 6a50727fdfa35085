// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/random_keys.h"
#include "kernels/kernels.h"
#include <stdlib.h>
#include <string.h>

/* Makes those of a graph the first of the list. */
static cudaError_t find(cuda_random_keys **list, const tsr_graph *g) {
  cuda_random_keys **at = list, *k;
  cudaError_t error = cudaSuccess;
  while (*at && ((*at)->graph != g || (*at)->nodes_count != g->nodes_count)) at = &(*at)->next;
  if ((k = *at)) *at = k->next;
  else {
    size_t bytes = sizeof *k->of_node * (size_t)(g->nodes_count + 1);
    k = calloc(1, sizeof *k);
    if (!k) return cudaErrorMemoryAllocation;
    k->graph = g;
    k->nodes_count = g->nodes_count;
    error = cudaMalloc((void **)&k->of_node, bytes);
    if (error == cudaSuccess)
      error = cudaHostAlloc((void **)&k->staged, bytes, cudaHostAllocDefault);
    if (error == cudaSuccess) memset(k->staged, 0, bytes);
  }
  k->next = *list;
  *list = k;
  return error;
}

cudaError_t cuda_random_keys_set(
    cuda_random_keys **list, const tsr_graph *g, const tsr_step_context *step,
    cudaStream_t stream) {
  cudaError_t error = find(list, g);
  cuda_random_keys *k = *list;
  bool any = false;
  if (error != cudaSuccess) return error;
  for (int i = 0; i < g->nodes_count; i++)
    if (g->nodes[i].stream) {
      k->staged[i] = tsr_random_key(step->seed, g->nodes[i].stream, (uint64_t)step->step);
      any = true;
    }
  size_t bytes = sizeof *k->of_node * (size_t)g->nodes_count;
  if (!any) return cudaSuccess;
  return cudaMemcpyAsync(k->of_node, k->staged, bytes, cudaMemcpyHostToDevice, stream);
}

void cuda_random_keys_free(cuda_random_keys *list) {
  for (cuda_random_keys *k = list, *next; k; k = next) {
    next = k->next;
    cudaFree(k->of_node);
    cudaFreeHost(k->staged);
    free(k);
  }
}
