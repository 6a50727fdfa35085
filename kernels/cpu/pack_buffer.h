// SPDX-License-Identifier: Apache-2.0
/* Memory of a thread for what its call of a GEMM packs itself. All levels share it: only one GEMM
 * runs on a thread at a time, and a thread's stack has to have room for it. */
#ifndef TSR_KERNELS_CPU_PACK_BUFFER_H
#define TSR_KERNELS_CPU_PACK_BUFFER_H
#include <stdint.h>

/* A half of a second-level cache of 2 MiB, as processors with AMX have it. */
enum { TSR_PACK_BUFFER_WORDS = 256 << 10 };

typedef union {
  float numbers[TSR_PACK_BUFFER_WORDS];
  uint32_t pairs[TSR_PACK_BUFFER_WORDS]; /* of bf16 */
} tsr_pack_buffer_words;

extern _Thread_local tsr_pack_buffer_words tsr_pack_buffer __attribute__((aligned(64)));

#endif
