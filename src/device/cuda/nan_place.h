// SPDX-License-Identifier: Apache-2.0
/* Where scores from which experts are chosen were NaN (tsr_nan_place), in a device's memory: the
 * least place, to which kernels add theirs. */
#ifndef TSR_DEVICE_CUDA_NAN_PLACE_H
#define TSR_DEVICE_CUDA_NAN_PLACE_H
#include <cuda_runtime_api.h>
#include <stdint.h>

typedef struct {
  uint64_t *least; /* on the device */
  uint64_t *read;  /* what was read of it, on the host */
} cuda_nan_place;

/* TSR_NAN_NOWHERE, when the stream's work so far is done. */
cudaError_t cuda_nan_place_open(cuda_nan_place *place, cudaStream_t stream);
/* Begins to read it into `read`, and makes it TSR_NAN_NOWHERE again. */
cudaError_t cuda_nan_place_take(const cuda_nan_place *place, cudaStream_t stream);
void cuda_nan_place_close(cuda_nan_place *place);

#endif
