// SPDX-License-Identifier: Apache-2.0
#include "cli/trained_model.h"
#include "base/file_read.h"
#include "checkpoint/folder.h"
#include "checkpoint/load.h"
#include "checkpoint/peft.h"
#include "cli/job_consistency.h"
#include "cli/console.h"
#include "cli/mesh_override.h"
#include "train/resume_recipe.h"
#include "train/sequence_reduction_units.h"
#include <string.h>

/* --data replaces all data of the configuration. */
static void use_data_option(app *a) {
  tsr_options *c = &a->options;
  if (!c->data) return;
  c->sets[c->sets_count++] = (tsr_set){"[]", "--data", "training_config.data_sources", false};
  c->sets[c->sets_count++] = (tsr_set){c->data, "--data", "training_config.data_path", true};
}

/* Limits of training's memory and batches do not apply to a model that only runs forward. */
static void clear_training(tsr_config *c) {
  c->training.gradient_accumulation_steps = 1;
  c->training.batch_size_per_rank = 1; /* any mesh divides it */
  c->training.batch_size_given = false;
  c->schedule.pipeline_microbatches = 0;
  c->schedule.recompute = TSR_RECOMPUTE_NONE;
  c->numerics.units_batch = c->numerics.units_expert = 0;
}

/* The tokenizer that the weights were trained with is the one that the checkpoint holds. */
static void use_tokenizer(tsr_arena *arena, tsr_config *config, const tsr_manifest *m) {
  tsr_config_training *t = &config->training;
  if (!m->tokenizer) return;
  t->tokenizer_path = tsr_path_join(arena, m->folder, m->tokenizer);
  if (tsr_file_exists(tsr_path_join(arena, m->folder, "chat_template.jinja")))
    config->data.template_path = "tokenizer"; /* the one that the model was trained with */
  bool json = strstr(m->tokenizer, ".json") != NULL;
  t->tokenizer_type = json ? TSR_TOKENS_BPE : TSR_TOKENS_CHAR;
}

static bool load_config(trained_model *m) {
  app *a = m->a;
  const tsr_manifest *weights = &m->weights;
  bool own = m->has_own_config = a->options.config != NULL;
  if (!own && !weights->config)
    return tsr_diag_error(
        a->diags, TSR_NOWHERE, "'%s' has no configuration: --config FILE is needed",
        weights->folder);
  if (!own) {
    a->options.config = tsr_path_join(a->arena, weights->folder, weights->config);
    mesh_override_sections(a, "--checkpoint");
  }
  use_data_option(a);
  if (!setup_load_config(a, &m->setup)) return false;
  tsr_config *config = m->setup.config;
  if (a->options.adapter &&
      (!trained_model_check_whole(a, weights, TSR_NOWHERE) ||
       !tsr_peft_config_read(a->arena, a->options.adapter, TSR_NOWHERE, &config->lora, a->diags) ||
       !tsr_peft_hash(a->arena, a->options.adapter, TSR_NOWHERE, &m->adapter_hash, a->diags)))
    return false;
  const char *layout = tsr_recipe_value(weights, "device_config.cp_layout");
  bool zigzag =
      layout && !strcmp(layout, "zigzag") && !own && !mesh_override_has_set(a, "device_config");
  m->keeps_units = own || mesh_override_has_set(a, "numerics");
  tsr_resume_recipe_fill(a->arena, config, weights);
  if (!own) mesh_override_by_one_rank(a, config);
  if (zigzag) config->device.cp_layout = TSR_CP_ZIGZAG;
  clear_training(config);
  use_tokenizer(a->arena, config, weights);
  return true;
}

/* Units of the checkpoint's recipe that this mesh cannot divide are replaced by the mesh's default:
 * results are right, but not to the last bit those of training. */
