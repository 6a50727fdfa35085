// SPDX-License-Identifier: Apache-2.0
/* Adapters merged into the weights of a model as it is exported. */
#ifndef TSR_CHECKPOINT_HF_MERGE_H
#define TSR_CHECKPOINT_HF_MERGE_H
#include "checkpoint/hf_export.h"
#include "checkpoint/manifest.h"

typedef struct tsr_hf_merge tsr_hf_merge;
tsr_hf_merge *tsr_hf_merge_new(tsr_arena *arena, const tsr_hf_change *change);

/* Elements [first, first + n) of the parameter, row-major, with the change, in f32: the sums of an
 * adapter are those of f32 in the order of r. `read` reads what is stored. */
bool tsr_hf_merge_read(
    tsr_hf_merge *merge, const tsr_stored *stored, int64_t first, int64_t n,
    bool (*read)(
        void *context, const tsr_stored *stored, int64_t first, int64_t n, void *ret_elements),
    void *context, float *ret);

#endif
