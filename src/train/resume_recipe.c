// SPDX-License-Identifier: Apache-2.0
#include "train/resume_recipe.h"
#include "base/hash.h"
#include "train/learning_rate_recipe.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *
isa_before(tsr_arena *arena, const tsr_checkpoint_manager_run *r, const tsr_manifest *resume) {
  const char *before = resume ? tsr_recipe_value(resume, TSR_RECIPE_ISA_BEFORE) : NULL;
  const char *last = resume ? tsr_recipe_value(resume, TSR_RECIPE_ISA) : NULL;
  if (!last || !strcmp(last, r->isa)) return before;
  return tsr_arena_printf(
      arena, "%s%s%s to step %lld", before ? before : "", before ? ", " : "", last,
      (long long)resume->state.step);
}

/* What the vocabulary has without the padding that its units do not need. */
static int64_t vocab_of_units(const tsr_checkpoint_manager_run *r) {
  int64_t vocab = r->training->model->vocab_size, units = r->training->graph->units.tp;
  return (vocab + units - 1) / units * units;
}

/* The rows of the vocabulary where they differ from that; 0: they do not, or no parameter has them.
 */
static int64_t vocab_padded(const tsr_checkpoint_manager_run *r) {
  const tsr_model *m = r->training->model;
  const tsr_graph *g = r->training->graph;
  bool has = false;
  for (int p = 0; p < g->params_count; p++) {
    const tsr_param *q = &g->params[p];
    has |= !q->padding.dim && q->padding.real == m->vocab_size && q->shape[0] == m->vocab_padded;
  }
  return has && m->vocab_padded != vocab_of_units(r) ? m->vocab_padded : 0;
}

static const char *
vocab_before(tsr_arena *arena, const tsr_checkpoint_manager_run *r, const tsr_manifest *resume) {
  if (!resume || !vocab_padded(r)) return NULL;
  if (tsr_recipe_value(resume, TSR_RECIPE_VOCAB))
    return tsr_recipe_value(resume, TSR_RECIPE_VOCAB_BEFORE);
  return tsr_arena_printf(
      arena, "%lld rows to step %lld", (long long)vocab_of_units(r), (long long)resume->state.step);
}

void tsr_resume_recipe(
    tsr_arena *arena, const tsr_checkpoint_manager_run *r, const tsr_manifest *resume,
    tsr_recipe_entry **ret, int *ret_count) {
  const tsr_units *units = &r->training->graph->units;
  char data[TSR_HASH_TEXT];
  tsr_dataset_fingerprint(&r->data->dataset, data);
  tsr_recipe_facts facts = {
      .samples_per_step = r->samples_per_step,
      .sequence = r->training->model->sequence,
      .total_steps = r->total_steps,
      .units_batch = units->batch,
      .units_sequence = units->sequence,
      .units_tp = units->tp,
      .units_expert = units->expert,
      .units_order = r->units_order,
      .isa = r->isa,
      .isa_before = isa_before(arena, r, resume),
      .vocab_padded = vocab_padded(r),
      .vocab_before = vocab_before(arena, r, resume),
      .initial_weights = r->initial_weights,
      .initial_adapter = resume && !r->forks /* which has what its configuration names */
                             ? tsr_recipe_value(resume, TSR_RECIPE_ADAPTER)
                             : r->initial_adapter,
      .routing = r->routing,
      .graph = r->training->model->source,
      .data = data};
  tsr_config_recipe(arena, r->config, &facts, ret, ret_count);
}

static bool has_param(const tsr_graph *g, const char *name) {
  for (int p = 0; p < g->params_count; p++)
    if (!strcmp(g->params[p].name, name)) return true;
  return false;
}

const char *tsr_resume_recipe_hash(tsr_arena *arena, const tsr_manifest *m, const tsr_graph *g) {
  char text[TSR_HASH_TEXT];
  tsr_hasher *h = tsr_hasher_new(arena);
  tsr_hasher_begin(h);
  for (int t = 0; t < m->tensors_count; t++)
    for (int i = 0; has_param(g, m->tensors[t].name) && i < m->tensors[t].pieces_count; i++)
      tsr_hasher_add(h, m->tensors[t].pieces[i].hash, sizeof m->tensors[t].pieces[i].hash);
  tsr_hasher_end(h, text);
  return tsr_arena_strdup(arena, text);
}

