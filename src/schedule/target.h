// SPDX-License-Identifier: Apache-2.0
/* What programs are compiled for: the tasks that an architecture computes, the types in which its
 * kernels do so, and the scratch memory that they need. A target is pure functions: the device
 * itself need not be there. */
#ifndef TSR_SCHEDULE_TARGET_H
#define TSR_SCHEDULE_TARGET_H
#include "schedule/program.h"

/* What a GEMM's epilogue may consist of (fuse.h). */
enum {
  TSR_EPILOGUE_BIAS = 1,     /* add(row) */
  TSR_EPILOGUE_RESIDUAL = 2, /* add */
  TSR_EPILOGUE_GELU = 4,
  TSR_EPILOGUE_HALF = 8 /* of operands in half precision, too */
};

typedef struct tsr_target tsr_target;
struct tsr_target {
  const tsr_target *host; /* runs the tasks that this target does not support; NULL: none are */
  unsigned fuses;         /* a bit (1 << form) for each tsr_fused_form that it has a kernel for */
  unsigned epilogues;     /* TSR_EPILOGUE_*: of TSR_FUSED_EPILOGUE, what its kernels compute */
  /* Policy deterministic: a GEMM's epilogue is fused only where it has the bits of the separate
   * ops. */
  bool exact;
  /* Whether a row that a GEMM computes has the same bits whatever other rows there are. */
  bool rows_are_alone;
  bool state_in_file; /* optimizer state is in a file, which is in the host's memory */
  /* Of TSR_FUSED_LINEAR_CROSS_ENTROPY: rows of logits, of so many columns, that a tile has at most.
   * Where rows are alone, a sum over rows has the same bits in parts of that length; elsewhere they
   * are the rows of a call of a classifier's GEMMs (classifier_calls.h). NULL: it has no tiles. */
  int64_t (*tile_rows)(int64_t columns);
  /* Whether it runs a task. NULL: it runs all. */
  bool (*supports)(const tsr_target *target, const tsr_program *program, const tsr_task *task);
  /* Sets the types in which the kernel reads the inputs and writes the outputs, where they are not
   * the operands' own, which stand there. */
  void (*kernel_types)(
      const tsr_program *program, const tsr_task *task, tsr_dtype *inputs, tsr_dtype *outputs);
  /* Bytes of the kernel's scratch. */
  int64_t (*scratch)(const tsr_target *target, const tsr_program *program, const tsr_task *task);
  /* Bytes of the first output of an op with TSR_FACT_SIZED. */
  int64_t (*output_bytes)(
      const tsr_target *target, const tsr_program *program, const tsr_task *task);
  const void *context; /* of these functions */
};

#endif
