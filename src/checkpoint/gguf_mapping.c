// SPDX-License-Identifier: Apache-2.0
/* requires: a configuration, and the file of configs/gguf for its graph file. produces: names and
 * values of a GGUF file. */
#include "checkpoint/gguf_mapping.h"
#include "base/file_read.h"
#include "model/build.h"
#include <ctype.h>
#include <math.h>
#include <string.h>

struct tsr_gguf_mapping {
  tsr_arena *arena;
  const tsr_config_model *model;
  const char *path, *architecture;
  tsr_yaml *root;
  tsr_scope scope;
};

static const char *const root_keys[] = {"architecture", "metadata", "rope_factors", "tensors",
                                        "tokenizer",    "checks",   "warnings",     "q5_k_values"};
enum { ROOT_KEYS = sizeof root_keys / sizeof *root_keys };

static tsr_file_reader reader_of(const tsr_gguf_mapping *m, tsr_diags *diags) {
  return (tsr_file_reader){m->arena, NULL, diags};
}

/* The expressions of a file name loop variables by pushing them, so each has a scope of its own. */
static tsr_scope scope_of(const tsr_gguf_mapping *m) {
  tsr_scope scope = m->scope;
  scope.names = tsr_arena_array(m->arena, tsr_name, m->scope.count + 4);
  memcpy(scope.names, m->scope.names, sizeof *scope.names * (size_t)scope.count);
  scope.capacity = scope.count + 4;
  return scope;
}

/* ---- reading ---- */

static bool read_sizes(
    tsr_gguf_mapping *m, const tsr_config *config, const char *graphs_folder, int64_t vocab_stored,
    tsr_diags *diags) {
  tsr_model_source source;
  tsr_graph_file *file;
  tsr_model_options options = {
      .batch = 1, .sequence = 1, .vocab_detected = vocab_stored, .units = {1, 1, 1}};
  return tsr_model_source_read(m->arena, config, graphs_folder, &source, diags) &&
         tsr_graph_file_read(m->arena, source.root, &file, diags) &&
         tsr_sizes_read(&m->scope, file, &source, &options, diags);
}

static bool find_file(tsr_gguf_mapping *m, const char *graphs_folder, tsr_diags *diags) {
  const char *folder = tsr_path_join(m->arena, graphs_folder, "../gguf");
  const char *type = m->model->map && !m->model->graph_file ? m->model->model_type : NULL;
  if (type && !strchr(type, '/')) {
    m->path = tsr_path_join(m->arena, folder, tsr_arena_printf(m->arena, "%s.yaml", type));
    if (tsr_file_exists(m->path)) return true;
  }
  return tsr_diag_error(
      diags, m->model->location, "llama.cpp has no architecture for %s",
      m->model->graph_file ? "a graph file of one's own"
      : type               ? tsr_arena_printf(m->arena, "'%s'", type)
                           : "this model");
}

/* A list of {that, else}: the texts of those that do not hold. */
static bool report_broken(
    const tsr_gguf_mapping *m, const char *key, bool warn, bool *ret_hold, tsr_diags *diags) {
  static const char *const keys[] = {"that", "else"};
  const tsr_yaml *list = tsr_yaml_get(m->root, key);
  tsr_file_reader r = reader_of(m, diags);
  *ret_hold = true;
  for (int i = 0; list && i < list->count; i++) {
    const tsr_yaml *otherwise = tsr_yaml_get(list->items[i], "else");
    tsr_scope scope = scope_of(m);
    tsr_expr *that;
    const char *text;
    bool holds;
    if (!tsr_file_keys(&r, list->items[i], "a check", 2, keys) ||
        !tsr_file_expr(&r, list->items[i], "that", &that))
      return false;
    if (!that || !otherwise)
      return tsr_diag_error(diags, list->items[i]->location, "a check needs 'that' and 'else'");
    if (!tsr_expr_true(that, &scope, &holds, diags) ||
        !tsr_scope_fill(&scope, otherwise->text, otherwise->location, &text, diags))
      return false;
    if (holds) continue;
    *ret_hold = false;
    if (warn) tsr_diag_warning(diags, m->model->location, "%s", text);
    else tsr_diag_error(diags, m->model->location, "%s", text);
  }
  return true;
}

