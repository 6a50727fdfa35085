// SPDX-License-Identifier: Apache-2.0
/* Rows of f32 in the types of GGUF (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md,
 * ggml-common.h): the bytes that llama.cpp's reference quantizer computes, at every
 * instruction-set level.
 *
 *   Q8_0  32 elements: an f16 scale d and 32 i8 q; an element is d q */
#ifndef TSR_CHECKPOINT_GGUF_QUANTIZE_H
#define TSR_CHECKPOINT_GGUF_QUANTIZE_H
#include "checkpoint/gguf.h"
#include "kernels/kernels.h"

/* `count` elements, whole blocks of the type; `ret` has room for them. The number of finite
 * elements that the type's range does not have is added to `ret_overflows`. */
void tsr_gguf_quantize(
    const tsr_kernels *kernels, tsr_gguf_type type, const float *x, int64_t count, void *ret,
    int64_t *ret_overflows);

#endif
