// SPDX-License-Identifier: Apache-2.0
/* The learning rates that a recipe (config/recipe_keys.h) fixes. */
#ifndef TSR_TRAIN_LEARNING_RATE_RECIPE_H
#define TSR_TRAIN_LEARNING_RATE_RECIPE_H
#include "config/recipe_keys.h"
#include "train/learning_rate.h"

/* Whether the key of a recipe changes learning rates and nothing else: the schedule, the
 * optimizer's rate, and the number of steps. */
bool tsr_lr_recipe_has(const char *key);

/* Whether updates 1 … steps have the same rates by the recipe and by the curve, bit by bit. False,
 * too, where the recipe does not say enough. */
bool tsr_lr_recipe_agrees(
    const tsr_recipe_entry *recipe, int count, const tsr_lr_curve *curve, int64_t steps);

#endif