bool tsr_gguf_mapping_read(
    tsr_arena *arena, const tsr_config *config, const char *graphs_folder, int64_t vocab_stored,
    int64_t file_type, tsr_gguf_mapping **ret_mapping, tsr_diags *diags) {
  tsr_gguf_mapping *m = tsr_arena_alloc(arena, sizeof *m);
  *m = (tsr_gguf_mapping){.arena = arena, .model = &config->model, .scope = {.arena = arena}};
  *ret_mapping = m;
  bool holds;
  tsr_file_reader r = reader_of(m, diags);
  if (!find_file(m, graphs_folder, diags) ||
      !tsr_graph_file_load(arena, m->path, TSR_NOWHERE, &m->root, diags) ||
      !tsr_file_keys(&r, m->root, "a file of configs/gguf", ROOT_KEYS, root_keys) ||
      !read_sizes(m, config, graphs_folder, vocab_stored, diags))
    return false;
  tsr_scope_push_number(&m->scope, "file_type", (double)file_type);
  const tsr_yaml *architecture = tsr_yaml_get(m->root, "architecture");
  if (!architecture || architecture->kind != TSR_YAML_SCALAR)
    return tsr_diag_error(diags, m->root->location, "the file has no 'architecture'");
  m->architecture = architecture->text;
  return report_broken(m, "checks", false, &holds, diags) && holds;
}

const char *tsr_gguf_architecture(const tsr_gguf_mapping *m) { return m->architecture; }

bool tsr_gguf_mapped_size(const tsr_gguf_mapping *m, const char *size, int64_t *ret_value) {
  const tsr_name *name = tsr_scope_find(&m->scope, size);
  if (!name || name->value.kind != TSR_EVAL_NUMBER) return false;
  *ret_value = (int64_t)name->value.number;
  return true;
}

bool tsr_gguf_mapping_has_key(const tsr_gguf_mapping *m, const char *key) {
  return tsr_yaml_get(tsr_yaml_get(m->root, "metadata"), key) != NULL;
}

const tsr_yaml *tsr_gguf_mapping_tokenizer(const tsr_gguf_mapping *m, const char *key) {
  const tsr_yaml *tokenizer = tsr_yaml_get(m->root, "tokenizer");
  return tokenizer ? tsr_yaml_get(tokenizer, key) : NULL;
}

bool tsr_gguf_mapping_condition(
    const tsr_gguf_mapping *m, const char *section, const char *key, bool *ret_holds,
    tsr_diags *diags) {
  const tsr_yaml *map = section ? tsr_yaml_get(m->root, section) : m->root;
  tsr_file_reader r = reader_of(m, diags);
  tsr_scope scope = scope_of(m);
  tsr_expr *condition = NULL;
  *ret_holds = false;
  if (map && !tsr_file_expr(&r, map, key, &condition)) return false;
  return !condition || tsr_expr_true(condition, &scope, ret_holds, diags);
}

bool tsr_gguf_mapping_warn(const tsr_gguf_mapping *m, tsr_diags *diags) {
  bool holds;
  return report_broken(m, "warnings", true, &holds, diags);
}

/* ---- metadata ---- */

typedef enum { KIND_U32, KIND_F32, KIND_BOOL, KIND_TEXT, KINDS } kind;
static const char *const item_keys[] = {"u32", "f32", "bool", "text", "if", "each", "first"};
static const tsr_gguf_array arrays[KINDS] = {
    TSR_GGUF_ARRAY_U32, TSR_GGUF_ARRAY_F32, TSR_GGUF_ARRAY_BOOL, TSR_GGUF_ARRAY_TEXT};

