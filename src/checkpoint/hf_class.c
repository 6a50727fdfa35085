// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hf_class.h"
#include <math.h>
#include <string.h>

typedef struct {
  tsr_file_reader file;
  tsr_hf_class *class;
} reader;

const tsr_size_decl *tsr_hf_size_decl(const tsr_graph_file *file, const char *name) {
  for (int i = 0; i < file->sizes_count; i++)
    if (!strcmp(file->sizes[i].names[0], name)) return &file->sizes[i];
  return NULL;
}

bool tsr_hf_value_is(const tsr_yaml *value, const tsr_eval *of) {
  bool truth;
  int64_t whole;
  double real;
  if (value->kind == TSR_YAML_NULL) return of->kind == TSR_EVAL_WORD && !strcmp(of->word, "null");
  if (of->kind == TSR_EVAL_WORD) return !strcmp(value->text, of->word);
  if (of->kind != TSR_EVAL_NUMBER) return false;
  if (tsr_yaml_bool(value, &truth)) return of->number == truth;
  if (tsr_yaml_int(value, &whole)) return of->number == (double)whole;
  return tsr_yaml_float(value, &real) && of->number == real;
}

void tsr_hf_class_words(const tsr_hf_class *class, tsr_scope *scope) {
  bool truth;
  int64_t whole;
  double real;
  tsr_scope_word(scope, "null");
  for (int i = 0; i < class->keys_count; i++)
    for (int k = 0; k < class->keys[i].values_count; k++) {
      const tsr_yaml *v = class->keys[i].values[k].json;
      bool word = v->kind == TSR_YAML_SCALAR && !tsr_yaml_bool(v, &truth) &&
                  !tsr_yaml_int(v, &whole) && !tsr_yaml_float(v, &real);
      if (word) tsr_scope_word(scope, v->text);
    }
}

static bool must_be(const reader *r, const tsr_yaml *node, const char *what, const char *wanted) {
  return tsr_diag_error(
      r->file.diags, node->location, "'%s' must be %s, not %s", what, wanted,
      tsr_yaml_describe(r->file.arena, node));
}

static bool
read_text(const reader *r, const tsr_yaml *map, const char *key, const char **ret_text) {
  const tsr_yaml *node = tsr_yaml_get(map, key);
  if (!node) return true;
  *ret_text = node->text;
  return node->kind == TSR_YAML_SCALAR || must_be(r, node, key, "a text");
}

/* One text, or a list of such, behind `first` unless that is NULL. */
static bool read_texts(
    const reader *r, const tsr_yaml *map, const char *key, const char *first,
    const char ***ret_texts, int *ret_count) {
  const tsr_yaml *node = tsr_yaml_get(map, key);
  if (node && node->kind == TSR_YAML_NULL) node = NULL;
  bool list = node && node->kind == TSR_YAML_LIST, ok = true;
  int most = list ? node->count : node != NULL;
  *ret_texts = tsr_arena_array(r->file.arena, const char *, most + 1);
  *ret_count = 0;
  if (first) (*ret_texts)[(*ret_count)++] = first;
  for (int i = 0; i < most; i++) {
    const tsr_yaml *item = list ? node->items[i] : node;
    (*ret_texts)[(*ret_count)++] = item->text;
    if (item->kind != TSR_YAML_SCALAR) ok = must_be(r, item, key, "a text or a list of texts");
  }
  return ok;
}

static bool section(
    const reader *r, const tsr_yaml *map, const char *key, tsr_yaml_kind kind,
    const tsr_yaml **ret_node) {
  const tsr_yaml *node = tsr_yaml_get(map, key);
  *ret_node = node && node->kind == kind ? node : NULL;
  if (!node || node->kind == kind || node->kind == TSR_YAML_NULL) return true;
  return must_be(r, node, key, kind == TSR_YAML_MAP ? "a map" : "a list");
}

/* ---- keys ---- */

