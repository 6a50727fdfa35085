// SPDX-License-Identifier: Apache-2.0
/* The CPU as a target and as a device: every op on kernels/cpu, over threads. */
#ifndef TSR_DEVICE_CPU_CPU_H
#define TSR_DEVICE_CPU_CPU_H
#include "device/device.h"
#include "kernels/kernels.h"
#include "schedule/target.h"

typedef struct {
  const tsr_kernels *k;
  int threads;
} tsr_cpu_context;

/* Programs for these kernels and threads; the target points to the context. */
tsr_target tsr_cpu_target(const tsr_cpu_context *context);

/* How the items of a task, of each of `ranks` ranks of a stage, are dealt to threads. */
typedef struct {
  int64_t items; /* of a rank */
  bool strips; /* items are strips of GEMMs, TSR_GEMM_ROWS rows or TSR_GEMM_COLUMNS columns each */
  int ranges;  /* that a rank's items are split into, each a job */
  int rounds;  /* of such jobs, one after the other */
} tsr_cpu_partition;
/* Of a task that is no collective. */
tsr_cpu_partition tsr_cpu_partition_of(const tsr_task *task, int ranks, int threads);

/* Threads that live until the device is closed. A task's work is dealt as (rank, range) jobs: whole
 * ranks where they divide over the threads, else ranges of every rank's items. */
bool tsr_cpu_device_open(
    tsr_arena *arena, const tsr_cpu_context *context, const tsr_device **ret_device,
    tsr_diags *diags);
void tsr_cpu_device_close(const tsr_device *device);
tsr_pool *tsr_cpu_device_pool(const tsr_device *device);
/* The most jobs that a task of so many ranks is dealt as. */
int tsr_cpu_jobs_max(int ranks, int threads);

#endif