typedef struct {
  const tsr_gguf_mapping *mapping;
  const char *key;
  const tsr_yaml *node;
  kind kind;
  tsr_expr *value;
  tsr_scope scope;
  tsr_gguf_metadata *to;
  tsr_diags *diags;
} item;

static bool add_one(item *x, bool in_array) {
  int64_t whole;
  double number;
  bool truth;
  if (x->kind == KIND_U32) {
    if (!tsr_expr_whole(x->value, &x->scope, x->key, 0, &whole, x->diags)) return false;
    if (whole > UINT32_MAX)
      return tsr_diag_error(x->diags, x->node->location, "'%s' is beyond the range of u32", x->key);
    if (in_array) tsr_gguf_put_u32(x->to, (uint32_t)whole);
    else tsr_gguf_add_u32(x->to, x->key, (uint32_t)whole);
    return true;
  }
  if (x->kind == KIND_F32) {
    if (!tsr_expr_number(x->value, &x->scope, &number, x->diags)) return false;
    if (in_array) tsr_gguf_put_f32(x->to, (float)number);
    else tsr_gguf_add_f32(x->to, x->key, (float)number);
    return true;
  }
  if (!tsr_expr_true(x->value, &x->scope, &truth, x->diags)) return false;
  if (in_array) tsr_gguf_put_bool(x->to, truth);
  else tsr_gguf_add_bool(x->to, x->key, truth);
  return true;
}

/* A value for each block: `block` counts them. */
static bool add_each(item *x, const tsr_expr *each) {
  int64_t count;
  if (!tsr_expr_whole(each, &x->scope, "each", 0, &count, x->diags)) return false;
  tsr_gguf_add_array(x->to, x->key, arrays[x->kind], (uint64_t)count);
  for (int64_t i = 0; i < count; i++) {
    tsr_scope_push_number(&x->scope, "block", (double)i);
    if (!add_one(x, true)) return false;
    x->scope.count--;
  }
  return true;
}

static bool find_kind(item *x) {
  int found = 0;
  for (int k = 0; k < KINDS; k++)
    if (tsr_yaml_get(x->node, item_keys[k])) x->kind = (kind)k, found++;
  return found == 1 ||
         tsr_diag_error(
             x->diags, x->node->location, "'%s' needs one of u32, f32, bool and text", x->key);
}

static bool add_item(const tsr_gguf_mapping *m, item *x) {
  tsr_file_reader r = reader_of(m, x->diags);
  tsr_expr *condition, *each;
  bool holds = true;
  if (!tsr_file_keys(&r, x->node, "a key of GGUF", 7, item_keys) || !find_kind(x) ||
      !tsr_file_expr(&r, x->node, "if", &condition) || !tsr_file_expr(&r, x->node, "each", &each) ||
      (condition && !tsr_expr_true(condition, &x->scope, &holds, x->diags)))
    return false;
  if (!holds) return true;
  if (x->kind == KIND_TEXT) {
    tsr_gguf_add_text(x->to, x->key, tsr_yaml_get(x->node, "text")->text);
    return true;
  }
  if (!tsr_file_expr(&r, x->node, item_keys[x->kind], &x->value)) return false;
  return each ? add_each(x, each) : add_one(x, false);
}

static bool is_first(const tsr_yaml *node, bool *ret_first, tsr_diags *diags) {
  const tsr_yaml *first = tsr_yaml_get(node, "first");
  *ret_first = false;
  return !first || tsr_yaml_bool(first, ret_first) ||
         tsr_diag_error(diags, first->location, "'first' must be true or false");
}

