// SPDX-License-Identifier: Apache-2.0
/* Rows of f32 in the types of GGUF (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md,
 * ggml-common.h): the bytes that llama.cpp's reference quantizer computes, at every
 * instruction-set level.
 *
 *   Q8_0  32 elements: f16 d, 32 i8 q; an element is d q
 *   Q5_0  32 elements: f16 d, the fifth bits, 32 4-bit q; an element is d (q - 16)
 *   Q5_1  32 elements: f16 d and m, the fifth bits, 32 4-bit q; an element is d q + m
 *   Q4_K  256 elements: f16 d and dmin, 6-bit scales and minima of 8 sub-blocks, 256 4-bit q; an
 *         element is d scale q - dmin minimum
 *   Q5_K  the same with 5 bits: the fifth bits precede the others
 *   Q6_K  256 elements: the low 4 bits of q, its upper 2 bits, i8 scales of 16 sub-blocks, f16 d;
 *         an element is d scale (q - 32) */
#ifndef TSR_CHECKPOINT_GGUF_QUANTIZE_H
#define TSR_CHECKPOINT_GGUF_QUANTIZE_H
#include "checkpoint/gguf.h"
#include "kernels/kernels.h"

/* `count` elements, whole blocks of the type; `ret` has room for them. The number of elements that
 * the type cannot hold is added to `ret_overflows`: finite ones beyond the range of f16 and bf16;
 * of quantized types NaN, infinities and those that need a scale beyond f16. */
void tsr_gguf_quantize(
    const tsr_kernels *kernels, tsr_gguf_type type, const float *x, int64_t count, void *ret,
    int64_t *ret_overflows);

#endif
