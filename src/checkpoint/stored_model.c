// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/stored_model.h"
#include "base/file_read.h"

bool tsr_stored_model_read(
    tsr_arena *arena, const tsr_manifest *m, const char *graphs_folder, tsr_stored_model *ret,
    tsr_diags *diags) {
  *ret = (tsr_stored_model){.embedding = tsr_manifest_find(m, "wte")};
  if (ret->embedding && ret->embedding->ndim) ret->vocab_stored = ret->embedding->shape[0];
  if (!m->config) return tsr_diag_error(diags, TSR_NOWHERE, "'%s' has no configuration", m->folder);
  tsr_model_options options = {
      .batch = 1,
      .sequence = 1,
      .vocab_detected = ret->vocab_stored,
      .units = {1, 1, 1},
      .graphs_folder = graphs_folder};
  const char *path = tsr_path_join(arena, m->folder, m->config);
  return tsr_config_load(arena, path, NULL, 0, &ret->config, diags) &&
         tsr_config_require_model(ret->config, diags) &&
         tsr_model_read(arena, ret->config, &options, &ret->model, diags);
}
