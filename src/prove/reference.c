// SPDX-License-Identifier: Apache-2.0
#include "prove/reference.h"
#include "base/command_progress.h"
#include "base/memory.h"
#include "interpreter/interpreter.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of the largest gradient; and the last bit of f32. */
static const double cancelled = 1e-3, rounding = 1.0 / (1 << 23);
/* An op rounds more than once; so many times what one rounding of each result moves. */
enum { DRAWS = 4, ROUNDINGS = 16 };

typedef struct {
  const tsr_prove_run *run;
  const tsr_cpu_context *cpu;
  const tsr_synthetic *data;
  const tsr_graph *graph;  /* forward */
  const tsr_graph *placed; /* the program's */
  tsr_interpreter *t;
  int64_t microbatches, microbatch;
} reference;

static int64_t param_elements(const tsr_param *p) {
  int64_t count = 1;
  for (int d = 0; d < p->ndim; d++) count *= p->shape[d];
  return count;
}

static double largest(const double *x, int64_t count) {
  double max = 0;
  for (int64_t i = 0; i < count; i++) max = fabs(x[i]) > max ? fabs(x[i]) : max;
  return max;
}

/* The dimension that holds the samples of what a node makes: the one that dp splits. -1: what it
 * makes is the same in every microbatch. */
static int sample_dim(const reference *r, const tsr_node *node) {
  const tsr_graph *g = r->placed;
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    if (n->op != node->op || strcmp(n->name, node->name)) continue;
    tsr_placement dp = g->values[n->outputs[0]].placement[TSR_DP];
    return dp.kind == TSR_SHARD ? dp.dim : -1;
  }
  return 0;
}

/* A microbatch has its part of the step's samples. */
static void
mask(void *context, const tsr_node *node, int ndim, const int64_t *shape, double *ret_mask) {
  const reference *r = context;
  tsr_tensor_slice slice = {.ndim = ndim};
  int64_t count = 1;
  int samples = sample_dim(r, node);
  for (int d = 0; d < ndim; d++) count *= slice.shape[d] = slice.global[d] = shape[d];
  if (samples >= 0) {
    slice.global[samples] *= r->microbatches;
    slice.offset[samples] = r->microbatch * shape[samples];
  }
  float *ones = tsr_memory_new(sizeof *ones * (size_t)count);
  for (int64_t i = 0; i < count; i++) ones[i] = 1;
  double p = tsr_node_dropout(node);
  uint64_t key = tsr_random_key(r->data->seed, node->stream, 0);
  r->cpu->k->dropout(ones, ones, (float)p, key, &slice, 0, count / shape[ndim - 1]);
  for (int64_t i = 0; i < count; i++) ret_mask[i] = (double)ones[i];
  free(ones);
}

static void fill_inputs(const reference *r) {
  for (int v = 0; v < r->graph->values_count; v++) {
    const tsr_value *value = &r->graph->values[v];
    if (value->kind != TSR_VALUE_INPUT) continue;
    int64_t rows = value->shape[0], each = tsr_value_elements(value) / rows;
    double *x = tsr_interpreter_value(r->t, v);
    for (int64_t row = 0; row < rows; row++)
      for (int64_t i = 0; i < each; i++)
        x[row * each + i] = tsr_synthetic_number(r->data, v, r->microbatch * rows + row, i);
  }
}

static void fill_params(reference *r, const tsr_state *state) {
  for (int p = 0; p < r->graph->params_count; p++) {
    double *w = tsr_interpreter_param(r->t, p);
    for (int64_t i = 0; i < param_elements(&r->graph->params[p]); i++)
      w[i] = (double)state->initial[p][i];
  }
}

/* `draw` above 0: with roundings. */
static double run_step(reference *r, const tsr_state *state, int draw) {
  tsr_interpreter_step step = {.inv_count = (double)state->inv_count, .mask = mask};
  step.microbatches = r->microbatches;
  step.mask_context = r;
  step.rounding = draw ? rounding : 0;
  step.draw = (uint64_t)draw;
  double loss = 0;
  tsr_interpreter_zero_gradients(r->t);
  fill_params(r, state);
  for (r->microbatch = 0; r->microbatch < r->microbatches; r->microbatch++) {
    fill_inputs(r);
    tsr_interpreter_forward(r->t, &step);
    tsr_interpreter_backward(r->t);
    loss += tsr_interpreter_loss(r->t);
    tsr_command_progress_add(1);
  }
  return loss;
}

/* What the interpreter computes, and how far that moves when every result is rounded. */
typedef struct {
  double **gradient; /* per parameter */
  double *moved;     /* per parameter, its largest element; 0 before it is measured */
  double loss, moved_loss;
  double largest, largest_param;
} wanted;

static wanted compute(tsr_arena *arena, reference *r, const tsr_state *state) {
  int count = r->graph->params_count;
  wanted w = {.gradient = tsr_arena_array(arena, double *, count + 1)};
  w.moved = tsr_arena_array(arena, double, count + 1);
  w.loss = run_step(r, state, 0);
  for (int p = 0; p < count; p++) {
    int64_t n = param_elements(&r->graph->params[p]);
    w.gradient[p] = tsr_arena_array(arena, double, n);
    memcpy(w.gradient[p], tsr_interpreter_gradient(r->t, p), sizeof(double) * (size_t)n);
    if (!r->graph->params[p].is_frozen) w.largest = fmax(w.largest, largest(w.gradient[p], n));
    w.largest_param = fmax(w.largest_param, largest(tsr_interpreter_param(r->t, p), n));
  }
  return w;
}

