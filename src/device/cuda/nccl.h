// SPDX-License-Identifier: Apache-2.0
/* Communicators between this process's device and the others', by NCCL, which is loaded when it is
 * needed. They do not block: what does not come in time is a failure, not a hang. */
#ifndef TSR_DEVICE_CUDA_NCCL_H
#define TSR_DEVICE_CUDA_NCCL_H
#include "device/cuda/plugin_abi.h"
#include <cuda_runtime_api.h>

typedef struct cuda_nccl cuda_nccl;

/* Version and an id of a job, as tsr_cuda_table's nccl. */
bool cuda_nccl_ask(int *ret_version, char *ret_id, char *why);

/* All false with `why` (TSR_CUDA_WHY_BYTES). What is given to exchange and the sums, and what
 * `communicator` means, is in device.h. */
bool cuda_nccl_open(const tsr_cuda_job *job, cuda_nccl **ret_nccl, char *why);
bool cuda_nccl_form(
    cuda_nccl *nccl, const int *processes, int count, void **ret_communicator, char *why);
bool cuda_nccl_exchange(
    cuda_nccl *nccl, void *communicator, const tsr_device_message *messages, int count, char *why);
bool cuda_nccl_sum(
    cuda_nccl *nccl, void *communicator, const float *in, float *out, int64_t count, char *why);
bool cuda_nccl_sum_slices(
    cuda_nccl *nccl, void *communicator, const float *in, float *out, int64_t count, char *why);
cudaStream_t cuda_nccl_stream(const void *communicator);
/* Whether all streams are done; false too, with *ret_failed, when a peer has failed, or nothing has
 * come for the job's timeout: then all communicators are aborted. */
bool cuda_nccl_are_idle(cuda_nccl *nccl, bool *ret_failed, char *why);
void cuda_nccl_close(cuda_nccl *nccl); /* NULL is fine */

#endif
