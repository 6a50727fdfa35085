// SPDX-License-Identifier: Apache-2.0
/* Finds the model: the sizes' map, its type and its graph file. The sizes themselves are read with
 * the graph file that gives them their meaning. */
#include "base/file_read.h"
#include "base/text.h"
#include "config/config_internal.h"
#include <string.h>

static const char *const shipped_types[] = {
    "gpt2",      "llama",   "qwen2",    "qwen3",       "gemma2",      "gemma3",   "phi3",
    "olmo2",     "smollm3", "granite",  "starcoder2",  "gpt_neox",    "mixtral",  "qwen2_moe",
    "qwen3_moe", "olmoe",   "deepseek", "deepseek_v2", "deepseek_v3", "glm4_moe", "gpt_oss"};

static const struct {
  const char *name, *feature;
} missing_types[] = {
    {"dit", "diffusion transformers (model_type: dit)"},
    {"bert", "BERT models (model_type: bert)"},
    {"qwen38", "gated delta nets (model_type: qwen38)"},
    {"qwen3_next", "gated delta nets (model_type: qwen3_next)"},
    {"qwen3_5", "gated delta nets (model_type: qwen3_5)"},
};

static bool use_map(
    tsr_loader *l, const tsr_yaml *map, const char *name, const char *kind, tsr_location location) {
  tsr_config_model *m = &l->config->model;
  if (m->map) {
    tsr_diag_error(l->diags, location, "a second model: '%s'", name);
    tsr_diag_hint(l->diags, "the first stands in %s:%d", m->location.file, m->location.line);
    return false;
  }
  if (map->kind != TSR_YAML_MAP)
    return tsr_diag_error(
        l->diags, map->location, "'%s' must be a map, found %s", name,
        tsr_yaml_describe(l->arena, map));
  m->map = map;
  m->map_name = name;
  m->kind = kind;
  m->location = location;
  m->file = map->location.file;
  return true;
}

static void use_graph_file(tsr_loader *l, const tsr_yaml *node) {
  tsr_config_model *m = &l->config->model;
  if (!node) return;
  if (node->kind != TSR_YAML_SCALAR) {
    tsr_diag_error(
        l->diags, node->location, "'graph' must be the path of a graph file, found %s",
        tsr_yaml_describe(l->arena, node));
    return;
  }
  m->graph_place = node->location;
  m->graph_file = node->text;
  if (l->read_files)
    tsr_config_find_file(
        l->arena, node->text, tsr_loader_file_of(l, node), node->location, &m->graph_file,
        l->diags);
}

/* A file of tt-train's BERT has the sizes at its top, and some that only BERT has. */
static bool is_bert(const tsr_yaml *map) {
  return tsr_yaml_get(map, "use_pooler") || tsr_yaml_get(map, "type_vocab_size") ||
         tsr_yaml_get(map, "use_token_type_embeddings");
}

static bool is_bare(const tsr_yaml *map) {
  return tsr_yaml_get(map, "model_type") || tsr_yaml_get(map, "num_blocks") ||
         tsr_yaml_get(map, "graph");
}

static void read_document_key(tsr_loader *l, const tsr_yaml *key, const tsr_yaml *value) {
  static const char *const keys[] = {"transformer_config", "mlp_config", "graph"};
  if (!strcmp(key->text, "transformer_config"))
    use_map(l, value, "transformer_config", "transformer", key->location);
  else if (!strcmp(key->text, "mlp_config")) use_map(l, value, "mlp_config", "mlp", key->location);
  else if (!strcmp(key->text, "graph")) use_graph_file(l, value);
  else if (!strcmp(key->text, "dit_config"))
    tsr_value_unsupported(l, key->location, "diffusion transformers (dit_config)");
  else if (!strcmp(key->text, "multihost_config")) tsr_multihost_read(l, key, value);
  else {
    tsr_diag_error(l->diags, key->location, "unknown key '%s' in a model", key->text);
    tsr_diag_nearest(l->diags, key->text, keys, 3);
  }
}

