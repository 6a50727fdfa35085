// SPDX-License-Identifier: Apache-2.0
/* `--set a.b=v`, and options that stand for a key: values that replace a file's, as if they stood
 * in it. */
#ifndef TSR_CONFIG_OVERRIDE_H
#define TSR_CONFIG_OVERRIDE_H
#include "config/config.h"
#include "config/yaml.h"

typedef struct {
  const char *path; /* "training_config.batch_size" */
  tsr_location
      location; /* of the path: file "--set", the line counts these; or of an option's value */
  bool is_option;
  tsr_yaml *value;
  bool done;
} tsr_override;

/* Splits the argument of --set at the first '=' and reads the value as YAML. */
bool tsr_overrides_parse(
    tsr_arena *arena, const tsr_set *sets, int count, tsr_override **ret_overrides,
    tsr_diags *diags);

/* Puts a value into the tree; maps that are missing on the way are made. Nodes are not changed but
 * copied on the way, because aliases may share them. False with an error when something on the way
 * is not a map. */
bool tsr_override_apply(
    tsr_arena *arena, tsr_override *override, const char *path, tsr_yaml **root, tsr_diags *diags);

#endif
