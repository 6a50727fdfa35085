// SPDX-License-Identifier: Apache-2.0
/* Inside the fuse pass: GEMMs of one input as one batch (fuse.h). */
#ifndef TSR_SCHEDULE_FUSE_GEMMS_H
#define TSR_SCHEDULE_FUSE_GEMMS_H
#include "schedule/fuse_task.h"

/* Unites the linear tasks, with or without a fused bias, and the linear_dw tasks of each section
 * that read one input and are of one shape, type, sum and placement. Of linear the weights differ,
 * of linear_dw the gradients of the output. `gemms`: of TSR_GEMMS_*; with TSR_GEMMS_EXTENDING also
 * where a value that none of the other tasks needs then lives longer, which may raise the peak of
 * WORK. */
void tsr_fuse_gemms(tsr_fusing *fusing, unsigned gemms);

#endif
