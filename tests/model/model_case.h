// SPDX-License-Identifier: Apache-2.0
/* Building models from texts and files, for the tests of src/model. */
#ifndef TSR_TESTS_MODEL_CASE_H
#define TSR_TESTS_MODEL_CASE_H
#include "base/file_read.h"
#include "model/build.h"
#include "tests/check.h"
#include <stdlib.h>

typedef struct {
  tsr_arena *arena;
  tsr_diags *diags;
  tsr_model *model; /* NULL: it failed */
  char *report;     /* what the diagnostics print; free it with case_end */
} model_case;

static inline void case_report(model_case *c) {
  size_t length;
  FILE *f = open_memstream(&c->report, &length);
  tsr_diags_print(c->diags, f);
  fclose(f);
}

static inline void case_end(model_case *c) {
  free(c->report);
  tsr_arena_free(c->arena);
}

static inline tsr_model_options case_options(void) {
  return (tsr_model_options){
      .batch = 4, .training = true, .loss = true, .units = {.batch = 1, .tp = 1}};
}

/* `model` is the text of a model map, or NULL. */
static inline model_case
case_text(const char *graph, const char *model, const tsr_model_options *options) {
  model_case c = {.arena = tsr_arena_new()};
  c.diags = tsr_diags_new(c.arena);
  tsr_yaml *root, *map = NULL;
  tsr_model_source source = {.map_name = "model_config"};
  bool ok = tsr_yaml_parse(c.arena, "g.yaml", graph, strlen(graph), &root, c.diags);
  if (model) ok &= tsr_yaml_parse(c.arena, "m.yaml", model, strlen(model), &map, c.diags);
  source.root = root;
  source.map = map;
  if (map) source.location = map->location;
  if (!ok || !tsr_model_build(c.arena, &source, options, &c.model, c.diags)) c.model = NULL;
  case_report(&c);
  return c;
}

/* Files under the source root. */
static inline model_case
case_files(const char *graph, const char *model, const tsr_model_options *options) {
  model_case c = {.arena = tsr_arena_new()};
  c.diags = tsr_diags_new(c.arena);
  tsr_yaml *root, *top;
  const char *folder = TSR_SOURCE_ROOT;
  const char *path = tsr_path_join(c.arena, folder, graph);
  bool ok = tsr_graph_file_load(c.arena, path, TSR_NOWHERE, &root, c.diags);
  ok = ok &&
       tsr_yaml_read(c.arena, tsr_path_join(c.arena, folder, model), TSR_NOWHERE, &top, c.diags);
  if (ok) {
    tsr_model_source source = {
        .map = top->items[0],
        .map_name = top->keys[0]->text,
        .location = top->keys[0]->location,
        .root = root};
    if (!tsr_model_build(c.arena, &source, options, &c.model, c.diags)) c.model = NULL;
  }
  case_report(&c);
  return c;
}

#endif
