// SPDX-License-Identifier: Apache-2.0
#include "cli/mesh_override.h"
#include <string.h>

/* Whether a --set is of that section, or of what begins so. */
bool mesh_override_has_set(const app *a, const char *section) {
  for (int i = 0; i < a->options.sets_count; i++)
    if (!a->options.sets[i].key && !strncmp(a->options.sets[i].text, section, strlen(section)))
      return true;
  return false;
}

/* Whether a --set lays out ranks: the whole section, or a key that names axes or devices. */
static bool sets_layout(const app *a) {
  static const char *const keys[] = {
      "device_config=", "device_config.enable_", "device_config.mesh_", "device_config.device"};
  for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
    if (mesh_override_has_set(a, keys[k])) return true;
  return false;
}

/* A checkpoint's configuration contains the mesh of its training; using the weights needs
 * no more than a rank, unless a --set selects the mesh. */
void mesh_override_by_one_rank(const app *a, tsr_config *c) {
  if (sets_layout(a) || mesh_override_has_set(a, "mesh") || mesh_override_has_set(a, "pipeline") ||
      mesh_override_has_set(a, "zero"))
    return;
  const tsr_config_device *d = &c->device;
  c->device = (tsr_config_device){
      .mesh_graph_descriptor = "", .memory_limit = d->memory_limit, .kind = d->kind};
  c->pipeline.workers = c->pipeline.virtual_stages = 0;
  c->pipeline.stages_count = c->pipeline.blocks_count = 0;
  c->zero = (tsr_config_zero){.offload_path = ""};
}

static void clear_sections(app *a, const char *option, const char *const *sections, int count) {
  tsr_options *c = &a->options;
  memmove(c->sets + count, c->sets, sizeof *c->sets * (size_t)c->sets_count);
  for (int i = 0; i < count; i++) c->sets[i] = (tsr_set){"{}", option, sections[i], false};
  c->sets_count += count;
}

/* An option that lays out ranks by device_config replaces a checkpoint's `mesh`, and the other way
 * round. The replaced sections become empty, before the options that set their keys. */
void mesh_override_sections(app *a, const char *option) {
  static const char *const by_switches[] = {"device_config", "pipeline", "zero"}, *by_name = "mesh";
  if (mesh_override_has_set(a, "mesh")) clear_sections(a, option, by_switches, 3);
  else if (sets_layout(a)) clear_sections(a, option, &by_name, 1);
}