static bool is_scalar(const tsr_yaml *node) {
  return node->kind == TSR_YAML_SCALAR || node->kind == TSR_YAML_NULL;
}

static bool read_values(const reader *r, const tsr_yaml *map, tsr_hf_key *k) {
  const tsr_yaml *node = tsr_yaml_get(map, "values");
  if (!node) return true;
  if ((node->kind != TSR_YAML_LIST && node->kind != TSR_YAML_MAP) || !node->count)
    return must_be(r, node, "values", "a list of values, or a map from them to those of the size");
  k->values = tsr_arena_array(r->file.arena, tsr_hf_value, node->count);
  k->values_count = node->count;
  bool ok = true, pairs = node->kind == TSR_YAML_MAP;
  for (int i = 0; i < node->count; i++) {
    k->values[i] = (tsr_hf_value){.json = node->items[i]};
    if (pairs) k->values[i] = (tsr_hf_value){node->keys[i], node->items[i]};
    if (!is_scalar(k->values[i].json) || !is_scalar(node->items[i]))
      ok = must_be(r, node->items[i], "values", "words, numbers, true, false and null");
  }
  return ok;
}

static tsr_hf_kind kind_of(const tsr_yaml *value) {
  bool truth;
  int64_t whole;
  double real;
  if (tsr_yaml_bool(value, &truth)) return TSR_HF_BOOLEAN;
  return tsr_yaml_int(value, &whole) || tsr_yaml_float(value, &real) ? TSR_HF_REAL : TSR_HF_WORD;
}

static bool read_kind(const reader *r, const tsr_yaml *map, tsr_hf_key *k) {
  static const char *const words[] = {"integer", "real",     "boolean",  "word",
                                      "words",   "integers", "reals",    "token",
                                      "members", "labels",   "label_ids"};
  enum { WORDS = sizeof words / sizeof *words };
  static const tsr_hf_kind of_size[] = {
      [TSR_SIZE_INTEGER] = TSR_HF_INTEGER, [TSR_SIZE_REAL] = TSR_HF_REAL,
      [TSR_SIZE_BOOLEAN] = TSR_HF_BOOLEAN, [TSR_SIZE_CHOICE] = TSR_HF_WORD,
      [TSR_SIZE_LIST] = TSR_HF_INTEGERS,   [TSR_SIZE_REALS] = TSR_HF_REALS};
  const tsr_yaml *node = tsr_yaml_get(map, "kind");
  const tsr_size_decl *d = k->size ? tsr_hf_size_decl(r->file.file, k->size) : NULL;
  for (int i = 0; node && i < WORDS; i++)
    if (!strcmp(node->text, words[i])) return k->kind = (tsr_hf_kind)i, true;
  if (node) {
    tsr_diag_error(
        r->file.diags, node->location, "unknown kind '%s' of key '%s'", node->text, k->name);
    tsr_diag_nearest(r->file.diags, node->text, words, WORDS);
    return false;
  }
  for (int i = 0; i < k->values_count; i++)
    if (!i || k->values[i - 1].json->kind == TSR_YAML_NULL) k->kind = kind_of(k->values[i].json);
  if (k->values_count) return true;
  if (d) return k->kind = of_size[d->kind], true;
  return k->members ||
         tsr_diag_error(
             r->file.diags, k->location, "key '%s' needs a 'size', a 'kind' or 'values'", k->name);
}

static bool read_limit(const reader *r, const tsr_yaml *map, tsr_hf_key *k) {
  const tsr_yaml *above = tsr_yaml_get(map, "above"), *node = above;
  int64_t whole;
  bool list = k->kind == TSR_HF_REALS;
  k->least = k->kind == TSR_HF_INTEGER || k->kind == TSR_HF_MEMBERS ? 1 : list ? -INFINITY : 0;
  if (!node) node = tsr_yaml_get(map, "min");
  k->above = above != NULL;
  if (!node || tsr_yaml_float(node, &k->least)) return true;
  if (tsr_yaml_int(node, &whole)) return k->least = (double)whole, true;
  return must_be(r, node, above ? "above" : "min", "a number");
}