const char *tsr_resume_recipe_weights(
    tsr_arena *arena, const tsr_checkpoint_manager_options *o, const tsr_graph *g) {
  bool adapts = o->resume && tsr_manifest_has_adapters(o->resume); /* reads them at every start */
  if (o->weights) return tsr_resume_recipe_hash(arena, o->weights, g);
  return o->resume && !adapts && !o->forks ? tsr_recipe_value(o->resume, TSR_RECIPE_WEIGHTS) : NULL;
}

/* The key of the configuration that a difference is due to. */
static const char *key_of(const tsr_config *c, const char *key) {
  if (!strcmp(key, TSR_RECIPE_GRAPH)) return "transformer_config.graph";
  if (!strcmp(key, TSR_RECIPE_WEIGHTS)) return "training_config.model_path";
  if (!strcmp(key, "data"))
    return c->training.data_sources_count ? "training_config.data_sources"
                                          : "training_config.data_path";
  if (strcmp(key, "samples_per_step")) return key;
  return c->training.batch_size_given ? "training_config.batch_size"
                                      : "training_config.batch_size_per_rank";
}

/* Where it stands; what is left out would stand in the model's section, or in the file. */
static tsr_location place_of(const tsr_config *c, const char *key) {
  tsr_location location = tsr_config_location(c, key_of(c, key));
  const char *map = c->model.map_name;
  bool is_size = map && (!strncmp(key, map, strlen(map)) || !strcmp(key, TSR_RECIPE_VOCAB));
  if (location.line) return location;
  if (is_size && c->model.location.file) return c->model.location;
  return (tsr_location){.file = c->file};
}

/* Numbers may be written in two ways, in older checkpoints. */
static bool is_same(const char *there, const char *here) {
  char *end_there, *end_here;
  if (!strcmp(there, here)) return true;
  double a = strtod(there, &end_there), b = strtod(here, &end_here);
  return *there && *here && !*end_there && !*end_here && isfinite(a) && a == b;
}

/* What one of the two leaves out is the default there: a size, or the type, which is an entry of
 * its own, and which a printed configuration names. */
static bool is_default(const tsr_checkpoint_manager_run *r, const char *key, const char *value) {
  const tsr_model *m = r->training->model;
  size_t prefix = strlen(r->config->model.map_name ? r->config->model.map_name : "");
  if (!prefix || strncmp(key, r->config->model.map_name, prefix) || key[prefix] != '.')
    return false;
  if (!strcmp(key + prefix, ".model_type")) return !strcmp(value, r->config->model.model_type);
  for (int i = 0; i < m->defaults_count; i++)
    if (!strcmp(m->defaults[i].key, key + prefix + 1)) return is_same(m->defaults[i].value, value);
  return false;
}

/* The level that bits depend on may be given up, with a warning at every resume from then on. */
static bool warn_of_level(
    const tsr_checkpoint_manager_run *r, const tsr_manifest *m, const char *there,
    tsr_diags *diags) {
  tsr_severity severity = tsr_diag_normative(diags, TSR_WARNING);
  tsr_location location = tsr_config_location(r->config, TSR_RECIPE_ISA);
  const char *before = tsr_recipe_value(m, TSR_RECIPE_ISA_BEFORE);
  if (there && strcmp(there, r->isa))
    tsr_diag(
        diags, severity, location, "from step %lld on the bits are those of %s, not of %s",
        (long long)m->state.step, r->isa, there);
  else if (before)
    tsr_diag(
        diags, severity, location, "'%s' has the bits of %s: no run at %s has them", m->folder,
        before, r->isa);
  else return true;
  return severity < TSR_ERROR;
}

/* A vocabulary of a version that padded it for its units alone. */
static bool warn_of_vocab(
    const tsr_checkpoint_manager_run *r, const tsr_manifest *m, const char *there,
    tsr_diags *diags) {
  tsr_severity severity = tsr_diag_normative(diags, TSR_WARNING);
  tsr_location location = place_of(r->config, TSR_RECIPE_VOCAB);
  const char *before = tsr_recipe_value(m, TSR_RECIPE_VOCAB_BEFORE);
  if (!there)
    tsr_diag(
        diags, severity, location,
        "from step %lld on the vocabulary is stored in %lld rows, not in %lld: the bits may be "
        "others than those of the version that wrote '%s'",
        (long long)m->state.step, (long long)vocab_padded(r), (long long)vocab_of_units(r),
        m->folder);
  else if (before)
    tsr_diag(
        diags, severity, location,
        "the vocabulary of '%s' was stored in %s: a run that begins now may have other bits",
        m->folder, before);
  else return true;
  return severity < TSR_ERROR;
}

