// SPDX-License-Identifier: Apache-2.0
/* The kernels that a task launches, as a device computes them without being there. */
#ifndef TSR_SCHEDULE_KERNEL_LAUNCH_H
#define TSR_SCHEDULE_KERNEL_LAUNCH_H
#include "base/arena.h"
#include <stdint.h>

/* `block` is all zeros where a library chooses the geometry; `kernel` then names the library. */
typedef struct {
  const char *kernel;
  unsigned grid[3], block[3];
  int64_t shared_bytes; /* dynamic */
  const char *tile;     /* "64×64×32", what a block or a call computes; "": items in turn */
  int64_t count;        /* how often the task launches it */
} tsr_kernel_launch;

typedef struct {
  tsr_arena *arena;
  tsr_kernel_launch *launches; /* in the order of their first launch */
  int count, room;
} tsr_kernel_launches;

/* Adds a launch (its `count` is not looked at), or counts it where the task has an equal one. */
void tsr_kernel_launches_add(tsr_kernel_launches *launches, const tsr_kernel_launch *launch);

#endif
