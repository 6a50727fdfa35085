// SPDX-License-Identifier: Apache-2.0
/* What the processes of a job have recorded, as one record by one clock. */
#ifndef TSR_TRAIN_PROFILE_PROCESSES_H
#define TSR_TRAIN_PROFILE_PROCESSES_H
#include "job/job.h"
#include "runtime/recorder.h"

/* Nanoseconds that are to be added to a process's CLOCK_MONOTONIC to get that of process 0: between
 * these two, which messages prove. Both are 0 where the process is on the host of process 0. */
typedef struct {
  int64_t least, most;
} tsr_clock_offset;

/* Collective: compares all clocks with that of process 0 by messages. Per process, in `ret`, which
 * are zero before the first call; a later call widens what an earlier one found, by what the clocks
 * have drifted apart meanwhile. */
bool tsr_clocks_compare(tsr_job *job, tsr_clock_offset *ret_offsets);

/* Collective: the record of process 0 gets the events of all, by the clock of process 0; those of
 * other processes stay as they are. All have recorded the same steps, and no event is lost. */
bool tsr_record_gather(tsr_job *job, const tsr_clock_offset *offsets, tsr_record *record);

#endif
