// SPDX-License-Identifier: Apache-2.0
#include "prove/recorded_run.h"
#include "base/command_progress.h"
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
  tsr_value_trace *trace;
  tsr_synthetic *data;
  tsr_state *state;
  tsr_recorded_step *step;
  tsr_loss_scale scale;
  int64_t samples, updates;
  double factor; /* of the loss */
} stepper;

/* A power of two, so that gradients keep their bits but for the exponent. */
static const double SMALL = 1.0 / (1 << 20);

/* Bits of a number that no task has written. */
static const uint32_t UNWRITTEN = 0x7fa5a5a5;

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

/* ---- gradients and values ---- */

static const char norm_stats[] = "norm_stats.";

static int find_param(const tsr_graph *g, const char *name) {
  for (int p = 0; p < g->params_count; p++)
    if (!strcmp(g->params[p].name, name)) return p;
  return -1;
}

/* A NaN that no kernel makes. */
static bool is_unwritten(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits == UNWRITTEN;
}
static float unwritten(void) {
  const uint32_t bits = UNWRITTEN;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static float *capture(const stepper *s, int value, int64_t count) {
  float *data = tsr_arena_array(s->arena, float, count + 1);
  for (int64_t k = 0; k < count; k++) data[k] = unwritten();
  tsr_value_trace_capture(s->trace, value, data);
  return data;
}

/* Two parameters have one value as their gradient where they are added to one another. */
static float *find_captured(const tsr_state_tensors *of, int value) {
  for (int i = 0; i < of->count; i++)
    if (of->items[i].value == value) return of->items[i].data;
  return NULL;
}

/* The norm takes each parameter's gradient (passes/optimizer.c). */
static void expect_gradients(stepper *s) {
  const tsr_graph *g = s->state->graph;
  tsr_state_tensors *of = &s->step->of[TSR_RECORDED_GRADIENTS];
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    if (n->op != TSR_OP_NORM_STATS) continue;
    tsr_state_tensor t = {.name = n->name + sizeof norm_stats - 1, .value = n->inputs[0]};
    t.param = find_param(g, t.name);
    t.ndim = g->values[t.value].ndim;
    tsr_value_real_shape(g, &g->values[t.value], t.shape);
    t.count = 1;
    for (int d = 0; d < t.ndim; d++) t.count *= t.shape[d];
    t.data = find_captured(of, t.value);
    if (!t.data) t.data = capture(s, t.value, t.count);
    of->items[of->count++] = t;
  }
}

/* In the parameters' order, whatever the nodes' is. */
static void sort_gradients(const tsr_state_tensors *of) {
  for (int i = 1; i < of->count; i++) {
    tsr_state_tensor t = of->items[i];
    int at = i;
    for (; at > 0 && of->items[at - 1].param > t.param; at--) of->items[at] = of->items[at - 1];
    of->items[at] = t;
  }
}

static void end_gradients(stepper *s) {
  tsr_state_tensors *of = &s->step->of[TSR_RECORDED_GRADIENTS];
  sort_gradients(of);
  for (int i = 0; i < of->count; i++) {
    tsr_state_tensor *t = &of->items[i];
    for (int64_t k = 0; k < t->count; k++) {
      if (is_unwritten(t->data[k]) && !s->state->missing) s->state->missing = t->name;
      if (isnan(t->data[k])) t->data[k] = NAN;
    }
    tsr_value_trace_capture(s->trace, t->value, NULL);
  }
}

static void keep_values(stepper *s) {
  const tsr_traced_value *values;
  for (int64_t i = 0; i < s->state->captured_count; i++)
    if (isnan(s->state->captured[i])) s->state->captured[i] = NAN;
  s->step->values_count = tsr_value_trace_read(s->trace, &values);
  s->step->values = tsr_arena_array(s->arena, tsr_traced_value, s->step->values_count + 1);
  memcpy(s->step->values, values, sizeof *values * (size_t)s->step->values_count);
}

/* The value of which the numbers are asked for, in this step. */
static void capture_value(stepper *s, int step) {
  const tsr_traced_value *values;
  const tsr_capture_request *of = &s->how->capture;
  int count = tsr_value_trace_candidates(s->trace, &values);
  for (int i = 0; i < count && of->name && of->step == step; i++) {
    if (strcmp(values[i].name, of->name) != 0) continue;
    int64_t elements = 1;
    for (int d = 0; d < values[i].ndim; d++) elements *= values[i].shape[d];
    s->state->captured = tsr_arena_array(s->arena, float, elements + 1);
    s->state->captured_count = elements;
    tsr_value_trace_capture(s->trace, values[i].value, s->state->captured);
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
  capture_value(s, step);
  expect_gradients(s);
  tsr_executable_run(s->executable, step, tsr_synthetic_fill, s->data);
  keep_values(s);
  end_gradients(s);
  s->step->loss = (double)add(s, TSR_RECORDED_LOSS, "loss", g->loss)->data[0];
  read_counts(s);
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

/* With padding, as the interpreter's graph has them. */
static void find_gradients(stepper *s) {
  const tsr_state_tensors *of = &s->state->steps[0].of[TSR_RECORDED_GRADIENTS];
  const tsr_graph *g = s->state->graph;
  s->state->gradients = tsr_arena_array(s->arena, float *, g->params_count + 1);
  for (int i = 0; i < of->count; i++) {
    const tsr_state_tensor *t = &of->items[i];
    if (t->param < 0) continue;
    const tsr_param *p = &g->params[t->param];
    int64_t count = 1;
    for (int d = 0; d < p->ndim; d++) count *= p->shape[d];
    float *stored = s->state->gradients[t->param] = tsr_arena_array(s->arena, float, count);
    tsr_padding_add(&p->padding, p->ndim, p->shape, t->data, stored);
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
    tsr_command_progress_add(1);
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
static bool run_in_process(stepper *s, void run(stepper *), tsr_diags *diags) {
  const tsr_config *c = s->run->config;
  const tsr_cpu_context *cpu = s->how->cpu;
  tsr_process_options o = {
      .parallel = s->run->parallel, .kernels = cpu->k, .threads = cpu->threads};
  o.seed = c->training.seed;
  o.fast = c->numerics.policy == TSR_NUMERICS_FAST;
  tsr_process *process = NULL;
  if (!tsr_process_open(s->arena, &o, s->state->programs, 1, &process, &s->executable, diags))
    return false;
  s->trace = tsr_executable_trace(s->arena, s->executable);
  run(s);
  tsr_process_close(process);
  return true;
}

/* A program that does not compute a gradient leaves nothing to compare. */
static bool check_complete(const tsr_state *s, tsr_diags *diags) {
  int param = s->missing ? find_param(s->graph, s->missing) : -1;
  return !s->missing || tsr_diag_failure(
                            diags, param < 0 ? TSR_NOWHERE : s->graph->params[param].location,
                            "the gradient of '%s' is not computed", s->missing);
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
  return run_in_process(&s, run_steps, diags) &&
         (!how->ends_small || run_in_process(&s, run_small_step, diags)) &&
         check_complete(ret, diags);
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
