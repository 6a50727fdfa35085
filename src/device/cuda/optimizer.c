// SPDX-License-Identifier: Apache-2.0
/* The end of a step: the gradients' norm, clipping, and the optimizers. */
#include "device/cuda/ops.h"

/* One of the graph nodes that a fused task covers, each with as many inputs and outputs, as a task
 * of its own. */
static tsr_task task_at(const tsr_task *t, int index) {
  tsr_task one = *t;
  int nodes = tsr_task_nodes(t);
  one.node = t->fused ? t->nodes[index] : t->node;
  one.inputs_count = t->inputs_count / nodes;
  one.inputs = t->inputs + index * one.inputs_count;
  one.outputs_count = t->outputs_count / nodes;
  one.outputs = t->outputs + index * one.outputs_count;
  if (t->norm) one.norm = t->norm + index;
  if (t->kernel_inputs) one.kernel_inputs = t->kernel_inputs + index * one.inputs_count;
  if (t->kernel_outputs) one.kernel_outputs = t->kernel_outputs + index * one.outputs_count;
  one.fused = TSR_FUSED_NONE;
  return one;
}

/* out (units, pieces, 1): zeros where this rank's gradient does not count */
static tsr_cuda_gradient gradient_of(const cuda_call *c) {
  tsr_cuda_gradient g = {cuda_in(c, 0), cuda_out(c, 0), tsr_task_norm_grid(&c->call)};
  if (!tsr_task_counts(&c->call, 0)) g.grid.parts = 0;
  return g;
}

/* As many gradients a launch as it has room for. */
static void norm_stats_run(const cuda_call *c) {
  const tsr_task *t = c->call.task;
  tsr_cuda_gradient gradients[TSR_CUDA_GRADIENTS];
  for (int i = 0, count = 0; i < tsr_task_nodes(t); i++) {
    tsr_task one = task_at(t, i);
    cuda_call each = *c;
    each.call.task = &one;
    gradients[count] = gradient_of(&each);
    if (++count < TSR_CUDA_GRADIENTS && i + 1 < tsr_task_nodes(t)) continue;
    tsr_cuda_gradient_squares(c->state->stream, gradients, count, cuda_scratch(c));
    count = 0;
  }
}
const cuda_op cuda_norm_stats = norm_stats_run;

/* inputs (units, pieces, 1), absent those of other stages; out (units, rows, n) */
static void norm_join_run(const cuda_call *c) {
  const tsr_tensor *out = cuda_y(c, 0);
  int64_t rows = out->shape[0], n = out->shape[1], units = tsr_tensor_elements(out) / (rows * n);
  tsr_cuda_column columns[TSR_CUDA_COLUMNS];
  float *to = cuda_out(c, 0);
  for (int i = 0, count = 0, all = c->call.task->inputs_count; i < all; i++) {
    bool counts = tsr_task_counts(&c->call, i);
    columns[count++] =
        (tsr_cuda_column){counts ? cuda_in(c, i) : NULL, counts ? cuda_x(c, i)->shape[0] : 0};
    if (count < TSR_CUDA_COLUMNS && i + 1 < all) continue;
    tsr_cuda_join_columns(c->state->stream, to + (i + 1 - count), columns, count, units, rows, n);
    count = 0;
  }
}
const cuda_op cuda_norm_join = norm_join_run;

/* inputs: stats[, step_scalars]: then of gradients with the loss scale */
static void clip_run(const cuda_call *c) {
  const tsr_tensor *stats = cuda_x(c, 0);
  bool scaled = c->call.task->inputs_count == 2;
  tsr_cuda_clip(
      c->state->stream, cuda_out(c, 0), cuda_in(c, 0), stats->shape[0], stats->shape[1],
      (float)cuda_attrs(c)->clip.max_norm,
      scaled ? cuda_scalar(c, 1, TSR_SCALAR_LOSS_SCALE) : NULL);
}
const cuda_op cuda_clip = clip_run;

/* ---- optimizers ---- */

/* How the update of a weight that is stored in bf16 ends; a compensation is the last input. */
static tsr_cuda_rounding rounding_of(const cuda_call *c, tsr_param_store store) {
  tsr_cuda_rounding r = {.kind = TSR_ROUND_STOCHASTIC, .key = c->key};
  if (store != TSR_STORE_KAHAN) {
    r.slice = tsr_operand_slice(&c->call, cuda_x(c, 0));
    return r;
  }
  r.kind = TSR_ROUND_KAHAN;
  r.compensation = cuda_in(c, c->call.task->inputs_count - 1);
  return r;
}

/* inputs: AdamW: weight, gradient, m, v, step_scalars[, clip][, v_max][, compensation]
 *         SGD: weight, gradient, step_scalars[, clip][, momentum][, compensation]
 * All weights share `step_scalars` and the clip factor, `clip`. */
