// SPDX-License-Identifier: Apache-2.0
/* `plan --calibrate`: measures this machine by training small models through the executor, and
 * makes a description of it. */
#ifndef TSR_TRAIN_CALIBRATE_H
#define TSR_TRAIN_CALIBRATE_H
#include "device/cpu/cpu.h"
#include "plan/machine.h"

/* `share_folder`: its configs/calibration/ holds what is trained. What is measured is what a run
 * would meet: each task of a step, from the end of the one before it to its own end, the mean of
 * many steps. Fails where a file of the folder does not train. */
bool tsr_calibrate(
    tsr_arena *arena, const char *share_folder, tsr_cpu_context device, tsr_machine **ret_machine,
    tsr_diags *diags);

/* The same, written to a file. */
bool tsr_calibrate_to_file(
    tsr_arena *arena, const char *share_folder, tsr_cpu_context device, const char *file,
    tsr_diags *diags);

#endif
