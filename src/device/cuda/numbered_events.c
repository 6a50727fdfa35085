// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/numbered_events.h"
#include <stdlib.h>
#include <string.h>

cudaError_t cuda_numbered_event(cuda_numbered_events *e, int number, cudaEvent_t *ret_event) {
  cudaError_t error = cudaSuccess;
  if (number >= e->room) {
    int room = number + 1;
    cudaEvent_t *all = realloc(e->all, sizeof *all * (size_t)room);
    if (!all) return cudaErrorMemoryAllocation;
    memset(all + e->room, 0, sizeof *all * (size_t)(room - e->room));
    e->all = all;
    e->room = room;
  }
  if (!e->all[number]) error = cudaEventCreateWithFlags(&e->all[number], cudaEventDisableTiming);
  *ret_event = e->all[number];
  return error;
}

void cuda_numbered_events_close(cuda_numbered_events *e) {
  for (int i = 0; i < e->room; i++)
    if (e->all[i]) cudaEventDestroy(e->all[i]);
  free(e->all);
}