typedef struct {
  int inputs;       /* of one update */
  int step_scalars; /* an input */
  tsr_param_store store;
  bool adamw, amsgrad, momentum, clip;
} update_form;

static update_form form_of(const tsr_program *p, const tsr_task *t) {
  const tsr_attrs *attr = &p->graph->nodes[t->node].attr;
  update_form f = {.adamw = t->op == TSR_OP_ADAMW, .inputs = t->inputs_count / tsr_task_nodes(t)};
  f.step_scalars = f.adamw ? 4 : 2;
  f.store = f.adamw ? attr->adamw.store : attr->sgd.store;
  f.amsgrad = f.adamw && attr->adamw.amsgrad;
  f.momentum = !f.adamw && attr->sgd.momentum != 0;
  bool kahan = f.store == TSR_STORE_KAHAN;
  f.clip = f.inputs > f.step_scalars + 1 + f.amsgrad + f.momentum + kahan;
  return f;
}

static tsr_cuda_weight weight_of(const cuda_call *c, const update_form *f) {
  tsr_cuda_weight w = {.w = cuda_in(c, 0), .grad = cuda_in(c, 1)};
  w.n = tsr_tensor_elements(cuda_x(c, 0));
  w.weight_decay = (float)(f->adamw ? cuda_attrs(c)->adamw.decay : cuda_attrs(c)->sgd.decay);
  if (f->adamw) w.m = cuda_in(c, 2), w.v = cuda_in(c, 3);
  if (f->amsgrad) w.v_max = cuda_in(c, 5 + f->clip);
  if (f->momentum) w.m = cuda_in(c, 3 + f->clip);
  return w;
}

/* Begins the updates of some weights; the call's task is one of theirs. */
typedef void launch_updates(
    const cuda_call *c, const update_form *f, const tsr_cuda_weight *weights,
    const tsr_cuda_rounding *roundings, int count);

/* As many updates a launch as it has room for. */
static void run_updates(const cuda_call *c, launch_updates *launch) {
  const tsr_task *t = c->call.task;
  update_form f = form_of(c->call.program, t);
  tsr_cuda_weight weights[TSR_CUDA_WEIGHTS];
  tsr_cuda_rounding roundings[TSR_CUDA_WEIGHTS];
  bool rounds = f.store != TSR_STORE_F32;
  for (int i = 0, count = 0; i < tsr_task_nodes(t); i++) {
    tsr_task one = task_at(t, i);
    cuda_call each = *c;
    each.call.task = &one;
    each.key = c->key - t->node + one.node;
    weights[count] = weight_of(&each, &f);
    if (rounds) roundings[count] = rounding_of(&each, f.store);
    if (++count < TSR_CUDA_WEIGHTS && i + 1 < tsr_task_nodes(t)) continue;
    launch(c, &f, weights, rounds ? roundings : NULL, count);
    count = 0;
  }
}

static const float *clip_of(const cuda_call *c, const update_form *f) {
  return f->clip ? cuda_in(c, f->step_scalars + 1) : NULL;
}

static void launch_adamw(
    const cuda_call *c, const update_form *f, const tsr_cuda_weight *weights,
    const tsr_cuda_rounding *roundings, int count) {
  const tsr_adamw_attrs *attr = &cuda_attrs(c)->adamw;
  tsr_cuda_adamw_options o = {
      (float)attr->beta1, (float)attr->beta2, (float)attr->eps, attr->coupled};
  o.lr = cuda_scalar(c, f->step_scalars, TSR_SCALAR_LR);
  o.correction1 = cuda_scalar(c, f->step_scalars, TSR_SCALAR_CORRECTION1);
  o.correction2 = cuda_scalar(c, f->step_scalars, TSR_SCALAR_CORRECTION2);
  o.clip = clip_of(c, f);
  tsr_cuda_adamw(c->state->stream, &o, weights, roundings, count);
}

static void adamw_run(const cuda_call *c) { run_updates(c, launch_adamw); }
const cuda_op cuda_adamw = adamw_run;

static void launch_sgd(
    const cuda_call *c, const update_form *f, const tsr_cuda_weight *weights,
    const tsr_cuda_rounding *roundings, int count) {
  const tsr_sgd_attrs *attr = &cuda_attrs(c)->sgd;
  tsr_cuda_sgd_options o = {(float)attr->momentum, (float)attr->dampening, attr->nesterov};
  o.lr = cuda_scalar(c, f->step_scalars, TSR_SCALAR_LR);
  o.first = cuda_scalar(c, f->step_scalars, TSR_SCALAR_FIRST);
  o.clip = clip_of(c, f);
  tsr_cuda_sgd(c->state->stream, &o, weights, roundings, count);
}

static void sgd_run(const cuda_call *c) { run_updates(c, launch_sgd); }
const cuda_op cuda_sgd = sgd_run;
