// SPDX-License-Identifier: Apache-2.0
/* The comparison of two runs whose recipes round in other places: one step of both, against a bound
 * of rounding errors (compare/error_bound.h). */
#ifndef TSR_CLI_COMPARE_BOUNDS_H
#define TSR_CLI_COMPARE_BOUNDS_H
#include "cli/app.h"
#include "config/recipe_keys.h"

/* Whether a key of the recipes differs that changes where a run rounds; ret_others: whether one
 * does that changes what it computes. */
bool compare_bounds_apply(
    const tsr_recipe_entry *a, int a_count, const tsr_recipe_entry *b, int b_count,
    bool *ret_others);

/* Appends the report. Both are repeated up to the step. */
bool compare_bounds(
    app *a, const char *const paths[2], int64_t step, tsr_text *text, bool *ret_passes);

#endif
