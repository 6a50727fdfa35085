// SPDX-License-Identifier: Apache-2.0
/* What a killed run has left in its folder of a sweep: unfinished files, checkpoints and locks. */
#ifndef TSR_CLI_SWEEP_LEFTOVERS_H
#define TSR_CLI_SWEEP_LEFTOVERS_H

/* Removes them from the folder of the run or prefix `name`, if there is one. Of a folder that
 * another process has taken nothing is removed. What cannot be removed stays: the run that goes on
 * there reports it. */
void sweep_leftovers_remove(const char *sweep_folder, const char *name);

#endif
