/* The way of the data up to the programs: configuration, mesh, parallelism context, graph. */
#include "app.h"
#include "base/file.h"
#include "base/uri.h"
#include "device/cuda.h"
#include "mesh/choose.h"
#include "train/plan_command.h"
#include <stdlib.h>
#include <string.h>

/* TESSERA_DETERMINISTIC=1 overrides numerics.policy of the configuration. */
static void take_policy(app *a) {
  const char *value = getenv("TESSERA_DETERMINISTIC");
  bool fast = a->config->numerics.policy == TSR_NUMERICS_FAST;
  if (!value || strcmp(value, "1") || !fast) return;
  a->config->numerics.policy = TSR_NUMERICS_DETERMINISTIC;
  tsr_diag_note(
      a->diags, tsr_config_place(a->config, "numerics.policy"),
      "TESSERA_DETERMINISTIC=1: the policy is deterministic, not fast");
}

bool app_load_config(app *a) {
  if (!tsr_config_load(
          a->arena, a->cli.config, a->cli.sets, a->cli.sets_count, &a->config, a->diags))
    return false;
  take_policy(a);
  return app_choose_kind(a);
}

bool app_open_mesh(app *a) {
  const tsr_config_device *d = &a->config->device;
  tsr_mesh_request request = {.option = a->cli.mesh, .config_value = d->mesh_graph_descriptor};
  request.config_file = a->config->file;
  request.config_place = tsr_config_place(a->config, "device_config.mesh_graph_descriptor");
  const char *named = getenv("TT_MESH_GRAPH_DESC_PATH");
  tsr_place by = {.file = "TT_MESH_GRAPH_DESC_PATH"};
  if (named && !tsr_uri_path(a->arena, named, by, &request.environment, a->diags)) return false;
  request.tt_metal_home = getenv("TT_METAL_HOME");
  request.shipped_folder = tsr_arena_printf(a->arena, "%s/mesh_descriptors", a->share);
  request.ndim = d->mesh_ndim;
  request.devices = d->mesh_ndim || d->devices < 1 ? 1 : d->devices;
  for (int i = 0; i < d->mesh_ndim; i++) {
    request.dims[i] = d->mesh_shape[i];
    request.devices *= d->mesh_shape[i];
  }
  /* Of GPUs the numbers are those of this host's, of which a mesh may take some. */
  for (int i = 0; d->kind != TSR_DEVICE_CPU && i < d->device_ids_count; i++)
    if (d->device_ids[i] >= request.devices) request.devices = d->device_ids[i] + 1;
  request.arch = d->kind == TSR_DEVICE_CUDA ? TSR_ARCH_CUDA : TSR_ARCH_CPU;
  return tsr_mesh_choose(a->arena, &request, &a->mesh, &a->mesh_why, a->diags);
}

bool app_build_context(app *a) {
  return tsr_parallel_make(a->arena, a->config, a->mesh, &a->parallel, a->diags) &&
         tsr_parallelism_context_open(a->parallel, a->diags);
}

bool app_fix_recipe(app *a) {
  return tsr_parallel_trainable(a->parallel, a->config, a->diags) &&
         tsr_parallel_units(a->parallel, a->config, &a->batch_units, &a->tp_units, a->diags);
}

/* tt-train's vocabulary when a plan must do without the text that characters are counted in; and
 * that of bytes, which no text is needed for. */
enum { CHARACTERS_UNSEEN = 96, BYTES_UNSEEN = 256 };

/* Checks and traces make do without data. */
static bool open_data(app *a, const tsr_source_needs *needs) {
  const tsr_config *c = a->config;
  bool trains = a->cli.command == TSR_COMMAND_TRAIN || a->cli.command == TSR_COMMAND_PROFILE;
  if (!trains && !tsr_source_exists(a->arena, c)) {
    if (c->training.data_path[0])
      tsr_diag_warning(
          a->diags, tsr_config_place(c, "training_config.data_path"),
          "'%s' is not there: planned without it", c->training.data_path);
    return true;
  }
  a->has_source = tsr_source_open(a->arena, c, needs, &a->source, a->diags);
  return a->has_source;
}

/* A text is read before the model, whose vocabulary may come from it. */
static bool open_text(app *a) {
  tsr_source_needs text = {.text = true};
  return strcmp(a->config->model.kind, "transformer") || open_data(a, &text);
}

const char *app_graphs_folder(const app *a) {
  return tsr_arena_printf(a->arena, "%s/configs/graphs", a->share);
}

/* The same model for another purpose; what was said of it is not said again. */
static bool compile_other(
    app *a, const tsr_compile_options *o, tsr_compile_purpose purpose, tsr_compiled *ret) {
  return tsr_compile(a->arena, o, purpose, ret, tsr_diags_new(a->arena)) ||
         tsr_compile(a->arena, o, purpose, ret, a->diags);
}

