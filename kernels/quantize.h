// SPDX-License-Identifier: Apache-2.0
/* Quantisation (base/quantized_layout.h). */
#ifndef TSR_KERNELS_QUANTIZE_H
#define TSR_KERNELS_QUANTIZE_H
#include "base/quantized_layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The levels of NF4, ascending. */
extern const float tsr_nf4_levels[16];
/* The 256 levels of NF4's scales, ascending. */
extern const float tsr_nf4_scale_levels[256];

/* `ret` has tsr_quantized_bytes; x is (rows, cols). The bits are those of any instruction-set
 * level. */
void tsr_quantize(const tsr_quantized_layout *layout, void *ret, const float *x);

/* The scale of a block of a unit, which has these bytes. */
float tsr_quantized_scale(const tsr_quantized_layout *layout, const void *bytes, int64_t block);

#ifdef __cplusplus
}
#endif
#endif
