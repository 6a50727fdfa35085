// SPDX-License-Identifier: Apache-2.0
/* requires: size declarations and the user's model map. produces: every size's value. */
#include "base/text.h"
#include "config/fields.h"
#include "model/build.h"
#include <math.h>
#include <string.h>

typedef struct {
  const char *name; /* with dots for nested maps */
  const tsr_yaml *key, *value;
  bool used;
} given;

typedef struct {
  tsr_scope *scope;
  const tsr_graph_file *file;
  const tsr_model_source *source;
  const tsr_model_options *options;
  tsr_diags *diags;
  given *items;
  int count, capacity;
} reader;

/* Keys of a model map that are not sizes: they choose the graph or how it is run. */
static bool is_common_key(const char *name) {
  static const char *const keys[] = {"model_type", "model_path", "graph", "runner_type"};
  for (int i = 0; i < 4; i++)
    if (!strcmp(name, keys[i])) return true;
  return false;
}

static bool is_declared(const reader *r, const char *name, bool prefix) {
  size_t length = strlen(name);
  for (int i = 0; i < r->file->sizes_count; i++) {
    const tsr_size_decl *d = &r->file->sizes[i];
    for (int k = 0; k < d->names_count; k++)
      if (!strncmp(d->names[k], name, length) && d->names[k][length] == (prefix ? '.' : '\0'))
        return true;
  }
  return false;
}

