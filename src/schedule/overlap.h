// SPDX-License-Identifier: Apache-2.0
/* Collectives over dp that run beside other tasks: which tasks only begin one, and where it is
 * waited for. */
#ifndef TSR_SCHEDULE_OVERLAP_H
#define TSR_SCHEDULE_OVERLAP_H
#include "schedule/program.h"

/* Lets dp's collectives begin when their input is complete, in buckets of about so many bytes, and
 * puts waits where their results are first used. Before offsets are planned. */
void tsr_program_overlap(tsr_program *program, int64_t bucket_bytes);

#endif
