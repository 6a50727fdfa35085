// SPDX-License-Identifier: Apache-2.0
/* What of a device's memory a plan cannot have. */
#ifndef TSR_DEVICE_MEMORY_REPORT_H
#define TSR_DEVICE_MEMORY_REPORT_H
#include "base/text.h"
#include "device/device.h"

/* "cuda:0 has 79.2 GiB; in use: 512.0 MiB by its context and other programs, …"; without a line's
 * end. Nothing where the memory is the host's. */
void tsr_device_print_memory(const tsr_device *device, tsr_text *text);

#endif
