// SPDX-License-Identifier: Apache-2.0
/* requires: sizes. produces: the keys of a config.json of the class that computes the same. */
#include "base/file_read.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/hf_values.h"
#include "model/build.h"
#include <inttypes.h>
#include <string.h>

typedef struct {
  tsr_arena *arena;
  tsr_location location; /* of the user's model */
  tsr_hf_class class;
  const tsr_graph_file *file;
  tsr_scope sizes, keys; /* keys: that have been written */
  tsr_hf_labels labels;  /* the names of the model's classes */
  tsr_hf_export_config *ret;
  tsr_diags *diags;
} writer;

/* ---- the class ---- */

static bool no_class(const writer *w, const char *of, const char *why) {
  return tsr_diag_error(
      w->diags, w->location, "transformers has no class for %s%s%s", of, *why ? ": " : "", why);
}

/* The first one whose condition holds. */
static bool choose(writer *w, const tsr_yaml *list) {
  for (int i = 0; i < list->count; i++) {
    bool holds = true;
    if (!tsr_hf_class_read(w->arena, list, i, w->file, &w->class, w->diags)) return false;
    tsr_hf_class_words(&w->class, &w->sizes);
    if (w->class.when && !tsr_expr_true(w->class.when, &w->sizes, &holds, w->diags)) return false;
    if (holds) return true;
  }
  return no_class(
      w, w->file->name ? w->file->name : "this graph",
      "no class of its 'huggingface' has these sizes");
}

static bool check_required(writer *w) {
  bool ok = true;
  for (int i = 0; i < w->class.requires_count; i++) {
    const tsr_hf_check *c = &w->class.requires[i];
    const char *text;
    bool holds;
    if (!tsr_expr_true(c->that, &w->sizes, &holds, w->diags) ||
        (!holds && !tsr_scope_fill(&w->sizes, c->text, c->location, &text, w->diags)))
      ok = false;
    else if (!holds) ok = tsr_diag_error(w->diags, w->location, "%s", text);
  }
  return ok;
}

/* ---- keys ---- */

static bool no_value(const writer *w, const tsr_hf_key *k, const tsr_eval *size) {
  return tsr_diag_error(
      w->diags, w->location, "transformers has no %s whose %s is %s", w->class.architectures[0],
      k->size ? k->size : k->name, tsr_eval_text(w->arena, size));
}

/* As config.json has the value of a size. */
static bool key_of(const writer *w, const tsr_hf_key *k, const tsr_eval *size, tsr_eval *ret) {
  *ret = *size;
  if (!k->values_count || size->kind == TSR_EVAL_LIST) return true;
  for (int i = 0; i < k->values_count; i++) {
    const tsr_hf_value *v = &k->values[i];
    if (!tsr_hf_value_is(v->size && !k->write ? v->size : v->json, size)) continue;
    return *ret = tsr_hf_yaml_value(v->json), true;
  }
  return no_value(w, k, size);
}

/* What the class cannot have is null, if that has a meaning. */
static bool check_limit(const writer *w, const tsr_hf_key *k, tsr_eval *v) {
  bool number = v->kind == TSR_EVAL_NUMBER;
  if (k->values_count || k->kind == TSR_HF_BOOLEAN || !number) return true;
  bool token = k->kind == TSR_HF_TOKEN && v->number < 0;
  if (!token && !tsr_hf_is_below(k, v->number)) return true;
  if (!token && !k->null) return no_value(w, k, v);
  return *v = (tsr_eval){.kind = TSR_EVAL_WORD, .word = "null"}, true;
}

static bool write_value(writer *w, const tsr_hf_key *k, tsr_eval *ret) {
  const tsr_name *size = k->size ? tsr_scope_find(&w->sizes, k->size) : NULL;
  tsr_eval value;
  if (k->write) {
    if (!tsr_expr_eval(k->write, &w->sizes, &value, w->diags)) return false;
  } else if (size) value = size->value;
  else return *ret = tsr_hf_yaml_value(k->values[0].json), true;
  return key_of(w, k, &value, ret) && check_limit(w, k, ret);
}

static void add_word(tsr_text *text, const char *word) {
  if (strcmp(word, "null")) tsr_json_add_text(text, word, strlen(word));
  else tsr_text_add(text, "null");
}

static void add_number(tsr_arena *arena, tsr_hf_kind kind, double number, tsr_text *text) {
  bool real = kind == TSR_HF_REAL || kind == TSR_HF_REALS;
  if (kind == TSR_HF_BOOLEAN) tsr_text_add(text, "%s", number != 0 ? "true" : "false");
  else if (real) tsr_text_add(text, "%s", tsr_hf_real_text(arena, number));
  else tsr_text_add(text, "%.0f", number);
}

