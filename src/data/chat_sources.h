// SPDX-License-Identifier: Apache-2.0
/* Conversations as the sources of a data set: JSON, an object a line. */
#ifndef TSR_DATA_CHAT_SOURCES_H
#define TSR_DATA_CHAT_SOURCES_H
#include "data/sources.h"

typedef struct {
  const tsr_data_input *inputs;     /* of which path, weight and location count */
  int inputs_count;                 /* 1 to TSR_MIX_SOURCES_MAX */
  const tsr_data_input *validation; /* NULL: none of its own */
  tsr_tokenizer tokenizer;          /* for decoding */
  tsr_line_encoder encoder;
  tsr_packing_rule packing;
  int threads; /* 0: one for each core */
} tsr_chat_options;

/* Reads and encodes all of them. Errors: files that cannot be read or hold something else, and
 * lines that cannot be encoded. Samples exist when the data set is packed (tsr_dataset_pack). */
bool tsr_dataset_chat(
    tsr_arena *arena, const tsr_chat_options *options, tsr_dataset *ret_dataset, tsr_diags *diags);

#endif
