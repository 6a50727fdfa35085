// SPDX-License-Identifier: Apache-2.0
/* What of a machine the program can use, layer by layer: found, missing, or there but mismatched,
 * and what to do about it. Each layer is asked in a process of its own, so that a library that
 * crashes or hangs is a finding like any other. */
#ifndef TSR_CLI_DOCTOR_DOCTOR_H
#define TSR_CLI_DOCTOR_DOCTOR_H
#include "base/diag.h"
#include "base/text.h"
#include "kernels/kernels.h"

/* Adds a line or more for each layer; whether none is mismatched. What is missing is no fault: the
 * program runs without it. */
bool tsr_doctor(tsr_arena *arena, const tsr_kernels *kernels, tsr_text *text);

/* Adds a mesh descriptor of this host's GPUs, which --mesh reads: all of them along one line, a
 * ring where every pair is linked by NVLink. Errors: no devices. */
bool tsr_doctor_topology(tsr_arena *arena, tsr_text *text, tsr_diags *diags);

#endif
