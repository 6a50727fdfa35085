// SPDX-License-Identifier: Apache-2.0
/* Which parameters of a model lora_config trains, and which linear layers have adapters. */
#ifndef TSR_TRAIN_ADAPTER_TARGETS_H
#define TSR_TRAIN_ADAPTER_TARGETS_H
#include "config/config.h"
#include "passes/passes.h"

/* `graph`: forward, as it was read. Errors, at the keys: a name that no module has, a module that
 * cannot have adapters or be trained. */
bool tsr_adapter_targets(
    tsr_arena *arena, const tsr_config *config, const tsr_graph *graph, tsr_adapters *ret_adapters,
    tsr_diags *diags);

#endif
