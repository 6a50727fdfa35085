// SPDX-License-Identifier: Apache-2.0
/* Any text as a graph file: it is refused with places, or it gives a graph. After a line "%%%" may
 * stand the model map that sets its sizes; the first byte's lowest bits choose the options. */
#include "model/build.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void build(const char *graph, size_t graph_length, const char *model, size_t model_length) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_yaml *root, *map = NULL;
  tsr_model *built;
  int bits = graph_length ? graph[0] : 0;
  bool uneven = bits & 64;
  tsr_model_options options = {
      .batch = 4,
      .sequence = bits & 1 ? 8 : 0,
      .vocab_detected = bits & 2 ? 65 : 0,
      .training = !(bits & 4),
      .loss = !(bits & 8),
      .units = {.batch = 1, .tp = bits & 16 ? 2 : 1}};
  bool ok = tsr_yaml_parse(arena, "g.yaml", graph, graph_length, &root, diags) &&
            (!model || tsr_yaml_parse(arena, "m.yaml", model, model_length, &map, diags));
  if (ok && (!map || map->kind == TSR_YAML_MAP)) {
    tsr_model_source source = {
        .map = map, .map_name = "model_config", .root = root, .uneven = uneven};
    if (map) source.location = map->location;
    ok = tsr_model_build(arena, &source, &options, &built, diags);
    if (ok == (tsr_diags_errors(diags) != 0)) abort(); /* refused without a word, or the reverse */
  }
  tsr_arena_free(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char mark[] = "\n%%%\n";
  const char *text = (const char *)data;
  const char *cut = size ? memmem(text, size, mark, strlen(mark)) : NULL;
  size_t length = cut ? (size_t)(cut - text) + 1 : size;
  const char *model = cut ? cut + strlen(mark) : NULL;
  build(text, length, model, model ? (size_t)(text + size - model) : 0);
  return 0;
}