static void measure_rounding(reference *r, const tsr_state *state, wanted *w) {
  for (int draw = 1; draw <= DRAWS; draw++) {
    w->moved_loss = fmax(w->moved_loss, fabs(run_step(r, state, draw) - w->loss));
    for (int p = 0; p < r->graph->params_count; p++) {
      const double *g = tsr_interpreter_gradient(r->t, p);
      for (int64_t i = 0; i < param_elements(&r->graph->params[p]); i++)
        w->moved[p] = fmax(w->moved[p], fabs(g[i] - w->gradient[p][i]));
    }
  }
}

/* The error of every element, relative to what it is allowed to be a multiple of. */
static void compare_gradient(
    const reference *r, const tsr_state *state, int param, const wanted *w,
    tsr_reference_result *ret) {
  const tsr_param *p = &r->graph->params[param];
  int64_t count = param_elements(p);
  double scale = fmax(largest(w->gradient[param], count), cancelled * w->largest);
  scale += ROUNDINGS * w->moved[param] / TSR_GRADIENT_TOLERANCE;
  double hidden = ROUNDINGS * rounding * fabs(w->loss) / w->largest_param;
  if (w->largest < hidden) scale = hidden / TSR_GRADIENT_TOLERANCE;
  for (int64_t i = 0; i < count && scale > 0; i++) {
    double got = state->gradients[param] ? (double)state->gradients[param][i] : 0;
    double error = fabs(got - w->gradient[param][i]) / scale;
    if (error <= ret->gradient_error) continue; /* false of a NaN, too */
    ret->gradient_error = isnan(error) ? INFINITY : error;
    ret->parameter = p->name;
    ret->element = i;
    ret->found = got;
    ret->wanted = w->gradient[param][i];
    ret->location = p->location;
  }
}

static void
compare(const reference *r, const tsr_state *state, const wanted *w, tsr_reference_result *ret) {
  double scale = fmax(fabs(w->loss), 1e-6) + ROUNDINGS * w->moved_loss / TSR_LOSS_TOLERANCE;
  ret->loss_error = fabs(state->steps[0].loss - w->loss) / scale;
  if (isnan(ret->loss_error)) ret->loss_error = INFINITY;
  ret->gradient_error = 0;
  for (int p = 0; p < r->graph->params_count; p++)
    if (!r->graph->params[p].is_frozen) compare_gradient(r, state, p, w, ret);
}

/* Whether f32 cannot hold a number of the step, or its square. */
static bool overflows(const reference *r) {
  const double most = sqrt((double)FLT_MAX);
  for (int v = 0; v < r->graph->values_count; v++) {
    const double *x = tsr_interpreter_value(r->t, v);
    if (x && !(largest(x, tsr_value_elements(&r->graph->values[v])) < most)) return true;
  }
  return false;
}

bool tsr_reference_compare(
    tsr_arena *arena, const tsr_prove_run *run, const tsr_cpu_context *cpu,
    const tsr_synthetic *data, const tsr_state *state, tsr_reference_result *ret,
    tsr_diags *diags) {
  tsr_model_options options =
      tsr_compile_model(&run->options, TSR_COMPILE_TRAIN, run->compiled.batch);
  tsr_model *model;
  if (!tsr_compile_read_model(arena, run->config, &options, &model, diags)) return false;
  tsr_synthetic first = *data;
  first.graph = model->graph;
  first.step = 0;
  reference r = {.run = run, .cpu = cpu, .data = &first, .graph = model->graph};
  r.placed = state->graph;
  r.t = tsr_interpreter_new(arena, model->graph);
  r.microbatches = run->compiled.programs.pipeline->microbatches;
  tsr_command_progress_begin("proving: the interpreter", r.microbatches, "microbatches");
  wanted w = compute(arena, &r, state);
  tsr_command_progress_end();
  *ret = (tsr_reference_result){.overflows = false};
  compare(&r, state, &w, ret);
  if (tsr_reference_agrees(ret)) return true;
  ret->overflows = overflows(&r);
  if (ret->overflows) return true;
  ret->ill_conditioned = true;
  tsr_command_progress_begin("proving: rounding", DRAWS * r.microbatches, "microbatches");
  measure_rounding(&r, state, &w);
  tsr_command_progress_end();
  compare(&r, state, &w, ret);
  return true;
}

bool tsr_reference_agrees(const tsr_reference_result *r) {
  return r->overflows ||
         (r->loss_error <= TSR_LOSS_TOLERANCE && r->gradient_error <= TSR_GRADIENT_TOLERANCE);
}

void tsr_reference_explain(const tsr_reference_result *r, tsr_diags *diags) {
  if (!(r->loss_error <= TSR_LOSS_TOLERANCE))
    tsr_diag_failure(
        diags, TSR_NOWHERE, "the loss of step 1 is %.2g off the interpreter's; %.2g is allowed",
        r->loss_error, TSR_LOSS_TOLERANCE);
  if (!(r->gradient_error <= TSR_GRADIENT_TOLERANCE))
    tsr_diag_failure(
        diags, r->location,
        "the gradient of '%s' is %.2g off the interpreter's, %.2g is allowed: "
        "element %lld is %.9g, not %.9g",
        r->parameter, r->gradient_error, TSR_GRADIENT_TOLERANCE, (long long)r->element, r->found,
        r->wanted);
}