bool tsr_gguf_mapping_metadata(
    const tsr_gguf_mapping *m, bool first, tsr_gguf_metadata *metadata, tsr_diags *diags) {
  const tsr_yaml *map = tsr_yaml_get(m->root, "metadata");
  for (int i = 0; map && i < map->count; i++) {
    const char *key = map->keys[i]->text;
    item x = {.mapping = m, .node = map->items[i], .scope = scope_of(m), .to = metadata};
    x.diags = diags;
    x.key = strncmp(key, "general.", 8) ? tsr_arena_printf(m->arena, "%s.%s", m->architecture, key)
                                        : key;
    bool at_begin;
    if (!is_first(x.node, &at_begin, diags) || (at_begin == first && !add_item(m, &x)))
      return false;
  }
  return true;
}

/* ---- tensors ---- */

/* Whether a name is a pattern's, whose {x} stands for digits; these are then `ret_digits`, and
 * "{x}" the `ret_mark`. */
static bool matches(
    tsr_arena *arena, const char *pattern, const char *name, const char **ret_mark,
    const char **ret_digits) {
  const char *open = strchr(pattern, '{'), *close = open ? strchr(open, '}') : NULL;
  *ret_mark = *ret_digits = NULL;
  if (!close) return !strcmp(pattern, name);
  size_t front = (size_t)(open - pattern), digits = 0;
  if (strncmp(pattern, name, front)) return false;
  while (isdigit((unsigned char)name[front + digits])) digits++;
  if (!digits || strcmp(close + 1, name + front + digits)) return false;
  *ret_mark = tsr_arena_strndup(arena, open, (size_t)(close + 1 - open));
  *ret_digits = tsr_arena_strndup(arena, name + front, digits);
  return true;
}

static const char *
fill_mark(tsr_arena *arena, const char *text, const char *mark, const char *digits) {
  const char *at = mark ? strstr(text, mark) : NULL;
  if (!at) return text;
  return tsr_arena_printf(arena, "%.*s%s%s", (int)(at - text), text, digits, at + strlen(mark));
}

static bool read_count(
    const tsr_gguf_mapping *m, const tsr_yaml *node, const char *key, int64_t min,
    int64_t *ret_count, tsr_diags *diags) {
  tsr_file_reader r = reader_of(m, diags);
  tsr_scope scope = scope_of(m);
  tsr_expr *expr;
  if (!tsr_file_expr(&r, node, key, &expr)) return false;
  return !expr || tsr_expr_whole(expr, &scope, key, min, ret_count, diags);
}

static bool check_group(
    const tsr_yaml *node, const tsr_param *param, const tsr_gguf_piece *p, tsr_diags *diags) {
  if (!p->group) return true;
  int64_t shape[TSR_DIMS_MAX];
  tsr_param_real_shape(param, shape);
  bool fits = param->ndim <= 2 && shape[0] % p->group == 0 && p->first + p->rows <= p->group &&
              !(p->pairs && p->group % 2);
  return fits || tsr_diag_error(
                     diags, node->location, "parameter '%s' %s has no such groups of rows",
                     param->name, tsr_shape_text(param->ndim, shape).text);
}

static bool read_piece(
    const tsr_gguf_mapping *m, const tsr_yaml *node, const tsr_param *param, tsr_gguf_piece *p,
    tsr_diags *diags) {
  static const char *const keys[] = {"name",  "part", "halves_to_pairs", "heads",
                                     "first", "rows", "transposed",      "plus"};
  tsr_file_reader r = reader_of(m, diags);
  const tsr_yaml *name = tsr_yaml_get(node, "name"), *transposed = tsr_yaml_get(node, "transposed");
  int64_t part = 0, plus = 0, heads = 0, halves = 0;
  if (!tsr_file_keys(&r, node, "a tensor of GGUF", 8, keys) ||
      !read_count(m, node, "part", 0, &part, diags) ||
      !read_count(m, node, "plus", 0, &plus, diags) ||
      !read_count(m, node, "heads", 1, &heads, diags) ||
      !read_count(m, node, "first", 0, &p->first, diags) ||
      !read_count(m, node, "halves_to_pairs", 2, &halves, diags))
    return false;
  if (!name) return tsr_diag_error(diags, node->location, "a tensor of GGUF needs a 'name'");
  if (transposed && !tsr_yaml_bool(transposed, &p->transposed))
    return tsr_diag_error(diags, transposed->location, "'transposed' must be true or false");
  p->name = name->text;
  p->part = (int)part;
  p->plus = (float)plus;
  p->pairs = halves > 0;
  p->splits = heads > 0;
  p->group = heads ? param->shape[0] / heads : halves;
  p->rows = p->group - p->first;
  return read_count(m, node, "rows", 1, &p->rows, diags) && check_group(node, param, p, diags);
}

