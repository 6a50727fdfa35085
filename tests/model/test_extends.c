// SPDX-License-Identifier: Apache-2.0
/* Graph files that extend others: what they take, add and change, and what is refused. */
#include "tests/data/scratch.h"
#include "tests/model/model_case.h"

static tsr_arena *arena;
static tsr_diags *diags;

/* The model of a graph file; NULL: what is printed has the reason. */
static tsr_model *build(const char *file, const char *sizes) {
  tsr_yaml *root, *map;
  tsr_model *model;
  tsr_model_options options = case_options();
  if (!tsr_yaml_parse(arena, "m.yaml", sizes, strlen(sizes), &map, diags)) return NULL;
  if (!tsr_graph_file_load(arena, file, TSR_NOWHERE, &root, diags)) return NULL;
  tsr_model_source source = {
      .map = map, .map_name = "model_config", .location = map->location, .root = root};
  return tsr_model_build(arena, &source, &options, &model, diags) ? model : NULL;
}

static void check_shape(const char *file, const char *sizes, int64_t rows, int64_t columns) {
  const tsr_model *model = build(file, sizes);
  CHECK_AT(model && model->graph->params_count == 1, "%s: %s", file, scratch_diags(diags));
  if (!model) return;
  CHECK_INT(model->graph->params[0].shape[0], rows);
  CHECK_INT(model->graph->params[0].shape[1], columns);
}

static void check_sizes(void) {
  check_shape("base.yaml", "{}", 6, 4);
  check_shape("base.yaml", "{out: 5, width: 3}", 5, 3);
  /* a default of its own, whose choices and aliases stay; a new size; an alias of its own */
  check_shape("wide.yaml", "{}", 32, 8);
  check_shape("wide.yaml", "{kind: narrow}", 16, 8);
  check_shape("wide.yaml", "{out: 5, many: {factor: 3}}", 15, 8);
  check_shape("other.yaml", "{}", 8, 8);
  check_shape("earlier.yaml", "{}", 3, 4);
  CHECK(!build("wide.yaml", "{kind: x}"));
  CHECK_STR(
      scratch_diags(diags), "m.yaml:1:8: error: 'kind' cannot be 'x'\n"
                            "    1 | {kind: x}\n      |        ^\n"
                            "      = valid: narrow, broad\n");
  CHECK(!build("wide.yaml", "{factor: 3, many: {factor: 3}}"));
  CHECK_STR(
      scratch_diags(diags),
      "m.yaml:1:20: error: 'many.factor' and 'factor' are the same size; give one\n"
      "    1 | {factor: 3, many: {factor: 3}}\n      |                    ^~~~~~\n");
  CHECK(!build("wide.yaml", "{many: 3}"));
  CHECK_STR(
      scratch_diags(diags), "m.yaml:1:8: error: 'many' must be a map of sizes, not the integer 3\n"
                            "    1 | {many: 3}\n      |        ^\n"
                            "      = its sizes: factor\n");
}

static void check_refused(const char *file, const char *want) {
  CHECK(!build(file, "{}"));
  CHECK_STR(scratch_diags(diags), want);
}

int main(void) {
  char folder[64];
  arena = tsr_arena_new();
  diags = tsr_diags_new(arena);
  scratch_enter(folder);
  scratch_text(
      "base.yaml",
      "name: base\nsizes:\n  width: 4\n  kind: {default: narrow, choices: [narrow, broad]}\n"
      "  rows: {default: 6, alias: [out, outputs]}\n"
      "inputs: {features: [batch, width]}\n"
      "parameters: {w: {shape: [rows, width], init: zeros}}\n"
      "graph: [y: \"linear(features, w)\"]\n");
  scratch_text(
      "wide.yaml", "extends: base.yaml\nsizes:\n  kind: broad\n  width: {default: 8, doc: wider}\n"
                   "  rows: 8\n"
                   "  factor: {default: 4 if kind == broad else 2, alias: many.factor}\n"
                   "parameters: {w: {shape: [rows * factor, width], init: zeros}}\n");
  scratch_text("other.yaml", "extends: wide.yaml\nsizes: {factor: 1}\n");
  /* a new size stands before those that follow it here */
  scratch_text("earlier.yaml", "extends: base.yaml\nsizes:\n  first: 3\n  rows: first\n");
  scratch_text("cycle.yaml", "extends: cycle.yaml\n");
  scratch_text("list.yaml", "extends: [base.yaml]\n");
  scratch_text("lost.yaml", "name: x\nextends: nothing.yaml\n");
  scratch_text("number.yaml", "5\n");
  check_sizes();
  check_refused(
      "cycle.yaml", "cycle.yaml:1:10: error: graph files extend each other more than 8 deep\n"
                    "    1 | extends: cycle.yaml\n      |          ^~~~~~~~~~\n");
  check_refused(
      "list.yaml",
      "list.yaml:1:10: error: 'extends' must be a graph file beside this one, not a list\n"
      "    1 | extends: [base.yaml]\n      |          ^\n");
  check_refused(
      "lost.yaml", "lost.yaml:2:10: error: cannot read 'nothing.yaml': No such file or directory\n"
                   "    2 | extends: nothing.yaml\n      |          ^~~~~~~~~~~~\n");
  check_refused(
      "number.yaml", "number.yaml:1:1: error: a graph file must be a map, not the integer 5\n"
                     "    1 | 5\n      | ^\n");
  scratch_leave(folder);
  tsr_arena_free(arena);
  return check_done("model.extends");
}
