// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hf_class_find.h"
#include "base/file_read.h"
#include <string.h>

enum { GRAPH_BYTES_MAX = 1 << 24 };
static const char section[] = "huggingface", type_key[] = "model_type";

typedef struct {
  tsr_arena *arena;
  const char *folder, *path;
  const cJSON *root;
  const char *type, *graph; /* graph: the file with classes of that type; NULL: none yet */
  const tsr_yaml *list;     /* the classes of that file */
  tsr_diags *diags;
} search;

const char *tsr_hf_describe(tsr_arena *arena, const cJSON *item) {
  if (cJSON_IsString(item)) return tsr_arena_printf(arena, "'%s'", item->valuestring);
  if (cJSON_IsNumber(item)) return tsr_arena_printf(arena, "%.15g", item->valuedouble);
  if (cJSON_IsBool(item)) return cJSON_IsTrue(item) ? "true" : "false";
  if (cJSON_IsArray(item)) return "a list";
  return cJSON_IsObject(item) ? "an object" : "null";
}

bool tsr_hf_unsupported(
    const char *path, const char *key, const char *value, const char *supported, tsr_diags *diags) {
  tsr_diag_error(diags, TSR_NOWHERE, "'%s': %s %s is not supported", path, key, value);
  if (supported) tsr_diag_hint(diags, "supported: %s", supported);
  return false;
}

/* The list of classes that a file has itself; NULL: none. */
static bool read_section(search *s, const char *name, const char *word, const tsr_yaml **ret) {
  const char *file = tsr_arena_printf(s->arena, "%s.yaml", name);
  const char *path = tsr_path_join(s->arena, s->folder, file);
  char *text;
  size_t length;
  tsr_yaml *root;
  *ret = NULL;
  if (!tsr_file_read(s->arena, path, GRAPH_BYTES_MAX, TSR_NOWHERE, &text, &length, s->diags))
    return false;
  if (!strstr(text, section) || !strstr(text, word)) return true;
  if (!tsr_yaml_parse(s->arena, path, text, length, &root, s->diags)) return false;
  const tsr_yaml *list = tsr_yaml_get(root, section);
  if (!list || list->kind == TSR_YAML_LIST) return *ret = list, true;
  return tsr_diag_error(
      s->diags, list->location, "'%s' must be a list of classes, not %s", section,
      tsr_yaml_describe(s->arena, list));
}

static bool is_type(const search *s, const tsr_yaml *class) {
  const tsr_yaml *type = tsr_yaml_get(class, type_key);
  return type && !strcmp(type->text, s->type);
}

static bool search_file(search *s, const char *name) {
  const tsr_yaml *list;
  if (!read_section(s, name, s->type, &list)) return false;
  for (int i = 0; list && i < list->count; i++)
    if (is_type(s, list->items[i])) s->graph = name, s->list = list;
  return true;
}

