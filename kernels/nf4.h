// SPDX-License-Identifier: Apache-2.0
/* Quantisation to NF4 (base/nf4_layout.h). */
#ifndef TSR_KERNELS_NF4_H
#define TSR_KERNELS_NF4_H
#include "base/nf4_layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The levels of NF4, ascending. */
extern const float tsr_nf4_levels[16];
/* The 256 levels of the scales, ascending. */
float tsr_nf4_scale_level(uint8_t code);

/* `ret` has tsr_nf4_bytes; x is (rows, cols). The bits are those of any instruction-set level. */
void tsr_nf4_quantize(const tsr_nf4_layout *layout, void *ret, const float *x);

/* The scale of a block of a unit, which has these bytes. */
float tsr_nf4_scale(const tsr_nf4_layout *layout, const void *bytes, int64_t block);

#ifdef __cplusplus
}
#endif
#endif