static const char *json_of(tsr_arena *arena, tsr_hf_kind kind, const tsr_eval *v) {
  tsr_text text = {0};
  bool list = v->kind == TSR_EVAL_LIST;
  tsr_text_add(&text, "%s", list ? "[" : "");
  if (v->kind == TSR_EVAL_WORD) add_word(&text, v->word);
  else if (!list) add_number(arena, kind, v->number, &text);
  for (int i = 0; list && i < v->count; i++) {
    tsr_text_add(&text, "%s", i ? ", " : "");
    if (v->words) add_word(&text, v->words[i]);
    else add_number(arena, kind, v->list[i], &text);
  }
  tsr_text_add(&text, "%s", list ? "]" : "");
  const char *copy = tsr_arena_strdup(arena, text.data);
  tsr_text_free(&text);
  return copy;
}

/* Rotary positions as every version of transformers reads them. */
static const char *place_of(const writer *w, const char *name) {
  if (!strcmp(name, "rope.rope_theta") || !strcmp(name, "rope.partial_rotary_factor"))
    return name + strlen("rope.");
  if (strncmp(name, "rope.", 5)) return name;
  return tsr_arena_printf(w->arena, "rope_scaling.%s", name + 5);
}

/* Names of as many classes as the value says. */
static const char *labels_json(const writer *w, tsr_hf_kind kind, const tsr_eval *v) {
  int count = (int)v->number;
  tsr_hf_labels labels = w->labels;
  if (labels.count != count) labels = tsr_hf_labels_default(w->arena, count);
  return kind == TSR_HF_LABELS ? tsr_hf_labels_json(w->arena, &labels)
                               : tsr_hf_label_ids_json(w->arena, &labels);
}

static void add_member(writer *w, const char *key, const char *json) {
  w->ret->members[w->ret->members_count++] = (tsr_hf_member){key, json};
}

static bool write_key(writer *w, const tsr_hf_key *k, bool has_members) {
  tsr_name n = {.name = k->name};
  bool holds = true;
  if (k->condition && !tsr_expr_true(k->condition, &w->keys, &holds, w->diags)) return false;
  if (!holds) n.unknown = "config.json does not need the key";
  else if (k->unwritten) n.unknown = "it is not written";
  bool written = !n.unknown, ok = !written || write_value(w, k, &n.value);
  n.bad = !ok;
  tsr_scope_push(&w->keys, &n);
  if (!ok || !written) return ok;
  const tsr_eval *v = &n.value;
  bool none = !strcmp(k->name, "rope.rope_type") && !has_members && v->kind == TSR_EVAL_WORD &&
              !strcmp(v->word, "default");
  if (none) add_member(w, "rope_scaling", "null");
  else if (k->kind == TSR_HF_LABELS || k->kind == TSR_HF_LABEL_IDS)
    add_member(w, k->name, labels_json(w, k->kind, v));
  else add_member(w, place_of(w, k->name), json_of(w->arena, k->kind, v));
  return true;
}

static bool write_keys(writer *w) {
  const tsr_hf_class *c = &w->class;
  bool ok = true, has_members = false;
  *w->ret = (tsr_hf_export_config){c->model_type, c->architectures[0]};
  w->ret->members = tsr_arena_array(w->arena, tsr_hf_member, c->keys_count + 1);
  for (int i = 0; i < c->keys_count; i++) has_members |= c->keys[i].members != NULL;
  for (int i = 0; i < c->keys_count; i++)
    if (!c->keys[i].members) ok &= write_key(w, &c->keys[i], has_members);
  return ok;
}

/* The shipped graphs that have classes. */
static bool hint_graphs(const writer *w, const char *folder) {
  const char **names, *text = "";
  int count = tsr_graph_files(w->arena, folder, &names);
  for (int i = 0; i < count; i++) {
    const char *file = tsr_arena_printf(w->arena, "%s.yaml", names[i]);
    const char *path = tsr_path_join(w->arena, folder, file);
    tsr_yaml *root;
    if (!tsr_graph_file_load(w->arena, path, TSR_NOWHERE, &root, tsr_diags_new(w->arena)) ||
        !tsr_yaml_get(root, "huggingface"))
      continue;
    text = tsr_arena_printf(w->arena, "%s%s%s", text, *text ? ", " : "", names[i]);
  }
  tsr_diag_hint(w->diags, "graphs with 'huggingface' can be exported%s%s", *text ? ": " : "", text);
  return false;
}

static void take_labels(writer *w, const tsr_config_names *labels) {
  w->labels.names = tsr_arena_array(w->arena, const char *, labels->count + 1);
  w->labels.count = labels->count;
  for (int i = 0; i < labels->count; i++) w->labels.names[i] = labels->items[i].text;
}

