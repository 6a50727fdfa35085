// SPDX-License-Identifier: Apache-2.0
#include "train/fp8_layers.h"
#include "passes/passes.h"
#include "train/module_names.h"
#include <string.h>

static bool warn(tsr_diags *diags, tsr_location location, const char *key, const char *why) {
  int errors = tsr_diags_errors(diags);
  tsr_diag(
      diags, tsr_diag_normative(diags, TSR_WARNING), location, "'%s' has no effect: %s", key, why);
  return tsr_diags_errors(diags) == errors;
}

/* Of a run in another precision. The defaults stand in every resolved configuration. */
static bool check_unread(const tsr_config *c, tsr_diags *diags) {
  const tsr_config_training *t = &c->training;
  const struct {
    const char *key;
    bool differs;
  } keys[] = {
      {"training_config.fp8.gradients", t->fp8_gradients != TSR_GRADIENTS_E4M3},
      {"training_config.fp8.scales", t->fp8_scales != TSR_SCALES_POWER_OF_TWO},
      {"training_config.fp8.exclude", t->fp8_exclude.count > 0}};
  bool ok = true;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    tsr_location location = tsr_config_location(c, keys[i].key);
    if (location.line && keys[i].differs)
      ok &= warn(diags, location, strchr(keys[i].key, '.') + 1, "precision is not fp8");
  }
  return ok;
}

static const char *last_part(const char *module) {
  const char *dot = strrchr(module, '.');
  return dot ? dot + 1 : module;
}

/* Leaves the layers out that fp8.exclude names. */
static bool exclude(
    tsr_arena *arena, const tsr_config_names *names, const tsr_graph *g, bool *layers,
    tsr_diags *diags) {
  tsr_module_names *list;
  const char **candidates = tsr_arena_array(arena, const char *, g->params_count + 1);
  int count = 0;
  if (!tsr_module_names_compile(
          arena, names, "training_config.fp8.exclude", TSR_NAMES_TARGETS, &list, diags))
    return false;
  for (int p = 0; p < g->params_count; p++) {
    if (!layers[p]) continue;
    const char *module = tsr_adapter_module(arena, &g->params[p]);
    bool theirs = tsr_module_names_match(list, module) != NULL;
    bool ours = tsr_module_names_match_param(list, g->params[p].name) != NULL;
    layers[p] = !theirs && !ours;
    candidates[count++] = last_part(module);
  }
  return tsr_module_names_check_used(list, candidates, count, NULL, diags);
}

bool tsr_compile_fp8(
    tsr_arena *arena, const tsr_config *c, bool checks, tsr_graph *g, tsr_diags *diags) {
  const tsr_config_training *t = &c->training;
  tsr_location precision = tsr_config_location(c, "training_config.precision");
  if (t->precision != TSR_PRECISION_FP8) return !checks || check_unread(c, diags);
  if (c->lora.enabled && c->lora.base == TSR_LORA_BASE_NF4) {
    tsr_diag_error(
        diags, precision, "precision fp8 reads weights in bf16, and the base is stored in NF4");
    tsr_diag_hint(diags, "precision: bf16 computes adapters on a quantised base");
    return false;
  }
  bool *layers = tsr_graph_fp8_weights(g);
  if (!exclude(arena, &t->fp8_exclude, g, layers, diags)) return false;
  int recipe = TSR_FP8_ON;
  if (t->fp8_gradients == TSR_GRADIENTS_E5M2) recipe |= TSR_FP8_E5M2_GRADIENTS;
  if (t->fp8_scales == TSR_SCALES_F32) recipe |= TSR_FP8_F32_SCALES;
  if (tsr_pass_fp8(g, (tsr_fp8_recipe)recipe, layers) || !checks) return true;
  return warn(diags, precision, "fp8", "all linear layers stay in bf16");
}
