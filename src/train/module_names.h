// SPDX-License-Identifier: Apache-2.0
/* Lists of modules in lora_config, as PEFT reads them. */
#ifndef TSR_TRAIN_MODULE_NAMES_H
#define TSR_TRAIN_MODULE_NAMES_H
#include "config/config.h"

typedef struct tsr_module_names tsr_module_names;

/* What a list names. */
typedef enum {
  TSR_NAMES_TARGETS,
  TSR_NAMES_SAVED, /* items match the end of a module's name also where that does not begin behind
                      a dot, as in PEFT */
  TSR_NAMES_OF_NUMBERS, /* regular expressions, too, match the end of a name behind a dot */
} tsr_module_names_rule;

/* `key`: "lora_config.target_modules". Errors: what is no regular expression. */
bool tsr_module_names_compile(
    tsr_arena *arena, const tsr_config_names *names, const char *key, tsr_module_names_rule rule,
    tsr_module_names **ret_names, tsr_diags *diags);

/* The first item that a name matches, or NULL: the item is equal to the name, or to its end behind
 * a dot, or, of a regular expression, all of the name matches it. Items that have matched are
 * remembered. */
const tsr_config_name *tsr_module_names_match(tsr_module_names *names, const char *module);
/* The same of a parameter of the graph, of which an item has whole words in any list: PEFT does not
 * know these names. */
const tsr_config_name *tsr_module_names_match_param(tsr_module_names *names, const char *param);

/* An error for each item that has matched nothing, with the nearest of the candidates. `tied`: the
 * embedding whose weight the output layer has, or NULL. */
bool tsr_module_names_check_used(
    const tsr_module_names *names, const char *const *candidates, int count, const char *tied,
    tsr_diags *diags);

#endif
