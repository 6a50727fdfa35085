// SPDX-License-Identifier: Apache-2.0
/* Device communicators: a group of the device's (device.h) for every group of ranks that has
 * members in several processes, and one for each two neighbouring stages of a pipeline, in each
 * direction. With them neither collectives nor transfers touch the host. No two axes share one, nor
 * do the two directions: their messages may be under way at once. All groups of an axis that have
 * no process in common are formed by one split of all processes.
 *
 * What a process begins on its streams never waits on the host, so a process of several stages
 * could wait in a circle with another one, through the stream that its stages share: there are
 * communicators only where every process is of one stage. */
#ifndef TSR_RUNTIME_DEVICE_COMMUNICATORS_H
#define TSR_RUNTIME_DEVICE_COMMUNICATORS_H
#include "device/device.h"
#include "runtime/rank_map.h"

typedef struct {
  int axis;             /* of collectives; TSR_PP too of transfers */
  int stage;            /* whose collectives it is for; -1: those over pp */
  int to;               /* of transfers: from `stage` to this one; else -1 */
  const int *processes; /* in the group's order, ascending */
  int count;
  void *group; /* the device's; NULL: this process is not in it */
  int number;  /* among all */
  int split;   /* of all processes, by which it is formed */
} tsr_device_communicator;

typedef struct tsr_device_communicators {
  const tsr_device_communicator *
      *of_group; /* at axis * ranks + first member; NULL: one process has all members */
  const tsr_device_communicator **of_stages; /* at from * stages + to; NULL: there is none */
  const tsr_device_communicator *const *all;
  int count;
  bool fast; /* policy fast: the device's library adds where it can */
} tsr_device_communicators;

/* Whether the ranks are mapped so that there can be communicators. */
bool tsr_device_communicators_fit(const tsr_parallel *parallel, const tsr_rank_map *rank_map);
/* All processes together; false with `why` (TSR_WHY_BYTES). */
bool tsr_device_communicators_form(
    tsr_arena *arena, const tsr_parallel *parallel, const tsr_rank_map *rank_map,
    const tsr_device *device, bool fast, const tsr_device_communicators **ret_communicators,
    char *why);

#endif
