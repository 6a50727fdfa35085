// SPDX-License-Identifier: Apache-2.0
/* How a task quantises its operands to FP8 (base/fp8_layout.h). Lowering derives it from the node's
 * recipe, the task's sum and the placements; kernels read nothing else. */
#ifndef TSR_SCHEDULE_FP8_OPERANDS_H
#define TSR_SCHEDULE_FP8_OPERANDS_H
#include "base/fp8_layout.h"

/* Per input of the task: codes and scales lie in the task's scratch, all operands' one behind the
 * other, at multiples of 64 bytes. */
typedef struct {
  /* rows 0: the input is not quantised. Of expert_linear_dw blocks begin anew in each run of the
   * rows of one expert and batch unit: that of number r (by expert, then unit), which begins at row
   * f, has scales from row f / TSR_FP8_BLOCK + r of them on. */
  tsr_fp8_layout layout;
  bool sums_rows;        /* the GEMM sums over its rows, else over its columns */
  int64_t codes, scales; /* where its codes and scales begin */
} tsr_fp8_operand;

typedef struct {
  int count; /* inputs of the task */
  tsr_fp8_operand *inputs;
  int64_t bytes; /* of all */
} tsr_fp8_operands;

#endif
