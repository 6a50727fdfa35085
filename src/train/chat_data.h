// SPDX-License-Identifier: Apache-2.0
/* Conversations as a run's data (data.format: chat). */
#ifndef TSR_TRAIN_CHAT_DATA_H
#define TSR_TRAIN_CHAT_DATA_H
#include "config/config.h"
#include "data/line_sources.h"

/* Reads them with the chat template that the configuration names, beside `tokenizer_file` (NULL:
 * the tokenizer has none) unless data.template is a file. */
bool tsr_chat_data_open(
    tsr_arena *arena, const tsr_config *config, const tsr_data_options *options,
    const char *tokenizer_file, tsr_dataset *ret_dataset, tsr_diags *diags);

#endif
