// SPDX-License-Identifier: Apache-2.0
/* requires: the `inputs:`, `parameters:` and `tensors:` maps. produces: their declarations. */
#include "model/graph_file.h"
#include <string.h>

/* Inputs hold f32 or i32; what a graph of tensors alone stores may be bf16 too. */
static bool
read_dtype(const tsr_file_reader *r, const tsr_yaml *map, bool stored, tsr_dtype *ret_dtype) {
  static const struct {
    const char *word;
    tsr_dtype dtype;
  } dtypes[] = {{"f32", TSR_F32},   {"float32", TSR_F32}, {"i32", TSR_I32},
                {"int32", TSR_I32}, {"bf16", TSR_BF16},   {"bfloat16", TSR_BF16}};
  const tsr_yaml *node = tsr_yaml_get(map, "dtype");
  if (!node) return true;
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
    if (!strcmp(node->text, dtypes[i].word) && (stored || dtypes[i].dtype != TSR_BF16))
      return *ret_dtype = dtypes[i].dtype, true;
  tsr_diag_error(
      r->diags, node->location, "dtype '%s' is not one that %s", node->text,
      stored ? "a graph computes with" : "an input has");
  tsr_diag_hint(r->diags, stored ? "valid: f32, bf16, and i32 of an input" : "valid: f32, i32");
  return false;
}

static bool read_shape(
    const tsr_file_reader *r, const tsr_yaml *map, const tsr_yaml *key, tsr_expr **ret_shape) {
  if (!tsr_file_expr(r, map, "shape", ret_shape)) return false;
  if (*ret_shape) return true;
  return tsr_diag_error(r->diags, key->location, "'%s' has no shape", key->text);
}

static bool
read_flag(const tsr_file_reader *r, const tsr_yaml *map, const char *key, bool *ret_flag) {
  const tsr_yaml *node = tsr_yaml_get(map, key);
  if (!node || tsr_yaml_bool(node, ret_flag)) return true;
  return tsr_diag_error(
      r->diags, node->location, "'%s' must be true or false, not %s", key,
      tsr_yaml_describe(r->arena, node));
}

/* What data can fill: the loaders know these by name. */
static bool check_input_name(const tsr_file_reader *r, const tsr_yaml *key) {
  static const char *const words[] = {"tokens", "targets", "features",       "labels",
                                      "values", "input",   "document_labels"};
  enum { WORDS = sizeof words / sizeof *words };
  for (int i = 0; i < WORDS; i++)
    if (!strcmp(key->text, words[i])) return true;
  tsr_diag_error(r->diags, key->location, "no data fills an input '%s'", key->text);
  tsr_diag_nearest(r->diags, key->text, words, WORDS);
  return false;
}

static tsr_input_decl *add_input(const tsr_file_reader *r, const tsr_yaml *key) {
  tsr_graph_file *f = r->file;
  tsr_arena_grow(
      r->arena, (void **)&f->inputs, sizeof *f->inputs, f->inputs_count, &f->inputs_capacity);
  tsr_input_decl *d = &f->inputs[f->inputs_count++];
  *d = (tsr_input_decl){.name = key->text, .location = key->location};
  return d;
}

bool tsr_file_inputs(const tsr_file_reader *r, const tsr_yaml *node) {
  static const char *const keys[] = {"shape", "dtype"};
  bool ok = true;
  for (int i = 0; i < node->count; i++) {
    const tsr_yaml *value = node->items[i];
    tsr_input_decl *d = add_input(r, node->keys[i]);
    ok &= check_input_name(r, node->keys[i]);
    if (value->kind == TSR_YAML_LIST) {
      ok &= tsr_expr_parse(r->arena, value, false, &d->shape, r->diags);
    } else if (tsr_file_keys(r, value, "an input", 2, keys)) {
      ok &= read_shape(r, value, node->keys[i], &d->shape);
      ok &= read_dtype(r, value, false, &d->dtype);
    } else {
      ok = false;
    }
  }
  return ok;
}

