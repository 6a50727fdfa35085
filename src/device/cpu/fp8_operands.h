// SPDX-License-Identifier: Apache-2.0
/* The operands of a GEMM that its task quantises to FP8 (schedule/fp8_operands.h), in the task's
 * scratch. */
#ifndef TSR_DEVICE_CPU_FP8_OPERANDS_H
#define TSR_DEVICE_CPU_FP8_OPERANDS_H
#include "device/cpu/ops.h"

/* Bytes of all operands of a task; 0: it quantises none. */
static inline int64_t cpu_fp8_bytes(const tsr_task *t) { return t->fp8 ? t->fp8->bytes : 0; }

/* Quantises one of `parts` parts of all operands to `to`, which has these bytes. */
void cpu_fp8_quantize(const cpu_call *c, void *to, int part, int parts);

/* Input i from element `first` on, where a block begins, as a matrix with strides rs and cs. */
tsr_matrix cpu_fp8_matrix(
    const cpu_call *c, const void *operands, int i, int64_t first, int64_t rs, int64_t cs);

/* ---- of expert_linear_dw: the rows of one expert in one batch unit are a matrix ---- */

typedef struct {
  int64_t first, count; /* rows */
  int64_t run;          /* its number, by expert and batch unit */
} cpu_fp8_run;

/* One of `parts` parts of a run's rows. */
void cpu_fp8_quantize_run(const cpu_call *c, void *to, const cpu_fp8_run *run, int part, int parts);
/* Of input i, from row `done` of the run on, where a block begins. */
tsr_matrix cpu_fp8_run_matrix(
    const cpu_call *c, const void *operands, int i, const cpu_fp8_run *run, int64_t done,
    int64_t rs, int64_t cs);

#endif
