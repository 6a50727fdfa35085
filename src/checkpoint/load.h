// SPDX-License-Identifier: Apache-2.0
/* From a checkpoint into the memory of a run, on whatever mesh that is: each stored piece is read
 * once, a megabyte at a time, and every rank takes its part of it. */
#ifndef TSR_CHECKPOINT_LOAD_H
#define TSR_CHECKPOINT_LOAD_H
#include "checkpoint/reader.h"
#include "runtime/process.h"

/* What a checkpoint is of: a model, without the adapters that the run adds to it, which may have
 * another output if a run begins with it (a parameter that another one `replaces`, which begins at
 * its initial value, with a note), and may lack what the run trains if it is the base of a run's
 * checkpoint; or a run, which keeps no frozen parameters, with or without the optimizer's state. */
typedef enum {
  TSR_LOAD_MODEL,
  TSR_LOAD_START,
  TSR_LOAD_BASE,
  TSR_LOAD_TRAINED,
  TSR_LOAD_RUN
} tsr_load_kind;

/* Parameters, and of a run the optimizer's state: all of them that the run's graph has must be
 * stored, with the same shapes, and nothing else may be but, unless it is asked for, an optimizer's
 * state. Without that state what balances experts may be missing, which a note says. Elements are
 * converted where dtypes differ, but not state's. Errors name the tensor and both shapes; what was
 * read of it then stands in the run's memory. */
bool tsr_checkpoint_load(
    tsr_arena *arena, const tsr_manifest *manifest, tsr_executable *executable, tsr_load_kind kind,
    bool verify, tsr_diags *diags);

/* history.loss and history.grad_norm, of state.step elements each. */
bool tsr_checkpoint_history(
    tsr_arena *arena, const tsr_manifest *manifest, float *ret_loss, float *ret_norm,
    tsr_diags *diags);

#endif