/* Adapters go with the frozen parameters that they were trained beside. */
static bool
other_model(const tsr_config *c, const tsr_manifest *m, tsr_location location, tsr_diags *diags) {
  const char *path = c->training.model_path;
  if (!*path) path = "the seed's random weights";
  return tsr_diag_error(
      diags, location, "the adapters of '%s' were trained with other weights than those of '%s'",
      m->folder, path);
}

static bool warn_of_data(const tsr_checkpoint_manager_run *r, const char *file, tsr_diags *diags) {
  tsr_diag_warning(
      diags, place_of(r->config, "data"), "the data are not those of '%s': their hash differs",
      file);
  return true;
}

/* A run that forks has its own learning rates from the checkpoint on. */
static bool
is_later_rate(const tsr_checkpoint_manager_run *r, const tsr_manifest *m, const char *key) {
  tsr_lr_curve curve = tsr_lr_curve_of(r->config, r->total_steps);
  return r->forks && tsr_lr_recipe_has(key) &&
         tsr_lr_recipe_agrees(m->recipe, m->recipe_count, &curve, m->state.step);
}

/* Some steps before the checkpoint have other bits than those of a run from the first step on. */
static bool refuse_mixed(
    const tsr_checkpoint_manager_run *r, const tsr_manifest *m, const char *key, const char *there,
    tsr_diags *diags) {
  bool level = !strcmp(key, TSR_RECIPE_ISA_BEFORE);
  return tsr_diag_error(
      diags, place_of(r->config, level ? TSR_RECIPE_ISA : TSR_RECIPE_VOCAB),
      "'%s' has the bits of %s%s: no run from the first step on has them", m->folder,
      level ? "" : "a vocabulary that was stored in ", there);
}

/* Nothing else may. */
static bool differs(
    const tsr_checkpoint_manager_run *r, const tsr_manifest *m, const char *key, const char *there,
    const char *here, tsr_diags *diags) {
  if (!strcmp(key, TSR_RECIPE_ISA_BEFORE) || !strcmp(key, TSR_RECIPE_VOCAB_BEFORE))
    return !r->forks || !there || refuse_mixed(r, m, key, there, diags);
  if (!strcmp(key, TSR_RECIPE_VOCAB) && here && (!there || is_same(there, here)))
    return warn_of_vocab(r, m, there, diags);
  if (!strcmp(key, TSR_RECIPE_ISA) && !r->forks) return warn_of_level(r, m, there, diags);
  if (there && here && is_same(there, here)) return true;
  if (!there && !strcmp(key, TSR_RECIPE_GRAPH)) return true;
  if ((!there || !here) && is_default(r, key, there ? there : here)) return true;
  if (!strcmp(key, "data") && r->data_may_differ) return warn_of_data(r, m->folder, diags);
  if (is_later_rate(r, m, key)) return true;
  tsr_location location = place_of(r->config, key);
  if (!strcmp(key, TSR_RECIPE_WEIGHTS) && r->config->lora.enabled)
    return other_model(r->config, m, location, diags);
  const char *absent = !strcmp(key, "numerics.reduce_tree")     ? "binary"
                       : !strcmp(key, "numerics.tp_reductions") ? "f32"
                                                                : "not there";
  return tsr_diag_error(
      diags, location, "'%s' is %s in this run, and %s in '%s'", key, here ? here : absent,
      there ? there : absent, m->folder);
}

bool tsr_resume_recipe_check(
    const tsr_checkpoint_manager_run *r, const tsr_manifest *m, const tsr_recipe_entry *recipe,
    int count, tsr_diags *diags) {
  bool ok = true;
  for (int i = 0; i < count; i++)
    ok &= differs(r, m, recipe[i].key, tsr_recipe_value(m, recipe[i].key), recipe[i].value, diags);
  for (int i = 0; i < m->recipe_count; i++)
    if (!tsr_recipe_find(recipe, count, m->recipe[i].key))
      ok &= differs(r, m, m->recipe[i].key, m->recipe[i].value, NULL, diags);
  if (!ok && r->forks)
    tsr_diag_hint(
        diags,
        "--fork begins a run that differs from the other one in nothing before the checkpoint, and "
        "behind it in learning rates alone");
  else if (!ok)
    tsr_diag_hint(
        diags,
        "a run continues with the recipe that it began with; training_config.model_path takes "
        "the weights alone into a new one");
  return ok;
}

