// SPDX-License-Identifier: Apache-2.0
#include "train/compile_checks.h"
#include "graph/routing.h"
#include <string.h>

/* The defaults stand in every resolved configuration. */
bool tsr_compile_check_loss_scale(const tsr_config *c, tsr_diags *diags) {
  int errors = tsr_diags_errors(diags);
  const tsr_config_training *t = &c->training;
  const struct {
    const char *key;
    bool differs;
  } keys[] = {
      {"training_config.loss_scale.mode", t->loss_scale != TSR_SCALE_TESSERA},
      {"training_config.loss_scale.init", t->loss_scale_init != 65536},
      {"training_config.loss_scale.interval", t->loss_scale_interval != 2000}};
  if (t->precision == TSR_PRECISION_FP16) return true;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    tsr_location location = tsr_config_location(c, keys[i].key);
    if (location.line && keys[i].differs)
      tsr_diag(
          diags, tsr_diag_normative(diags, TSR_WARNING), location,
          "the loss scale's '%s' has no effect: precision is not fp16",
          strrchr(keys[i].key, '.') + 1);
  }
  return tsr_diags_errors(diags) == errors;
}

/* Of a step of several microbatches no op may mix the samples of two batch units, and no number may
 * depend on how many samples a microbatch has. All of a step's can be told apart where they are one
 * microbatch; where a graph file is of one number of samples alone, a microbatch's. */
bool tsr_compile_check_samples(
    tsr_arena *arena, const tsr_compile_options *o, const tsr_compiled *c, tsr_diags *diags) {
  int64_t several = o->parallel->microbatches;
  if (several == 1) return true;
  tsr_model_options step = tsr_compile_model(o, TSR_COMPILE_TRAIN, c->batch * several);
  step.drop_units = o->batch_units;
  tsr_model *model;
  bool is_read = tsr_compile_read_model(arena, o->config, &step, &model, tsr_diags_new(arena));
  if (is_read && !tsr_pass_check_numbers(c->graph, model->graph, diags)) return false;
  if (o->batch_units == 1) return true;
  return is_read ? tsr_pass_check_mixed(model->graph, o->batch_units, diags)
                 : tsr_pass_check_mixed(c->graph, o->batch_units / several, diags);
}

/* A token's choices are found by its sample and position, so samples must be along the first
 * dimension of the choices: those of twice as many samples are twice as many there. */
bool tsr_compile_check_routing(
    tsr_arena *arena, const tsr_compile_options *o, const tsr_compiled *c, tsr_diags *diags) {
  const char *option = o->replays_routing ? "--replay-routing" : "--record-routing";
  tsr_model_options two = tsr_compile_model(o, TSR_COMPILE_TRAIN, 2 * c->batch);
  tsr_routing_layer *layers, *of_two;
  tsr_model *model;
  int count = tsr_graph_routing(c->graph, &layers);
  if (!count) return tsr_diag_error(diags, TSR_NOWHERE, "%s: the model chooses no experts", option);
  if (!tsr_compile_read_model(arena, o->config, &two, &model, tsr_diags_new(arena))) return true;
  if (tsr_graph_routing(model->graph, &of_two) != count) return true;
  for (int i = 0; i < count; i++) {
    const tsr_node *n = &c->graph->nodes[layers[i].node], *t = &model->graph->nodes[of_two[i].node];
    const tsr_value *v = &c->graph->values[n->outputs[0]];
    if (model->graph->values[t->outputs[0]].shape[0] == 2 * v->shape[0]) continue;
    return tsr_diag_error(
        diags, n->location, "%s: samples are not along the first dimension of '%s' %s", option,
        v->name, tsr_value_shape_text(arena, v));
  }
  return true;
}

/* A graph without a loss has no microbatches: its ranks have all of their batch units at once,
 * which a flat tree adds one after the other. */
bool tsr_compile_check_flat_units(
    const tsr_compile_options *o, const tsr_lowering *l, const tsr_graph *placed,
    tsr_diags *diags) {
  bool sums = false;
  for (int v = 0; v < placed->values_count; v++)
    sums |= placed->values[v].placement[TSR_DP].kind == TSR_PARTIAL;
  if (!sums || l->tree != TSR_TREE_FLAT || l->batch_units == 1) return true;
  tsr_location units = tsr_config_location(o->config, "numerics.units.batch");
  tsr_diag_error(
      diags, units.file ? units : tsr_config_location(o->config, "numerics.reduce_tree"),
      "reduce_tree 'flat' adds %lld batch units one after the other, and a rank of dp has %lld of "
      "them",
      (long long)o->batch_units, (long long)l->batch_units);
  tsr_diag_hint(
      diags, "units.batch: %lld, or reduce_tree: binary", (long long)tsr_lowering_batch_ranks(l));
  return false;
}
