// SPDX-License-Identifier: Apache-2.0
#ifndef TSR_SCHEDULE_DELAY_GRADIENTS_H
#define TSR_SCHEDULE_DELAY_GRADIENTS_H
#include "schedule/program.h"

/* Moves weight gradients' GEMMs, each in front of the first task of its part that reads the result,
 * where that is no communication and the operands that are kept for it have fewer bytes than the
 * result. After the tasks are fused, before operands are bound. Returns whether one has moved. */
bool tsr_program_delay_gradients(tsr_program *program);

#endif
