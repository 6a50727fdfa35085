// SPDX-License-Identifier: Apache-2.0
/* The engine for lists with messages of device communicators (device.h): all of a list is begun at
 * once, on the stream of the group, and done when that is; nothing goes through the host. */
#ifndef TSR_COMM_ENGINE_DEVICE_H
#define TSR_COMM_ENGINE_DEVICE_H
#include "comm/group_topology.h"
#include "comm/collective_steps.h"

typedef struct {
  const tsr_device *device;
  const tsr_step_list *list; /* planned `on_device` */
  const tsr_layout *layout;
  const tsr_collective *collective; /* in and out NULL where the member is another process's */
  void *group;                      /* of the members' processes, ascending */
} tsr_device_exchange;

/* `staging` (tsr_step_list_staging_bytes, aligned to 256) is the call's until the stream is done;
 * `messages`, the list's messages_of_phase, until this returns. */
void tsr_device_exchange_begin(
    const tsr_device_exchange *call, void *staging, tsr_device_message *messages);

#endif