/* What models have that no op computes; NULL: nothing that is known here. */
static const char *lacking(const char *type) {
  static const char *const types[][2] = {
      {"qwen3_next", "gated delta nets"},
      {"qwen3_5", "gated delta nets"},
      {"qwen3_5_text", "gated delta nets"},
      {"qwen3_5_moe", "gated delta nets"},
      {"kimi_linear", "gated delta nets"},
      {"mamba", "state space layers"},
      {"mamba2", "state space layers"},
      {"falcon_mamba", "state space layers"},
      {"falcon_h1", "state space layers"},
      {"jamba", "state space layers"},
      {"bamba", "state space layers"},
      {"granitemoehybrid", "state space layers"},
      {"nemotron_h", "state space layers"},
      {"rwkv", "recurrent layers"},
      {"recurrent_gemma", "recurrent layers"},
      {"falcon", "ALiBi or shared layer norms"},
      {"bloom", "ALiBi"},
      {"mpt", "ALiBi"},
      {"gemma3", "a vision tower (its text model is of the model_type gemma3_text)"}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (!strcmp(types[i][0], type)) return types[i][1];
  return NULL;
}

static bool refuse_type(search *s, const char **names, int count) {
  tsr_text types = {0};
  for (int f = 0; f < count; f++) {
    const tsr_yaml *list;
    if (!read_section(s, names[f], type_key, &list)) list = NULL;
    for (int i = 0; list && i < list->count; i++) {
      const tsr_yaml *type = tsr_yaml_get(list->items[i], type_key);
      if (!type ||
          (types.data && strstr(types.data, tsr_arena_printf(s->arena, "'%s'", type->text))))
        continue;
      tsr_text_add(&types, "%s'%s'", types.length ? ", " : "", type->text);
    }
  }
  const char *value = tsr_arena_printf(s->arena, "'%s'", s->type);
  tsr_hf_unsupported(s->path, type_key, value, types.data, s->diags);
  const char *what = lacking(s->type);
  if (what) tsr_diag_hint(s->diags, "%s has %s, which no graph file can describe", s->type, what);
  tsr_text_free(&types);
  return false;
}

/* The file that is called as the type comes first, because most are. */
static bool find_type(search *s) {
  const char **names;
  int count = tsr_graph_files(s->arena, s->folder, &names);
  for (int i = 0; i < count; i++)
    if (!strcmp(names[i], s->type) && !search_file(s, names[i])) return false;
  for (int i = 0; i < count && !s->graph; i++)
    if (strcmp(names[i], s->type) && !search_file(s, names[i])) return false;
  return s->graph || refuse_type(s, names, count);
}

/* ---- architectures ---- */

static bool has_text(const tsr_yaml *list, const char *text) {
  if (!list || list->kind == TSR_YAML_SCALAR) return list && !strcmp(list->text, text);
  for (int i = 0; i < list->count; i++)
    if (!strcmp(list->items[i]->text, text)) return true;
  return false;
}

static bool refuse_architecture(const search *s, const cJSON *item) {
  tsr_text all = {0};
  for (int c = 0; c < s->list->count; c++) {
    const tsr_yaml *list = tsr_yaml_get(s->list->items[c], "architectures");
    bool one = list && list->kind == TSR_YAML_SCALAR;
    for (int i = 0; is_type(s, s->list->items[c]) && list && i < (one ? 1 : list->count); i++)
      tsr_text_add(&all, "%s%s", all.length ? ", " : "", one ? list->text : list->items[i]->text);
  }
  tsr_hf_unsupported(s->path, "architectures", tsr_hf_describe(s->arena, item), all.data, s->diags);
  tsr_text_free(&all);
  return false;
}

/* The class that all architectures of the file are of; without any the first of the type. */
static bool choose(const search *s, int *ret_class) {
  const cJSON *list = tsr_json_get(s->root, "architectures"), *item;
  bool ok = true;
  int first = 0, chosen = -1;
  while (!is_type(s, s->list->items[first])) first++;
  *ret_class = first;
  if (!list || cJSON_IsNull(list)) return true;
  if (!cJSON_IsArray(list))
    return tsr_hf_unsupported(
        s->path, "architectures", tsr_hf_describe(s->arena, list), "a list", s->diags);
  cJSON_ArrayForEach(item, list) {
    int of = s->list->count;
    for (int c = first; c < s->list->count && of > c && cJSON_IsString(item); c++)
      if (is_type(s, s->list->items[c]) &&
          has_text(tsr_yaml_get(s->list->items[c], "architectures"), item->valuestring))
        of = c;
    if (of == s->list->count || (chosen >= 0 && of != chosen)) ok = refuse_architecture(s, item);
    else *ret_class = chosen = of;
  }
  return ok;
}

bool tsr_hf_class_find(
    tsr_arena *arena, const char *graphs_folder, const char *path, const cJSON *root,
    tsr_hf_found *ret, tsr_diags *diags) {
  search s = {.arena = arena, .folder = graphs_folder, .path = path, .root = root, .diags = diags};
  int index;
  tsr_yaml *file;
  *ret = (tsr_hf_found){0};
  if (!tsr_json_text(root, type_key, path, &s.type, diags) || !find_type(&s)) return false;
  bool ok = choose(&s, &index);
  const tsr_yaml *other = tsr_yaml_get(s.list->items[index], "graph");
  ret->graph = other && other->kind == TSR_YAML_SCALAR ? other->text : s.graph;
  const char *name = tsr_arena_printf(arena, "%s.yaml", ret->graph);
  tsr_location location = other ? other->location : TSR_NOWHERE;
  tsr_graph_file *read;
  if (!tsr_graph_file_load(
          arena, tsr_path_join(arena, graphs_folder, name), location, &file, diags) ||
      !tsr_graph_file_read(arena, file, &read, diags) ||
      !tsr_hf_class_read(arena, s.list, index, read, &ret->class, diags))
    return false;
  ret->file = read;
  return ok;
}
