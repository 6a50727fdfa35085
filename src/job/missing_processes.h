// SPDX-License-Identifier: Apache-2.0
/* Which of the job's processes on this host cannot take part, as Linux's /proc has it: for the time
 * before processes can ask each other. */
#ifndef TSR_JOB_MISSING_PROCESSES_H
#define TSR_JOB_MISSING_PROCESSES_H
#include "base/arena.h"
#include "base/text.h"

/* Adds what is wrong, "process 1 has ended; process 3 (pid 71) is stopped" say, a process named by
 * its number on this host where the job has more hosts. Adds nothing where all processes of this
 * host run this program, or where the launcher does not say how many they are. */
void tsr_missing_processes_describe(tsr_arena *arena, tsr_text *text);

#endif