bool tsr_resume_recipe_check_locked(
    const tsr_checkpoint_manager_run *r, const tsr_run_lock *lock, const tsr_recipe_entry *recipe,
    int count, bool data_may_differ, tsr_diags *diags) {
  int errors = tsr_diags_errors(diags);
  for (int i = 0; i < count + lock->recipe_count; i++) {
    const char *key = i < count ? recipe[i].key : lock->recipe[i - count].key;
    const char *here = tsr_recipe_find(recipe, count, key);
    const char *there = tsr_recipe_find(lock->recipe, lock->recipe_count, key);
    bool twice = i >= count && here;
    if (twice || (here && there && is_same(there, here))) continue;
    if ((!there || !here) && is_default(r, key, there ? there : here)) continue;
    if (!strcmp(key, "data") && data_may_differ) warn_of_data(r, lock->path, diags);
    else if (!strcmp(key, TSR_RECIPE_VOCAB) && !there)
      tsr_diag_warning(
          diags, place_of(r->config, key),
          "the vocabulary is stored in %s rows, in the run of '%s' in %lld: the bits may differ",
          here, lock->path, (long long)vocab_of_units(r));
    else
      tsr_diag_error(
          diags, place_of(r->config, key), "'%s' is %s in this run, and %s in '%s'", key,
          here ? here : "not there", there ? there : "not there", lock->path);
  }
  return tsr_diags_errors(diags) == errors;
}

/* What is usual on one device is not on another, and a run continues as it began. */
static void fill_precision(tsr_config *c, const tsr_manifest *m) {
  static const char *const names[] = {
      [TSR_PRECISION_F32] = "f32",
      [TSR_PRECISION_BF16] = "bf16",
      [TSR_PRECISION_FP16] = "fp16",
      [TSR_PRECISION_FP8] = "fp8"};
  const char *there = tsr_recipe_value(m, "training_config.precision");
  if (tsr_config_location(c, "training_config.precision").file ||
      tsr_config_location(c, "training_config.mixed_precision").file)
    return;
  for (int i = 0; there && i < (int)(sizeof names / sizeof *names); i++)
    if (!strcmp(there, names[i])) c->training.precision = (tsr_precision)i;
  c->training.mixed_precision = c->training.precision != TSR_PRECISION_F32;
}

void tsr_resume_recipe_fill(tsr_arena *arena, tsr_config *c, const tsr_manifest *m) {
  struct {
    const char *key;
    int64_t *value;
  } units[] = {
      {"numerics.units.batch", &c->numerics.units_batch},
      {"numerics.units.sequence", &c->numerics.units_sequence},
      {"numerics.units.tp", &c->numerics.units_tp},
      {"numerics.units.expert", &c->numerics.units_expert}};
  for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
    const char *there = tsr_recipe_value(m, units[i].key);
    if (i == 0 && tsr_recipe_value(m, "numerics.units.order")) continue; /* by default alone */
    if (there && !*units[i].value) *units[i].value = strtoll(there, NULL, 10);
  }
  const char *tree = tsr_recipe_value(m, "numerics.reduce_tree");
  if (tree && !tsr_config_location(c, "numerics.reduce_tree").file)
    c->numerics.reduce_tree = TSR_REDUCE_TREE_FLAT;
  if (tsr_recipe_value(m, "numerics.tp_reductions") &&
      !tsr_config_location(c, "numerics.tp_reductions").file)
    c->numerics.tp_reductions = TSR_TP_REDUCTIONS_HALF;
  const char *isa = tsr_recipe_value(m, TSR_RECIPE_ISA);
  bool level = isa && strncmp(isa, "cuda", 4); /* of a CPU */
  if (level && !*c->numerics.isa) c->numerics.isa = tsr_arena_strdup(arena, isa);
  fill_precision(c, m);
}
