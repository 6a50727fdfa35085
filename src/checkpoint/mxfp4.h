// SPDX-License-Identifier: Apache-2.0
/* MXFP4 (OCP Microscaling Formats 1.0): blocks of 32 numbers of 4 bits, e2m1, with one scale of 8
 * bits, e8m0. */
#ifndef TSR_CHECKPOINT_MXFP4_H
#define TSR_CHECKPOINT_MXFP4_H
#include <stdint.h>

enum { TSR_MXFP4_BLOCK = 32, TSR_MXFP4_BLOCK_BYTES = TSR_MXFP4_BLOCK / 2 };

/* The numbers of `count` blocks. Of each byte the low half comes first. A scale of 255 is NaN. */
void tsr_mxfp4_decode(
    const uint8_t *blocks, const uint8_t *scales, int64_t count, float *ret_values);

#endif
