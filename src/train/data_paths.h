// SPDX-License-Identifier: Apache-2.0
/* Where the data is that a configuration names: as written, in the configuration's folder, or, for
 * a path with a folder in it, in the three folders above that, as tt-train's
 * configs/training_configs name data/shakespeare.txt. */
#ifndef TSR_TRAIN_DATA_PATHS_H
#define TSR_TRAIN_DATA_PATHS_H
#include "config/config.h"

/* NULL: it is nowhere. A pattern is where the folder before its first wildcard is. */
const char *tsr_data_path_find(tsr_arena *arena, const tsr_config *config, const char *path);
/* A path that is not found stays as it is: opening it reports the error. */
const char *tsr_data_path(tsr_arena *arena, const tsr_config *config, const char *path);
/* Notes about data, validation data and tokenizer that are above the configuration's folder. */
void tsr_data_paths_report(tsr_arena *arena, const tsr_config *config, tsr_diags *diags);

#endif
