// SPDX-License-Identifier: Apache-2.0
/* Lanes between this worker's device and the others', by NCCL, which is looked for when it is asked
 * for. Communicators do not block: what does not come in time is a failure, not a hang. */
#ifndef TSR_DEVICE_CUDA_LINKS_H
#define TSR_DEVICE_CUDA_LINKS_H
#include "device/cuda.h"
#include <cuda_runtime_api.h>

typedef struct cuda_links cuda_links;

/* Version and an id of a group, as tsr_cuda_table's nccl. */
bool cuda_nccl_ask(int *ret_version, char *ret_id, char *why);

/* All false with `why` (TSR_CUDA_WHY_BYTES). What is given to exchange and the sums, and what
 * `group` means, is in device.h. */
bool cuda_links_open(const tsr_cuda_job *job, cuda_links **ret_links, char *why);
bool cuda_links_form(cuda_links *links, const int *workers, int count, void **ret_group, char *why);
bool cuda_links_exchange(
    cuda_links *links, void *group, const tsr_device_message *messages, int count, char *why);
bool cuda_links_sum(
    cuda_links *links, void *group, const float *in, float *out, int64_t count, char *why);
bool cuda_links_sum_slices(
    cuda_links *links, void *group, const float *in, float *out, int64_t count, char *why);
cudaStream_t cuda_links_stream(const void *group);
/* Whether all lanes are done; false too, with *ret_failed, when a peer has failed, or nothing has
 * come for the job's timeout: then all communicators are aborted. */
bool cuda_links_are_idle(cuda_links *links, bool *ret_failed, char *why);
void cuda_links_close(cuda_links *links); /* NULL is fine */

#endif
