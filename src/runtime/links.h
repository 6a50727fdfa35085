/* Links between workers whose devices reach each other: a group of the device's (device.h) for
 * every group of ranks that has members in several workers, and one for each two neighbouring
 * stages of a pipeline, in each direction. With them neither collectives nor transfers touch the
 * host.
 *
 * What a worker begins on its lanes never waits on the host, so a worker of several stages could
 * wait in a circle with another one, through the lane that its stages share: there are links only
 * where every worker is of one stage. */
#ifndef TSR_RUN_LINKS_H
#define TSR_RUN_LINKS_H
#include "device/device.h"
#include "runtime/rank_map.h"

typedef struct {
  int stage;          /* whose collectives it is for; -1: those over pp */
  int to;             /* of transfers: from `stage` to this one; else -1 */
  const int *workers; /* in the group's order, ascending */
  int count;
  void *group; /* the device's; NULL: this worker is not in it */
  int number;  /* among all */
} tsr_link;

typedef struct tsr_links {
  const tsr_link **of_group;  /* at axis * ranks + first member; NULL: one worker has all members */
  const tsr_link **of_stages; /* at from * stages + to; NULL: there is none */
  const tsr_link *const *all;
  int count;
  bool fast; /* policy fast: the device's library adds where it can */
} tsr_links;

/* Whether the ranks are laid so that there can be links. */
bool tsr_links_fit(const tsr_parallel *parallel, const tsr_rank_map *rank_map);
/* All workers together; false with `why` (TSR_WHY_BYTES). */
bool tsr_links_form(
    tsr_arena *arena, const tsr_parallel *parallel, const tsr_rank_map *rank_map,
    const tsr_device *device, bool fast, const tsr_links **ret_links, char *why);

#endif
