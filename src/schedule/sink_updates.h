// SPDX-License-Identifier: Apache-2.0
/* Optimizer updates directly behind the gradient that they read, so that few gradients are alive.
 * */
#ifndef TSR_SCHEDULE_SINK_UPDATES_H
#define TSR_SCHEDULE_SINK_UPDATES_H
#include "schedule/target.h"

/* Puts what the update does with one gradient right behind that gradient, where nothing else has to
 * be known before and no task reads later what is changed. Where the target computes the sums of
 * squares of all gradients together, and updates wait for the norm, they stay in the update. After
 * the runs are known and collectives moved, before offsets are planned. */
void tsr_program_sink_updates(tsr_program *program, const tsr_target *target);

#endif
