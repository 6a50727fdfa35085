// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/stored_model.h"
#include "base/file_read.h"

bool tsr_stored_model_read(
    tsr_arena *arena, const tsr_manifest *m, const tsr_config *config, const char *graphs_folder,
    tsr_stored_model *ret, tsr_diags *diags) {
  *ret = (tsr_stored_model){.embedding = tsr_manifest_find(m, "wte")};
  if (ret->embedding && ret->embedding->ndim) ret->vocab_stored = ret->embedding->shape[0];
  tsr_model_options options = {
      .batch = 1,
      .sequence = 1,
      .vocab_detected = ret->vocab_stored,
      .units = {1, 1, 1},
      .graphs_folder = graphs_folder};
  tsr_config *own;
  if (!config) {
    if (!m->config)
      return tsr_diag_error(diags, TSR_NOWHERE, "'%s' has no configuration", m->folder);
    const char *path = tsr_path_join(arena, m->folder, m->config);
    if (!tsr_config_load(arena, path, NULL, 0, &own, diags)) return false;
    config = own;
  }
  ret->config = config;
  return tsr_config_require_model(config, diags) &&
         tsr_model_read(arena, config, &options, &ret->model, diags);
}
