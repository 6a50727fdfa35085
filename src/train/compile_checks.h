// SPDX-License-Identifier: Apache-2.0
/* What a configuration may not ask of a graph; each error is at the key, option or statement. */
#ifndef TSR_TRAIN_COMPILE_CHECKS_H
#define TSR_TRAIN_COMPILE_CHECKS_H
#include "train/compile.h"

/* Keys of the loss scale without fp16. */
bool tsr_compile_check_loss_scale(const tsr_config *config, tsr_diags *diags);
/* Ops that mix the samples of a step's batch units. */
bool tsr_compile_check_samples(
    tsr_arena *arena, const tsr_compile_options *o, const tsr_compiled *compiled, tsr_diags *diags);
/* Routing to record or replay of a model without, or whose samples are not along dimension 0. */
bool tsr_compile_check_routing(
    tsr_arena *arena, const tsr_compile_options *o, const tsr_compiled *compiled, tsr_diags *diags);
/* Units of a graph without a loss that a flat tree does not add by rank. */
bool tsr_compile_check_flat_units(
    const tsr_compile_options *o, const tsr_lowering *lowering, const tsr_graph *placed,
    tsr_diags *diags);

#endif