static bool read_pieces(
    const tsr_gguf_mapping *m, const tsr_yaml *node, const tsr_param *param, tsr_gguf_piece *pieces,
    int *ret_count, tsr_diags *diags) {
  bool list = node->kind == TSR_YAML_LIST;
  *ret_count = list ? node->count : 1;
  if (*ret_count > TSR_GGUF_PIECES_MAX)
    return tsr_diag_error(
        diags, node->location, "a parameter is at most %d tensors", TSR_GGUF_PIECES_MAX);
  for (int i = 0; i < *ret_count; i++) {
    const tsr_yaml *one = list ? node->items[i] : node;
    pieces[i] = (tsr_gguf_piece){.name = one->text};
    if (one->kind == TSR_YAML_MAP && !read_piece(m, one, param, &pieces[i], diags)) return false;
  }
  return true;
}

bool tsr_gguf_mapping_pieces(
    const tsr_gguf_mapping *m, const tsr_param *param,
    tsr_gguf_piece ret_pieces[TSR_GGUF_PIECES_MAX], int *ret_count, tsr_diags *diags) {
  const tsr_yaml *map = tsr_yaml_get(m->root, "tensors");
  const char *mark, *digits;
  for (int i = 0; map && i < map->count; i++) {
    if (!matches(m->arena, map->keys[i]->text, param->name, &mark, &digits)) continue;
    if (!read_pieces(m, map->items[i], param, ret_pieces, ret_count, diags)) return false;
    for (int p = 0; p < *ret_count; p++)
      ret_pieces[p].name = fill_mark(m->arena, ret_pieces[p].name, mark, digits);
    return true;
  }
  return tsr_diag_error(
      diags, param->location, "parameter '%s' has no tensor in llama.cpp's %s", param->name,
      m->architecture);
}

/* ---- divisors of rotary frequencies ---- */

typedef struct {
  double theta, factor, low, high, original;
} scaling;

/* By Llama 3's scaling: wavelengths below original / high stay as they are, those above original /
 * low are longer by the factor, and between them the frequency is interpolated. In f32, as PyTorch
 * computes it. */
static float rope_factor(const scaling *s, int64_t i, int64_t dimensions) {
  float exponent = (float)(2 * i) / (float)dimensions;
  float frequency = 1.0f / powf((float)s->theta, exponent);
  float wavelength = (float)(2 * 3.14159265358979323846) / frequency;
  if (wavelength < (float)(s->original / s->high)) return 1;
  if (wavelength > (float)(s->original / s->low)) return (float)s->factor;
  float turns = (float)s->original / wavelength;
  float smooth = (turns - (float)s->low) / (float)(s->high - s->low);
  return 1.0f / ((1.0f - smooth) / (float)s->factor + smooth);
}

