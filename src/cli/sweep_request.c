// SPDX-License-Identifier: Apache-2.0
#include "cli/sweep_request.h"
#include "config/override.h"
#include "config/print.h"
#include "config/recipe_keys.h"
#include "sweep/key.h"
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

/* Of several values, or by a name that no other command knows. Keys of the section itself are not.
 */
static bool is_parameter(const tsr_override *o) {
  bool of_section = !strncmp(o->path, "sweep.", 6) || !strcmp(o->path, "sweep");
  bool is_short = !strchr(o->path, '.') && tsr_field_find_dotted(o->path) < 0;
  return !of_section && (is_short || tsr_sweep_is_space(tsr_sweep_key_row(o->path), o->value));
}

/* Run 1 says the same once more. */
static void drop_warnings(tsr_diags *diags) {
  char *text = NULL;
  size_t length = 0;
  FILE *stream = open_memstream(&text, &length);
  if (!stream) return;
  tsr_diags_print(diags, stream);
  fclose(stream);
  free(text);
}

static bool load_base(app *a, const tsr_override *overrides, sweep_request *r) {
  const tsr_options *o = &a->options;
  tsr_set fixed[TSR_SETS_MAX];
  tsr_config *config;
  int count = 0;
  for (int i = 0; i < o->sets_count; i++) {
    r->parameter_of[i] = is_parameter(&overrides[i]) ? 0 : -1;
    if (r->parameter_of[i] < 0) fixed[count++] = o->sets[i];
  }
  if (!tsr_config_load(a->arena, o->config, fixed, count, &config, a->diags)) return false;
  r->config = config;
  drop_warnings(a->diags);
  return true;
}

/* The whole key of a path that may be another spelling, or an end, of it. */
static const char *key_of(tsr_arena *arena, const char *path) {
  const tsr_field *f = tsr_sweep_key_row(path);
  if (!f || f->same_as) return f ? f->same_as : path;
  return tsr_field_dotted_key(arena, f);
}

/* Whether the section has a parameter of the key: a value of the line takes its place. */
static bool is_of_section(const tsr_sweep *s, const char *key) {
  for (int i = 0; i < s->parameters_count; i++)
    if (!s->parameters[i].from_line && !strcmp(s->parameters[i].key, key)) return true;
  return false;
}

static int find_parameter(const tsr_sweep *s, const char *name) {
  int i = 0;
  while (s->parameters[i].name != name) i++;
  return i;
}

/* A --set of all runs may not give a parameter's key one value: not by the key, nor by a map that
 * it is in behind the parameter. */
static bool
check_fixed(app *a, const tsr_override *overrides, const sweep_request *r, int fixed, int at) {
  const tsr_sweep_parameter *p = &r->sweep.parameters[r->parameter_of[at]];
  const tsr_override *o = &overrides[fixed];
  const char *key = key_of(a->arena, o->path);
  size_t length = strlen(key);
  if (!strcmp(key, p->key))
    return tsr_diag_error(
        a->diags, o->location, "'%s' is of all runs here, and '%s' is a parameter of the sweep",
        o->path, p->name);
  if (fixed < at || strncmp(p->key, key, length) || p->key[length] != '.') return true;
  tsr_diag_error(
      a->diags, o->location, "'%s' is of all runs here, with the parameter '%s' in it", o->path,
      p->name);
  tsr_diag_hint(a->diags, "in front of the parameter it has the other keys' values");
  return false;
}

static bool check_all_fixed(app *a, const tsr_override *overrides, const sweep_request *r) {
  bool ok = true;
  for (int i = 0; i < a->options.sets_count; i++)
    for (int at = 0; r->parameter_of[i] < 0 && at < a->options.sets_count; at++)
      if (r->parameter_of[at] >= 0) ok &= check_fixed(a, overrides, r, i, at);
  return ok;
}

static bool read_parameters(app *a, const tsr_override *overrides, sweep_request *r) {
  const tsr_options *o = &a->options;
  tsr_sweep *s = &r->sweep;
  bool ok =
      tsr_sweep_read(a->arena, tsr_yaml_get(r->config->root, "sweep"), r->config, s, a->diags);
  for (int i = 0; i < o->sets_count; i++)
    if (r->parameter_of[i] < 0 && is_of_section(s, key_of(a->arena, overrides[i].path)))
      r->parameter_of[i] = 0;
  for (int i = 0; i < o->sets_count; i++)
    if (r->parameter_of[i] >= 0)
      ok &= tsr_sweep_add(
          a->arena, overrides[i].path, overrides[i].location, overrides[i].value, r->config, true,
          s, a->diags);
  for (int i = 0; ok && i < o->sets_count; i++)
    if (r->parameter_of[i] >= 0) r->parameter_of[i] = find_parameter(s, overrides[i].path);
  return ok && check_all_fixed(a, overrides, r);
}