/* An expression, or for null `default`. A map is the object that is missing. */
static bool read_defaults(const reader *r, const tsr_yaml *map, tsr_hf_key *k) {
  const tsr_yaml *missing = tsr_yaml_get(map, "default"), *null = tsr_yaml_get(map, "if_null");
  bool ok = true;
  if (missing && missing->kind == TSR_YAML_MAP) {
    k->members = missing;
    if (strcmp(k->name, "rope")) ok = must_be(r, missing, "default", "an expression");
  } else if (missing) {
    ok &= tsr_expr_parse(r->file.arena, missing, false, &k->missing, r->file.diags);
  } else if (k->values_count && !k->values[0].size && k->values[0].json->kind == TSR_YAML_SCALAR) {
    ok &= tsr_expr_parse(r->file.arena, k->values[0].json, false, &k->missing, r->file.diags);
  }
  if (null && null->kind == TSR_YAML_SCALAR && !strcmp(null->text, "default"))
    return k->null = k->missing, ok;
  return ok && (!null || tsr_expr_parse(r->file.arena, null, false, &k->null, r->file.diags));
}

static bool read_size_name(const reader *r, const tsr_yaml *node, const char **ret_name) {
  *ret_name = node->text;
  if (node->kind != TSR_YAML_SCALAR) return must_be(r, node, "size", "the name of a size");
  if (tsr_hf_size_decl(r->file.file, node->text)) return true;
  const tsr_graph_file *file = r->file.file;
  const char **names = tsr_arena_array(r->file.arena, const char *, file->sizes_count + 1);
  for (int i = 0; i < file->sizes_count; i++) names[i] = file->sizes[i].names[0];
  tsr_diag_error(
      r->file.diags, node->location, "the %s graph has no size '%s'", file->name, node->text);
  tsr_diag_nearest(r->file.diags, node->text, names, file->sizes_count);
  return false;
}

static bool read_key(const reader *r, const tsr_yaml *name, const tsr_yaml *node, tsr_hf_key *k) {
  static const char *const keys[] = {"size", "kind",  "values", "default", "if_null",
                                     "min",  "above", "if",     "alias",   "write"};
  tsr_yaml map = {.kind = TSR_YAML_MAP, .location = node->location};
  *k = (tsr_hf_key){.name = name->text, .location = name->location};
  if (node->kind != TSR_YAML_SCALAR && !tsr_file_keys(&r->file, node, "a key", 10, keys))
    return false;
  if (node->kind == TSR_YAML_MAP) map = *node;
  const tsr_yaml *size = node->kind == TSR_YAML_SCALAR ? node : tsr_yaml_get(&map, "size");
  const tsr_yaml *write = tsr_yaml_get(&map, "write");
  bool ok = !size || read_size_name(r, size, &k->size);
  ok &= read_texts(r, &map, "alias", k->name, &k->places, &k->places_count);
  ok &= read_values(r, &map, k);
  ok &= read_defaults(r, &map, k);
  ok &= tsr_file_expr(&r->file, &map, "if", &k->condition);
  if (!ok || !read_kind(r, &map, k) || !read_limit(r, &map, k)) return false;
  k->unwritten = k->members || (write && write->kind == TSR_YAML_NULL);
  if (write && !k->unwritten) ok = tsr_file_expr(&r->file, &map, "write", &k->write);
  if (ok && !k->unwritten && !k->size && !k->write && !k->values_count)
    return tsr_diag_error(
        r->file.diags, k->location, "key '%s' needs a 'size', 'values' or 'write: ~'", k->name);
  return ok;
}