static bool read_scaling(
    const tsr_gguf_mapping *m, const tsr_yaml *node, scaling *ret, int64_t *ret_dimensions,
    tsr_diags *diags) {
  static const char *const keys[] = {
      "theta", "factor", "low_freq_factor", "high_freq_factor", "original_context_length"};
  double *const values[] = {&ret->theta, &ret->factor, &ret->low, &ret->high, &ret->original};
  tsr_file_reader r = reader_of(m, diags);
  tsr_scope scope = scope_of(m);
  for (int i = 0; i < 5; i++) {
    tsr_expr *expr;
    if (!tsr_file_expr(&r, node, keys[i], &expr)) return false;
    if (!expr) return tsr_diag_error(diags, node->location, "'rope_factors' needs '%s'", keys[i]);
    if (!tsr_expr_number(expr, &scope, values[i], diags)) return false;
  }
  return read_count(m, node, "dimensions", 2, ret_dimensions, diags);
}

static bool scale_factors(
    const tsr_gguf_mapping *m, const tsr_yaml *node, tsr_gguf_factors *ret, tsr_diags *diags) {
  scaling s;
  int64_t dimensions = 0;
  if (!read_scaling(m, node, &s, &dimensions, diags)) return false;
  ret->count = dimensions / 2;
  ret->values = tsr_arena_array(m->arena, float, ret->count + 1);
  for (int64_t i = 0; i < ret->count; i++) ret->values[i] = rope_factor(&s, i, dimensions);
  return true;
}

/* LongRoPE's, which the model has as a list. */
static bool list_factors(
    const tsr_gguf_mapping *m, const tsr_expr *list, tsr_gguf_factors *ret, tsr_diags *diags) {
  tsr_scope scope = scope_of(m);
  tsr_eval value;
  if (!tsr_expr_eval(list, &scope, &value, diags)) return false;
  if (value.kind != TSR_EVAL_LIST || value.words)
    return tsr_diag_error(diags, list->location, "'%s' is no list of numbers", list->text);
  ret->count = value.count;
  ret->values = tsr_arena_array(m->arena, float, ret->count + 1);
  for (int i = 0; i < value.count; i++) ret->values[i] = (float)value.list[i];
  return true;
}

static bool add_factors(
    const tsr_gguf_mapping *m, const tsr_yaml *node, tsr_gguf_factors *list, int *count,
    tsr_diags *diags) {
  static const char *const keys[] = {
      "name",
      "if",
      "values",
      "dimensions",
      "theta",
      "factor",
      "low_freq_factor",
      "high_freq_factor",
      "original_context_length"};
  const tsr_yaml *name = tsr_yaml_get(node, "name");
  tsr_file_reader r = reader_of(m, diags);
  tsr_scope scope = scope_of(m);
  tsr_expr *condition, *values;
  bool holds = true;
  if (!tsr_file_keys(&r, node, "rope_factors", 9, keys) ||
      !tsr_file_expr(&r, node, "if", &condition) || !tsr_file_expr(&r, node, "values", &values) ||
      (condition && !tsr_expr_true(condition, &scope, &holds, diags)))
    return false;
  if (!holds) return true;
  if (!name) return tsr_diag_error(diags, node->location, "'rope_factors' needs 'name'");
  tsr_gguf_factors *f = &list[(*count)++];
  f->name = name->text;
  return values ? list_factors(m, values, f, diags) : scale_factors(m, node, f, diags);
}

bool tsr_gguf_mapping_rope_factors(
    const tsr_gguf_mapping *m, tsr_gguf_factors ret_list[TSR_GGUF_FACTORS_MAX], int *ret_count,
    tsr_diags *diags) {
  const tsr_yaml *node = tsr_yaml_get(m->root, "rope_factors");
  bool list = node && node->kind == TSR_YAML_LIST;
  int count = list ? node->count : node ? 1 : 0;
  *ret_count = 0;
  if (count > TSR_GGUF_FACTORS_MAX)
    return tsr_diag_error(
        diags, node->location, "a model has at most %d tensors of rope_factors",
        TSR_GGUF_FACTORS_MAX);
  for (int i = 0; i < count; i++)
    if (!add_factors(m, list ? node->items[i] : node, ret_list, ret_count, diags)) return false;
  return true;
}
