// SPDX-License-Identifier: Apache-2.0
#include "prove/recorded_run.h"
#include "prove/observed_device.h"
#include "prove/replicas.h"
#include "prove/synthetic_weights.h"
#include "runtime/process.h"
#include "train/loss_scale.h"
#include "train/step_scalars.h"
#include <math.h>
#include <string.h>

const char *tsr_recorded_kind_name(tsr_recorded_kind kind) {
  static const char *const names[] = {"losses", "gradients", "weights", "optimizer state"};
  return names[kind];
}

typedef struct {
  tsr_arena *arena;
  const tsr_prove_run *run;
  const tsr_recording *how;
  tsr_executable *executable;
  tsr_synthetic *data;
  tsr_state *state;
  tsr_recorded_step *step;
  tsr_loss_scale scale;
  int64_t samples, updates;
  double factor; /* of the loss */
} stepper;

/* A power of two, so that gradients keep their bits but for the exponent. */
static const double SMALL = 1.0 / (1 << 20);

/* Every NaN is the same one: their signs and payloads are no part of the contract on bits. */
static float *read(const stepper *s, int value) {
  int64_t count = tsr_value_elements(&s->state->graph->values[value]);
  float *out = tsr_arena_array(s->arena, float, count);
  tsr_executable_read(s->executable, value, out);
  for (int64_t i = 0; i < count; i++)
    if (isnan(out[i])) out[i] = NAN;
  return out;
}

static tsr_state_tensor *add(const stepper *s, tsr_recorded_kind kind, const char *name, int v) {
  const tsr_value *value = &s->state->graph->values[v];
  tsr_state_tensors *of = &s->step->of[kind];
  tsr_state_tensor *t = &of->items[of->count++];
  *t = (tsr_state_tensor){.name = name, .value = v, .param = value->param, .ndim = value->ndim};
  memcpy(t->shape, value->shape, sizeof t->shape);
  t->count = tsr_value_elements(value);
  t->data = read(s, v);
  return t;
}

/* ---- gradients ---- */

static const char norm_stats[] = "norm_stats.";

static int find_param(const tsr_graph *g, const char *name) {
  for (int p = 0; p < g->params_count; p++)
    if (!strcmp(g->params[p].name, name)) return p;
  return -1;
}

/* The norm takes each parameter's gradient (passes/optimizer.c). */
static void observe(void *context, const tsr_launch *launch) {
  stepper *s = context;
  const tsr_task *task = launch->call.task;
  const tsr_graph *g = s->state->graph;
  const tsr_node *n = &g->nodes[task->node];
  if (task->op != TSR_OP_NORM_STATS) return;
  const char *name = n->name + sizeof norm_stats - 1;
  int param = find_param(g, name);
  for (int i = 0; i < s->step->of[TSR_RECORDED_GRADIENTS].count; i++)
    if (s->step->of[TSR_RECORDED_GRADIENTS].items[i].param == param) return; /* read before */
  add(s, TSR_RECORDED_GRADIENTS, name, n->inputs[0])->param = param;
}

/* In the parameters' order, whatever the tasks' is. */
static void sort_gradients(const stepper *s) {
  tsr_state_tensors *of = &s->step->of[TSR_RECORDED_GRADIENTS];
  for (int i = 1; i < of->count; i++) {
    tsr_state_tensor t = of->items[i];
    int at = i;
    for (; at > 0 && of->items[at - 1].param > t.param; at--) of->items[at] = of->items[at - 1];
    of->items[at] = t;
  }
}

/* ---- a step ---- */

static bool scales_loss(const tsr_config *c) { return c->training.precision == TSR_PRECISION_FP16; }

static void set_step_scalars(stepper *s) {
  const tsr_config *c = s->run->config;
  float step_scalars[TSR_SCALARS];
  tsr_step_facts facts = {s->updates, s->how->rate, tsr_synthetic_targets(s->data, s->samples), 1};
  if (scales_loss(c)) facts.loss_scale = s->scale.scale;
  tsr_step_scalars_make(&c->optimizer, &facts, step_scalars);
  step_scalars[TSR_SCALAR_INV_COUNT] *= (float)s->factor;
  tsr_executable_set_step_scalars(s->executable, step_scalars);
  if (s->data->step == 0) s->state->inv_count = step_scalars[TSR_SCALAR_INV_COUNT];
}

