// SPDX-License-Identifier: Apache-2.0
/* requires: a configuration. produces: its model's graph, from the shipped folder, the user's file
 * or the training file itself. */
#include "model/model.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include "base/hash.h"
#include "base/text.h"
#include "model/build.h"
#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int tsr_graph_files(tsr_arena *arena, const char *folder, const char ***ret_names) {
  DIR *dir = tsr_disk_open_folder(folder);
  int count = 0, capacity = 0;
  *ret_names = NULL;
  for (struct dirent *e; dir && (e = readdir(dir));) {
    size_t length = strlen(e->d_name);
    if (length <= 5 || strcmp(e->d_name + length - 5, ".yaml")) continue;
    tsr_arena_grow(arena, (void **)ret_names, sizeof **ret_names, count, &capacity);
    (*ret_names)[count++] = tsr_arena_strndup(arena, e->d_name, length - 5);
  }
  if (dir) closedir(dir);
  if (count) qsort(*ret_names, (size_t)count, sizeof **ret_names, by_name);
  return count;
}

static bool find_graph(
    tsr_arena *arena, const tsr_config_model *model, const char *folder, const char **ret_path,
    tsr_location *ret_place, tsr_diags *diags) {
  *ret_path = model->graph_file;
  *ret_place = model->graph_place;
  if (model->graph_file) return true;
  *ret_place = model->location;
  const char *type = model->model_type ? model->model_type : "";
  *ret_path = tsr_path_join(arena, folder, tsr_arena_printf(arena, "%s.yaml", type));
  if (*type && !strchr(type, '/') && tsr_file_exists(*ret_path)) return true;
  const char **names;
  int count = tsr_graph_files(arena, folder, &names);
  tsr_diag_error(diags, model->location, "there is no graph for the model type '%s'", type);
  tsr_diag_nearest(diags, type, names, count);
  tsr_diag_hint(diags, "looked for '%s'; 'graph: FILE' names one of your own", *ret_path);
  return false;
}

typedef struct {
  tsr_arena *arena;
  tsr_yaml *map;
  tsr_diags *diags;
} joiner;

static bool join(const joiner *j, const char *key, const tsr_yaml *value) {
  if (!value) return true;
  if (tsr_yaml_get(j->map, key))
    return tsr_diag_error(
        j->diags, value->location, "'%s' is set here and in the graph file too", key);
  tsr_yaml *name = tsr_arena_alloc(j->arena, sizeof *name);
  *name = (tsr_yaml){.kind = TSR_YAML_SCALAR, .location = value->location, .text = key};
  name->text_length = strlen(key);
  j->map->keys[j->map->count] = name;
  j->map->items[j->map->count++] = (tsr_yaml *)value;
  return true;
}

/* The graph file's sections, then those of the training file that it does not have itself. */
static bool join_sections(
    tsr_arena *arena, const tsr_config *config, const tsr_yaml *file, tsr_yaml **ret_root,
    tsr_diags *diags) {
  enum { SECTIONS = 5 };
  const tsr_yaml *base = file;
  bool whole = !file && config->graph && config->graph->kind == TSR_YAML_MAP;
  if (whole) base = config->graph;
  int count = base ? base->count : 0;
  tsr_yaml *root = tsr_arena_alloc(arena, sizeof *root);
  *root = (tsr_yaml){.kind = TSR_YAML_MAP, .text = "", .count = count};
  root->location = base            ? base->location
                   : config->graph ? config->graph->location
                                   : config->model.location;
  root->keys = tsr_arena_array(arena, tsr_yaml *, count + SECTIONS);
  root->items = tsr_arena_array(arena, tsr_yaml *, count + SECTIONS);
  for (int i = 0; i < count; i++) root->keys[i] = base->keys[i], root->items[i] = base->items[i];
  joiner j = {arena, root, diags};
  *ret_root = root;
  bool ok = whole || join(&j, "graph", config->graph);
  ok &= join(&j, "tensors", config->tensors);
  ok &= join(&j, "inputs", config->inputs);
  ok &= join(&j, "parameters", config->parameters);
  return join(&j, "outputs", config->outputs) && ok;
}

