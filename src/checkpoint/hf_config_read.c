// SPDX-License-Identifier: Apache-2.0
/* requires: a config.json and its class. produces: the values of the keys, and of them sizes. */
#include "checkpoint/hf_config.h"
#include "checkpoint/hf_places.h"
#include "checkpoint/hf_values.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct {
  tsr_arena *arena;
  tsr_hf_document document;
  const tsr_hf_class *class;
  const tsr_graph_file *file;
  tsr_scope scope;              /* keys that were read */
  const tsr_yaml *rope_members; /* of the object that is missing, or NULL */
  tsr_hf_size_value *sizes;     /* per size of the file; without a decl it is not set */
  bool has_labels;
  tsr_hf_labels labels;
  tsr_diags *diags;
} reader;

/* ---- keys ---- */

/* The first place that has it; null only where no other has a value. */
static bool
find_item(const reader *r, const tsr_hf_key *k, const cJSON **ret_item, const char **ret_name) {
  const tsr_hf_document *d = &r->document;
  *ret_item = tsr_hf_document_get(d, k->places[0], ret_name);
  for (int i = 1; i < k->places_count; i++) {
    const char *name;
    const cJSON *other = tsr_hf_document_get(d, k->places[i], &name);
    bool none = !*ret_item || cJSON_IsNull(*ret_item), set = other && !cJSON_IsNull(other);
    if (!none && set && !tsr_hf_is_same(*ret_item, other))
      return tsr_diag_error(
          r->diags, TSR_NOWHERE, "'%s': %s and %s differ", d->path, *ret_name, name);
    if (!*ret_item || (none && set)) *ret_item = other;
    if (other && *ret_item == other) *ret_name = name;
  }
  return true;
}

static bool eval(reader *r, const tsr_expr *e, tsr_eval *ret) {
  return tsr_expr_eval(e, &r->scope, ret, r->diags);
}

/* Where config.json has no object of rotary positions, the class may have its members. */
static bool eval_missing(reader *r, const tsr_hf_key *k, const char *name, tsr_eval *ret) {
  const char *member = strncmp(k->name, "rope.", 5) ? "" : k->name + 5;
  const tsr_yaml *node = r->document.rope ? NULL : tsr_yaml_get(r->rope_members, member);
  tsr_expr *e = k->missing;
  if (node && !tsr_expr_parse(r->arena, node, false, &e, r->diags)) return false;
  if (e) return eval(r, e, ret);
  if (k->values_count && k->values[0].json->kind == TSR_YAML_NULL)
    return *ret = (tsr_eval){.kind = TSR_EVAL_WORD, .word = "null"}, true;
  if (k->kind == TSR_HF_TOKEN) return *ret = (tsr_eval){.number = -1}, true;
  return tsr_json_wrong(NULL, name, r->document.path, "", r->diags);
}

static bool has_null(const tsr_hf_key *k) {
  for (int i = 0; i < k->values_count; i++)
    if (k->values[i].json->kind == TSR_YAML_NULL) return true;
  return false;
}

static bool check_supported(reader *r, const tsr_hf_key *k, const char *name, const tsr_eval *v) {
  tsr_eval item = *v;
  int count = v->kind == TSR_EVAL_LIST ? v->count : 1;
  for (int i = 0; k->values_count && i < count; i++) {
    bool known = false;
    if (v->kind == TSR_EVAL_LIST && v->words)
      item = (tsr_eval){.kind = TSR_EVAL_WORD, .word = v->words[i]};
    else if (v->kind == TSR_EVAL_LIST) item = (tsr_eval){.number = v->list[i]};
    for (int n = 0; n < k->values_count && !known; n++)
      known = tsr_hf_value_is(k->values[n].json, &item);
    if (!known)
      return tsr_hf_unsupported(
          r->document.path, name, tsr_hf_eval_text(r->arena, k->kind, &item),
          tsr_hf_values_text(r->arena, k), r->diags);
  }
  return true;
}

/* With the values of the key. */
static bool is_comparable(const tsr_hf_key *k, const cJSON *item) {
  if (k->kind == TSR_HF_WORD) return cJSON_IsString(item);
  return k->kind != TSR_HF_REAL || cJSON_IsNumber(item);
}

/* The names that a key has, which item_read has found right, else those that transformers has. */
static bool take_labels(reader *r, const tsr_hf_key *k, double count) {
  const cJSON *item;
  const char *name;
  r->has_labels = true;
  if (count < 2 || count > TSR_HF_LABELS_MAX) {
    tsr_diag_error(
        r->diags, TSR_NOWHERE, "'%s': a model of %.15g class%s is not supported; it has 2 to %d",
        r->document.path, count, count == 1 ? "" : "es", TSR_HF_LABELS_MAX);
    if (count == 1) tsr_diag_hint(r->diags, "transformers trains one output as a regression");
    return false;
  }
  if (find_item(r, k, &item, &name) && cJSON_IsObject(item))
    return tsr_hf_labels_read(r->arena, r->document.path, name, item, &r->labels, r->diags);
  r->labels = tsr_hf_labels_default(r->arena, (int)count);
  return true;
}

