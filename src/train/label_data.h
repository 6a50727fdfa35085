// SPDX-License-Identifier: Apache-2.0
/* Texts with labels as a run's data (data.format: labels). */
#ifndef TSR_TRAIN_LABEL_DATA_H
#define TSR_TRAIN_LABEL_DATA_H
#include "config/config.h"
#include "data/line_sources.h"

/* Reads them. The classes are those of data.labels, else the names of all lines, sorted, else
 * numbers below the model's num_labels. `tokenizer_file` as in train/chat_data.h. */
bool tsr_label_data_open(
    tsr_arena *arena, const tsr_config *config, const tsr_data_options *options,
    const char *tokenizer_file, tsr_dataset *ret_dataset, tsr_diags *diags);
/* The names of the data's classes become data.labels, for checkpoints and evaluations. */
void tsr_label_data_keep(tsr_arena *arena, const tsr_dataset *dataset, tsr_config *config);

#endif