bool sweep_request_read(app *a, sweep_request *r) {
  const tsr_options *o = &a->options;
  tsr_override *overrides;
  uint64_t seed = (uint64_t)o->sweep_seed;
  *r = (sweep_request){.sweep = tsr_sweep_begin()};
  if (!tsr_overrides_parse(a->arena, o->sets, o->sets_count, &overrides, a->diags) ||
      !load_base(a, overrides, r) ||
      !tsr_overrides_parse(a->arena, o->sets, o->sets_count, &overrides, a->diags) ||
      !read_parameters(a, overrides, r))
    return false;
  tsr_sweep_set_random(&r->sweep, o->random_runs, o->sweep_seed_text ? &seed : NULL);
  if (o->sets_count + r->sweep.parameters_count > TSR_SETS_MAX)
    return tsr_diag_error(a->diags, TSR_NOWHERE, "the sweep sets more than %d keys", TSR_SETS_MAX);
  return tsr_sweep_check(&r->sweep, a->diags) &&
         tsr_sweep_make_runs(a->arena, &r->sweep, &r->runs, &r->count, a->diags);
}

static tsr_set set_of(app *a, const sweep_request *r, int run, int parameter) {
  return (tsr_set){tsr_arena_printf(
      a->arena, "%s=%s", r->sweep.parameters[parameter].key, r->runs[run].values[parameter])};
}

void sweep_request_sets(app *a, const sweep_request *r, int run, tsr_set *ret, int *ret_count) {
  const tsr_options *o = &a->options;
  int n = 0;
  for (int i = 0; i < o->sets_count; i++)
    ret[n++] = r->parameter_of[i] < 0 ? o->sets[i] : set_of(a, r, run, r->parameter_of[i]);
  for (int p = 0; p < r->sweep.parameters_count; p++)
    if (!r->sweep.parameters[p].from_line) ret[n++] = set_of(a, r, run, p);
  *ret_count = n;
}

/* ---- the definition ---- */

typedef struct {
  tsr_arena *arena;
  tsr_sweep_entry *entries;
  int count, capacity;
} definition;

/* Takes the text. */
static void add(definition *d, const char *key, tsr_text *value) {
  tsr_arena_grow(d->arena, (void **)&d->entries, sizeof *d->entries, d->count, &d->capacity);
  d->entries[d->count++] = (tsr_sweep_entry){
      tsr_arena_strdup(d->arena, key), tsr_arena_strdup(d->arena, value->data ? value->data : "")};
  tsr_text_free(value);
}

/* Keys that are no part of a recipe, and that fix which steps, data and evaluations a run has. */
static bool is_normative(const tsr_field *f) {
  // clang-format off
  static const char *const keys[] = {
      "num_epochs", "batch_size", "batch_size_per_rank", "gradient_accumulation_steps", "data_path",
      "data_sources", "data_format", "tokenizer_path", "validation_path", "validation_fraction",
      "validation_batch_size", "eval_every", "early_stop_patience", "early_stop_min_delta",
      "model_path"};
  // clang-format on
  if (tsr_recipe_has_key(f)) return true;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (!strcmp(f->section, "training_config") && !strcmp(f->key, keys[i])) return true;
  return !strcmp(f->section, "data") && f->at;
}

static void add_config(definition *d, const tsr_config *c) {
  for (int i = 0; i < tsr_fields_count; i++) {
    const tsr_field *f = &tsr_fields[i];
    tsr_text value = {0};
    if (!is_normative(f) || !tsr_field_is_printed(c, f)) continue;
    tsr_field_print(c, f, &value);
    add(d, tsr_field_dotted_key(d->arena, f), &value);
  }
  const tsr_yaml *maps[] = {c->model.map, c->graph, c->tensors, c->inputs, c->parameters};
  const char *names[] = {c->model.map_name, "graph", "tensors", "inputs", "parameters"};
  for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
    tsr_text value = {0};
    if (!maps[i]) continue;
    tsr_yaml_print_line(maps[i], &value);
    add(d, names[i], &value);
  }
}

/* Under the name of the file, where all runs have one. */
static void add_data(definition *d, const sweep_request *r, const char *hash) {
  const char *path = r->config->training.data_path;
  tsr_text value = {0};
  for (int p = 0; p < r->sweep.parameters_count; p++)
    if (!strcmp(r->sweep.parameters[p].key, "training_config.data_path")) path = "";
  tsr_text_add(&value, "%s", hash);
  add(d, tsr_arena_printf(d->arena, "content of %s", *path ? path : "the data"), &value);
}

void sweep_request_definition(
    tsr_arena *arena, const sweep_request *r, const char *data, tsr_sweep_entry **ret,
    int *ret_count) {
  definition d = {.arena = arena};
  tsr_text method = {0}, metric = {0};
  tsr_sweep_print_method(&r->sweep, &method);
  add(&d, "sweep.method", &method);
  tsr_text_add(&metric, "%s", r->sweep.metric);
  add(&d, "sweep.metric", &metric);
  for (int p = 0; p < r->sweep.parameters_count; p++) {
    tsr_text values = {0};
    tsr_sweep_parameter_print(&r->sweep.parameters[p], &values);
    add(&d, tsr_arena_printf(arena, "sweep.parameters.%s", r->sweep.parameters[p].key), &values);
  }
  add_config(&d, r->config);
  add_data(&d, r, data);
  *ret = d.entries;
  *ret_count = d.count;
}
