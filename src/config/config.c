// SPDX-License-Identifier: Apache-2.0
#include "config/config.h"
#include "base/file_read.h"
#include "config/config_internal.h"
#include "config/override.h"
#include <string.h>

enum { FILE_BYTES_MAX = 16 << 20 };

static tsr_config *new_config(tsr_arena *arena, tsr_diags *diags, tsr_loader *ret_loader) {
  tsr_config *config = tsr_arena_alloc(arena, sizeof *config);
  tsr_config_origins *origins = tsr_arena_alloc(arena, sizeof *origins);
  config->origins = origins;
  *ret_loader = (tsr_loader){arena, diags, config, origins, true};
  tsr_value_defaults(ret_loader);
  return config;
}

static bool starts_with(const char *text, const char *prefix) {
  return !strncmp(text, prefix, strlen(prefix));
}

/* Whether the override names a file for a section that may stand in one. */
static bool names_a_file(const tsr_override *o) {
  int row = tsr_field_find_dotted(o->path);
  return row >= 0 && o->value && o->value->kind == TSR_YAML_SCALAR &&
         tsr_section_has_file(&tsr_fields[row]);
}

/* Whether all around the path's last key are maps, or not there yet. */
static bool is_within_maps(tsr_arena *arena, const char *path, const tsr_yaml *root) {
  for (const char *dot; root && root->kind == TSR_YAML_MAP && (dot = strchr(path, '.'));) {
    root = tsr_yaml_get(root, tsr_arena_strndup(arena, path, (size_t)(dot - path)));
    path = dot + 1;
  }
  return !root || root->kind == TSR_YAML_MAP || root->kind == TSR_YAML_NULL;
}

/* The whole way to a key whose section came from a file: `transformer_config.num_heads` is found in
 * `training_config.model_config`, where the model's file was put. */
static const char *find_way(tsr_arena *arena, const char *path, const tsr_yaml *root) {
  static const char optimizer[] = "training_config.optimizer.";
  const tsr_yaml *training = tsr_yaml_get(root, "training_config");
  bool model = starts_with(path, "transformer_config.") || starts_with(path, "mlp_config.");
  if (model && !tsr_yaml_get(root, "transformer_config") && !tsr_yaml_get(root, "mlp_config")) {
    bool inner = tsr_yaml_get(training, "model_config") != NULL;
    if (!inner && !tsr_yaml_get(root, "model_config")) return path;
    const tsr_yaml *doc =
        inner ? tsr_yaml_get(training, "model_config") : tsr_yaml_get(root, "model_config");
    if (doc->kind != TSR_YAML_MAP) return path;
    const char *prefix = inner ? "training_config.model_config" : "model_config";
    bool bare = !tsr_yaml_get(doc, "transformer_config") && !tsr_yaml_get(doc, "mlp_config");
    return tsr_arena_printf(arena, "%s.%s", prefix, bare ? strchr(path, '.') + 1 : path);
  }
  if (starts_with(path, optimizer) && !tsr_yaml_get(training, "optimizer")) {
    const char *key = path + strlen(optimizer);
    if (tsr_yaml_get(training, "optimizer_config"))
      return tsr_arena_printf(arena, "training_config.optimizer_config.%s", key);
    if (tsr_yaml_get(root, "optimizer_config"))
      return tsr_arena_printf(arena, "optimizer_config.%s", key);
  }
  bool multihost =
      starts_with(path, "multihost_config.") && !tsr_yaml_get(root, "multihost_config");
  if (multihost && tsr_yaml_get(training, "multihost_config"))
    return tsr_arena_printf(arena, "training_config.%s", path);
  return path;
}

/* Names of files come first, so that the files are not read that they stand for; then the others,
 * each into what the files hold. Such a value may name files again: `training_config={optimizer:
 * sgd.yaml}`. */
static void apply_overrides(tsr_loader *l, tsr_override *overrides, int count, tsr_yaml **root) {
  for (int i = 0; i < count; i++) {
    tsr_override *o = &overrides[i];
    if (o->done || !names_a_file(o) || !is_within_maps(l->arena, o->path, *root)) continue;
    tsr_override_apply(l->arena, o, o->path, root, l->diags);
  }
  tsr_include_files(l, root);
  for (int i = 0; i < count; i++) {
    tsr_override *o = &overrides[i];
    if (o->done) continue;
    tsr_override_apply(l->arena, o, find_way(l->arena, o->path, *root), root, l->diags);
    tsr_include_files(l, root);
  }
  if (count) tsr_synonyms_replace(*root);
}

static bool has_section(const tsr_yaml *root) {
  for (int i = 0; i < root->count; i++)
    if (tsr_field_find("", 0, root->keys[i]->text) >= 0) return true;
  return false;
}

/* tt-train's optimizer files and BERT's have their keys at the top. */
static bool read_rootless(tsr_loader *l, const tsr_yaml *root) {
  if (!root->count || has_section(root)) return false;
  if (tsr_yaml_get(root, "use_pooler") || tsr_yaml_get(root, "type_vocab_size")) {
    tsr_value_unsupported(l, root->location, "BERT models");
    return true;
  }
  const tsr_yaml *type = tsr_yaml_get(root, "type");
  if (!type || !tsr_yaml_get(root, "lr")) return false;
  tsr_section_read(l, "training_config.optimizer", root);
  return true;
}

