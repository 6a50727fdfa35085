// SPDX-License-Identifier: Apache-2.0
/* Where a tensor is: what `inspect --tensor` and `plan` print. */
#ifndef TSR_REPORT_TENSOR_REPORT_H
#define TSR_REPORT_TENSOR_REPORT_H
#include "parallel/parallel.h"
#include "schedule/program.h"

/* A value of a placed graph by its name (a parameter, a tensor of the optimizer's state, an input,
 * what a node makes): its whole shape and bytes, its placement over each axis, and of each rank
 * (the first 256) the coordinates, the slice, the type, the local shape and bytes, and what it is
 * stored as where that is more (graph/padding.h). Activations are those of one microbatch. Error:
 * no such value, with the nearest names. */
bool tsr_tensor_report_print(
    const tsr_programs *programs, const tsr_parallel *parallel, const char *name, tsr_text *text,
    tsr_diags *diags);

#endif
