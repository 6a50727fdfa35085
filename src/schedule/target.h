// SPDX-License-Identifier: Apache-2.0
/* What programs are compiled for: what an architecture computes as one task, and the scratch memory
 * that its tasks need. A target is pure functions: the device itself need not be there. */
#ifndef TSR_SCHEDULE_TARGET_H
#define TSR_SCHEDULE_TARGET_H
#include "schedule/program.h"

typedef struct tsr_target {
  unsigned fuses; /* a bit (1 << form) for each tsr_fused_form that it has a kernel for */
  /* Policy deterministic: a GEMM's epilogue is fused only where it has the bits of the separate
   * ops. */
  bool exact;
  tsr_scratch_rule *scratch; /* NULL: shapes alone are wanted */
  const void *context;       /* of scratch */
} tsr_target;

#endif