static bool read_root(
    tsr_arena *arena, const tsr_config *config, const char *folder, tsr_yaml **ret_root,
    tsr_diags *diags) {
  const tsr_config_model *model = &config->model;
  const char *path;
  tsr_location location;
  if (!model->map && !model->graph_file && !model->model_type)
    return join_sections(arena, config, NULL, ret_root, diags);
  if (!find_graph(arena, model, folder, &path, &location, diags) ||
      !tsr_graph_file_load(arena, path, location, ret_root, diags))
    return false;
  return join_sections(arena, config, *ret_root, ret_root, diags);
}

/* Of a graph without a `name`: that of the user's own file, or the model type. */
static const char *default_name(tsr_arena *arena, const tsr_config_model *model) {
  const char *file = model->graph_file, *slash = file ? strrchr(file, '/') : NULL;
  if (!file) return model->model_type;
  if (slash) file = slash + 1;
  const char *dot = strrchr(file, '.');
  return dot > file ? tsr_arena_strndup(arena, file, (size_t)(dot - file)) : file;
}

bool tsr_model_source_read(
    tsr_arena *arena, const tsr_config *config, const char *graphs_folder,
    tsr_model_source *ret_source, tsr_diags *diags) {
  *ret_source = (tsr_model_source){
      .name = default_name(arena, &config->model),
      .map = config->model.map,
      .map_name = config->model.map_name ? config->model.map_name : "the model",
      .location = config->model.location};
  tsr_yaml *root;
  const char *folder = graphs_folder ? graphs_folder : "configs/graphs";
  if (!read_root(arena, config, folder, &root, diags)) return false;
  ret_source->root = root;
  bool own = tsr_config_has_own_graph(config) || !config->model.map;
  ret_source->uneven = own && !config->device.strict_divisible;
  return true;
}

/* Kinds and counts, too, so that no two trees are one text. */
static void add_to_hash(tsr_hasher *h, const tsr_yaml *node) {
  int32_t shape[] = {(int32_t)node->kind, (int32_t)node->count, (int32_t)node->text_length};
  tsr_hasher_add(h, shape, sizeof shape);
  tsr_hasher_add(h, node->text, node->text_length);
  for (int i = 0; i < node->count; i++) {
    if (node->kind == TSR_YAML_MAP) add_to_hash(h, node->keys[i]);
    add_to_hash(h, node->items[i]);
  }
}

/* Without what the graph does not follow from. */
static const char *hash_of(tsr_arena *arena, const tsr_yaml *root) {
  char text[TSR_HASH_TEXT];
  tsr_hasher *h = tsr_hasher_new(arena);
  tsr_yaml graph = *root;
  if (root->kind == TSR_YAML_MAP) {
    graph.keys = tsr_arena_array(arena, tsr_yaml *, root->count + 1);
    graph.items = tsr_arena_array(arena, tsr_yaml *, root->count + 1);
    graph.count = 0;
    for (int i = 0; i < root->count; i++) {
      if (!strcmp(root->keys[i]->text, "huggingface")) continue;
      graph.keys[graph.count] = root->keys[i];
      graph.items[graph.count++] = root->items[i];
    }
  }
  tsr_hasher_begin(h);
  add_to_hash(h, &graph);
  tsr_hasher_end(h, text);
  return tsr_arena_strdup(arena, text);
}

bool tsr_model_read(
    tsr_arena *arena, const tsr_config *config, const tsr_model_options *options,
    tsr_model **ret_model, tsr_diags *diags) {
  tsr_model_source source;
  if (!tsr_model_source_read(arena, config, options->graphs_folder, &source, diags) ||
      !tsr_model_build(arena, &source, options, ret_model, diags))
    return false;
  (*ret_model)->source = hash_of(arena, source.root);
  if (*config->training.module) (*ret_model)->graph->name = config->training.module;
  return true;
}
