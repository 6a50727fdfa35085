// SPDX-License-Identifier: Apache-2.0
/* Any text as config.json of a Hugging Face folder, with the classes of the shipped graph files.
 * It is refused with errors, or gives a section of ours; if its sizes are valid, they are exported,
 * and what is exported is taken. */
#include "checkpoint/hf_config.h"
#include "model/build.h"
#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
static const char graphs[] = TSR_SOURCE_ROOT "/configs/graphs";

/* Whether the section's sizes are what its graph can have. */
static bool
check_sizes(tsr_arena *arena, const tsr_text *yaml, tsr_config **ret_config, tsr_diags *diags) {
  tsr_model_options options = {.batch = 1, .sequence = 1, .units = {1, 1, 1}};
  tsr_model_source source;
  tsr_graph_file *file;
  tsr_scope scope = {.arena = arena};
  bool parsed =
      tsr_config_parse(arena, "yaml", yaml->data, yaml->length, NULL, 0, false, ret_config, diags);
  assert(parsed);
  return tsr_model_source_read(arena, *ret_config, graphs, &source, diags) &&
         tsr_graph_file_read(arena, source.root, &file, diags) &&
         tsr_sizes_read(&scope, file, &source, &options, diags) &&
         tsr_checks_run(&scope, file, diags);
}

static void export(tsr_arena *arena, const tsr_config *config) {
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_hf_export_config written;
  tsr_hf_config again;
  const cJSON *root;
  tsr_text json = {0};
  bool ok = tsr_hf_config_of(arena, config, 0, -1, graphs, &written, diags);
  assert(ok);
  tsr_hf_config_json(&written, "float32", NULL, &json);
  ok = tsr_hf_config_read(arena, graphs, "again", json.data, json.length, &again, &root, diags);
  assert(ok);
  tsr_text_free(&json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena), *quiet = tsr_diags_new(arena);
  tsr_hf_config config;
  const cJSON *root;
  tsr_config *ours;
  tsr_text yaml = {0};
  bool ok = tsr_hf_config_read(
      arena, graphs, "config.json", (const char *)data, size, &config, &root, diags);
  assert(ok == (tsr_diags_errors(diags) == 0)); /* neither refused without a word nor the reverse */
  if (ok) tsr_hf_config_yaml(&config, &yaml);
  if (ok && check_sizes(arena, &yaml, &ours, quiet)) export(arena, ours);
  tsr_text_free(&yaml);
  tsr_arena_free(arena);
  return 0;
}