tsr_compile_options app_compile_options(const app *a) {
  tsr_compile_options o = {.config = a->config, .parallel = a->parallel};
  o.batch_units = a->batch_units;
  o.tp_units = a->tp_units;
  tsr_tokenizer_type tokens = a->config->training.tokenizer_type;
  if (a->has_source) o.vocab_detected = a->source.dataset.tokenizer.vocab_size;
  else if (tokens == TSR_TOKENS_BYTE) o.vocab_detected = BYTES_UNSEEN;
  o.vocab_assumed = tokens == TSR_TOKENS_CHAR ? CHARACTERS_UNSEEN : 0;
  o.graphs_folder = app_graphs_folder(a);
  o.scratch = a->cuda ? a->cuda->scratch : tsr_cpu_scratch;
  o.scratch_context = &a->cpu;
  return o;
}

static bool compile(app *a) {
  tsr_compile_options o = app_compile_options(a);
  a->has_read_model = true;
  if (!tsr_compile(a->arena, &o, TSR_COMPILE_TRAIN, &a->training, a->diags)) return false;
  if (a->training.graph->loss < 0) return true;
  o.cut = &a->training.cut;
  o.cut_of = a->training.graph;
  o.placed_of = a->training.placed;
  o.order_of_training = a->training.programs.order;
  const tsr_config_training *t = &a->config->training;
  bool evaluates = t->eval_every && t->validation_fraction > 0;
  bool trains = a->cli.command == TSR_COMMAND_TRAIN || a->cli.command == TSR_COMMAND_PROFILE;
  bool samples = (a->has_source || !trains) && t->sample_tokens && a->training.has_logits;
  return (!evaluates || compile_other(a, &o, TSR_COMPILE_EVALUATE, &a->evaluation)) &&
         (!samples || compile_other(a, &o, TSR_COMPILE_GENERATE, &a->generation));
}

/* Other data are read when the graph says what it takes. */
static bool check_source(app *a) {
  tsr_source_needs needs;
  bool looks = a->cli.command == TSR_COMMAND_PLAN || a->cli.command == TSR_COMMAND_TRACE;
  if (a->training.graph->loss < 0)
    return looks || tsr_graph_check_inputs(a->training.graph, a->diags);
  if (!tsr_source_needs_of(a->training.graph, &needs, a->diags) ||
      !(tsr_source_check_end_of_text(a->config, &needs, a->diags) &
        tsr_source_check_sequence(a->config, &needs, a->diags)))
    return false;
  bool is_read = !strcmp(a->config->model.kind, "transformer");
  if (!is_read && !open_data(a, &needs)) return false;
  if (!a->has_source) return true;
  a->source.sequence = needs.sequence;
  return tsr_source_check(&a->source, &needs, a->diags) &&
         tsr_source_check_prompt(a->arena, &a->source, a->diags);
}

/* Whether the configuration's mistakes leave the model's section as the user wrote it. */
static bool has_sound_model(const tsr_config_model *m) {
  const tsr_yaml *type = tsr_yaml_get(m->map, "model_type");
  bool own_graph = tsr_yaml_get(m->map, "graph") != NULL;
  return m->kind && m->model_type && m->model_type[0] &&
         (!type || !strcmp(type->text, m->model_type)) && own_graph == (m->graph_file != NULL);
}

/* When an earlier stage has failed: the model's own mistakes, so that one run shows them too. */
void app_explain_model(app *a) {
  if (!a->config || a->has_read_model || !has_sound_model(&a->config->model)) return;
  tsr_model_options o = {
      .batch = 1, .sequence = a->config->training.sequence_length, .training = true, .loss = true};
  o.vocab_detected = 1;
  o.units = (tsr_units){1, 1, 1};
  o.graphs_folder = app_graphs_folder(a);
  tsr_model *model = NULL;
  tsr_model_read(a->arena, a->config, &o, &model, a->diags);
}

/* Where a plan is for other devices, what tasks need does not depend on this machine's. */
static bool choose_machine(app *a) {
  if (a->cli.command != TSR_COMMAND_PLAN) return true;
  if (!tsr_machine_choose(
          a->arena, a->share, a->cli.machine, a->mesh, &a->machine, &a->machine_why, a->diags))
    return false;
  if (!a->machine->threads) a->cpu = tsr_plan_device();
  return true;
}

/* Everything that is decided before the first step, from a loaded configuration. What does not
 * depend on a stage that failed is looked at all the same, so that one run shows as many mistakes
 * as it can. */
bool app_prepare(app *a) {
  bool ok = app_choose_device(a) & (app_open_mesh(a) && app_build_context(a) && app_lay_ranks(a));
  if (a->parallel) ok &= app_fix_recipe(a);
  if (!tsr_config_require_model(a->config, a->diags)) return false;
  ok &= open_text(a);
  return ok && app_open_device(a) && choose_machine(a) && compile(a) && check_source(a);
}
