// SPDX-License-Identifier: Apache-2.0
#include "config/override.h"
#include "prove/reduced_sizes.h"
#include <string.h>

/* The text of a number or list, as a value that stands where the old one did. */
static bool
parse_value(tsr_arena *arena, const tsr_reduced_size *row, tsr_yaml **ret, tsr_diags *diags) {
  const char *text = row->reduced;
  if (!tsr_yaml_parse(arena, "reduced", text, strlen(text), ret, diags)) return false;
  (*ret)->location = row->location;
  for (int i = 0; i < (*ret)->count; i++) (*ret)->items[i]->location = row->location;
  return true;
}

bool tsr_reduced_sizes_apply(
    tsr_arena *arena, const tsr_reduced_sizes *sizes, tsr_config *config, tsr_diags *diags) {
  tsr_yaml empty = {.kind = TSR_YAML_MAP, .text = "", .location = config->model.location};
  tsr_yaml *map = (tsr_yaml *)config->model.map;
  for (int i = 0; i < sizes->count; i++) {
    const tsr_reduced_size *row = &sizes->rows[i];
    bool vocabulary = !strcmp(row->name, "vocab_size"); /* which may be counted in the data */
    if (!row->key || (!row->shrinks && !vocabulary)) continue;
    tsr_override o = {.path = row->key, .location = row->location};
    if (!map) map = memcpy(tsr_arena_alloc(arena, sizeof empty), &empty, sizeof empty);
    if (!parse_value(arena, row, &o.value, diags) ||
        !tsr_override_apply(arena, &o, row->key, &map, diags))
      return false;
  }
  config->model.map = map;
  config->training.sequence_length = sizes->sequence;
  return true;
}