static void fit_units(trained_model *m) {
  const tsr_parallel *p = m->setup.parallel;
  tsr_config *c = m->setup.config;
  tsr_config_numerics *n = &c->numerics;
  if (m->keeps_units) return;
  bool tp = n->units_tp && !tsr_parallel_tp_units_fit(p, n->units_tp);
  bool sequence = !tsr_sequence_units_fit(c, p);
  if (tp) n->units_tp = 0;
  if (sequence) n->units_sequence = 0;
  if (sequence && p->tree == TSR_TREE_FLAT) c->device.cp_layout = TSR_CP_CONTIGUOUS;
  if (tp || sequence)
    tsr_diag_note(
        m->a->diags, TSR_NOWHERE,
        "the checkpoint's units of %s do not fit this mesh: results differ in their last bits",
        tp && sequence ? "tp and the sequence"
        : tp           ? "tp"
                       : "the sequence");
}

/* --checkpoint, or of a configuration where its run keeps them. */
static bool find_weights(trained_model *m) {
  app *a = m->a;
  const char *path = a->options.checkpoint;
  if (!path) {
    if (!setup_load_config(a, &m->setup)) return false;
    const tsr_config_training *t = &m->setup.config->training;
    bool adapts = m->setup.config->lora.enabled;
    path = *t->model_path && !adapts ? t->model_path : t->checkpoint_dir;
  }
  return tsr_checkpoint_find_held(a->arena, path, TSR_NOWHERE, &m->weights, &m->hold, a->diags) &&
         tsr_checkpoint_reader_check_sides(a->arena, &m->weights, a->diags);
}

/* A model of other data has no tokenizer to miss. What is wrong with the model is reported when it
 * is compiled. */
static bool check_text(trained_model *m) {
  app *a = m->a;
  const tsr_config_training *t = &m->setup.config->training;
  tsr_compiled model = {0};
  tsr_run_data_needs needs;
  tsr_diags *unsaid = tsr_diags_new(a->arena);
  if (t->tokenizer_type != TSR_TOKENS_CHAR || *t->tokenizer_path) return true;
  tsr_compile_options o = prepare_compile_options(a, &m->setup, NULL);
  if (!tsr_compile(a->arena, &o, TSR_COMPILE_EVALUATE, &model, unsaid) ||
      !tsr_run_data_needs_of(model.graph, &needs, unsaid) || needs.text)
    return true;
  return tsr_diag_error(
      a->diags, TSR_NOWHERE, "%s is for models of text, and this one is none",
      tsr_command_name(a->options.command));
}

bool trained_model_check_whole(app *a, const tsr_manifest *m, tsr_location location) {
  if (!tsr_manifest_has_adapters(m)) return true;
  tsr_diag_error(
      a->diags, location, "'%s' has what a run with adapters has trained, not a model", m->folder);
  tsr_diag_hint(a->diags, "`export --merge` makes a model of it, which `import` reads");
  return false;
}

/* The frozen parameters of a run with adapters; those of the seed need no file. */
static bool find_base(trained_model *m) {
  app *a = m->a;
  const tsr_config *c = m->setup.config;
  const char *path = c->training.model_path;
  tsr_location location = tsr_config_location(c, "training_config.model_path");
  if (!tsr_manifest_has_adapters(&m->weights)) return true;
  if (!c->lora.enabled)
    return tsr_diag_error(
        a->diags, TSR_NOWHERE, "'%s' has adapters, and '%s' has no lora_config", m->weights.folder,
        c->file);
  m->has_base = *path;
  return !*path || (tsr_checkpoint_find(a->arena, path, location, &m->base, a->diags) &&
                    trained_model_check_whole(a, &m->base, location));
}

/* Adapters say nothing beside other weights. */
static bool check_base(const trained_model *m, const tsr_graph *g) {
  app *a = m->a;
  const char *there = tsr_recipe_value(&m->weights, TSR_RECIPE_WEIGHTS), *here = NULL;
  if (!tsr_manifest_has_adapters(&m->weights)) return true;
  if (m->has_base) here = tsr_resume_recipe_hash(a->arena, &m->base, g);
  if (there && here ? !strcmp(there, here) : there == here) return true;
  return tsr_diag_error(
      a->diags, tsr_config_location(m->setup.config, "training_config.model_path"),
      "the adapters of '%s' were trained with other weights than those of '%s'", m->weights.folder,
      here ? m->base.folder : "the seed's random weights");
}

