// SPDX-License-Identifier: Apache-2.0
#include "cli/run_compile.h"
#include "cli/overlap_choice.h"
#include "cli/recompute_choice.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include "checkpoint/peft_config.h"
#include "device/cuda/plugin_abi.h"
#include "train/label_data.h"
#include "train/trainer.h"
#include <errno.h>
#include <string.h>

/* tt-train's vocabulary when a plan must do without the text that characters are counted in; and
 * that of bytes, which no text is needed for. */
enum { CHARACTERS_UNSEEN = 96, BYTES_UNSEEN = 256 };

/* Other commands do without data that are missing. */
static bool trains(const app *a) {
  tsr_command c = a->options.command;
  if (c == TSR_COMMAND_TRACE) return a->options.save != NULL;
  return c == TSR_COMMAND_TRAIN || c == TSR_COMMAND_PROFILE || c == TSR_COMMAND_VERIFY ||
         c == TSR_COMMAND_COMPARE;
}

static bool open_data(app *a, const setup *s, const tsr_run_data_needs *needs, prepared *p) {
  const tsr_config *c = s->config;
  if (!trains(a) && !tsr_run_data_exist(a->arena, c)) {
    if (c->training.data_path[0])
      tsr_diag_warning(
          a->diags, tsr_config_location(c, "training_config.data_path"),
          "'%s' was not found: planned without it", c->training.data_path);
    return true;
  }
  p->has_data = tsr_run_data_open(a->arena, c, needs, &p->data, a->diags);
  if (p->has_data) tsr_label_data_keep(a->arena, &p->data.dataset, s->config);
  return p->has_data;
}

/* A text is read before the model, whose vocabulary may come from it. */
static bool open_text(app *a, const setup *s, prepared *p) {
  tsr_run_data_needs text = {.text = true};
  return strcmp(s->config->model.kind, "transformer") || open_data(a, s, &text, p);
}

/* The same model for another purpose; what was said of it is not said again. */
static bool compile_other(
    app *a, const tsr_compile_options *o, tsr_compile_purpose purpose, tsr_compiled *ret) {
  return tsr_compile(a->arena, o, purpose, ret, tsr_diags_new(a->arena)) ||
         tsr_compile(a->arena, o, purpose, ret, a->diags);
}

/* CUDA programs are the same without the plugin. */
static tsr_target target_of(app *a, const setup *s) {
  const tsr_config *config = s->config;
  tsr_target *host = tsr_arena_alloc(a->arena, sizeof *host);
  *host = tsr_cpu_target(s->elsewhere.k ? &s->elsewhere : &s->compute.cpu);
  if (!s->compute.cuda && config->device.kind != TSR_DEVICE_CUDA) return *host;
  return tsr_cuda_target(
      host, config->numerics.policy == TSR_NUMERICS_FAST, config->zero.offload == TSR_OFFLOAD_FILE);
}

tsr_compile_options prepare_compile_options(app *a, const setup *s, const tsr_run_data *data) {
  tsr_compile_options o = {.config = s->config, .parallel = s->parallel};
  o.batch_units = s->batch_units;
  o.tp_units = s->tp_units;
  tsr_tokenizer_type tokens = s->config->training.tokenizer_type;
  if (data) o.vocab_detected = data->dataset.tokenizer.vocab_size;
  else if (tokens == TSR_TOKENS_BYTE) o.vocab_detected = BYTES_UNSEEN;
  o.vocab_assumed = tokens == TSR_TOKENS_CHAR ? CHARACTERS_UNSEEN : 0;
  o.graphs_folder = app_graphs_folder(a);
  if (a->options.dump_grads || a->options.histograms) o.outputs = TSR_OUTPUTS_GRADIENTS;
  o.records_routing = a->options.record_routing != NULL;
  o.replays_routing = a->options.replay_routing != NULL;
  o.pages = a->options.cache_pages;
  if (a->options.weights) o.weights = !strcmp(a->options.weights, "int8") ? TSR_INT8 : TSR_NF4;
  o.target = target_of(a, s);
  bool observes = a->options.command == TSR_COMMAND_COMPARE || a->options.save;
  if (observes) o.target.fuses &= ~(1u << TSR_FUSED_LINEAR_CROSS_ENTROPY); /* logits have memory */
  o.keeps_activations = observes;
  return o;
}

