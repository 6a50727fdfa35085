// SPDX-License-Identifier: Apache-2.0
/* Events without times, by numbers of a few thousand from 0. An event is made when its number is
 * first asked for, so the first step makes all of them. */
#ifndef TSR_DEVICE_CUDA_NUMBERED_EVENTS_H
#define TSR_DEVICE_CUDA_NUMBERED_EVENTS_H
#include <cuda_runtime_api.h>

typedef struct {
  cudaEvent_t *all; /* per number; NULL: not made yet */
  int room;
} cuda_numbered_events; /* {0}: none */

cudaError_t cuda_numbered_event(cuda_numbered_events *e, int number, cudaEvent_t *ret_event);
void cuda_numbered_events_close(cuda_numbered_events *e);

#endif