/* A GPU's GEMMs read a decoded copy, and only NF4 has a kernel that makes one. */
static bool check_weights(const trained_model *m) {
  const app *a = m->a;
  bool on_gpu = m->setup.compute.cuda || m->setup.config->device.kind == TSR_DEVICE_CUDA;
  if (!a->options.weights || strcmp(a->options.weights, "int8") != 0 || !on_gpu) return true;
  tsr_diag_error(
      a->diags, TSR_NOWHERE, "--weights: int8 is decoded on the CPU alone, and ranks are on GPUs");
  tsr_diag_hint(a->diags, "nf4, or device_config.device=cpu");
  return false;
}

bool trained_model_open(trained_model *m) {
  app *a = m->a;
  setup *s = &m->setup;
  m->hold = TSR_CHECKPOINT_HOLD_NONE;
  app_catch_signals();
  bool ok = app_join(a, true) && setup_traces_communication(a->diags, &m->traces) &&
            find_weights(m) && load_config(m) && find_base(m);
  ok = tsr_job_all_succeeded(&a->job, ok);
  ok = ok && setup_choose_cpu(a, s) && setup_open_mesh(a, s) && setup_build_context(a, s);
  if (ok) fit_units(m);
  ok = ok && setup_fix_recipe(a, s) && setup_map_ranks(a, s) && setup_open_device(a, s) &&
       check_weights(m) && tsr_config_require_model(s->config, a->diags) && check_text(m);
  return tsr_job_all_succeeded(&a->job, ok);
}

int64_t trained_model_positions(const trained_model *m) {
  int64_t value = 0;
  const tsr_yaml *map = m->setup.config->model.map;
  const tsr_yaml *node = map ? tsr_yaml_get(map, "max_sequence_length") : NULL;
  return node && tsr_yaml_int(node, &value) && value > 0 ? value : 0;
}

bool trained_model_check_tokens(const trained_model *m, const tsr_compiled *compiled) {
  const app *a = m->a;
  const tsr_config_model *model = &m->setup.config->model;
  const tsr_yaml *node = model->map ? tsr_yaml_get(model->map, "num_labels") : NULL;
  if (!compiled->model->num_labels) return true;
  tsr_diag_error(
      a->diags, node ? node->location : model->location,
      "this model tells %lld classes of documents apart, and has no probabilities of tokens: %s "
      "needs them",
      (long long)compiled->model->num_labels, tsr_command_name(a->options.command));
  tsr_diag_hint(
      a->diags,
      "`evaluate --data FILE` computes its loss and accuracy on lines of {\"text\": \"…\", "
      "\"label\": …}");
  return false;
}

bool trained_model_check_generates(const trained_model *m, const tsr_compiled *compiled) {
  if (!trained_model_check_tokens(m, compiled)) return false;
  return compiled->has_logits ||
         tsr_diag_error(m->a->diags, TSR_NOWHERE, "this model has no output 'logits' to draw from");
}

static void print_pass(void *context, tsr_recorder *recorder) {
  trained_model *m = context;
  tsr_text text = {0};
  tsr_record record = tsr_recorder_read(m->a->arena, recorder);
  tsr_comm_trace_print(&m->comm_trace, &record, ++m->passes, &text);
  tsr_recorder_clear(recorder);
  tsr_comm_trace_write(&text);
  tsr_text_free(&text);
}

/* A pass counts as a step. */
static void trace_communication(trained_model *m, const tsr_programs *programs, int count) {
  tsr_arena *arena = m->a->arena;
  const tsr_parallel *parallel = m->setup.parallel;
  m->comm_trace = tsr_comm_trace_start(arena, parallel->ranks);
  m->comm_trace.rank_map = &m->setup.ranks;
  m->comm_trace.fast = m->setup.config->numerics.policy == TSR_NUMERICS_FAST;
  m->comm_trace.all_reduce = tsr_config_all_reduce(m->setup.config);
  for (int i = 0; i < count; i++) {
    int64_t events = tsr_recorder_events_of_step(&programs[i], parallel);
    tsr_recorder_on_step(
        tsr_executable_record(arena, m->executable[i], 0, 1, events), print_pass, m);
  }
}

/* The checkpoint has the name of a graph file, which may be another file by now. One that comes
 * with the program, or that the user names with the weights, is used with a word. */
