// SPDX-License-Identifier: Apache-2.0
/* Tiles that the tensor memory accelerator copies into shared memory, and the barriers that tell
 * when they are there (PTX ISA 8.0 and later, sm_90): "Parallel Synchronization and Communication
 * Instructions: mbarrier", "Data Movement and Conversion Instructions: cp.async.bulk.tensor",
 * "Tensors", and "Miscellaneous Instructions: setmaxnreg".
 *
 * Shared memory is named by its 32-bit address. An mbarrier has 8 bytes, aligned to 8. Its phase
 * ends when `count` threads have arrived and all bytes that were expected in the phase have come;
 * phases are numbered from 0, and a wait for a parity ends when the latest phase of that parity is
 * over. So a wait for parity 1 of a barrier whose phase 0 goes on ends at once.
 *
 * A tensor map describes halves (columns, heads, rows, samples), the first one contiguous, and the
 * box (TMA_COLUMNS, 1, rows, 1) that a copy brings: rows of TMA_COLUMNS halves, 128 bytes each, one
 * behind the other. Their address is swizzled by 128 bytes: bits 4 to 6 are xored with bits 7 to 9,
 * so that a tile begins at a multiple of TMA_ALIGNMENT. What lies outside the tensor becomes zeros,
 * and counts among the bytes that come.
 *
 * Copies are writes of the async proxy. Tiles are written by them alone; behind the barriers'
 * initialization stands tma_fence. */
#ifndef TSR_KERNELS_CUDA_TMA_CUH
#define TSR_KERNELS_CUDA_TMA_CUH
#include "kernels/cuda/launch.cuh"

enum { TMA_COLUMNS = 64, TMA_ROW_BYTES = 128, TMA_ALIGNMENT = 1024, MBARRIER_BYTES = 8 };

/* The tensor of a map. */
typedef struct {
  const void *at; /* aligned to 16 bytes */
  int64_t columns, heads, rows, samples;
  int64_t head, row, sample; /* bytes from one to the next, multiples of 16 */
  int box_rows;              /* 256 at most */
} tma_tensor;

#ifndef TSR_EMULATED /* tests/cuda/tma.h has these for the CPU */
#include <cuda.h>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TMA_HAS 1
#else
#define TMA_HAS 0 /* the kernels' bodies are empty */
#endif

typedef CUtensorMap tensor_map;

typedef CUresult (*tma_encoder)(
    CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *,
    const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
    CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* Whether a kernel's code was compiled for sm_90a: that of sm_80's PTX is empty. */
static inline bool tma_has_code(const void *kernel) {
  cudaFuncAttributes is;
  bool loads = cudaFuncGetAttributes(&is, kernel) == cudaSuccess;
  if (!loads) cudaGetLastError(); /* it is this function's result */
  return loads && is.binaryVersion == 90 && is.ptxVersion == 90;
}

/* The driver's cuTensorMapEncodeTiled; NULL: it has none. */
static inline tma_encoder tma_find_encoder(void) {
  void *found = NULL;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  cudaError_t error = cudaGetDriverEntryPointByVersion(
      "cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
#else
  cudaError_t error =
      cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
  bool ok = error == cudaSuccess && result == cudaDriverEntryPointSuccess;
  return ok ? (tma_encoder)found : NULL;
}

static inline bool tensor_map_encode(tensor_map *map, const tma_tensor &x) {
  static const tma_encoder encode = tma_find_encoder();
  const cuuint64_t shape[4] = {
      (cuuint64_t)x.columns, (cuuint64_t)x.heads, (cuuint64_t)x.rows, (cuuint64_t)x.samples};
  const cuuint64_t steps[3] = {(cuuint64_t)x.head, (cuuint64_t)x.row, (cuuint64_t)x.sample};
  const cuuint32_t box[4] = {TMA_COLUMNS, 1, (cuuint32_t)x.box_rows, 1}, each[4] = {1, 1, 1, 1};
  return encode &&
         encode(
             map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, (void *)x.at, shape, steps, box, each,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

#if TMA_HAS

/* The first aligned address of a launch's shared memory, which has TMA_ALIGNMENT bytes more. */
static __device__ inline uint32_t tma_shared(const void *shared) {
  uint32_t at = (uint32_t)__cvta_generic_to_shared(shared);
  return (at + TMA_ALIGNMENT - 1) / TMA_ALIGNMENT * TMA_ALIGNMENT;
}

static __device__ inline void mbarrier_init(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

/* What threads wrote to shared memory comes before what the async proxy does from now on; for the
 * other threads behind a barrier of the block. */
static __device__ inline void tma_fence(void) {
  asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;" ::: "memory");
}

static __device__ inline void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrives; the phase ends behind so many bytes more. */
static __device__ inline void mbarrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

static __device__ inline void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  uint32_t over = 0;
  while (!over)
    asm volatile("{.reg .pred over; mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2; "
                 "selp.u32 %0, 1, 0, over;}"
                 : "=r"(over)
                 : "r"(barrier), "r"(parity)
                 : "memory");
}

/* Copies the box that begins there; its bytes are of the barrier's phase. By one thread. */
static __device__ inline void tma_load(
    uint32_t to, const tensor_map *map, uint32_t barrier, int column, int head, int row,
    int sample) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
               "l"(map), "r"(barrier), "r"(column), "r"(head), "r"(row), "r"(sample)
               : "memory");
}

/* A warpgroup leaves registers to others, or takes what they left: COUNT each thread, a multiple of
 * 8. */
template <int COUNT> static __device__ inline void registers_leave(void) {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> static __device__ inline void registers_take(void) {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

#endif
#endif
#endif