/* What written-out collectives require of the mesh and of the devices. */
static bool check_collectives(app *a, const setup *s, const tsr_graph *g) {
  bool on_gpus = s->compute.cuda || s->config->device.kind == TSR_DEVICE_CUDA, ok = true;
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    int axis = tsr_node_axis(n), size = axis < 0 ? 1 : s->parallel->size[axis];
    if (tsr_node_needs_nccl(n) && !on_gpus)
      ok = tsr_diag_error(
          a->diags, n->location,
          "%s: its transport is nccl, which connects GPUs, but ranks are on "
          "the CPU",
          tsr_op_title(n->op));
    else if (tsr_node_needs_nccl(n) && s->config->collectives.transport == TSR_TRANSPORT_MPI)
      ok = tsr_diag_error(
          a->diags, n->location, "%s: its transport is nccl, but collectives.transport.type is mpi",
          tsr_op_title(n->op));
    if (n->op == TSR_OP_BROADCAST && (n->attr.broadcast.root < 0 || n->attr.broadcast.root >= size))
      ok = tsr_diag_error(
          a->diags, n->location, "broadcast: root %lld is not one of the %d rank%s of %s",
          (long long)n->attr.broadcast.root, size, size == 1 ? "" : "s", tsr_axis_name(axis));
  }
  return ok;
}

/* A graph without a loss runs once: what asks for training, or for its results, has no effect. */
static bool check_untrained(app *a, const setup *s) {
  const tsr_options *o = &a->options;
  const tsr_config *c = s->config;
  const struct {
    bool is_given;
    const char *name;
  } options[] =
      {{o->metrics, "--metrics"},
       {o->resume, "--resume"},
       {o->fork, "--fork"},
       {o->time_limit_text, "--time-limit"},
       {o->stop_at_text, "--stop-at"},
       {o->determinism_text, "--check-determinism"},
       {o->dump_grads, "--dump-grads"},
       {o->tensorboard, "--tensorboard"},
       {o->record_routing, "--record-routing"},
       {o->replay_routing, "--replay-routing"}},
    keys[] = {
        {true, "training_config.checkpoint_dir"},
        {true, "training_config.model_save_interval"},
        {*c->training.model_path, "training_config.model_path"},
        {c->lora.enabled, "lora_config"},
        {c->training.validate, "validate"},
        {c->training.validate_every != 1, "validate_every"},
        {c->training.validate_policy, "validate_policy"},
        {c->checkpoint.resume == TSR_RESUME_AUTO && !c->elastic.rejoin, "checkpoint.resume"},
        {*c->checkpoint.tag, "checkpoint.tag"},
        {c->checkpoint.time_limit_s, "checkpoint.time_limit"},
        {c->elastic.rejoin, "elastic.rejoin"}};
  bool ok = true;
  for (size_t i = 0; i < sizeof options / sizeof *options; i++)
    if (options[i].is_given)
      ok = tsr_diag_error(
          a->diags, TSR_NOWHERE, "%s has no effect: the graph has no loss, so nothing is trained",
          options[i].name);
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    tsr_location location = tsr_config_location(c, keys[i].name);
    if (keys[i].is_given && location.file)
      ok = tsr_diag_error(
          a->diags, location, "%s has no effect: the graph has no loss, so nothing is trained",
          keys[i].name);
  }
  return ok;
}

/* The host's memory is the device's. */
static void note_activation_offload(app *a, const setup *s) {
  bool on_gpus = s->compute.cuda || s->config->device.kind == TSR_DEVICE_CUDA;
  if (s->config->schedule.activation_offload == TSR_ACTIVATION_OFFLOAD_NONE || on_gpus) return;
  tsr_diag_note(
      a->diags, tsr_config_location(s->config, "schedule.activation_offload"),
      "activation_offload has no effect: ranks on the CPU have the host's memory");
}

static bool compile(app *a, const setup *s, prepared *p) {
  tsr_compile_options o = prepare_compile_options(a, s, p->has_data ? &p->data : NULL);
  const tsr_parallel *context;
  if (!tsr_parallelism_context_get(&context, a->diags)) return false;
  p->has_read_model = true;
  if (!tsr_compile(a->arena, &o, TSR_COMPILE_TRAIN, &p->training, a->diags)) return false;
  if (!check_collectives(a, s, p->training.graph)) return false;
  if (p->training.graph->loss < 0) return check_untrained(a, s);
  note_activation_offload(a, s);
  o.split = &p->training.split;
  o.split_of = p->training.graph;
  o.placed_of = p->training.placed;
  o.training_pipeline = p->training.programs.pipeline;
  const tsr_config_training *t = &s->config->training;
  bool evaluates = t->eval_every && t->validation_fraction > 0;
  bool samples = (p->has_data || !trains(a)) && t->sample_tokens && p->training.has_logits;
  return (!evaluates || compile_other(a, &o, TSR_COMPILE_EVALUATE, &p->evaluation)) &&
         (!samples || compile_other(a, &o, TSR_COMPILE_GENERATE, &p->generation));
}

