/* Collectives of which some members are other workers', where every worker has a device with groups
 * (device.h): the same results, bit for bit, as tsr_collective_run_on gives where one worker has
 * them all. All of it is begun at once, on the group's lane, and done when that is; nothing goes
 * through the host.
 *
 * Sums: everybody sends slice i of its summands to slice i's owner, who adds them in the tree of
 * base/tree.h, and with all_reduce sends the sum to everybody. A worker's members that are a
 * subtree are added before that. Policy fast: the device library's own sums, where its slices are
 * ours. */
#ifndef TSR_COMM_REMOTE_DEVICE_H
#define TSR_COMM_REMOTE_DEVICE_H
#include "comm/collective.h"

typedef struct {
  const tsr_device *device;
  const tsr_collective *collective; /* in and out NULL where the member is another worker's */
  const int *worker_of;             /* per member */
  void *group;                      /* of the members' workers */
  const int *workers;               /* the same, in the group's order, ascending */
  int workers_count, worker;        /* worker: this one, as in `workers` */
  bool fast;
} tsr_device_call;

/* Whether under policy fast a sum over the workers' members is the library's. `groups` as in
 * tsr_collective; blocks of a reduce-scatter, one a worker in the group's order, have to lie one
 * after the other: `outer` is what the dimensions before the one that is cut have. */
bool tsr_device_sum_is_library(tsr_op op, int groups, int64_t outer, bool one_each);

/* What a call needs on the device, and messages at once; functions of the same as
 * tsr_remote_bytes. */
int64_t tsr_device_call_bytes(const tsr_device_call *call, int *ret_messages);
/* `memory`, aligned to 256, is the call's until the lane is done; `messages` until this returns. */
void tsr_device_call_begin(
    const tsr_device_call *call, void *memory, tsr_device_message *messages);

#endif