static tsr_param_decl *
add_param(const tsr_file_reader *r, const tsr_yaml *key, tsr_param_decls *params) {
  tsr_arena_grow(
      r->arena, (void **)&params->items, sizeof *params->items, params->count, &params->capacity);
  tsr_param_decl *d = &params->items[params->count++];
  *d = (tsr_param_decl){.name = key->text, .location = key->location, .decay = -1};
  return d;
}

static bool read_hf(const tsr_file_reader *r, const tsr_yaml *map, tsr_param_decl *d) {
  const tsr_yaml *node = tsr_yaml_get(map, "hf");
  if (!node) return true;
  d->hf = node->text;
  d->hf_place = node->location;
  if (node->kind == TSR_YAML_SCALAR && *node->text) return true;
  return tsr_diag_error(
      r->diags, node->location, "'hf' must be a name in Hugging Face checkpoints, not %s",
      tsr_yaml_describe(r->arena, node));
}

static bool read_replaces(const tsr_file_reader *r, const tsr_yaml *map, tsr_param_decl *d) {
  const tsr_yaml *node = tsr_yaml_get(map, "replaces");
  if (!node) return true;
  d->replaces = node->text;
  return (node->kind == TSR_YAML_SCALAR && *node->text) ||
         tsr_diag_error(
             r->diags, node->location, "'replaces' must be the name of a parameter, not %s",
             tsr_yaml_describe(r->arena, node));
}

static bool
read_param(const tsr_file_reader *r, const tsr_yaml *key, const tsr_yaml *map, tsr_param_decl *d) {
  static const char *const keys[] = {"shape",  "init", "dp",    "pp",      "ep",
                                     "cp",     "tp",   "decay", "hf",      "hf_transposed",
                                     "valid0", "if",   "doc",   "hf_rows", "replaces"};
  const char *name;
  if (!tsr_file_name(r, key, &name) || !tsr_file_keys(r, map, "a parameter", 15, keys))
    return false;
  bool ok = read_shape(r, map, key, &d->shape);
  ok &= tsr_file_expr(r, map, "init", &d->init);
  ok &= tsr_file_expr(r, map, "valid0", &d->valid0);
  ok &= tsr_file_expr(r, map, "if", &d->condition);
  for (int axis = 0; axis < TSR_AXES; axis++)
    ok &= tsr_file_expr(r, map, tsr_axis_name(axis), &d->placement[axis]);
  bool decay = false;
  ok &= read_flag(r, map, "decay", &decay);
  if (tsr_yaml_get(map, "decay")) d->decay = decay;
  ok &= read_flag(r, map, "hf_transposed", &d->hf_transposed);
  ok &= read_hf(r, map, d);
  ok &= read_replaces(r, map, d);
  ok &= tsr_file_expr(r, map, "hf_rows", &d->hf_rows);
  if (ok && !d->init)
    return tsr_diag_error(r->diags, key->location, "parameter '%s' has no init", key->text);
  return ok;
}

bool tsr_file_params(const tsr_file_reader *r, const tsr_yaml *node, tsr_param_decls *params) {
  bool ok = true;
  for (int i = 0; i < node->count; i++)
    ok &= read_param(r, node->keys[i], node->items[i], add_param(r, node->keys[i], params));
  return ok;
}

/* One word of a partition: row, col, or a dimension's number. */
static bool read_dimension(const tsr_file_reader *r, const tsr_yaml *node, int *ret_dim) {
  static const char *const words[] = {"row", "col"};
  int64_t dim;
  for (int i = 0; i < 2; i++)
    if (!strcmp(node->text, words[i])) return *ret_dim = i, true;
  if (tsr_yaml_int(node, &dim) && dim >= 0 && dim < TSR_DIMS_MAX) return *ret_dim = (int)dim, true;
  tsr_diag_error(
      r->diags, node->location, "a partition names 'row', 'col' or a dimension, not %s",
      tsr_yaml_describe(r->arena, node));
  return false;
}

