#include "prove/reference.h"
#include "interpreter/interpreter.h"
#include <math.h>
#include <stdlib.h>

static const double cancelled = 1e-3; /* of the largest gradient */

typedef struct {
  const tsr_prove_run *run;
  const tsr_cpu_context *cpu;
  tsr_synthetic *data;
  const tsr_graph *graph; /* forward */
  tsr_interpreter *t;
  int64_t microbatches, microbatch;
} reference;

/* Dimension 0 is samples: a microbatch has its part of the step's. */
static void
mask(void *context, const tsr_node *node, int ndim, const int64_t *shape, double *ret_mask) {
  const reference *r = context;
  tsr_box box = {.ndim = ndim};
  int64_t count = 1;
  for (int d = 0; d < ndim; d++) count *= box.shape[d] = box.global[d] = shape[d];
  box.global[0] *= r->microbatches;
  box.offset[0] = r->microbatch * shape[0];
  float *ones = malloc(sizeof *ones * (size_t)count);
  if (!ones) abort();
  for (int64_t i = 0; i < count; i++) ones[i] = 1;
  double p = node->attr[node->op == TSR_OP_DROPOUT ? 0 : 3];
  uint64_t key = tsr_random_key(r->data->seed, node->stream, 0);
  r->cpu->k->dropout(ones, ones, (float)p, key, &box, 0, count / shape[ndim - 1]);
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

static double run_step(reference *r, const tsr_state *state) {
  tsr_interpreter_step step = {.inv_count = (double)state->inv_count, .mask = mask};
  step.microbatches = r->microbatches;
  step.mask_context = r;
  double loss = 0;
  for (int p = 0; p < r->graph->params_count; p++) {
    int64_t count = 1;
    for (int d = 0; d < r->graph->params[p].ndim; d++) count *= r->graph->params[p].shape[d];
    double *w = tsr_interpreter_param(r->t, p);
    for (int64_t i = 0; i < count; i++) w[i] = (double)state->initial[p][i];
  }
  for (r->microbatch = 0; r->microbatch < r->microbatches; r->microbatch++) {
    fill_inputs(r);
    tsr_interpreter_forward(r->t, &step);
    tsr_interpreter_backward(r->t);
    loss += tsr_interpreter_loss(r->t);
  }
  return loss;
}

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

static void compare_gradient(
    const reference *r, const tsr_state *state, int param, double least,
    tsr_reference_result *ret) {
  const tsr_param *p = &r->graph->params[param];
  const double *want = tsr_interpreter_gradient(r->t, param);
  int64_t count = param_elements(p);
  double scale = largest(want, count);
  if (scale < least) scale = least;
  for (int64_t i = 0; i < count && scale > 0; i++) {
    double got = state->gradients[param] ? (double)state->gradients[param][i] : 0;
    double error = fabs(got - want[i]) / scale;
    if (error <= ret->gradient_error) continue; /* false of a NaN, too */
    ret->gradient_error = isnan(error) ? INFINITY : error;
    ret->parameter = p->name;
    ret->element = i;
    ret->found = got;
    ret->wanted = want[i];
    ret->place = p->place;
  }
}

bool tsr_reference_compare(
    tsr_arena *arena, const tsr_prove_run *run, const tsr_cpu_context *cpu, tsr_synthetic *data,
    const tsr_state *state, tsr_reference_result *ret, tsr_diags *diags) {
  tsr_model_options options =
      tsr_compile_model(&run->options, TSR_COMPILE_TRAIN, run->compiled.batch);
  tsr_model *model;
  if (!tsr_model_read(arena, run->config, &options, &model, diags)) return false;
  reference r = {.run = run, .cpu = cpu, .data = data, .graph = model->graph};
  tsr_synthetic own = *data;
  own.graph = model->graph;
  own.step = 0;
  r.data = &own;
  r.t = tsr_interpreter_new(arena, model->graph);
  r.microbatches = run->compiled.programs.order->microbatches;
  double want = run_step(&r, state), most = 0;
  *ret = (tsr_reference_result){0};
  ret->loss_error = fabs(state->loss[0] - want) / fmax(fabs(want), 1e-6);
  if (isnan(ret->loss_error)) ret->loss_error = INFINITY;
  for (int p = 0; p < r.graph->params_count; p++)
    most = fmax(most, largest(tsr_interpreter_gradient(r.t, p), param_elements(&r.graph->params[p])));
  for (int p = 0; p < r.graph->params_count; p++)
    compare_gradient(&r, state, p, cancelled * most, ret);
  return true;
}

bool tsr_reference_check(const tsr_reference_result *r, tsr_diags *diags) {
  if (!(r->loss_error <= TSR_LOSS_TOLERANCE))
    tsr_diag_failure(
        diags, TSR_NOWHERE, "the loss of step 1 is %.2g off the interpreter's; %.2g is allowed",
        r->loss_error, TSR_LOSS_TOLERANCE);
  if (!(r->gradient_error <= TSR_GRADIENT_TOLERANCE))
    tsr_diag_failure(
        diags, r->place,
        "the gradient of '%s' is %.2g off the interpreter's, %.2g is allowed: element %lld is %.9g, "
        "not %.9g",
        r->parameter, r->gradient_error, TSR_GRADIENT_TOLERANCE, (long long)r->element, r->found,
        r->wanted);
  return r->loss_error <= TSR_LOSS_TOLERANCE && r->gradient_error <= TSR_GRADIENT_TOLERANCE;
}
