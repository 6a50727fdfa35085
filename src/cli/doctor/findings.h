// SPDX-License-Identifier: Apache-2.0
/* Inside the doctor: the findings of a layer, and the process that collects them. */
#ifndef TSR_CLI_DOCTOR_FINDINGS_H
#define TSR_CLI_DOCTOR_FINDINGS_H
#include "base/arena.h"
#include "base/text.h"
#include "kernels/kernels.h"
#include <stdbool.h>

typedef enum { TSR_FOUND, TSR_MISSING, TSR_MISMATCHED } tsr_finding;

typedef struct {
  tsr_arena *arena;
  tsr_text text;
  bool mismatched;
  const tsr_kernels *kernels;
} tsr_findings;

/* "layer  found  …"; each further line of the text stands under the first. */
void tsr_find(tsr_findings *f, const char *layer, tsr_finding finding, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* "→ …", under the finding that it mends. */
void tsr_find_remedy(tsr_findings *f, const char *text);

typedef void tsr_layer(tsr_findings *findings);
tsr_layer tsr_doctor_cpu, tsr_doctor_openmpi, tsr_doctor_mpich, tsr_doctor_slurm, tsr_doctor_driver,
    tsr_doctor_cuda, tsr_doctor_nccl, tsr_doctor_nvlink, tsr_doctor_infiniband,
    tsr_doctor_gpudirect, tsr_doctor_nvshmem, tsr_doctor_deepep;

/* Runs it in a process of its own; a crash, or no answer within `seconds`, is a finding of `name`.
 */
void tsr_ask_in_subprocess(tsr_findings *f, const char *name, tsr_layer *layer, int seconds);

#endif
