// SPDX-License-Identifier: Apache-2.0
/* Quantized weights of Hugging Face folders, which an import dequantizes. */
#ifndef TSR_CHECKPOINT_HF_QUANTIZED_H
#define TSR_CHECKPOINT_HF_QUANTIZED_H
#include "base/json.h"
#include "checkpoint/hf_folder.h"

/* fp8: tensor "X" of F8_E4M3 (rows, columns) and "X_scale_inv" of F32 or BF16 with a number for
 * each block of X, by which its elements are multiplied; blocks at the ends may be smaller
 * (DeepSeek V3's inference/kernel.py, weight_dequant).
 *
 * MXFP4 (mxfp4.h): where transformers has a tensor "X" (experts, in, out), there are "X_blocks" of
 * U8 (experts, out, in / 32, 16) and "X_scales" of U8 (experts, out, in / 32) (gpt-oss). */
typedef enum { TSR_HF_UNQUANTIZED, TSR_HF_FP8, TSR_HF_MXFP4 } tsr_hf_quantization_kind;

typedef struct {
  tsr_hf_quantization_kind kind;
  int64_t block[2]; /* fp8: rows and columns of a block */
} tsr_hf_quantization;

/* Out of config.json's quantization_config; NULL or null: none. Errors: other methods and forms. */
bool tsr_hf_quantization_read(
    tsr_arena *arena, const char *path, const cJSON *item, tsr_hf_quantization *ret_quantization,
    tsr_diags *diags);

/* Whether a tensor there is stored in this format. */
bool tsr_hf_is_quantized(const tsr_hf_quantization *quantization, const tsr_hf_tensor *tensor);

/* Finds the scales of a tensor that is, and marks them as used. Errors: scales that are missing or
 * do not fit. */
bool tsr_hf_quantized_open(
    const tsr_hf_quantization *quantization, const tsr_hf_folder *folder, tsr_hf_tensor *tensor,
    tsr_diags *diags);

/* Elements [first, first + n) of an opened tensor. */
void tsr_hf_dequantize(
    const tsr_hf_quantization *quantization, const tsr_hf_tensor *tensor, int64_t first, int64_t n,
    float *ret_values);

/* The blocks of a tensor `name` in MXFP4; NULL: there are none. */
tsr_hf_tensor *tsr_hf_mxfp4_find(
    const tsr_hf_quantization *quantization, const tsr_hf_folder *folder, const char *name);

/* Finds the scales of such blocks, of which a parameter has a place in the tensor that they are,
 * and marks them as used. Errors: shapes that do not fit. */
bool tsr_hf_mxfp4_open(
    const tsr_hf_folder *folder, tsr_hf_tensor *blocks, const tsr_hf_place *place,
    tsr_diags *diags);

/* "fp8 (e4m3, blocks of 128 x 128)" */
const char *tsr_hf_quantization_text(tsr_arena *arena, const tsr_hf_quantization *quantization);

#endif