static bool read_keys(const reader *r, const tsr_yaml *map) {
  tsr_hf_class *c = r->class;
  bool ok = true;
  c->keys = tsr_arena_array(r->file.arena, tsr_hf_key, map->count + 1);
  for (int i = 0; i < map->count; i++)
    if (map->items[i]->kind != TSR_YAML_NULL)
      ok &= read_key(r, map->keys[i], map->items[i], &c->keys[c->keys_count++]);
  return ok;
}

/* ---- the class ---- */

static bool read_sizes(const reader *r, const tsr_yaml *map) {
  static const char *const keys[] = {"value", "if"};
  tsr_hf_class *c = r->class;
  bool ok = true;
  c->sizes = tsr_arena_array(r->file.arena, tsr_hf_size, map->count + 1);
  for (int i = 0; i < map->count; i++) {
    const tsr_yaml *node = map->items[i];
    tsr_hf_size *s = &c->sizes[c->sizes_count++];
    s->location = map->keys[i]->location;
    ok &= read_size_name(r, map->keys[i], &s->name);
    if (node->kind != TSR_YAML_MAP) {
      ok &= tsr_expr_parse(r->file.arena, node, false, &s->value, r->file.diags);
      continue;
    }
    bool form = tsr_file_keys(&r->file, node, "a size", 2, keys) &&
                tsr_file_expr(&r->file, node, "value", &s->value) &&
                tsr_file_expr(&r->file, node, "if", &s->condition);
    if (form && !s->value)
      form = tsr_diag_error(r->file.diags, s->location, "size '%s' has no 'value'", s->name);
    ok &= form;
  }
  return ok;
}

static bool read_checks(
    const reader *r, const tsr_yaml *list, bool warnings, tsr_hf_check **ret, int *ret_count) {
  static const char *const keys[] = {"that", "else", "warning"};
  bool ok = true;
  *ret = tsr_arena_array(r->file.arena, tsr_hf_check, list->count + 1);
  for (int i = 0; i < list->count; i++) {
    const tsr_yaml *node = list->items[i];
    tsr_hf_check *c = &(*ret)[(*ret_count)++];
    c->location = node->location;
    bool form = tsr_file_keys(&r->file, node, "a check", warnings ? 3 : 2, keys) &&
                tsr_file_expr(&r->file, node, "that", &c->that) &&
                read_text(r, node, "else", &c->text);
    c->is_warning = form && !c->text;
    if (form) form = !c->is_warning || read_text(r, node, "warning", &c->text);
    if (form && (!c->that || !c->text))
      form = tsr_diag_error(
          r->file.diags, node->location, "a check needs 'that' and 'else'%s",
          warnings ? " or 'warning'" : "");
    ok &= form;
  }
  return ok;
}

static bool check_class(const reader *r, const tsr_yaml *node) {
  const tsr_hf_class *c = r->class;
  bool ok = true;
  if (!c->model_type || !c->architectures_count || !c->keys_count)
    ok = tsr_diag_error(
        r->file.diags, node->location,
        "a class of transformers needs 'model_type', 'architectures' and 'keys'");
  for (int i = 0; c->copies && i < c->copies->count; i++)
    if (c->copies->items[i]->kind != TSR_YAML_SCALAR)
      ok = must_be(r, c->copies->items[i], "copies", "a map of names");
  return ok;
}

/* What a class has of another one above it, `like: llama`: its keys, those of its own in their
 * places, and its sections where it has none itself. */
