// SPDX-License-Identifier: Apache-2.0
#include "train/adapter_files.h"
#include "base/file_read.h"
#include "model/model.h"
#include "train/saved_modules.h"
#include <string.h>

bool tsr_adapted_model_read(
    tsr_arena *arena, const tsr_config *config, int64_t vocab, const char *graphs_folder,
    tsr_adapted_model *ret, tsr_diags *diags) {
  tsr_model_options options = {
      .batch = 1, .sequence = 1, .vocab_detected = vocab, .units = {1, 1, 1}};
  options.graphs_folder = graphs_folder;
  tsr_model *model;
  *ret = (tsr_adapted_model){.config = config};
  if (!tsr_config_require_model(config, diags) ||
      !tsr_model_read(arena, config, &options, &model, diags))
    return false;
  ret->base = model->graph;
  ret->num_labels = model->num_labels;
  if (!tsr_adapter_targets(arena, config, ret->base, &ret->adapters, diags)) return false;
  ret->graph = tsr_pass_adapters(ret->base, &ret->adapters);
  return true;
}

/* ---- merging ---- */

tsr_hf_change *tsr_adapted_changes(tsr_arena *arena, const tsr_trained_values *v, int *ret_count) {
  const tsr_graph *g = v->graph;
  tsr_hf_change *all = tsr_arena_array(arena, tsr_hf_change, g->params_count + 1);
  int count = 0;
  for (int p = 0; p < g->params_count; p++) {
    const tsr_param *param = &g->params[p];
    tsr_adapter adapter;
    if (param->is_adapter) continue;
    if (v->values[p]) {
      all[count++] = (tsr_hf_change){.param = param->name, .values = v->values[p]};
    } else if (tsr_adapter_find(g, p, &adapter)) {
      int64_t shape[TSR_DIMS_MAX];
      tsr_param_real_shape(param, shape);
      all[count++] = (tsr_hf_change){
          .param = param->name,
          .a = v->values[adapter.a],
          .b = v->values[adapter.b],
          .m = adapter.m < 0 ? NULL : v->values[adapter.m],
          .rank = g->params[adapter.a].shape[0],
          .out = shape[0],
          .in = shape[1],
          .scale = (float)adapter.scale};
    }
  }
  *ret_count = count;
  return all;
}

/* ---- PEFT's folder ---- */

static const char *module_of(tsr_arena *arena, const tsr_param *p) {
  static const char bias[] = ".bias";
  const char *name = tsr_peft_module_name(arena, tsr_adapter_module(arena, p));
  char *module = tsr_arena_strdup(arena, name);
  if (tsr_path_ends(module, bias)) module[strlen(module) - strlen(bias)] = 0;
  return module;
}

static const char *last_part(const char *module) {
  const char *dot = strrchr(module, '.');
  return dot ? dot + 1 : module;
}

/* Whether all layers with that last part of their names have adapters. */
static bool are_all_adapted(tsr_arena *arena, const tsr_adapted_model *m, const char *name) {
  for (int p = 0; p < m->base->params_count; p++) {
    const tsr_param *param = &m->base->params[p];
    bool found = param->ndim != 1 && !strcmp(last_part(module_of(arena, param)), name);
    if (found && !m->adapters.params[p].rank) return false;
  }
  return true;
}

/* The modules with adapters, by the last part of their names where that is of no others. */
static const char **list_targets(tsr_arena *arena, const tsr_adapted_model *m, int *ret_count) {
  const char **names = tsr_arena_array(arena, const char *, m->base->params_count + 1);
  int count = 0;
  for (int p = 0; p < m->base->params_count; p++) {
    if (!m->adapters.params[p].rank) continue;
    const char *module = module_of(arena, &m->base->params[p]), *name = last_part(module);
    if (!are_all_adapted(arena, m, name)) name = module;
    bool known = false;
    for (int i = 0; i < count; i++) known |= !strcmp(names[i], name);
    if (!known) names[count++] = name;
  }
  *ret_count = count;
  return names;
}

/* ---- modules of another rank or alpha ---- */

typedef double number(const tsr_param_training *training);
static double rank_of(const tsr_param_training *t) { return (double)t->rank; }
static double alpha_of(const tsr_param_training *t) { return t->alpha; }

/* Whether all adapted modules that have that last part of their names have that number. */
static bool
have_all(tsr_arena *arena, const tsr_adapted_model *m, const char *name, number *of, double value) {
  for (int p = 0; p < m->base->params_count; p++) {
    const tsr_param_training *t = &m->adapters.params[p];
    if (t->rank && of(t) != value &&
        !strcmp(last_part(module_of(arena, &m->base->params[p])), name))
      return false;
  }
  return true;
}

static tsr_config_numbers
list_numbers(tsr_arena *arena, const tsr_adapted_model *m, number *of, double usual) {
  tsr_config_number *items = tsr_arena_array(arena, tsr_config_number, m->base->params_count + 1);
  int count = 0;
  for (int p = 0; p < m->base->params_count; p++) {
    const tsr_param_training *t = &m->adapters.params[p];
    if (!t->rank || of(t) == usual) continue;
    const char *module = module_of(arena, &m->base->params[p]), *name = last_part(module);
    if (!have_all(arena, m, name, of, of(t))) name = module;
    bool known = false;
    for (int i = 0; i < count; i++) known |= !strcmp(items[i].name.text, name);
    if (!known) items[count++] = (tsr_config_number){{.text = name}, of(t)};
  }
  return (tsr_config_numbers){items, count};
}

bool tsr_adapted_write(
    tsr_arena *arena, const tsr_adapted_model *m, const tsr_trained_values *values, const char *out,
    tsr_diags *diags) {
  const char *base = m->config->training.model_path;
  tsr_peft_config c = {.lora = &m->config->lora, .base = *base ? base : NULL};
  c.tells_classes = m->num_labels > 0;
  for (int p = 0; p < m->graph->params_count; p++)
    c.trains_scores |= m->graph->params[p].replaces && !m->graph->params[p].is_frozen;
  c.targets = list_targets(arena, m, &c.targets_count);
  c.saved = tsr_saved_modules_list(arena, m->base, m->adapters.params, &c.saved_count, diags);
  if (!c.saved) return false;
  c.ranks = list_numbers(arena, m, rank_of, (double)m->config->lora.r);
  c.alphas = list_numbers(arena, m, alpha_of, m->config->lora.alpha);
  for (int p = 0; p < m->base->params_count; p++)
    c.fan_in_fan_out |= m->adapters.params[p].rank && m->base->params[p].hf_transposed;
  return tsr_peft_write(arena, out, values, &c, diags);
}