static bool check_graph(trained_model *m, const tsr_compiled *compiled) {
  app *a = m->a;
  const tsr_config_model *model = &m->setup.config->model;
  const char *there = tsr_recipe_value(&m->weights, TSR_RECIPE_GRAPH), *file = model->graph_file;
  if (!there || !strcmp(there, compiled->model->source)) return true;
  bool shipped = model->map && !file;
  tsr_severity severity = m->has_own_config ? TSR_NOTE : shipped ? TSR_WARNING : TSR_ERROR;
  const char *name = file ? file : shipped ? model->model_type : m->setup.config->file;
  tsr_diag(
      a->diags, severity, file ? model->graph_place : model->location,
      "'%s' is not the graph that '%s' was trained with", name, m->weights.folder);
  if (severity != TSR_ERROR) return true;
  tsr_diag_hint(
      a->diags,
      "restore the file, or use the weights with the graph of a configuration that --config names");
  return false;
}

/* --adapter */
static bool load_adapter(trained_model *m, const tsr_graph *g) {
  app *a = m->a;
  if (!a->options.adapter) return true;
  tsr_trained_values values = tsr_trained_values_new(a->arena, g);
  if (!tsr_peft_read(a->arena, a->options.adapter, TSR_NOWHERE, &values, a->diags)) return false;
  tsr_trained_values_load(a->arena, &values, m->executable[0]);
  return true;
}

static bool load_weights(trained_model *m) {
  bool verify = m->setup.config->checkpoint.verify;
  tsr_load_kind kind = tsr_manifest_has_adapters(&m->weights) ? TSR_LOAD_TRAINED
                       : m->a->options.adapter                ? TSR_LOAD_BASE
                                                              : TSR_LOAD_MODEL;
  tsr_executable *executable = m->executable[0];
  return (!m->has_base ||
          tsr_checkpoint_load(
              m->a->arena, &m->base, executable, TSR_LOAD_BASE, verify, m->a->diags)) &&
         tsr_checkpoint_load(m->a->arena, &m->weights, executable, kind, verify, m->a->diags);
}

bool trained_model_load(
    trained_model *m, const tsr_compiled *compiled, const tsr_programs *programs, int count) {
  app *a = m->a;
  setup *s = &m->setup;
  consistency_inputs inputs = {.checkpoint = &m->weights, .data = &m->data};
  if (*m->prompts_hash) inputs.prompts_hash = m->prompts_hash;
  if (m->has_base) inputs.base = &m->base;
  inputs.adapter_hash = m->adapter_hash;
  bool right = check_graph(m, compiled) && check_base(m, compiled->graph);
  if (!tsr_job_all_succeeded(&a->job, right) || !consistency_check(a, s, compiled, &inputs))
    return false;
  tsr_process_options o = {
      s->parallel, s->compute.kernels, s->compute.cpu.threads, s->config->training.seed,
      s->config->device.memory_limit};
  o.device = s->compute.device;
  o.fast = s->config->numerics.policy == TSR_NUMERICS_FAST;
  o.all_reduce = tsr_config_all_reduce(s->config);
  o.rank_map = s->ranks;
  o.timeout_s = s->config->collectives.timeout_s;
  o.lost = tsr_job_abort;
  o.lost_context = &a->job;
  bool ok = tsr_process_open(a->arena, &o, programs, count, &m->process, m->executable, a->diags) &&
            load_weights(m) && load_adapter(m, compiled->graph);
  tsr_checkpoint_release(&m->hold);
  if (ok && m->traces) trace_communication(m, programs, count);
  return tsr_job_all_succeeded(&a->job, ok);
}

const volatile sig_atomic_t *trained_model_interrupt(const trained_model *m) {
  return tsr_job_is_alone(&m->a->job) ? m->a->stop : NULL;
}

int trained_model_finish(trained_model *m, bool ok) {
  app *a = m->a;
  if (!a->job.is_silent) tsr_diags_print(a->diags, stderr);
  tsr_checkpoint_release(&m->hold);
  tsr_process_close(m->process);
  tsr_compute_close(&m->setup.compute);
  int code = console_finish(a, ok);
  return *a->stop ? 128 + (int)*a->stop : code;
}
