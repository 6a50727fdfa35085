// SPDX-License-Identifier: Apache-2.0
/* requires: the `sizes:` map. produces: each size's kind, default and limits. */
#include "model/graph_file.h"
#include <math.h>
#include <string.h>

static bool read_kind(const tsr_file_reader *r, const tsr_yaml *map, tsr_size_decl *d) {
  static const char *const words[] = {"integer", "real", "boolean", "choice", "list", "reals"};
  const tsr_yaml *node = tsr_yaml_get(map, "kind");
  if (!node) return true;
  for (int i = 0; i < 6; i++)
    if (!strcmp(node->text, words[i])) return d->kind = (tsr_size_kind)i, true;
  tsr_diag_error(
      r->diags, node->location, "unknown kind '%s' of size '%s'", node->text, d->names[0]);
  tsr_diag_nearest(r->diags, node->text, words, 6);
  return false;
}

/* `6` is an integer, `0.2` and `1e-5` are real, a list is a list; an expression gives an integer.
 */
static tsr_size_kind kind_of(const tsr_yaml *value) {
  int64_t whole;
  double real;
  bool truth;
  if (!value) return TSR_SIZE_INTEGER;
  if (value->kind == TSR_YAML_LIST) return TSR_SIZE_LIST;
  if (tsr_yaml_bool(value, &truth)) return TSR_SIZE_BOOLEAN;
  if (!tsr_yaml_int(value, &whole) && tsr_yaml_float(value, &real)) return TSR_SIZE_REAL;
  return TSR_SIZE_INTEGER;
}

static bool read_choices(const tsr_file_reader *r, const tsr_yaml *map, tsr_size_decl *d) {
  const tsr_yaml *node = tsr_yaml_get(map, "choices");
  if (!node) return true;
  if (node->kind != TSR_YAML_LIST || !node->count)
    return tsr_diag_error(r->diags, node->location, "'choices' must be a list of words");
  d->kind = TSR_SIZE_CHOICE;
  d->choices = tsr_arena_array(r->arena, const char *, node->count);
  d->choices_count = node->count;
  bool ok = true;
  for (int i = 0; i < node->count; i++) ok &= tsr_file_name(r, node->items[i], &d->choices[i]);
  return ok;
}

static bool read_refused(const tsr_file_reader *r, const tsr_yaml *map, tsr_size_decl *d) {
  const tsr_yaml *node = tsr_yaml_get(map, "refused");
  if (!node) return true;
  bool ok = node->kind == TSR_YAML_MAP && d->kind == TSR_SIZE_CHOICE;
  for (int i = 0; ok && i < node->count; i++) ok = node->items[i]->kind == TSR_YAML_SCALAR;
  if (ok) return d->refused = node, true;
  return tsr_diag_error(
      r->diags, node->location,
      "'refused' must be a map from words to reasons, of a size with 'choices'");
}

static bool
read_limit(const tsr_file_reader *r, const tsr_yaml *map, const char *key, double *ret_limit) {
  const tsr_yaml *node = tsr_yaml_get(map, key);
  int64_t whole;
  if (!node || tsr_yaml_float(node, ret_limit)) return true;
  if (tsr_yaml_int(node, &whole)) return *ret_limit = (double)whole, true;
  return tsr_diag_error(
      r->diags, node->location, "'%s' must be a number, not %s", key,
      tsr_yaml_describe(r->arena, node));
}

static bool read_default(const tsr_file_reader *r, const tsr_yaml *value, tsr_size_decl *d) {
  if (!value || value->kind == TSR_YAML_NULL) return true;
  if (d->kind != TSR_SIZE_CHOICE || (value->text && !tsr_is_name(value->text)))
    return tsr_expr_parse(r->arena, value, false, &d->value, r->diags);
  for (int i = 0; i < d->choices_count; i++)
    if (!strcmp(value->text, d->choices[i])) return d->word = d->choices[i], true;
  tsr_diag_error(
      r->diags, value->location, "'%s' is not a choice of '%s'", value->text, d->names[0]);
  tsr_diag_nearest(r->diags, value->text, d->choices, d->choices_count);
  return false;
}

/* One name, or a list. */
static bool read_aliases(const tsr_file_reader *r, const tsr_yaml *map, tsr_size_decl *d) {
  const tsr_yaml *node = tsr_yaml_get(map, "alias");
  if (!node) return true;
  bool list = node->kind == TSR_YAML_LIST, ok = true;
  int count = list ? node->count : 1;
  const char **names = tsr_arena_array(r->arena, const char *, count + 1);
  names[0] = d->names[0];
  for (int i = 0; i < count; i++)
    ok &= tsr_file_name(r, list ? node->items[i] : node, &names[i + 1]);
  d->names = names;
  d->names_count = count + 1;
  return ok;
}

static bool read_long_form(const tsr_file_reader *r, const tsr_yaml *map, tsr_size_decl *d) {
  static const char *const keys[] = {"default", "kind", "choices", "refused",
                                     "min",     "max",  "alias",   "doc"};
  if (!tsr_file_keys(r, map, "a size", 8, keys)) return false;
  const tsr_yaml *value = tsr_yaml_get(map, "default");
  d->kind = kind_of(value);
  bool ok = read_choices(r, map, d) && read_kind(r, map, d) && read_refused(r, map, d);
  if (d->kind != TSR_SIZE_INTEGER && d->kind != TSR_SIZE_LIST) d->min = -INFINITY;
  ok &= read_limit(r, map, "min", &d->min);
  ok &= read_limit(r, map, "max", &d->max);
  ok &= read_aliases(r, map, d);
  return ok && read_default(r, value, d);
}

static bool
read_size(const tsr_file_reader *r, const tsr_yaml *key, const tsr_yaml *value, tsr_size_decl *d) {
  *d = (tsr_size_decl){.location = key->location, .min = 1, .max = INFINITY};
  d->names = tsr_arena_array(r->arena, const char *, 1);
  d->names_count = 1;
  if (!tsr_file_name(r, key, &d->names[0])) return false;
  if (value->kind == TSR_YAML_MAP) return read_long_form(r, value, d);
  d->kind = kind_of(value);
  if (d->kind == TSR_SIZE_REAL || d->kind == TSR_SIZE_BOOLEAN) d->min = -INFINITY;
  return read_default(r, value, d);
}

bool tsr_file_sizes(const tsr_file_reader *r, const tsr_yaml *node) {
  static const char *const reserved[] = {
      "batch", "sequence", "vocab_padded", "training", "tp_units"};
  tsr_graph_file *file = r->file;
  file->sizes = tsr_arena_array(r->arena, tsr_size_decl, node->count);
  file->sizes_count = node->count;
  bool ok = true;
  for (int i = 0; i < node->count; i++) {
    file->sizes[i].bad = !read_size(r, node->keys[i], node->items[i], &file->sizes[i]);
    ok &= !file->sizes[i].bad;
    for (int k = 0; k < 5; k++)
      if (!strcmp(node->keys[i]->text, reserved[k]))
        ok = tsr_diag_error(
            r->diags, node->keys[i]->location, "'%s' is a size that every graph has", reserved[k]);
  }
  return ok;
}
