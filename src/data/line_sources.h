// SPDX-License-Identifier: Apache-2.0
/* Documents that a line of JSON each becomes, as the sources of a data set: conversations, or texts
 * with a label. */
#ifndef TSR_DATA_LINE_SOURCES_H
#define TSR_DATA_LINE_SOURCES_H
#include "data/sources.h"

typedef struct {
  const tsr_data_input *inputs;     /* of which path, weight and location count */
  int inputs_count;                 /* 1 to TSR_MIX_SOURCES_MAX */
  const tsr_data_input *validation; /* NULL: none of its own */
  tsr_tokenizer tokenizer;          /* for decoding */
  tsr_line_encoder encoder;
  tsr_packing_rule packing;
  tsr_label_names labels; /* of texts with a label */
  int threads;            /* 0: one for each core */
} tsr_line_sources;

/* Reads and encodes all of them. Errors: files that cannot be read or hold something else, and
 * lines that cannot be encoded. Samples exist when the data set is packed (tsr_dataset_pack). */
bool tsr_dataset_lines(
    tsr_arena *arena, const tsr_line_sources *options, tsr_dataset *ret_dataset, tsr_diags *diags);

#endif