/* transformers has no use for it but to show numbers of names. */
static void warn_of_ids(const reader *r, const char *name, const cJSON *item) {
  if (!cJSON_IsObject(item) || !r->labels.names) return;
  if (!tsr_hf_labels_are_inverse(&r->labels, item))
    tsr_diag_warning(
        r->diags, TSR_NOWHERE, "'%s': %s is not the inverse of id2label, whose names are taken",
        r->document.path, name);
}

static bool read_key(reader *r, const tsr_hf_key *k, tsr_eval *ret) {
  const cJSON *item;
  const char *name;
  if (!find_item(r, k, &item, &name)) return false;
  tsr_hf_item source = {r->arena, r->document.path, name, &r->scope, r->diags};
  bool null = cJSON_IsNull(item) && !has_null(k), ok;
  if (!item) ok = eval_missing(r, k, name, ret);
  else if (null && k->null) ok = eval(r, k->null, ret);
  else if (null && k->kind == TSR_HF_TOKEN) ok = (*ret = (tsr_eval){.number = -1}, true);
  else if (cJSON_IsNull(item) && !null)
    ok = (*ret = (tsr_eval){.kind = TSR_EVAL_WORD, .word = "null"}, true);
  else if (k->values_count && !is_comparable(k, item))
    ok = tsr_hf_unsupported(
        r->document.path, name, tsr_hf_describe(r->arena, item), tsr_hf_values_text(r->arena, k),
        r->diags);
  else ok = tsr_hf_item_read(&source, k, item, ret);
  if (ok && k->kind == TSR_HF_LABEL_IDS) warn_of_ids(r, name, item);
  return ok && check_supported(r, k, name, ret);
}

/* ---- sizes ---- */

static bool set_size(reader *r, const char *name, const tsr_eval *value, tsr_location location) {
  static const tsr_eval_kind kinds[] = {
      [TSR_SIZE_INTEGER] = TSR_EVAL_NUMBER, [TSR_SIZE_REAL] = TSR_EVAL_NUMBER,
      [TSR_SIZE_BOOLEAN] = TSR_EVAL_NUMBER, [TSR_SIZE_CHOICE] = TSR_EVAL_WORD,
      [TSR_SIZE_LIST] = TSR_EVAL_LIST,      [TSR_SIZE_REALS] = TSR_EVAL_LIST};
  const tsr_size_decl *d = tsr_hf_size_decl(r->file, name);
  bool whole = d->kind != TSR_SIZE_INTEGER || value->number == floor(value->number);
  r->sizes[d - r->file->sizes] = (tsr_hf_size_value){d, *value};
  if (value->kind == kinds[d->kind] && whole && !value->words) return true;
  return tsr_diag_error(
      r->diags, location, "size '%s' cannot be '%s'", name, tsr_eval_text(r->arena, value));
}

/* As the size has the value of the key. */
static tsr_eval size_of(const tsr_hf_key *k, const tsr_eval *value) {
  for (int i = 0; i < k->values_count; i++) {
    const tsr_yaml *size = k->values[i].size;
    if (!size || !tsr_hf_value_is(k->values[i].json, value)) continue;
    return tsr_hf_yaml_value(size);
  }
  return *value;
}

/* Every key, in order; one that is not there or wrong makes what depends on it silent. */
static bool read_keys(reader *r) {
  bool all = true;
  for (int i = 0; i < r->class->keys_count; i++) {
    const tsr_hf_key *k = &r->class->keys[i];
    tsr_name n = {.name = k->name};
    bool holds = true, ok = true;
    if (k->members) continue;
    if (k->condition) ok = tsr_expr_true(k->condition, &r->scope, &holds, r->diags);
    if (ok && holds) ok = read_key(r, k, &n.value);
    if (ok && !holds) n.unknown = "config.json does not need the key";
    n.bad = !ok;
    tsr_scope_push(&r->scope, &n);
    if (ok && holds && k->kind == TSR_HF_LABELS) ok = take_labels(r, k, n.value.number);
    if (ok && holds && k->size) {
      tsr_eval value = size_of(k, &n.value);
      ok = set_size(r, k->size, &value, k->location);
    }
    all &= ok;
  }
  return all;
}

static bool read_sizes(reader *r) {
  bool all = true;
  for (int i = 0; i < r->class->sizes_count; i++) {
    const tsr_hf_size *s = &r->class->sizes[i];
    tsr_eval value;
    bool holds = true;
    bool ok = !s->condition || tsr_expr_true(s->condition, &r->scope, &holds, r->diags);
    if (ok && holds)
      ok = eval(r, s->value, &value) && set_size(r, s->name, &value, s->value->location);
    all &= ok;
  }
  return all;
}

