// SPDX-License-Identifier: Apache-2.0
/* modules_to_save: which parameters a list names, and the list that names some parameters. */
#ifndef TSR_TRAIN_SAVED_MODULES_H
#define TSR_TRAIN_SAVED_MODULES_H
#include "passes/passes.h"
#include "train/module_names.h"

/* The item that names a parameter, its module, or one that this is in; or NULL. Modules have the
 * names of files and those of transformers 5. */
const tsr_config_name *
tsr_saved_modules_match(tsr_arena *arena, tsr_module_names *names, const tsr_param *param);

/* Names of the modules whose parameters are saved, which match nothing else in PEFT and here: the
 * fewest last parts of a module's name, or all. NULL and an error: a module has other parameters
 * that are not saved. */
const char **tsr_saved_modules_list(
    tsr_arena *arena, const tsr_graph *graph, const tsr_param_training *training, int *ret_count,
    tsr_diags *diags);

#endif