static void read_optimizer_files(tsr_loader *l) {
  static const char *const keys[] = {"training_config.optimizer_config", "optimizer_config"};
  const tsr_yaml *first = tsr_loader_key(l, "training_config.optimizer");
  for (int i = 0; i < 2; i++) {
    const tsr_yaml *node = tsr_loader_value(l, keys[i]), *key = tsr_loader_key(l, keys[i]);
    if (!node) continue;
    if (first) {
      tsr_diag_error(l->diags, key->location, "a second optimizer: '%s'", key->text);
      tsr_diag_hint(
          l->diags, "the first stands in %s:%d", first->location.file, first->location.line);
    } else if (node->kind == TSR_YAML_MAP) tsr_section_read(l, "training_config.optimizer", node);
    else if (node->kind != TSR_YAML_NULL)
      tsr_diag_error(
          l->diags, node->location, "'%s' must be a path or a map, found %s", key->text,
          tsr_yaml_describe(l->arena, node));
    first = key;
  }
}

/* tt-train names it in training_config, or writes it there. */
static void read_multihost_file(tsr_loader *l) {
  static const char name[] = "training_config.multihost_config";
  const tsr_yaml *node = tsr_loader_value(l, name);
  if (node) tsr_multihost_read(l, tsr_loader_key(l, name), node);
}

static void keep_graph_sections(tsr_loader *l) {
  tsr_config *c = l->config;
  c->graph = tsr_loader_value(l, "graph");
  c->tensors = tsr_loader_value(l, "tensors");
  c->inputs = tsr_loader_value(l, "inputs");
  c->parameters = tsr_loader_value(l, "parameters");
  c->outputs = tsr_loader_value(l, "outputs");
}

static void interpret(tsr_loader *l, const tsr_yaml *root) {
  if (root->kind != TSR_YAML_MAP && root->kind != TSR_YAML_NULL) {
    tsr_diag_error(
        l->diags, root->location, "a configuration is a map of sections, found %s",
        tsr_yaml_describe(l->arena, root));
    return;
  }
  if (!read_rootless(l, root)) tsr_section_read(l, "", root);
  read_optimizer_files(l);
  read_multihost_file(l);
  keep_graph_sections(l);
  tsr_model_section_read(l);
  tsr_config_resolve(l);
}

bool tsr_config_parse(
    tsr_arena *arena, const char *file, const char *text, size_t length, const tsr_set *sets,
    int sets_count, bool read_files, tsr_config **ret_config, tsr_diags *diags) {
  int errors_before = tsr_diags_errors(diags);
  tsr_loader l;
  tsr_config *config = new_config(arena, diags, &l);
  tsr_override *overrides;
  tsr_yaml *root;
  l.read_files = read_files;
  *ret_config = config;
  config->file = tsr_arena_strdup(arena, file);
  bool parsed = tsr_yaml_parse(arena, file, text, length, &root, diags);
  tsr_overrides_parse(arena, sets, sets_count, &overrides, diags);
  if (!parsed && !root) return false;
  /* After a mistake such as a key given twice the rest can still be checked; after one of syntax
   * the tree is empty. */
  if (!parsed && root->kind != TSR_YAML_MAP) return false;
  if (root->kind == TSR_YAML_MAP || root->kind == TSR_YAML_NULL)
    apply_overrides(&l, overrides, sets_count, &root);
  config->root = root;
  interpret(&l, root);
  return tsr_diags_errors(diags) == errors_before;
}

bool tsr_config_load(
    tsr_arena *arena, const char *path, const tsr_set *sets, int sets_count,
    tsr_config **ret_config, tsr_diags *diags) {
  char *text;
  size_t length;
  *ret_config = NULL;
  return tsr_file_read(arena, path, FILE_BYTES_MAX, TSR_NOWHERE, &text, &length, diags) &&
         tsr_config_parse(arena, path, text, length, sets, sets_count, true, ret_config, diags);
}

tsr_location tsr_config_location(const tsr_config *config, const char *dotted_key) {
  const tsr_yaml *node = NULL;
  int row = -1;
  const char *dot = strchr(dotted_key, '.');
  const tsr_yaml *map = config->model.map;
  const char *name = config->model.map_name;
  if (map && dot && strlen(name) == (size_t)(dot - dotted_key) && starts_with(dotted_key, name))
    node = tsr_yaml_get(map, dot + 1);
  if (starts_with(dotted_key, "optimizer."))
    row = tsr_field_find("training_config.optimizer", strlen("training_config.optimizer"), dot + 1);
  else row = tsr_field_find_dotted(dotted_key);
  if (!node && row >= 0) node = config->origins->values[row];
  return node ? node->location : TSR_NOWHERE;
}

bool tsr_config_require_model(const tsr_config *config, tsr_diags *diags) {
  if (config->model.kind) return true;
  tsr_diag_error(
      diags, (tsr_location){.file = config->file},
      "no model: the configuration has neither model_config nor transformer_config");
  tsr_diag_hint(diags, "such as training_config: {model_config: configs/models/nanogpt.yaml}");
  return false;
}
