// SPDX-License-Identifier: Apache-2.0
/* Inside the memory plan: where what lives from one action of the pipeline schedule to another one
 * is kept for each microbatch. */
#ifndef TSR_SCHEDULE_ACTIVATION_SLOTS_H
#define TSR_SCHEDULE_ACTIVATION_SLOTS_H
#include "schedule/program.h"

/* A value that is kept: in which parts of the body it is written or read, and for how many later
 * microbatches, as in tsr_slot_group. */
typedef struct {
  int value, lag;
  uint64_t parts;
  tsr_use use;
  int64_t bytes; /* whole blocks of 64 */
} tsr_kept;

/* Gives each of them a slot group and an offset in it, and every slot group its slots. Inputs' slot
 * groups lie in their segment one behind the other; those of WORK have no offset yet. */
void tsr_program_make_slot_groups(tsr_program *program, const tsr_kept *kept, int count);

static inline uint64_t tsr_part_bit(const tsr_part *part) {
  return (uint64_t)1 << (3 * part->chunk + (int)(part->section - TSR_FORWARD));
}

#endif
