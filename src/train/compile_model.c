// SPDX-License-Identifier: Apache-2.0
#include "train/adapter_targets.h"
#include "train/compile.h"
#include "train/sequence_reduction_units.h"

tsr_model_options
tsr_compile_model(const tsr_compile_options *o, tsr_compile_purpose purpose, int64_t batch) {
  tsr_model_options model = {.batch = batch, .sequence = o->config->training.sequence_length};
  if (purpose == TSR_COMPILE_GENERATE && o->window) model.sequence = o->window;
  model.vocab_detected = o->vocab_detected;
  model.vocab_assumed = o->vocab_assumed;
  model.training = purpose == TSR_COMPILE_TRAIN;
  model.loss = purpose != TSR_COMPILE_GENERATE;
  model.units.batch = o->batch_units;
  if (model.training) model.drop_units = o->batch_units / o->parallel->microbatches;
  model.units.sequence = tsr_sequence_units_count(o->config, o->parallel);
  model.units.tp = o->tp_units;
  model.units.tree = o->parallel->tree;
  model.units.tp_in_half = tsr_config_sums_tp_in_half(o->config);
  model.graphs_folder = o->graphs_folder;
  return model;
}

static bool add_adapters(
    tsr_arena *arena, const tsr_config *config, const tsr_model_options *options, tsr_model *model,
    tsr_diags *diags) {
  tsr_adapters adapters;
  if (!tsr_adapter_targets(arena, config, model->graph, &adapters, diags)) return false;
  if (options->training) adapters.dropout = config->lora.dropout;
  model->graph = tsr_pass_adapters(model->graph, &adapters);
  return tsr_pass_check_blocks(model->graph, diags);
}

bool tsr_compile_read_model(
    tsr_arena *arena, const tsr_config *config, const tsr_model_options *options,
    tsr_model **ret_model, tsr_diags *diags) {
  if (!tsr_model_read(arena, config, options, ret_model, diags)) return false;
  tsr_model *model = *ret_model;
  if (config->lora.enabled && !add_adapters(arena, config, options, model, diags)) return false;
  bool separates = config->training.documents == TSR_DOCUMENTS_SEPARATE && model->sequence;
  if (!options->loss || !separates) return true;
  tsr_location location = tsr_config_location(config, "training_config.documents");
  return tsr_pass_separate_documents(model->graph, location, &model->graph, diags);
}