static bool read_axis(const tsr_file_reader *r, const tsr_yaml *node, int *ret_axis) {
  const char *names[TSR_AXES];
  for (int i = 0; i < TSR_AXES; i++) {
    names[i] = tsr_axis_name(i);
    if (!strcmp(node->text, names[i])) return *ret_axis = i, true;
  }
  tsr_diag_error(r->diags, node->location, "'%s' is not an axis", node->text);
  tsr_diag_nearest(r->diags, node->text, names, TSR_AXES);
  return false;
}

static bool
read_layout(const tsr_file_reader *r, const tsr_yaml *map, tsr_placement layout[TSR_AXES]) {
  static const char *const keys[] = {"partition", "mesh_axes"};
  const tsr_yaml *node = tsr_yaml_get(map, "layout");
  if (!node) return true;
  if (!tsr_file_keys(r, node, "a layout", 2, keys)) return false;
  const tsr_yaml *dims = tsr_yaml_get(node, "partition"), *axes = tsr_yaml_get(node, "mesh_axes");
  if (!dims || !axes || dims->kind != TSR_YAML_LIST || axes->kind != TSR_YAML_LIST)
    return tsr_diag_error(
        r->diags, node->location, "a layout needs 'partition' and 'mesh_axes', two lists");
  if (dims->count != axes->count)
    return tsr_diag_error(
        r->diags, axes->location, "'partition' has %d words but 'mesh_axes' has %d", dims->count,
        axes->count);
  bool ok = true, seen[TSR_AXES] = {0};
  for (int i = 0; i < dims->count; i++) {
    int dim, axis;
    bool both = read_dimension(r, dims->items[i], &dim);
    both &= read_axis(r, axes->items[i], &axis);
    ok &= both;
    if (!both) continue;
    if (seen[axis])
      ok = tsr_diag_error(
          r->diags, axes->items[i]->location, "axis '%s' is named twice", tsr_axis_name(axis));
    seen[axis] = true;
    layout[axis] = (tsr_placement){TSR_SHARD, dim};
  }
  return ok;
}

static bool read_tensor(const tsr_file_reader *r, const tsr_yaml *key, const tsr_yaml *map) {
  static const char *const keys[] = {"shape", "dtype", "layout", "init", "input", "doc"};
  const char *name;
  if (!tsr_file_name(r, key, &name) || !tsr_file_keys(r, map, "a tensor", 6, keys)) return false;
  bool input = false;
  tsr_dtype dtype = TSR_F32;
  bool ok = read_flag(r, map, "input", &input);
  ok &= read_dtype(r, map, !input, &dtype);
  if (!ok) return false;
  if (input) {
    tsr_input_decl *d = add_input(r, key);
    d->dtype = dtype;
    if (tsr_yaml_get(map, "init"))
      return tsr_diag_error(r->diags, key->location, "input '%s' cannot have an init", key->text);
    ok &= check_input_name(r, key);
    ok &= read_shape(r, map, key, &d->shape);
    return read_layout(r, map, d->layout) && ok;
  }
  tsr_param_decl *d = add_param(r, key, &r->file->params);
  d->dtype = dtype;
  if (dtype == TSR_I32)
    return tsr_diag_error(
        r->diags, key->location, "tensor '%s' holds i32, so it must be an input (input: true)",
        key->text);
  ok &= read_shape(r, map, key, &d->shape);
  ok &= tsr_file_expr(r, map, "init", &d->init);
  return read_layout(r, map, d->layout) && ok;
}

bool tsr_file_tensors(const tsr_file_reader *r, const tsr_yaml *node) {
  if (node->kind != TSR_YAML_MAP)
    return tsr_diag_error(
        r->diags, node->location, "'tensors' must be a map, not %s",
        tsr_yaml_describe(r->arena, node));
  bool ok = true;
  for (int i = 0; i < node->count; i++) ok &= read_tensor(r, node->keys[i], node->items[i]);
  return ok;
}
