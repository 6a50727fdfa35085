// SPDX-License-Identifier: Apache-2.0
/* `compare` of two runs whose bits differ by right: in where they round. */
#ifndef TSR_CLI_COMPARE_BOUNDS_H
#define TSR_CLI_COMPARE_BOUNDS_H
#include "cli/app.h"
#include "config/recipe_keys.h"

/* Whether the recipes differ, and only in keys of precision, units or instruction sets. */
bool compare_bounds_apply(
    const tsr_recipe_entry *a, int a_count, const tsr_recipe_entry *b, int b_count);

/* All tensors of the first step of both, by how far they are apart. */
bool compare_bounds(app *a, const char *const paths[2], tsr_text *text, bool *ret_passes);

#endif
