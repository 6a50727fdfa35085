// SPDX-License-Identifier: Apache-2.0
/* What the tests of config.json share: a text of one is read, and the sizes that it became are
 * compared. */
#ifndef TSR_TESTS_CHECKPOINT_HF_CONFIG_READING_H
#define TSR_TESTS_CHECKPOINT_HF_CONFIG_READING_H
#include "checkpoint/hf_config.h"
#include "model/build.h"
#include "tests/check.h"
#include "tests/printed.h"

static const char graphs[] = TSR_SOURCE_ROOT "/configs/graphs";
static tsr_arena *arena;
static tsr_diags *diags;
static tsr_hf_config last_read;

/* All sizes that a section of ours means, those that it leaves out too, one a line; behind what is
 * said before the section. A text without a section stays as it is. */
static const char *sizes_of(const char *text) {
  const char *section = strstr(text, "transformer_config:\n");
  if (!section) return text;
  tsr_model_options options = {.batch = 1, .sequence = 1, .units = {1, 1, 1}};
  tsr_diags *said = tsr_diags_new(arena);
  tsr_config *config;
  tsr_model_source source;
  tsr_graph_file *file;
  tsr_scope scope = {.arena = arena};
  bool ok =
      tsr_config_parse(arena, "sizes", section, strlen(section), NULL, 0, false, &config, said) &&
      tsr_model_source_read(arena, config, graphs, &source, said) &&
      tsr_graph_file_read(arena, source.root, &file, said) &&
      tsr_sizes_read(&scope, file, &source, &options, said);
  CHECK_AT(ok, "%s%s", text, printed_diags(arena, said));
  tsr_text all = {0};
  tsr_text_add_bytes(&all, text, (size_t)(section - text));
  tsr_text_add(&all, "%s\n", ok ? source.name : "?");
  for (int i = 0; ok && i < scope.count; i++)
    tsr_text_add(
        &all, "%s: %s\n", scope.names[i].name, tsr_eval_text(arena, &scope.names[i].value));
  const char *copy = tsr_arena_strdup(arena, all.data);
  tsr_text_free(&all);
  return copy;
}

/* Our YAML. */
static const char *read_text(const char *json) {
  const cJSON *root;
  tsr_text text = {0};
  if (tsr_hf_config_read(
          arena, graphs, "config.json", json, strlen(json), &last_read, &root, diags))
    tsr_hf_config_yaml(&last_read, &text);
  const char *said = printed_diags(arena, diags);
  const char *all = tsr_arena_printf(arena, "%s%s", said, text.data ? text.data : "");
  tsr_text_free(&text);
  return all;
}

/* Its sizes, or what is said. */
static const char *read(const char *json) { return sizes_of(read_text(json)); }

/* The config.json of a model of ours, or what is said; `ids_text`: generation_config.json. */
__attribute__((unused)) static const char *
json_of(const char *section, const char *dtype, const char *ids_text) {
  tsr_config *config;
  tsr_hf_export_config written;
  cJSON *ids;
  tsr_text text = {0};
  bool ok = tsr_json_parse(arena, "ids", ids_text, strlen(ids_text), &ids, diags) &&
            tsr_config_parse(
                arena, "run.yaml", section, strlen(section), NULL, 0, false, &config, diags) &&
            tsr_hf_config_of(arena, config, 0, -1, graphs, &written, diags);
  if (!ok) return printed_diags(arena, diags);
  tsr_hf_config_json(&written, dtype, ids, &text);
  const char *copy = tsr_arena_strdup(arena, text.data);
  tsr_text_free(&text);
  return copy;
}

#endif
