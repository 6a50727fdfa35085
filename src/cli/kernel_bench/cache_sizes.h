// SPDX-License-Identifier: Apache-2.0
/* How much this machine's caches hold. */
#ifndef TSR_CLI_KERNEL_BENCH_CACHE_SIZES_H
#define TSR_CLI_KERNEL_BENCH_CACHE_SIZES_H
#include <stdint.h>

typedef struct {
  int64_t second, last; /* bytes of those levels */
} tsr_bench_caches;

/* Of the first CPU; what the system does not tell is taken to be 512 KiB and 32 MiB. */
tsr_bench_caches tsr_bench_caches_find(void);

#endif
