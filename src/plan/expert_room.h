// SPDX-License-Identifier: Apache-2.0
/* What room for rows of experts costs, and what other capacities would. */
#ifndef TSR_PLAN_EXPERT_ROOM_H
#define TSR_PLAN_EXPERT_ROOM_H
#include "schedule/program.h"

/* For each kind of mixture (experts, choices, room) a table of the rows that a rank has room for in
 * one layer, and the bytes of what the forward pass makes of them; nothing without experts. */
void tsr_expert_room_print(const tsr_programs *programs, tsr_text *text);

#endif
