// SPDX-License-Identifier: Apache-2.0
/* The tokens that end a text of a trained model. */
#ifndef TSR_CLI_TEXT_ENDS_H
#define TSR_CLI_TEXT_ENDS_H
#include "cli/trained_model.h"
#include "data/chat_template_builtin.h"

enum { TEXT_ENDS_OF_FILE_MAX = 64, TEXT_ENDS_MAX = TSR_CHAT_STOPS_MAX + TEXT_ENDS_OF_FILE_MAX };

/* Those that the tokenizer has for the end of a turn or text, and those of the checkpoint's
 * generation_config.json. The tokenizer is open. */
bool text_ends_find(const trained_model *m, int32_t ret_ends[TEXT_ENDS_MAX], int *ret_count);

#endif