/* The contents of `model_config`: sections, or the sizes of a transformer themselves. */
static void read_document(tsr_loader *l, const tsr_yaml *key, const tsr_yaml *doc) {
  if (doc->kind == TSR_YAML_NULL) return; /* a file that could not be read, or nothing */
  if (doc->kind != TSR_YAML_MAP) {
    tsr_diag_error(
        l->diags, doc->location, "'%s' must be a path or a map, found %s", key->text,
        tsr_yaml_describe(l->arena, doc));
    return;
  }
  bool sections = tsr_yaml_get(doc, "transformer_config") || tsr_yaml_get(doc, "mlp_config") ||
                  tsr_yaml_get(doc, "dit_config");
  if (is_bert(doc)) tsr_value_unsupported(l, doc->location, "BERT models");
  else if (!sections && is_bare(doc))
    use_map(l, doc, "transformer_config", "transformer", doc->location);
  else if (!sections && doc->count == 0)
    tsr_diag_error(l->diags, doc->location, "the model is empty");
  else
    for (int i = 0; i < doc->count; i++) read_document_key(l, doc->keys[i], doc->items[i]);
}

static void check_choice(tsr_loader *l, const tsr_yaml *map, const char *key, int *ret_value) {
  const tsr_yaml *node = tsr_yaml_get(map, key);
  int row = tsr_field_find("transformer_config", strlen("transformer_config"), key);
  *ret_value = 0;
  if (!node || !tsr_value_read(l, &tsr_fields[row], key, node)) return;
  for (const tsr_field_choice *c = tsr_fields[row].choices; c->name; c++)
    if (!strcmp(c->name, node->text)) *ret_value = c->value;
}

static void read_runner(tsr_loader *l, const tsr_yaml *map) {
  int runner;
  const tsr_yaml *key = tsr_yaml_key(map, "runner_type");
  check_choice(l, map, "runner_type", &runner);
  if (!key || tsr_loader_value(l, "training_config.runner") ||
      tsr_loader_value(l, "training_config.gradient_checkpointing"))
    return;
  int row = tsr_field_find_dotted("training_config.runner");
  l->origins->keys[row] = key;
  l->origins->values[row] = tsr_yaml_get(map, "runner_type");
  l->config->training.runner = (tsr_runner)runner;
}

static void check_experimental(tsr_loader *l, const tsr_yaml *map) {
  const tsr_yaml *node = tsr_yaml_get(map, "experimental");
  if (!node || node->kind == TSR_YAML_NULL) return;
  if (node->kind != TSR_YAML_MAP) {
    tsr_diag_error(
        l->diags, node->location, "'experimental' must be a map, found %s",
        tsr_yaml_describe(l->arena, node));
    return;
  }
  for (int i = 0; i < node->count; i++) {
    static const char *const known[] = {"use_composite_layernorm"};
    const tsr_yaml *key = node->keys[i];
    bool on;
    if (strcmp(key->text, known[0])) {
      tsr_diag_error(l->diags, key->location, "unknown key '%s' in experimental", key->text);
      tsr_diag_nearest(l->diags, key->text, known, 1);
    } else if (!tsr_yaml_bool(node->items[i], &on))
      tsr_diag_error(
          l->diags, node->items[i]->location, "'%s' must be true or false, found %s", key->text,
          tsr_yaml_describe(l->arena, node->items[i]));
    else if (on)
      tsr_diag(
          l->diags, tsr_diag_normative(l->diags, TSR_WARNING), key->location,
          "'%s' has no effect: there is one layer norm", key->text);
  }
}

/* The same as training_config.model_path. */
static void take_model_path(tsr_loader *l, const tsr_yaml *map) {
  static const char dotted[] = "training_config.model_path";
  const tsr_yaml *path = tsr_yaml_get(map, "model_path"), *given = tsr_loader_value(l, dotted);
  int row = tsr_field_find_dotted(dotted);
  if (!path || !path->text_length) return;
  if (given && strcmp(given->text, path->text)) {
    tsr_diag_error(
        l->diags, path->location, "'model_path' is '%s' here and '%s' in training_config",
        path->text, given->text);
  } else if (tsr_value_read(l, &tsr_fields[row], "model_path", path)) {
    l->origins->values[row] = path;
    l->origins->keys[row] = tsr_yaml_key(map, "model_path");
  }
}

