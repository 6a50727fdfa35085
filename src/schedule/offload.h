// SPDX-License-Identifier: Apache-2.0
/* Copies of activations between the device's memory and the host's, beside other tasks: where each
 * begins, and where it is waited for. */
#ifndef TSR_SCHEDULE_OFFLOAD_H
#define TSR_SCHEDULE_OFFLOAD_H
#include "schedule/program.h"

/* Lets the copies of a block begin together, as a bucket: those to the host behind the last forward
 * reader, to be waited for at the end of the next block; those back when the backward pass comes to
 * the block before, to be waited for by the first reader. Before offsets are planned. */
void tsr_program_offload(tsr_program *program);

#endif
