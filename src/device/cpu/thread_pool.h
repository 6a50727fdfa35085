// SPDX-License-Identifier: Apache-2.0
/* The process's threads: one loop at a time; each thread, the caller too, takes the next job when
 * it is done with one. A job's result must not depend on which thread runs it. */
#ifndef TSR_DEVICE_CPU_THREAD_POOL_H
#define TSR_DEVICE_CPU_THREAD_POOL_H
#include "base/diag.h"
#include <stdint.h>

typedef struct tsr_pool tsr_pool;
typedef void tsr_pool_job(void *context, int job);

bool tsr_pool_open(tsr_arena *arena, int threads, tsr_pool **ret_pool, tsr_diags *diags);
void tsr_pool_close(tsr_pool *pool);
/* Runs job(context, 0 .. jobs-1) and returns when all are done. */
void tsr_pool_run(tsr_pool *pool, tsr_pool_job *job, void *context, int jobs);
/* Where range `index` of `ranges` begins in so many items. Ranges of many items begin at multiples
 * of 16, so that vector kernels keep whole blocks. */
static inline int64_t tsr_pool_range_begin(int64_t items, int index, int ranges) {
  if (index == ranges) return items;
  int64_t at = items * index / ranges;
  return items >= 64 * ranges ? at / 16 * 16 : at;
}
/* Cores that this process may use (its affinity mask). */
int tsr_pool_cores(void);

#endif