static void read_tensors(stepper *s) {
  const tsr_graph *g = s->state->graph;
  for (int v = 0; v < g->values_count; v++) {
    tsr_value_kind kind = g->values[v].kind;
    if (kind == TSR_VALUE_PARAM) add(s, TSR_RECORDED_WEIGHTS, g->values[v].name, v);
    if (kind == TSR_VALUE_STATE) add(s, TSR_RECORDED_STATE, g->values[v].name, v);
  }
}

/* How many choices each expert has, as `train` reports them. */
static void read_counts(stepper *s) {
  static const char *const prefixes[] = {TSR_EXPERT_COUNTS, TSR_EXPERT_ROWS};
  const tsr_graph *g = s->state->graph;
  for (int i = 0; i < g->outputs_count; i++)
    for (int k = 0; k < 2; k++)
      if (!strncmp(g->outputs[i].name, prefixes[k], strlen(prefixes[k])))
        add(s, TSR_RECORDED_LOSS, g->outputs[i].name, g->outputs[i].value);
}

static void check_replicas(stepper *s, int step) {
  tsr_state *state = s->state;
  if (state->differing_replica) return;
  state->differing_replica = tsr_replicas_differing(s->arena, s->executable);
  state->differing_step = step;
}

static void run_step(stepper *s, int step) {
  const tsr_graph *g = s->state->graph;
  s->step = &s->state->steps[step];
  for (int k = 0; k < TSR_RECORDED_KINDS; k++)
    s->step->of[k].items = tsr_arena_array(s->arena, tsr_state_tensor, g->values_count + 1);
  s->data->step = step;
  set_step_scalars(s);
  tsr_executable_run(s->executable, step, tsr_synthetic_fill, s->data);
  s->step->loss = (double)add(s, TSR_RECORDED_LOSS, "loss", g->loss)->data[0];
  read_counts(s);
  sort_gradients(s);
  int clip = tsr_graph_find_output(g, "clip"); /* norm, factor, whether it updates */
  const float *numbers = clip < 0 ? NULL : add(s, TSR_RECORDED_GRADIENTS, "clip", clip)->data;
  s->step->norm = numbers ? (double)numbers[0] : NAN;
  s->step->updates = !numbers || numbers[2] != 0;
  s->updates += s->step->updates;
  if (scales_loss(s->run->config) && s->run->config->training.loss_scale != TSR_SCALE_STATIC)
    tsr_loss_scale_next(&s->scale, !s->step->updates);
  read_tensors(s);
  check_replicas(s, step);
}

static void start_scale(stepper *s) {
  const tsr_config_training *c = &s->run->config->training;
  bool tessera = c->loss_scale == TSR_SCALE_TESSERA;
  if (scales_loss(s->run->config))
    tsr_loss_scale_init(
        &s->scale, tessera ? TSR_LOSS_SCALE_TESSERA : TSR_LOSS_SCALE_INTERVAL,
        (float)s->how->loss_scale, c->loss_scale_interval);
}

/* ---- what the interpreter and the search for the place need ---- */

static void read_initial(stepper *s) {
  int count = s->state->graph->params_count;
  s->state->initial = tsr_arena_array(s->arena, float *, count + 1);
  for (int p = 0; p < count; p++)
    s->state->initial[p] = read(s, tsr_executable_param(s->executable, p));
}

static void find_gradients(stepper *s) {
  const tsr_state_tensors *of = &s->state->steps[0].of[TSR_RECORDED_GRADIENTS];
  s->state->gradients = tsr_arena_array(s->arena, float *, s->state->graph->params_count + 1);
  for (int i = 0; i < of->count; i++)
    if (of->items[i].param >= 0) s->state->gradients[of->items[i].param] = of->items[i].data;
}

