// SPDX-License-Identifier: Apache-2.0
/* What this process computes with: the kernels and threads of its host, and perhaps one CUDA
 * device. */
#ifndef TSR_JOB_COMPUTE_DEVICE_H
#define TSR_JOB_COMPUTE_DEVICE_H
#include "config/config.h"
#include "device/cpu/cpu.h"
#include "job/job.h"
#include "parallel/parallel.h"
#include "runtime/rank_map.h"

typedef struct {
  const tsr_kernels *kernels;
  tsr_cpu_context cpu;               /* these kernels, and threads */
  const struct tsr_cuda_table *cuda; /* the plugin; NULL: ranks are on the CPU */
  const tsr_device *device;          /* open, of commands that compute; NULL: the CPU */
  const char *arch;                  /* of the device: what bits depend on */
} tsr_compute;

/* Checks that this machine runs the level that TESSERA_ISA names, if it names one. */
bool tsr_compute_check_level(tsr_diags *diags);
/* Kernels and threads of the host; `config` may be NULL. Collective unless numerics.threads is
 * set. */
bool tsr_compute_choose_cpu(tsr_job *job, const tsr_config *config, tsr_compute *compute);
/* Threads for this process: its cores, shared with the processes that may use the same. Collective.
 */
int tsr_compute_threads(tsr_job *job);
/* device_config.device: the CPU or CUDA devices. Without `computes` a missing plugin is no error.
 * GPUs compute in bf16 unless the configuration names a precision: sets it. */
bool tsr_compute_choose_kind(tsr_job *job, tsr_config *config, bool computes, tsr_compute *compute);

/* Opens this process's CUDA device, where ranks are on CUDA devices. */
bool tsr_compute_open(
    tsr_job *job, const tsr_config *config, const tsr_parallel *parallel, const tsr_rank_map *ranks,
    tsr_compute *compute);
/* Collective, with open devices: communicators between them, in ranks->communicators, where every
 * process has NCCL, a device of its own, and ranks of one stage; else messages go through the
 * host, which is a failure where the configuration or the graph requires NCCL. `graph_place`: where
 * the graph does; NULL: it does not. */
bool tsr_compute_link(
    tsr_job *job, const tsr_config *config, const tsr_parallel *parallel, tsr_rank_map *ranks,
    const tsr_compute *compute, const tsr_location *graph_place);
void tsr_compute_close(tsr_compute *compute);

#endif