/* Where a text ends is before its padding, which a text should not end with itself. */
static void warn_of_padding(const writer *w, int64_t padding_token) {
  if (padding_token >= 0 || !tsr_scope_find(&w->sizes, "padding_token")->is_read) return;
  tsr_diag_warning(
      w->diags, TSR_NOWHERE,
      "pad_token_id is 0, because the tokenizer names no token for padding: transformers reads a "
      "text up to its last token that is another one");
}

bool tsr_hf_config_of(
    tsr_arena *arena, const tsr_config *config, int64_t vocab_stored, int64_t padding_token,
    const char *graphs_folder, tsr_hf_export_config *ret, tsr_diags *diags) {
  writer w = {.arena = arena, .location = config->model.location, .ret = ret, .diags = diags};
  w.sizes.arena = w.keys.arena = arena;
  tsr_model_source source;
  tsr_model_options options = {
      .batch = 1, .sequence = 1, .vocab_detected = vocab_stored, .units = {1, 1, 1}};
  tsr_graph_file *file;
  if (!tsr_model_source_read(arena, config, graphs_folder, &source, diags)) return false;
  const tsr_yaml *list = tsr_yaml_get(source.root, "huggingface");
  if (!list || list->kind != TSR_YAML_LIST || !list->count) {
    no_class(&w, source.name ? source.name : "this model", "");
    return hint_graphs(&w, graphs_folder);
  }
  if (!tsr_graph_file_read(arena, source.root, &file, diags) ||
      !tsr_sizes_read(&w.sizes, file, &source, &options, diags))
    return false;
  w.file = file;
  take_labels(&w, &config->data.labels);
  tsr_scope_push_number(&w.sizes, "padding_token", padding_token < 0 ? 0 : (double)padding_token);
  if (!choose(&w, list) || !check_required(&w)) return false;
  tsr_hf_class_words(&w.class, &w.keys);
  if (!write_keys(&w)) return false;
  warn_of_padding(&w, padding_token);
  return true;
}

/* ---- the file ---- */

static void add_id(const cJSON *ids, const char *key, tsr_text *text) {
  const cJSON *item = tsr_json_get(ids, key), *one;
  tsr_text_add(text, ",\n  \"%s\": ", key);
  if (cJSON_IsNumber(item)) tsr_text_add(text, "%.0f", item->valuedouble);
  else if (cJSON_IsArray(item)) {
    const char *comma = "";
    tsr_text_add(text, "[");
    cJSON_ArrayForEach(one, item) {
      if (cJSON_IsNumber(one)) tsr_text_add(text, "%s%.0f", comma, one->valuedouble);
      comma = ", ";
    }
    tsr_text_add(text, "]");
  } else tsr_text_add(text, "null");
}

/* The members of one object follow each other. */
static void add_object(const tsr_hf_export_config *c, int first, bool *done, tsr_text *text) {
  const char *key = c->members[first].key, *dot = strchr(key, '.'), *comma = "";
  if (!dot) {
    tsr_text_add(text, ",\n  \"%s\": %s", key, c->members[first].json);
    return;
  }
  size_t length = (size_t)(dot + 1 - key);
  int count = 0;
  for (int i = first; i < c->members_count; i++)
    if (!strncmp(c->members[i].key, key, length)) count++, done[i] = true;
  tsr_text_add(text, ",\n  \"%.*s\": {", (int)(dot - key), key);
  for (int i = first; i < c->members_count; i++) {
    if (strncmp(c->members[i].key, key, length)) continue;
    tsr_text_add(
        text, "%s%s\"%s\": %s", comma, count > 1 ? "\n    " : "", c->members[i].key + length,
        c->members[i].json);
    comma = ",";
  }
  tsr_text_add(text, count > 1 ? "\n  }" : "}");
}

void tsr_hf_config_json(
    const tsr_hf_export_config *c, const char *dtype, const cJSON *ids, tsr_text *text) {
  static const char *const keys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
  tsr_arena *arena = tsr_arena_new();
  bool *done = tsr_arena_array(arena, bool, c->members_count + 1);
  tsr_text_add(text, "{\n  \"architectures\": [\"%s\"]", c->architecture);
  tsr_text_add(text, ",\n  \"model_type\": \"%s\"", c->model_type);
  tsr_text_add(text, ",\n  \"torch_dtype\": \"%s\"", dtype);
  for (int i = 0; i < 3; i++) {
    bool set = false;
    for (int m = 0; m < c->members_count; m++) set |= !strcmp(c->members[m].key, keys[i]);
    if (!set) add_id(ids, keys[i], text);
  }
  for (int i = 0; i < c->members_count; i++)
    if (!done[i]) add_object(c, i, done, text);
  tsr_text_add(text, "\n}\n");
  tsr_arena_free(arena);
}