static bool run_checks(reader *r) {
  bool all = true;
  for (int i = 0; i < r->class->checks_count; i++) {
    const tsr_hf_check *c = &r->class->checks[i];
    const char *text;
    bool holds;
    bool ok = tsr_expr_true(c->that, &r->scope, &holds, r->diags) &&
              (holds || tsr_scope_fill(&r->scope, c->text, c->location, &text, r->diags));
    if (ok && !holds)
      tsr_diag(
          r->diags, c->is_warning ? TSR_WARNING : TSR_ERROR, TSR_NOWHERE, "'%s': %s",
          r->document.path, text);
    all &= ok && (holds || c->is_warning);
  }
  return all;
}

/* ---- all of it ---- */

/* What transformers reads of every class. */
static bool read_switches(const reader *r) {
  const char *path = r->document.path;
  const cJSON *root = r->document.root, *file = tsr_json_get(root, "transformers_weights");
  const cJSON *layers = tsr_json_get(root, "per_layer_config");
  bool causal = true, ok = true;
  if (tsr_json_get(root, "is_causal"))
    ok &= tsr_json_bool(root, "is_causal", path, &causal, r->diags);
  if (!causal) ok = tsr_hf_unsupported(path, "is_causal", "false", "true", r->diags);
  if (file && !cJSON_IsNull(file) &&
      (!cJSON_IsString(file) || strcmp(file->valuestring, "model.safetensors")))
    ok = tsr_hf_unsupported(
        path, "transformers_weights", tsr_hf_describe(r->arena, file), "'model.safetensors'",
        r->diags);
  if (layers && !cJSON_IsNull(layers) && (!cJSON_IsObject(layers) || layers->child))
    ok = tsr_hf_unsupported(
        path, "per_layer_config", tsr_hf_describe(r->arena, layers), "null", r->diags);
  return ok;
}

static bool read_prediction_blocks(reader *r, int64_t *ret) {
  *ret = 0;
  return !r->class->prediction_blocks ||
         tsr_expr_whole(
             r->class->prediction_blocks, &r->scope, "prediction_blocks", 0, ret, r->diags);
}

static bool read_class(reader *r, const cJSON *root, const char *path, tsr_hf_config *ret) {
  const cJSON *quantization = tsr_json_get(root, "quantization_config");
  bool ok = tsr_hf_quantization_read(r->arena, path, quantization, &ret->quantization, r->diags);
  ok &= tsr_hf_document_open(r->arena, path, root, r->class, &r->document, r->diags);
  for (int i = 0; i < r->class->keys_count; i++)
    if (r->class->keys[i].members) r->rope_members = r->class->keys[i].members;
  tsr_hf_class_words(r->class, &r->scope);
  for (int i = 0; i < r->file->sizes_count; i++)
    for (int k = 0; k < r->file->sizes[i].choices_count; k++)
      tsr_scope_word(&r->scope, r->file->sizes[i].choices[k]);
  ok &= read_keys(r);
  ok &= read_sizes(r);
  ok &= read_switches(r);
  ok &= read_prediction_blocks(r, &ret->prediction_blocks);
  return run_checks(r) && ok;
}

bool tsr_hf_config_read(
    tsr_arena *arena, const char *graphs_folder, const char *path, const char *text, size_t length,
    tsr_hf_config *ret, const cJSON **ret_json, tsr_diags *diags) {
  cJSON *root;
  tsr_hf_found found;
  *ret = (tsr_hf_config){0};
  if (!tsr_json_parse(arena, path, text, length, &root, diags)) return false;
  *ret_json = root;
  if (!cJSON_IsObject(root))
    return tsr_diag_error(diags, TSR_NOWHERE, "'%s' should be an object", path);
  bool ok = tsr_hf_class_find(arena, graphs_folder, path, root, &found, diags);
  if (!found.file) return false;
  ret->class = found.class;
  ret->graph = found.graph;
  reader r = {.arena = arena, .class = &ret->class, .file = found.file, .diags = diags};
  r.scope.arena = arena;
  r.sizes = tsr_arena_array(arena, tsr_hf_size_value, found.file->sizes_count + 1);
  ok &= read_class(&r, root, path, ret);
  ret->sizes = r.sizes;
  ret->has_labels = r.has_labels;
  ret->labels = r.labels;
  for (int i = 0; i < found.file->sizes_count; i++)
    if (r.sizes[i].decl) ret->sizes[ret->sizes_count++] = r.sizes[i];
  return ok;
}

int64_t tsr_hf_config_size(const tsr_hf_config *config, const char *name) {
  for (int i = 0; i < config->sizes_count; i++)
    if (!strcmp(config->sizes[i].decl->names[0], name))
      return (int64_t)config->sizes[i].value.number;
  return 0;
}