static bool resolve(const reader *r, const tsr_yaml *list, int index, tsr_yaml **ret_node) {
  static const char *const sections[] = {
      "sizes", "checks", "copies", "ignored_tensors", "prediction_blocks"};
  tsr_yaml *node = list->items[index], *other = NULL;
  const tsr_yaml *like = tsr_yaml_get(node, "like"), *type;
  *ret_node = node;
  if (!like) return true;
  for (int i = 0; i < index && !other; i++) {
    type = tsr_yaml_get(list->items[i], "model_type");
    if (type && !strcmp(type->text, like->text) && !resolve(r, list, i, &other)) return false;
  }
  if (!other)
    return tsr_diag_error(
        r->file.diags, like->location, "no class above this one has the model_type '%s'",
        like->text);
  tsr_yaml *joined = tsr_arena_alloc(r->file.arena, sizeof *joined);
  *joined = *node;
  joined->keys = tsr_arena_array(r->file.arena, tsr_yaml *, node->count + 6);
  joined->items = tsr_arena_array(r->file.arena, tsr_yaml *, node->count + 6);
  memcpy(joined->keys, node->keys, sizeof *node->keys * (size_t)node->count);
  memcpy(joined->items, node->items, sizeof *node->items * (size_t)node->count);
  for (int i = 0; i < 5; i++) {
    if (tsr_yaml_get(node, sections[i]) || !tsr_yaml_get(other, sections[i])) continue;
    joined->keys[joined->count] = tsr_yaml_key(other, sections[i]);
    joined->items[joined->count++] = tsr_yaml_get(other, sections[i]);
  }
  tsr_yaml *theirs = tsr_yaml_get(other, "keys"), *own = tsr_yaml_get(node, "keys");
  for (int i = 0; own && i < joined->count; i++)
    if (joined->items[i] == own && theirs && own->kind == TSR_YAML_MAP &&
        theirs->kind == TSR_YAML_MAP)
      joined->items[i] = tsr_yaml_join(r->file.arena, theirs, own);
  if (!own && theirs) {
    joined->keys[joined->count] = tsr_yaml_key(other, "keys");
    joined->items[joined->count++] = theirs;
  }
  *ret_node = joined;
  return true;
}

bool tsr_hf_class_read(
    tsr_arena *arena, const tsr_yaml *list, int index, const tsr_graph_file *file,
    tsr_hf_class *ret, tsr_diags *diags) {
  static const char *const keys[] = {
      "model_type",
      "architectures",
      "when",
      "graph",
      "keys",
      "sizes",
      "checks",
      "requires",
      "copies",
      "ignored_tensors",
      "prediction_blocks",
      "like"};
  tsr_yaml *node = list->items[index];
  *ret = (tsr_hf_class){.location = node->location};
  reader r = {{arena, (tsr_graph_file *)file, diags}, ret};
  if (!tsr_file_keys(&r.file, node, "a class of transformers", 12, keys) ||
      !resolve(&r, list, index, &node))
    return false;
  const tsr_yaml *map, *sizes, *checks, *requires;
  bool ok = read_text(&r, node, "model_type", &ret->model_type);
  ok &= read_texts(&r, node, "architectures", NULL, &ret->architectures, &ret->architectures_count);
  ok &= read_texts(&r, node, "ignored_tensors", NULL, &ret->ignored, &ret->ignored_count);
  ok &= read_text(&r, node, "graph", &ret->graph);
  ok &= tsr_file_expr(&r.file, node, "when", &ret->when);
  const tsr_yaml *blocks = tsr_yaml_get(node, "prediction_blocks");
  if (blocks && blocks->kind != TSR_YAML_NULL)
    ok &= tsr_expr_parse(arena, blocks, false, &ret->prediction_blocks, diags);
  ok &= section(&r, node, "keys", TSR_YAML_MAP, &map) && (!map || read_keys(&r, map));
  ok &= section(&r, node, "sizes", TSR_YAML_MAP, &sizes) && (!sizes || read_sizes(&r, sizes));
  ok &= section(&r, node, "checks", TSR_YAML_LIST, &checks);
  if (checks) ok &= read_checks(&r, checks, true, &ret->checks, &ret->checks_count);
  ok &= section(&r, node, "requires", TSR_YAML_LIST, &requires);
  if (requires) ok &= read_checks(&r, requires, false, &ret->requires, &ret->requires_count);
  ok &= section(&r, node, "copies", TSR_YAML_MAP, &ret->copies);
  return ok && check_class(&r, node);
}