/* Data that are no text are opened when the graph's inputs are known. */
static bool check_source(app *a, const setup *s, prepared *p) {
  tsr_run_data_needs needs;
  const tsr_config *c = s->config;
  tsr_command command = a->options.command;
  bool prints = command == TSR_COMMAND_PLAN || command == TSR_COMMAND_INSPECT ||
                command == TSR_COMMAND_REPORT || command == TSR_COMMAND_WATCH ||
                (command == TSR_COMMAND_TRACE && !a->options.save);
  if (p->training.graph->loss < 0)
    return prints || tsr_graph_check_inputs(p->training.graph, a->diags);
  if (!tsr_run_data_needs_of(p->training.graph, &needs, a->diags) ||
      !(tsr_run_data_check_end_of_text(c, &needs, a->diags) &
        tsr_run_data_check_sequence(c, &needs, a->diags)))
    return false;
  bool is_open = !strcmp(c->model.kind, "transformer");
  if (!is_open && !open_data(a, s, &needs, p)) return false;
  if (!p->has_data) return true;
  tsr_run_data_set_sequence(a->arena, &p->data, needs.sequence);
  return tsr_run_data_check(&p->data, &needs, a->diags) &&
         tsr_run_data_check_prompt(a->arena, &p->data, a->diags);
}

/* Whether the configuration's errors leave the model's section as the user wrote it. */
static bool has_sound_model(const tsr_config_model *m) {
  const tsr_yaml *type = tsr_yaml_get(m->map, "model_type");
  bool own_graph = tsr_yaml_get(m->map, "graph") != NULL;
  return m->kind && m->model_type && m->model_type[0] &&
         (!type || !strcmp(type->text, m->model_type)) && own_graph == (m->graph_file != NULL);
}

void prepare_explain_model(app *a, const setup *s, const prepared *p) {
  if (!s->config || p->has_read_model || !has_sound_model(&s->config->model)) return;
  tsr_model_options o = {
      .batch = 1, .sequence = s->config->training.sequence_length, .training = true, .loss = true};
  o.vocab_detected = 1;
  o.units = (tsr_units){1, 1, 1};
  o.graphs_folder = app_graphs_folder(a);
  tsr_model *model = NULL;
  tsr_compile_read_model(a->arena, s->config, &o, &model, a->diags);
}

/* Devices that no run has: `check` describes the program that `plan` does. */
static bool is_tenstorrent(const tsr_mesh *mesh) {
  return mesh->shape.arch == TSR_ARCH_WORMHOLE_B0 || mesh->shape.arch == TSR_ARCH_BLACKHOLE;
}

/* A plan for other devices does not depend on this machine's kernels. */
static bool choose_machine(app *a, setup *s, prepared *p) {
  tsr_command command = a->options.command;
  bool checks = command == TSR_COMMAND_CHECK && is_tenstorrent(s->mesh);
  if (command != TSR_COMMAND_PLAN && command != TSR_COMMAND_REPORT &&
      command != TSR_COMMAND_WATCH && !checks)
    return true;
  if (!tsr_machine_choose(
          a->arena, a->share, a->options.machine, s->mesh, &p->machine, &p->machine_why, a->diags))
    return false;
  if (!p->machine->threads) s->elsewhere = tsr_plan_device();
  return true;
}

static bool check_offload(app *a, const tsr_config *config) {
  const tsr_config_zero *zero = &config->zero;
  bool used = trains(a) && zero->offload == TSR_OFFLOAD_FILE && *zero->offload_path;
  DIR *folder = used ? tsr_disk_open_folder(zero->offload_path) : NULL;
  if (folder) closedir(folder);
  return !used || folder ||
         tsr_file_cannot(
             "use the folder", zero->offload_path, errno,
             tsr_config_location(config, "zero.offload_path"), a->diags);
}

/* What the configuration leaves out of adapters that training starts from. */
static bool take_adapters(app *a, tsr_config *config) {
  if (!config->lora.enabled || !*config->lora.path) return true;
  return tsr_peft_config_take(a->arena, config, a->diags);
}

bool prepare(app *a, setup *s, prepared *p) {
  bool ok = setup_choose_cpu(a, s) &
            (setup_open_mesh(a, s) && setup_build_context(a, s) && setup_map_ranks(a, s));
  if (s->parallel) ok &= setup_fix_recipe(a, s);
  if (!tsr_config_require_model(s->config, a->diags)) return false;
  ok &= open_text(a, s, p);
  ok &= check_offload(a, s->config);
  ok &= take_adapters(a, s->config);
  if (!ok || !setup_open_device(a, s) || !choose_machine(a, s, p)) return false;
  overlap_choose(a, s, p, compile);
  return recompute_choose(a, s, p, compile) && compile(a, s, p) && check_source(a, s, p);
}

tsr_plan_request prepare_plan_request(app *a, const setup *s, const prepared *p) {
  return (tsr_plan_request){
      .arena = a->arena,
      .config = s->config,
      .parallel = s->parallel,
      .machine = p->machine,
      .machine_why = p->machine_why,
      .training = &p->training,
      .evaluation = &p->evaluation,
      .generation = &p->generation,
      .threads = s->compute.cpu.threads};
}
