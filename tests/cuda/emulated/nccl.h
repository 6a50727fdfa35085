// SPDX-License-Identifier: Apache-2.0
/* The part of NCCL's interface that the plugin's host code calls, between processes of one machine
 * whose devices are emulated (nccl.c). */
#ifndef TSR_TESTS_NCCL_H
#define TSR_TESTS_NCCL_H
#include <cuda_runtime_api.h>
#include <stddef.h>

#define NCCL_VERSION_CODE 22809
#define NCCL_SPLIT_NOCOLOR -1
#define NCCL_CONFIG_INITIALIZER                                                                    \
  { 1, 32 }
typedef enum {
  ncclSuccess = 0,
  ncclSystemError = 2,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
} ncclResult_t;
typedef enum { ncclInt8 = 0, ncclFloat16 = 6, ncclFloat32 = 7, ncclBfloat16 = 9 } ncclDataType_t;
typedef enum { ncclSum = 0 } ncclRedOp_t;
typedef struct {
  char internal[128];
} ncclUniqueId;
typedef struct {
  int blocking, maxCTAs;
} ncclConfig_t;
typedef struct ncclComm *ncclComm_t;

ncclResult_t ncclGetVersion(int *ret);
ncclResult_t ncclGetUniqueId(ncclUniqueId *ret);
const char *ncclGetErrorString(ncclResult_t result);
ncclResult_t
ncclCommInitRankConfig(ncclComm_t *ret, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config);
ncclResult_t
ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *ret, ncclConfig_t *config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *ret);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclSend(
    const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
    cudaStream_t stream);
ncclResult_t ncclRecv(
    void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllReduce(
    const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
    cudaStream_t stream);
ncclResult_t ncclReduceScatter(
    const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
    cudaStream_t stream);

#endif
