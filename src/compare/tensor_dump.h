// SPDX-License-Identifier: Apache-2.0
/* The tensors of some steps of a run as files, FOLDER/step-00000001.safetensors, …: what tasks
 * compute, complete and whole (runtime/value_trace.h); parameters' gradients before clipping as
 * grad.NAME, without a loss scale; and parameters and optimizer state as they are before the step.
 * Floating-point types are written as F32. The files of one recipe are the same bytes on any mesh.
 *
 * The files' metadata have step and recipe; of parameters and their gradients "hf.NAME", their name
 * in Hugging Face's files, and where that is no tensor of the same elements "hf_place.NAME", its
 * place there (compare/foreign_place.h). step-00000001.bounds beside it, of the same format, has no
 * tensors and of each name its tsr_error_path as four numbers (compare/error_bound.h). */
#ifndef TSR_COMPARE_TENSOR_DUMP_H
#define TSR_COMPARE_TENSOR_DUMP_H
#include "runtime/value_trace.h"
#include "train/trainer.h"

typedef struct tsr_tensor_dump tsr_tensor_dump;

/* Steps [first, last] of a run of that configuration, of so many steps. `wants` chooses by name: 0:
 * it does not; below 0: it cannot tell, an error. The folder is made with the first file. */
tsr_tensor_dump *tsr_tensor_dump_new(
    tsr_arena *arena, const tsr_config *config, int64_t steps, const char *folder, int64_t first,
    int64_t last, int (*wants)(void *context, const char *name), void *context);
void tsr_tensor_dump_free(tsr_tensor_dump *dump);
const tsr_step_observer *tsr_tensor_dump_observer(const tsr_tensor_dump *dump);

/* How many tensors a file has, and their bytes. */
int tsr_tensor_dump_count(const tsr_tensor_dump *dump, int64_t *ret_bytes);
/* The file of a step, and the one with the bounds beside a file; in the arena. */
const char *tsr_tensor_dump_path(tsr_arena *arena, const char *folder, int64_t step);
const char *tsr_tensor_dump_bounds_path(tsr_arena *arena, const char *file);

#endif
