// SPDX-License-Identifier: Apache-2.0
/* Which part of some tensors each device has: the parameter and the activation that are split into
 * the most parts, and the largest parameter that is placed in another way. */
#ifndef TSR_PICTURES_SHARD_PANELS_H
#define TSR_PICTURES_SHARD_PANELS_H
#include "pictures/device_grid.h"

/* Beside each other from (x, y) on; returns where the next thing begins. */
double tsr_shard_panels_draw(
    const tsr_report *report, const tsr_device_grid *grid, double x, double y, double width,
    tsr_text *svg);

#endif
