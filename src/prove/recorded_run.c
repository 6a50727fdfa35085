// SPDX-License-Identifier: Apache-2.0
#include "prove/recorded_run.h"
#include "runtime/process.h"
#include "train/loss_scale.h"
#include "train/step_scalars.h"
#include <math.h>
#include <string.h>

typedef struct {
  tsr_arena *arena;
  const tsr_prove_run *run;
  tsr_executable *executable;
  tsr_synthetic *data;
  tsr_state *state;
  tsr_loss_scale scale;
  int64_t samples, updates;
} stepper;

/* Every NaN is the same one: their signs and payloads are no part of the contract on bits. */
static float *read(const stepper *s, int value) {
  int64_t count = tsr_value_elements(&s->state->graph->values[value]);
  float *out = tsr_arena_array(s->arena, float, count);
  tsr_executable_read(s->executable, value, out);
  for (int64_t i = 0; i < count; i++)
    if (isnan(out[i])) out[i] = NAN;
  return out;
}

static bool scales_loss(const tsr_config *c) { return c->training.precision == TSR_PRECISION_FP16; }

/* The learning rate is the schedule's largest: a warm-up's first rates change no f32 number. */
static void set_step_scalars(stepper *s) {
  const tsr_config *c = s->run->config;
  float step_scalars[TSR_SCALARS];
  tsr_step_facts facts = {
      s->updates, c->scheduler.max_lr, tsr_synthetic_targets(s->data, s->samples), 1};
  if (scales_loss(c)) facts.loss_scale = s->scale.scale;
  tsr_step_scalars_make(&c->optimizer, &facts, step_scalars);
  tsr_executable_set_step_scalars(s->executable, step_scalars);
  if (s->data->step == 0) s->state->inv_count = step_scalars[TSR_SCALAR_INV_COUNT];
}

static void run_step(stepper *s, int step) {
  const tsr_graph *g = s->state->graph;
  const tsr_config *c = s->run->config;
  s->data->step = step;
  set_step_scalars(s);
  tsr_executable_run(s->executable, step, tsr_synthetic_fill, s->data);
  s->state->loss[step] = (double)read(s, g->loss)[0];
  int clip = tsr_graph_find_output(g, "clip");
  const float *numbers = clip < 0 ? NULL : read(s, clip); /* norm, factor, whether it updates */
  s->state->norm[step] = numbers ? (double)numbers[0] : NAN;
  bool overflow = numbers && numbers[2] == 0;
  s->updates += !overflow;
  if (scales_loss(c) && c->training.loss_scale != TSR_SCALE_STATIC)
    tsr_loss_scale_next(&s->scale, overflow);
}

static void start_scale(stepper *s) {
  const tsr_config_training *c = &s->run->config->training;
  bool tessera = c->loss_scale == TSR_SCALE_TESSERA;
  if (scales_loss(s->run->config))
    tsr_loss_scale_init(
        &s->scale, tessera ? TSR_LOSS_SCALE_TESSERA : TSR_LOSS_SCALE_INTERVAL,
        (float)c->loss_scale_init, c->loss_scale_interval);
}

static void read_initial(stepper *s) {
  int count = s->state->graph->params_count;
  s->state->initial = tsr_arena_array(s->arena, float *, count + 1);
  for (int p = 0; p < count; p++)
    s->state->initial[p] = read(s, tsr_executable_param(s->executable, p));
}

static void read_gradients(stepper *s) {
  tsr_state *state = s->state;
  const tsr_graph *before = s->run->compiled.graph;
  state->gradients = tsr_arena_array(s->arena, float *, before->params_count + 1);
  for (int p = 0; p < before->params_count; p++)
    if (before->grads[p] >= 0) state->gradients[p] = state->values[before->grads[p]];
}

/* Outputs keep their order through the passes. */
static void read_values(stepper *s) {
  tsr_state *state = s->state;
  const tsr_graph *before = s->run->compiled.graph;
  state->values_count = before->values_count;
  state->values = tsr_arena_array(s->arena, float *, before->values_count + 1);
  state->placed = tsr_arena_array(s->arena, int, before->values_count + 1);
  for (int i = 0; i < before->outputs_count; i++) {
    int value = before->outputs[i].value;
    state->placed[value] = state->graph->outputs[i].value;
    state->values[value] = read(s, state->placed[value]);
  }
}

static void read_tensors(stepper *s) {
  tsr_state *state = s->state;
  const tsr_graph *g = state->graph;
  state->tensors = tsr_arena_array(s->arena, tsr_state_tensor, g->values_count + 1);
  for (int v = 0; v < g->values_count; v++) {
    const tsr_value *value = &g->values[v];
    if (value->kind != TSR_VALUE_PARAM && value->kind != TSR_VALUE_STATE) continue;
    tsr_state_tensor *t = &state->tensors[state->tensors_count++];
    *t = (tsr_state_tensor){.name = value->name, .value = v, .ndim = value->ndim};
    memcpy(t->shape, value->shape, sizeof t->shape);
    t->count = tsr_value_elements(value);
    t->data = read(s, v);
  }
}

bool tsr_state_run(
    tsr_arena *arena, const tsr_prove_run *run, const tsr_cpu_context *cpu, tsr_synthetic *data,
    int steps, tsr_state *ret, tsr_diags *diags) {
  bool gradients = run->options.outputs == TSR_OUTPUTS_GRADIENTS;
  const tsr_programs *programs = &run->compiled.programs;
  *ret = (tsr_state){.graph = run->compiled.placed, .programs = programs};
  stepper s = {.arena = arena, .run = run, .data = data, .state = ret};
  s.samples = run->compiled.batch * programs->pipeline->microbatches;
  tsr_process_options o = {.parallel = run->parallel, .kernels = cpu->k, .threads = cpu->threads};
  o.seed = run->config->training.seed;
  o.fast = run->config->numerics.policy == TSR_NUMERICS_FAST;
  tsr_process *process = NULL;
  if (!tsr_process_open(arena, &o, programs, 1, &process, &s.executable, diags)) return false;
  start_scale(&s);
  if (gradients) read_initial(&s);
  for (int step = 0; step < steps; step++) {
    run_step(&s, step);
    if (run->options.outputs && step == 0) read_values(&s);
    if (gradients && step == 0) read_gradients(&s);
  }
  read_tensors(&s);
  const char *differs = NULL;
  bool agree = tsr_executable_replicas_agree(s.executable, &differs);
  tsr_process_close(process);
  return agree || tsr_diag_failure(
                      diags, TSR_NOWHERE, "the replicas of '%s' differ after %d step%s", differs,
                      steps, steps == 1 ? "" : "s");
}

void tsr_state_sha256(tsr_arena *arena, const tsr_state *s, char ret[TSR_SHA256_TEXT_BYTES]) {
  tsr_sha256 *sha = tsr_sha256_new(arena);
  for (int i = 0; i < TSR_PROVE_STEPS; i++) {
    float numbers[2] = {(float)s->loss[i], (float)s->norm[i]};
    tsr_sha256_update(sha, numbers, sizeof numbers);
  }
  for (int i = 0; i < s->tensors_count; i++)
    tsr_sha256_update(sha, s->tensors[i].data, sizeof(float) * (size_t)s->tensors[i].count);
  tsr_sha256_final(sha, ret);
}
