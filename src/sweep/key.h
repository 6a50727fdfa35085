// SPDX-License-Identifier: Apache-2.0
/* Names of keys as users write them in a sweep. */
#ifndef TSR_SWEEP_KEY_H
#define TSR_SWEEP_KEY_H
#include "config/fields.h"

/* The key that a name means: a whole key (training_config.optimizer.lr), the end of one
 * (optimizer.lr, lr), or a key of the model's section (embedding_dim). An end that several keys
 * have means the one of them that is part of recipes, if there is just one. `config` is that of the
 * sweep, for the model's section. Errors at `location`: no key has that end, or several; the
 * candidates are named. `ret_field`: the key's row; NULL: it is the model's. */
bool tsr_sweep_key_find(
    tsr_arena *arena, const char *name, const tsr_config *config, tsr_location location,
    const char **ret_key, const tsr_field **ret_field, tsr_diags *diags);

/* The row without errors and without a configuration; NULL: there is none, or several. */
const tsr_field *tsr_sweep_key_row(const char *name);

#endif
