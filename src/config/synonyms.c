// SPDX-License-Identifier: Apache-2.0
/* Keys that say the same in other words: what the command line says of one stands in place of what
 * a file says of the other. Both of one source contradict each other, which others report. */
#include "config/config_internal.h"
#include <string.h>

static const struct {
  const char *said, *replaced;
} pairs[] = {
    {"schedule.recompute", "training_config.runner"},
    {"schedule.recompute", "training_config.gradient_checkpointing"},
    {"schedule.recompute", "transformer_config.runner_type"},
    {"training_config.runner", "schedule.recompute"},
    {"training_config.gradient_checkpointing", "schedule.recompute"},
    {"training_config.gradient_checkpointing", "training_config.runner"},
    {"transformer_config.runner_type", "schedule.recompute"},
    {"transformer_config.runner_type", "training_config.runner"},
    {"training_config.precision", "training_config.mixed_precision"},
    {"training_config.mixed_precision", "training_config.precision"},
    {"training_config.gradient_clip_norm", "training_config.use_clip_grad_norm"},
    {"training_config.gradient_clip_norm", "training_config.clip_grad_norm_max_norm"},
    {"training_config.use_clip_grad_norm", "training_config.gradient_clip_norm"},
    {"training_config.clip_grad_norm_max_norm", "training_config.gradient_clip_norm"},
    {"device_config.enable_fsdp", "zero.stage"},
    {"training_config.data_path", "training_config.data_sources"},
    {"training_config.data_sources", "training_config.data_path"},
    {"pipeline.stages", "pipeline.blocks_per_rank"},
    {"pipeline.blocks_per_rank", "pipeline.stages"},
    {"training_config.scheduler_type", "scheduler_config.type"},
    {"training_config.lr_schedule", "scheduler_config.type"},
};

/* The entry's index in the map that holds the path's last key, in `ret_map`; -1: there is none. */
static int find(tsr_yaml *root, const char *path, tsr_yaml **ret_map) {
  for (tsr_yaml *map = root; map && map->kind == TSR_YAML_MAP;) {
    size_t length = strcspn(path, ".");
    int i = 0;
    while (i < map->count &&
           (strncmp(map->keys[i]->text, path, length) || map->keys[i]->text[length]))
      i++;
    if (i == map->count) return -1;
    if (!path[length]) return *ret_map = map, i;
    map = map->items[i];
    path += length + 1;
  }
  return -1;
}

static void replace(tsr_yaml *root, const char *said, const char *replaced) {
  tsr_yaml *by, *map;
  int i = find(root, said, &by), k = find(root, replaced, &map);
  if (i < 0 || k < 0 || !tsr_is_override(by->keys[i]) || tsr_is_override(map->keys[k])) return;
  map->count--;
  memmove(map->keys + k, map->keys + k + 1, sizeof *map->keys * (size_t)(map->count - k));
  memmove(map->items + k, map->items + k + 1, sizeof *map->items * (size_t)(map->count - k));
}

void tsr_synonyms_replace(tsr_yaml *root) {
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
    replace(root, pairs[i].said, pairs[i].replaced);
  for (int i = 0; i < tsr_fields_count; i++) {
    const tsr_field *f = &tsr_fields[i];
    if (!f->same_as) continue;
    char name[128];
    snprintf(name, sizeof name, "%s%s%s", f->section, *f->section ? "." : "", f->key);
    replace(root, name, f->same_as);
    replace(root, f->same_as, name);
  }
}
