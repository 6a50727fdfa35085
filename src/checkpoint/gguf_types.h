// SPDX-License-Identifier: Apache-2.0
/* Which type each tensor of a GGUF file has, as convert_hf_to_gguf.py and llama-quantize choose. */
#ifndef TSR_CHECKPOINT_GGUF_TYPES_H
#define TSR_CHECKPOINT_GGUF_TYPES_H
#include "checkpoint/gguf_tensors.h"

typedef struct {
  const char *name; /* of --dtype: "f32", "f16", "bf16", "q8_0", "q4_k_m" */
  tsr_gguf_type type;
  int file_type; /* llama_ftype, which general.file_type has */
} tsr_gguf_precision;

bool tsr_gguf_precision_find(
    const char *name, const tsr_gguf_precision **ret_precision, tsr_diags *diags);

/* Sets the types of all tensors. Vectors, norms, routers, positions, and everything that is no
 * weight stay f32. In q4_k_m some layers of values and down projections are Q6_K, and so is the
 * output, or the embedding that is one. Where a row is no whole number of blocks: Q5_0 for Q4_K,
 * Q5_1 for Q5_K, Q8_0 for Q6_K, and f16 where that has no whole blocks either. */
bool tsr_gguf_types_choose(
    const tsr_gguf_mapping *mapping, const tsr_gguf_precision *precision, tsr_gguf_tensors *list,
    tsr_diags *diags);

#endif