/* Outputs keep their order through the passes. */
static void read_values(stepper *s) {
  tsr_state *state = s->state;
  const tsr_graph *before = s->run->compiled.graph;
  state->before = before;
  state->values_count = before->values_count;
  state->values = tsr_arena_array(s->arena, float *, before->values_count + 1);
  state->placed = tsr_arena_array(s->arena, int, before->values_count + 1);
  for (int i = 0; i < before->outputs_count; i++) {
    int value = before->outputs[i].value;
    state->placed[value] = state->graph->outputs[i].value;
    state->values[value] = read(s, state->placed[value]);
  }
}

/* ---- a run ---- */

tsr_recording
tsr_recording_of(const tsr_config *config, const tsr_cpu_context *cpu, tsr_synthetic *data) {
  return (tsr_recording){
      .cpu = cpu,
      .data = data,
      .steps = TSR_PROVE_STEPS,
      .rate = config->scheduler.max_lr,
      .loss_scale = config->training.loss_scale_init,
      .gain = 0.5,
      .ends_small = tsr_recording_ends_small(config)};
}

bool tsr_recording_ends_small(const tsr_config *c) {
  bool has_epsilon =
      c->optimizer.type == TSR_OPTIMIZER_ADAM || c->optimizer.type == TSR_OPTIMIZER_ADAMW;
  return has_epsilon && !scales_loss(c);
}

static void set_weights(stepper *s) {
  tsr_synthetic_weights(
      s->arena, s->executable, s->run->compiled.graph, s->data->seed, s->how->gain);
}

static void run_steps(stepper *s) {
  set_weights(s);
  start_scale(s);
  read_initial(s);
  for (int step = 0; step < s->how->steps; step++) {
    run_step(s, step);
    if (s->run->options.outputs && step == 0) read_values(s);
  }
  find_gradients(s);
}

static void run_small_step(stepper *s) {
  set_weights(s);
  s->updates = 0;
  s->factor = s->data->factor = SMALL;
  run_step(s, s->how->steps);
  s->factor = s->data->factor = 1;
}

/* In memory of its own, which is released behind. */
static bool run_in_process(
    stepper *s, const tsr_observed_device *device, void run(stepper *), tsr_diags *diags) {
  const tsr_config *c = s->run->config;
  tsr_process_options o = {
      .parallel = s->run->parallel, .kernels = s->how->cpu->k, .threads = s->how->cpu->threads};
  o.device = &device->device;
  o.seed = c->training.seed;
  o.fast = c->numerics.policy == TSR_NUMERICS_FAST;
  tsr_process *process = NULL;
  if (!tsr_process_open(s->arena, &o, s->state->programs, 1, &process, &s->executable, diags))
    return false;
  run(s);
  tsr_process_close(process);
  return true;
}

bool tsr_state_run(
    tsr_arena *arena, const tsr_prove_run *run, const tsr_recording *how, tsr_state *ret,
    tsr_diags *diags) {
  const tsr_programs *programs = &run->compiled.programs;
  *ret = (tsr_state){.graph = run->compiled.placed, .programs = programs};
  ret->steps_count = how->steps;
  ret->recorded = how->steps + how->ends_small;
  stepper s = {.arena = arena, .run = run, .how = how, .data = how->data, .state = ret};
  s.factor = 1;
  s.samples = run->compiled.batch * programs->pipeline->microbatches;
  s.data->samples = s.samples;
  tsr_observed_device *device = NULL;
  if (!tsr_observed_device_open(arena, how->cpu, observe, &s, &device, diags)) return false;
  bool ok = run_in_process(&s, device, run_steps, diags) &&
            (!how->ends_small || run_in_process(&s, device, run_small_step, diags));
  tsr_observed_device_close(device);
  return ok;
}

void tsr_state_sha256(
    tsr_arena *arena, const tsr_state *s, tsr_recorded_kind kind, char ret[TSR_SHA256_TEXT_BYTES]) {
  tsr_sha256 *sha = tsr_sha256_new(arena);
  for (int step = 0; step < s->recorded; step++) {
    const tsr_state_tensors *of = &s->steps[step].of[kind];
    for (int i = 0; i < of->count; i++)
      tsr_sha256_update(sha, of->items[i].data, sizeof(float) * (size_t)of->items[i].count);
  }
  tsr_sha256_final(sha, ret);
}