/* What Hugging Face's config.json calls a size; NULL: nothing of ours. */
static const char *name_of_foreign(const char *key) {
  static const char *const names[][2] = {
      {"hidden_size", "embedding_dim"},        {"n_embd", "embedding_dim"},
      {"num_hidden_layers", "num_blocks"},     {"n_layer", "num_blocks"},
      {"num_attention_heads", "num_heads"},    {"n_head", "num_heads"},
      {"num_key_value_heads", "num_groups"},   {"max_position_embeddings", "max_sequence_length"},
      {"n_positions", "max_sequence_length"},  {"n_ctx", "max_sequence_length"},
      {"block_size", "max_sequence_length"},   {"intermediate_size", "intermediate_dim"},
      {"n_inner", "intermediate_dim"},         {"rope_theta", "theta"},
      {"tie_word_embeddings", "weight_tying"}, {"layer_norm_epsilon", "norm_eps"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(key, names[i][0])) return names[i][1];
  return NULL;
}

/* Where a key is meant that is no size: it is called otherwise here, or is of another section. */
static bool hint_elsewhere(const reader *r, const char *key) {
  const char *ours = name_of_foreign(key), *section = tsr_field_section(key);
  if (ours && is_declared(r, ours, false)) tsr_diag_hint(r->diags, "it is '%s' here", ours);
  else if (section && *section) tsr_diag_hint(r->diags, "'%s' belongs in %s", key, section);
  else if (section) tsr_diag_hint(r->diags, "'%s' belongs at the top level", key);
  return ours || section;
}

static int names_of_all(const tsr_graph_file *file) {
  int count = 0;
  for (int i = 0; i < file->sizes_count; i++) count += file->sizes[i].names_count;
  return count;
}

static bool unknown_key(const reader *r, const char *map_name, const char *name, const given *g) {
  const char **names = tsr_arena_array(r->scope->arena, const char *, names_of_all(r->file) + 1);
  const char *dot = strrchr(name, '.');
  size_t skip = dot ? (size_t)(dot + 1 - name) : 0;
  int count = 0;
  for (int i = 0; i < r->file->sizes_count; i++) {
    const tsr_size_decl *d = &r->file->sizes[i];
    for (int k = 0; k < d->names_count; k++)
      if (!strncmp(d->names[k], name, skip)) names[count++] = d->names[k] + skip;
  }
  const tsr_yaml *own = tsr_yaml_get(r->source->map, "graph");
  if (own && own->kind == TSR_YAML_SCALAR)
    tsr_diag_error(
        r->diags, g->key->location, "unknown key '%s' in %s of the graph '%s'", g->key->text,
        map_name, own->text);
  else
    tsr_diag_error(
        r->diags, g->key->location, "unknown key '%s' in %s of the %s graph", g->key->text,
        map_name, r->file->name);
  if (dot || !hint_elsewhere(r, g->key->text))
    tsr_diag_nearest(r->diags, g->key->text, names, count);
  if (!dot && !own && !tsr_yaml_get(r->source->map, "model_type"))
    tsr_diag_hint(r->diags, "%s names no model_type, so its graph is %s", map_name, r->file->name);
  return false;
}

/* What a map of sizes is given instead of. */
static bool no_map(const reader *r, const char *name, const tsr_yaml *node) {
  tsr_diag_error(
      r->diags, node->location, "'%s' must be a map of sizes, not %s", name,
      tsr_yaml_describe(r->scope->arena, node));
  tsr_text keys = {0};
  size_t length = strlen(name);
  for (int i = 0; i < r->file->sizes_count; i++) {
    const tsr_size_decl *d = &r->file->sizes[i];
    for (int k = 0; k < d->names_count; k++)
      if (!strncmp(d->names[k], name, length) && d->names[k][length] == '.')
        tsr_text_add(&keys, "%s%s", keys.length ? ", " : "", d->names[k] + length + 1);
  }
  tsr_diag_hint(r->diags, "its sizes: %s", keys.data ? keys.data : "");
  tsr_text_free(&keys);
  return false;
}

/* The entries of the user's map, nested maps with dots. */
static bool collect(reader *r, const tsr_yaml *map, const char *prefix) {
  bool ok = true;
  for (int i = 0; i < map->count; i++) {
    if (!*prefix && is_common_key(map->keys[i]->text)) continue;
    tsr_arena_grow(r->scope->arena, (void **)&r->items, sizeof *r->items, r->count, &r->capacity);
    given *g = &r->items[r->count];
    const char *name = tsr_arena_printf(r->scope->arena, "%s%s", prefix, map->keys[i]->text);
    *g = (given){.name = name, .key = map->keys[i], .value = map->items[i]};
    if (g->value->kind == TSR_YAML_MAP && is_declared(r, name, true)) {
      const tsr_yaml *nested = g->value;
      ok &= collect(r, nested, tsr_arena_printf(r->scope->arena, "%s.", name));
    } else if (is_declared(r, name, false)) {
      r->count++;
    } else if (is_declared(r, name, true)) {
      ok = no_map(r, name, g->value);
    } else {
      const char *map_name = *prefix
                                 ? tsr_arena_strndup(r->scope->arena, prefix, strlen(prefix) - 1)
                                 : r->source->map_name;
      ok = unknown_key(r, map_name, name, g);
    }
  }
  return ok;
}

static given *find_given(reader *r, const char *name) {
  for (int i = 0; i < r->count; i++)
    if (!strcmp(r->items[i].name, name)) return &r->items[i];
  return NULL;
}

static const char *kind_text(tsr_size_kind kind) {
  static const char *const texts[] = {"a whole number",          "a number",
                                      "true or false",           "a word",
                                      "a list of whole numbers", "a list of numbers"};
  return texts[kind];
}

static bool wrong_kind(const reader *r, const tsr_size_decl *d, const tsr_yaml *node) {
  return tsr_diag_error(
      r->diags, node->location, "'%s' must be %s, not %s", d->names[0], kind_text(d->kind),
      tsr_yaml_describe(r->scope->arena, node));
}

/* Sizes that no tensor has are refused where they are given, not where a graph file uses them. */
static bool check_limits(
    const reader *r, const tsr_size_decl *d, double x, const char *text, tsr_location location) {
  static const double whole_most = 0x1p40, real_most = 1e15;
  bool whole = d->kind == TSR_SIZE_INTEGER || d->kind == TSR_SIZE_LIST;
  double most = fmin(d->max, whole ? whole_most : real_most), least = fmax(d->min, -most);
  if (x >= least && x <= most) return true;
  return tsr_diag_error(
      r->diags, location, "'%s' must be at %s %.15g, not %s", d->names[0],
      x < least ? "least" : "most", x < least ? least : most,
      text ? text : tsr_arena_printf(r->scope->arena, "%.15g", x));
}

static bool
read_number(const reader *r, const tsr_size_decl *d, const tsr_yaml *node, double *ret) {
  int64_t whole;
  bool truth;
  if (d->kind == TSR_SIZE_BOOLEAN) {
    if (!tsr_yaml_bool(node, &truth)) return wrong_kind(r, d, node);
    return *ret = truth, true;
  }
  bool ok = tsr_yaml_int(node, &whole);
  if (ok) *ret = (double)whole;
  else
    ok = (d->kind == TSR_SIZE_REAL || d->kind == TSR_SIZE_REALS) && tsr_yaml_float(node, ret) &&
         isfinite(*ret);
  if (!ok) return wrong_kind(r, d, node);
  return check_limits(r, d, *ret, node->text, node->location);
}

static bool
read_list(const reader *r, const tsr_size_decl *d, const tsr_yaml *node, tsr_eval *ret) {
  if (node->kind != TSR_YAML_LIST) return wrong_kind(r, d, node);
  double *list = tsr_arena_array(r->scope->arena, double, node->count);
  for (int i = 0; i < node->count; i++)
    if (!read_number(r, d, node->items[i], &list[i])) return false;
  *ret = (tsr_eval){.kind = TSR_EVAL_LIST, .count = node->count, .list = list};
  return true;
}

static bool
read_choice(const reader *r, const tsr_size_decl *d, const tsr_yaml *node, tsr_eval *ret) {
  *ret = (tsr_eval){.kind = TSR_EVAL_WORD};
  if (node->kind != TSR_YAML_SCALAR) return wrong_kind(r, d, node);
  for (int i = 0; i < d->choices_count; i++)
    if (!strcmp(node->text, d->choices[i])) return ret->word = d->choices[i], true;
  const tsr_yaml *reason = d->refused ? tsr_yaml_get(d->refused, node->text) : NULL;
  tsr_diag_error(
      r->diags, node->location, "'%s' cannot be '%s'%s%s", d->names[0], node->text,
      reason ? ": " : "", reason ? reason->text : "");
  tsr_diag_nearest(r->diags, node->text, d->choices, d->choices_count);
  return false;
}

static bool
read_given(const reader *r, const tsr_size_decl *d, const tsr_yaml *node, tsr_eval *ret) {
  if (tsr_size_is_list(d)) return read_list(r, d, node, ret);
  if (d->kind == TSR_SIZE_CHOICE) return read_choice(r, d, node, ret);
  ret->kind = TSR_EVAL_NUMBER;
  return read_number(r, d, node, &ret->number);
}

/* The first name in the expression that the user has given. */
static const tsr_name *find_given_name(const tsr_scope *scope, const tsr_expr *e) {
  const tsr_name *n = e->kind == TSR_EXPR_NAME ? tsr_scope_find(scope, e->name) : NULL;
  if (n) return n->given ? n : NULL;
  for (int i = 0; i < e->count; i++)
    if ((n = find_given_name(scope, e->args[i]))) return n;
  return NULL;
}

static bool eval_choice(const reader *r, const tsr_size_decl *d, tsr_eval *ret) {
  if (!tsr_expr_eval(d->value, r->scope, ret, r->diags)) return false;
  for (int i = 0; ret->kind == TSR_EVAL_WORD && i < d->choices_count; i++)
    if (!strcmp(ret->word, d->choices[i])) return true;
  return tsr_diag_error(
      r->diags, d->value->location, "'%s' is no choice of '%s'",
      ret->kind == TSR_EVAL_WORD ? ret->word : d->value->text, d->names[0]);
}

static bool eval_list(const reader *r, const tsr_size_decl *d, tsr_eval *ret) {
  if (!tsr_expr_eval(d->value, r->scope, ret, r->diags)) return false;
  if (ret->kind == TSR_EVAL_LIST && !ret->words) return true;
  return tsr_diag_error(
      r->diags, d->value->location, "'%s' must be %s, not '%s'", d->names[0], kind_text(d->kind),
      d->value->text);
}

static bool eval_default(const reader *r, const tsr_size_decl *d, tsr_eval *ret) {
  if (d->kind == TSR_SIZE_CHOICE && d->word)
    return *ret = (tsr_eval){.kind = TSR_EVAL_WORD, .word = d->word}, true;
  if (!d->value)
    return tsr_diag_error(
        r->diags, r->source->map ? r->source->location : d->location,
        "'%s' is missing in %s: the %s graph needs it", d->names[0], r->source->map_name,
        r->file->name);
  if (tsr_size_is_list(d)) return eval_list(r, d, ret);
  if (d->kind == TSR_SIZE_CHOICE) return eval_choice(r, d, ret);
  const tsr_name *from = find_given_name(r->scope, d->value);
  tsr_location location = from ? from->location : d->value->location;
  ret->kind = TSR_EVAL_NUMBER;
  if (d->kind != TSR_SIZE_INTEGER)
    return tsr_expr_number(d->value, r->scope, &ret->number, r->diags) &&
           check_limits(r, d, ret->number, NULL, location);
  int64_t whole, min = d->min > -9e15 ? (int64_t)d->min : -9000000000000000;
  if (!tsr_expr_whole(d->value, r->scope, d->names[0], min, &whole, r->diags)) return false;
  ret->number = (double)whole;
  return check_limits(r, d, ret->number, NULL, location);
}

/* A vocabulary of 0 is counted in the data, as tt-train does for character tokenizers. */
static bool detect_vocab(const reader *r, tsr_name *n) {
  int64_t detected = r->options->vocab_detected;
  if (strcmp(n->name, "vocab_size") || n->value.kind != TSR_EVAL_NUMBER) return true;
  if (n->value.number == 0 && !detected && r->options->vocab_assumed) {
    n->value.number = (double)r->options->vocab_assumed;
    tsr_diag_warning(
        r->diags, n->given ? n->location : r->source->location,
        "vocab_size is not given, and the data that defines it was not found: planned with %lld",
        (long long)r->options->vocab_assumed);
  }
  if (n->value.number == 0) n->value.number = (double)detected;
  if (n->value.number > 0 && n->value.number >= (double)detected) return true;
  if (detected)
    return tsr_diag_error(
        r->diags, n->location, "vocab_size %.15g is less than the %lld tokens of the tokenizer",
        n->value.number, (long long)detected);
  return tsr_diag_error(
      r->diags, n->given ? n->location : r->source->location,
      "vocab_size is %s, and there is no tokenizer to count it from", n->given ? "0" : "not given");
}

/* Under one of its names. */
static bool find_size(reader *r, const tsr_size_decl *d, given **ret_given) {
  bool ok = true;
  *ret_given = NULL;
  for (int i = 0; i < d->names_count; i++) {
    given *other = find_given(r, d->names[i]);
    if (*ret_given && other)
      ok = tsr_diag_error(
          r->diags, other->key->location, "'%s' and '%s' are the same size; give one", other->name,
          (*ret_given)->name);
    else if (other) *ret_given = other;
  }
  return ok;
}

static bool read_size(reader *r, const tsr_size_decl *d) {
  given *g;
  bool ok = find_size(r, d, &g);
  tsr_name n = {
      .name = d->names[0], .given = g != NULL, .location = g ? g->value->location : d->location};
  if (d->bad) ok = false;
  else ok &= g ? read_given(r, d, g->value, &n.value) : eval_default(r, d, &n.value);
  ok = ok && detect_vocab(r, &n);
  n.bad = !ok;
  tsr_scope_push(r->scope, &n);
  return ok;
}

int64_t tsr_sizes_get(const tsr_scope *scope, const char *name) {
  const tsr_name *n = tsr_scope_find(scope, name);
  bool usable = n && !n->bad && n->value.kind == TSR_EVAL_NUMBER && fabs(n->value.number) < 9e15;
  return usable ? (int64_t)n->value.number : 0;
}

static bool push_sequence(const reader *r) {
  const tsr_name *longest = tsr_scope_find(r->scope, "max_sequence_length");
  int64_t max = tsr_sizes_get(r->scope, "max_sequence_length"), sequence = r->options->sequence;
  if (!sequence) sequence = max;
  tsr_name n = {.name = "sequence", .value.number = (double)sequence};
  n.bad = sequence < 1 && longest && longest->bad;
  if (sequence < 1)
    n.unknown = "neither training_config.sequence_length nor a size max_sequence_length is given";
  tsr_scope_push(r->scope, &n);
  if (!longest || longest->bad || sequence <= max) return true;
  return tsr_diag_error(
      r->diags, longest->given ? longest->location : r->source->location,
      "the sequence length %lld is longer than max_sequence_length %lld", (long long)sequence,
      (long long)max);
}

static int64_t common_multiple(int64_t a, int64_t b) {
  int64_t x = a, y = b;
  while (y) {
    int64_t rest = x % y;
    x = y, y = rest;
  }
  return a / x * b;
}

int64_t tsr_vocab_stored(int64_t vocab, int64_t tp_units) {
  enum { ALIGNED_FROM = 1024, ALIGNED_TO = 128, UNIT_OF = 8 };
  int64_t of = vocab < ALIGNED_FROM ? tp_units : common_multiple(ALIGNED_TO, UNIT_OF * tp_units);
  return (vocab + of - 1) / of * of;
}

bool tsr_sizes_read(
    tsr_scope *scope, const tsr_graph_file *file, const tsr_model_source *source,
    const tsr_model_options *options, tsr_diags *diags) {
  reader r = {.scope = scope, .file = file, .source = source, .options = options, .diags = diags};
  for (int axis = 0; axis < TSR_AXES; axis++) tsr_scope_word(scope, tsr_axis_name(axis));
  for (int i = 0; i < file->sizes_count; i++)
    for (int k = 0; k < file->sizes[i].choices_count; k++)
      tsr_scope_word(scope, file->sizes[i].choices[k]);
  tsr_scope_push_number(scope, "batch", (double)options->batch);
  tsr_scope_push_number(scope, "training", options->training);
  tsr_scope_push_number(scope, "tp_units", (double)options->units.tp);
  bool ok = !source->map || collect(&r, source->map, "");
  for (int i = 0; i < file->sizes_count; i++) ok &= read_size(&r, &file->sizes[i]);
  int64_t vocab = tsr_sizes_get(scope, "vocab_size");
  const tsr_name *size = tsr_scope_find(scope, "vocab_size");
  tsr_name padded = {.name = "vocab_padded", .bad = vocab < 1 && size && size->bad};
  if (vocab < 1) padded.unknown = "there is no size vocab_size of at least 1";
  padded.value.number = (double)tsr_vocab_stored(vocab, options->units.tp);
  tsr_scope_push(scope, &padded);
  return push_sequence(&r) && ok;
}

/* As a configuration would say it; NULL: it has no default, or one that says nothing here. */
static const char *default_text(tsr_scope *scope, const tsr_size_decl *d) {
  if (d->kind == TSR_SIZE_CHOICE && d->word) return d->word;
  if (tsr_size_is_list(d) || d->kind == TSR_SIZE_CHOICE || !d->value) return NULL;
  double number;
  if (!tsr_expr_number(d->value, scope, &number, tsr_diags_new(scope->arena))) return NULL;
  if (d->kind == TSR_SIZE_BOOLEAN) return number != 0 ? "true" : "false";
  return tsr_arena_printf(scope->arena, "%.17g", number);
}

void tsr_sizes_defaults(tsr_scope *scope, const tsr_graph_file *file, tsr_model *model) {
  tsr_model_default *all = tsr_arena_array(scope->arena, tsr_model_default, names_of_all(file) + 1);
  for (int i = 0; i < file->sizes_count; i++) {
    const tsr_size_decl *d = &file->sizes[i];
    const char *text = default_text(scope, d);
    for (int k = 0; text && k < d->names_count; k++)
      all[model->defaults_count++] = (tsr_model_default){d->names[k], text};
  }
  model->defaults = all;
}

/* Where to change what a check is about: the size itself if it was given, else what it came from,
 * else another size of the check. */
static tsr_location
check_place(const tsr_scope *scope, const tsr_graph_file *file, const tsr_check *check) {
  const tsr_name *at = check->at ? tsr_scope_find(scope, check->at) : NULL;
  if (!at) return check->that->location;
  for (int i = 0; !at->given && i < file->sizes_count; i++) {
    const tsr_size_decl *d = &file->sizes[i];
    if (strcmp(d->names[0], at->name) || !d->value) continue;
    const tsr_name *source = find_given_name(scope, d->value);
    if (source) return source->location;
  }
  const tsr_name *other = at->given ? NULL : find_given_name(scope, check->that);
  return other ? other->location : at->location;
}

static bool
run_check(tsr_scope *scope, const tsr_graph_file *file, const tsr_check *check, tsr_diags *diags) {
  bool holds;
  const char *text;
  if (!tsr_expr_true(check->that, scope, &holds, diags)) return false;
  if (holds) return true;
  if (!tsr_scope_fill(scope, check->otherwise, check->location, &text, diags)) return false;
  return tsr_diag_error(diags, check_place(scope, file, check), "%s", text);
}

bool tsr_checks_run(tsr_scope *scope, const tsr_graph_file *file, tsr_diags *diags) {
  bool ok = true;
  for (int i = 0; i < file->checks_count; i++)
    ok &= run_check(scope, file, &file->checks[i], diags);
  return ok;
}
