// SPDX-License-Identifier: Apache-2.0
/* The end of a step: the gradients' norm, clipping, and the optimizers. */
#include "device/cuda/ops.h"

/* out (units, pieces, 1) */
static void norm_stats_run(const cuda_call *c) {
  const tsr_norm_pieces *p = c->call.task->norm;
  float *out = cuda_out(c, 0);
  const float *x = cuda_in(c, 0);
  bool here = tsr_task_counts(&c->call, 0);
  tsr_cuda_zero(c->state->stream, out, p->units * p->pieces * 4);
  for (int64_t u = 0; here && u < p->units; u++)
    for (int64_t k = 0; k < p->pieces; k++) {
      tsr_rectangle r = tsr_task_norm_rectangle(&c->call, u, k);
      if (r.rows && r.cols)
        tsr_cuda_sum_squares(
            c->state->stream, out + u * p->pieces + k, x + r.start, cuda_scratch(c), r.rows, r.cols,
            r.stride);
    }
}
const cuda_op cuda_norm_stats = norm_stats_run;

/* inputs (units, pieces, 1), absent those of other stages; out (units, rows, n) */
static void norm_join_run(const cuda_call *c) {
  const tsr_tensor *out = cuda_y(c, 0);
  int64_t rows = out->shape[0], n = out->shape[1], units = tsr_tensor_elements(out) / (rows * n);
  tsr_cuda_zero(c->state->stream, cuda_out(c, 0), units * rows * n * 4);
  for (int i = 0; i < c->call.task->inputs_count; i++) {
    int64_t shape[] = {units, cuda_x(c, i)->shape[0]}, step[] = {rows * n, n};
    if (tsr_task_counts(&c->call, i))
      tsr_cuda_scatter(c->state->stream, cuda_out(c, 0), cuda_in(c, i), 4, 2, shape, step, i);
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

static int updates_of(const tsr_task *t) { return t->fused ? t->nodes_count : 1; }

static update_form form_of(const tsr_program *p, const tsr_task *t) {
  const tsr_attrs *attr = &p->graph->nodes[t->node].attr;
  update_form f = {.adamw = t->op == TSR_OP_ADAMW, .inputs = t->inputs_count / updates_of(t)};
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

/* One update of a fused task, as a task of its own. */
static tsr_task update_at(const tsr_task *t, const update_form *f, int index) {
  tsr_task one = *t;
  one.node = t->fused ? t->nodes[index] : t->node;
  one.inputs = t->inputs + index * f->inputs;
  one.inputs_count = f->inputs;
  one.fused = TSR_FUSED_NONE;
  return one;
}

/* As many updates a launch as it has room for. */
static void run_updates(const cuda_call *c, launch_updates *launch) {
  const tsr_task *t = c->call.task;
  update_form f = form_of(c->call.program, t);
  tsr_cuda_weight weights[TSR_CUDA_WEIGHTS];
  tsr_cuda_rounding roundings[TSR_CUDA_WEIGHTS];
  bool rounds = f.store != TSR_STORE_F32;
  for (int i = 0, count = 0; i < updates_of(t); i++) {
    tsr_task one = update_at(t, &f, i);
    cuda_call each = *c;
    each.call.task = &one;
    each.key = c->key - t->node + one.node;
    weights[count] = weight_of(&each, &f);
    if (rounds) roundings[count] = rounding_of(&each, f.store);
    if (++count < TSR_CUDA_WEIGHTS && i + 1 < updates_of(t)) continue;
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