static bool check_type(tsr_loader *l, const tsr_yaml *node, bool own_graph) {
  for (size_t i = 0; i < sizeof missing_types / sizeof *missing_types; i++)
    if (!own_graph && !strcmp(node->text, missing_types[i].name))
      return tsr_value_unsupported(l, node->location, missing_types[i].feature);
  const int count = sizeof shipped_types / sizeof *shipped_types;
  for (int i = 0; i < count; i++)
    if (!strcmp(node->text, shipped_types[i])) return true;
  if (own_graph && node->kind == TSR_YAML_SCALAR) return true;
  tsr_diag_error(
      l->diags, node->location, "unknown model_type: %s", tsr_yaml_describe(l->arena, node));
  tsr_diag_nearest(l->diags, node->text, shipped_types, count);
  if (tsr_nearest(node->text, shipped_types, count)) return false;
  tsr_text all = {0}; /* more than a list of words has room for elsewhere */
  for (int i = 0; i < count; i++) tsr_text_add(&all, "%s%s", i ? ", " : "", shipped_types[i]);
  tsr_diag_hint(l->diags, "valid: %s", all.data);
  tsr_text_free(&all);
  return false;
}

static void read_type(tsr_loader *l) {
  tsr_config_model *m = &l->config->model;
  const tsr_yaml *own = tsr_yaml_get(m->map, "model_type");
  const tsr_yaml *outer = tsr_loader_value(l, "training_config.model_type");
  bool mlp = m->kind && !strcmp(m->kind, "mlp");
  if (own && outer && strcmp(own->text, outer->text)) {
    tsr_diag_error(
        l->diags, outer->location, "'model_type' is '%s', but the model's own is '%s'", outer->text,
        own->text);
    tsr_diag_hint(l->diags, "the model's stands in %s:%d", own->location.file, own->location.line);
    return;
  }
  m->model_type = mlp ? "mlp" : "gpt2";
  const tsr_yaml *type = own ? own : outer;
  /* tt-train's older files name no type; grouped heads are Llama's */
  if (!type && !mlp && !m->graph_file && tsr_yaml_get(m->map, "num_groups"))
    m->model_type = "llama";
  if (!type) return;
  if (m->map || own) m->location = type->location;
  if (mlp && !strcmp(type->text, "mlp")) return;
  if (check_type(l, type, m->graph_file != NULL)) m->model_type = type->text;
}

void tsr_model_section_read(tsr_loader *l) {
  static const char *const documents[] = {"training_config.model_config", "model_config"};
  static const char *const maps[] = {
      "transformer_config", "mlp_config", "training_config.transformer_config"};
  tsr_config_model *m = &l->config->model;
  for (int i = 0; i < 2; i++) {
    const tsr_yaml *node = tsr_loader_value(l, documents[i]);
    if (node) read_document(l, tsr_loader_key(l, documents[i]), node);
  }
  for (int i = 0; i < 3; i++) {
    const tsr_yaml *node = tsr_loader_value(l, maps[i]), *key = tsr_loader_key(l, maps[i]);
    bool mlp = i == 1;
    if (node)
      use_map(
          l, node, mlp ? "mlp_config" : "transformer_config", mlp ? "mlp" : "transformer",
          key->location);
  }
  if (!m->map && l->config->graph) {
    m->kind = "graph";
    m->location = l->config->graph->location;
    m->file = m->location.file;
  }
  if (m->map) {
    if (tsr_yaml_get(m->map, "graph")) use_graph_file(l, tsr_yaml_get(m->map, "graph"));
    int position;
    read_runner(l, m->map);
    check_choice(l, m->map, "positional_embedding_type", &position);
    check_experimental(l, m->map);
    take_model_path(l, m->map);
  }
  if (m->map || tsr_loader_value(l, "training_config.model_type")) read_type(l);
}
