// SPDX-License-Identifier: Apache-2.0
/* The types of GGUF whose blocks have 256 elements (gguf_quantize.h): a block each. */
#ifndef TSR_CHECKPOINT_GGUF_QUANTIZE_K_H
#define TSR_CHECKPOINT_GGUF_QUANTIZE_K_H
#include "kernels/kernels.h"

void tsr_gguf_quantize_q4_k(const tsr_kernels *kernels, const float *x, uint8_t *ret); /* 144 */
void tsr_gguf_quantize_q5_k(const tsr_kernels *kernels, const float *x, uint8_t *ret); /* 176 */
void tsr_gguf_quantize_q6_k(const tsr_kernels *kernels, const float *x, uint8_t *ret); /* 210 */

#endif
