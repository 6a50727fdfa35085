// SPDX-License-Identifier: Apache-2.0
/* Where the elements of a tensor of ours are in those of Hugging Face's models, as a text in a file
 * of tensors (checkpoint/hf_folder.h): transposed, a part of one, or spread over one an expert. */
#ifndef TSR_COMPARE_FOREIGN_PLACE_H
#define TSR_COMPARE_FOREIGN_PLACE_H
#include "checkpoint/hf_folder.h"

/* NULL: there it is one tensor, with the same elements in the same order. */
const char *tsr_foreign_place_text(tsr_arena *arena, const tsr_hf_place *place);
/* `name`: that there. False: the text is none of a place. */
bool tsr_foreign_place_read(const char *name, const char *text, tsr_hf_place *ret_place);

/* Whether a tensor there has the shape that the place is in. */
bool tsr_foreign_place_fits(const tsr_hf_place *place, const tsr_safetensor *there);
/* The elements of ours that a tensor there has. */
void tsr_foreign_place_take(const tsr_hf_place *place, const float *there, float *ours);

#endif
