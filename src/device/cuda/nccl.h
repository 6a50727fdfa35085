// SPDX-License-Identifier: Apache-2.0
/* Communicators between this process's device and the others', by NCCL, which is loaded when it is
 * needed. They do not block: what does not come in time is a failure, not a hang.
 *
 * Several communicators of a process may have kernels on the device at once, each of which runs
 * until its peers' do. No circle of waits closes, for two reasons. All processes of a communicator
 * begin its work, and that of all others that they share, in the order of one program, but for
 * transfers between stages, whose two directions have a communicator each. And no kernel waits for
 * room that another one has: together they have at most as many blocks as the device has
 * multiprocessors. */
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
int cuda_nccl_version(const cuda_nccl *nccl); /* 22809: 2.28.9 */
/* `blocks`: the most that the communicator's kernels may have on the device at once; 0: as many as
 * the library chooses. */
bool cuda_nccl_form(
    cuda_nccl *nccl, int color, int key, int blocks, void **ret_communicator, char *why);
bool cuda_nccl_exchange(
    cuda_nccl *nccl, void *communicator, const tsr_device_message *messages, int count, char *why);
bool cuda_nccl_sum(
    cuda_nccl *nccl, void *communicator, tsr_dtype dtype, const void *in, void *out, int64_t count,
    char *why);
bool cuda_nccl_sum_slices(
    cuda_nccl *nccl, void *communicator, tsr_dtype dtype, const void *in, void *out, int64_t count,
    char *why);
cudaStream_t cuda_nccl_stream(const void *communicator);
/* A number stands for what the communicator's stream has so far; what `to` gets from now on comes
 * after that. */
cudaError_t cuda_nccl_mark_stream(void *communicator, int number);
cudaError_t cuda_nccl_wait_for_mark(void *communicator, int number, cudaStream_t to);

/* ---- in a capture: which communicators' streams are in it ---- */
void cuda_nccl_begin_capture(cuda_nccl *nccl);
bool cuda_nccl_is_captured(const cuda_nccl *nccl, cudaStream_t stream);
void cuda_nccl_set_captured(cuda_nccl *nccl, cudaStream_t stream);
bool cuda_nccl_take_captured(cuda_nccl *nccl, cudaStream_t *ret_stream); /* false: none is left */
void cuda_nccl_end_capture(cuda_nccl *nccl);
/* A graph with messages was launched on that stream. */
bool cuda_nccl_mark_graph(cuda_nccl *nccl, cudaStream_t stream, char *why);

/* Whether all streams are done; false too, with *ret_failed, when a peer has failed, or nothing has
 * come for the job's timeout: then all communicators are aborted. The messages of a graph are not
 * seen one by one: it may take as much longer than the longest step without one. */
bool cuda_nccl_are_idle(cuda_nccl *nccl, bool *ret_failed, char *why);
void cuda_nccl_close(cuda_nccl *nccl); /* NULL is fine */

#endif
