/* The end of a step: the gradients' norm, clipping, and the optimizers. */
#include "device/cuda_tasks.h"

/* A piece at a time. */
static int64_t norm_stats_scratch(const tsr_program *p, const tsr_task *t) {
  (void)p;
  return tsr_cuda_sum_scratch(1, tsr_tensor_elements(&t->inputs[0]));
}

/* out (units, pieces, 1) */
static void norm_stats_run(const cuda_call *c) {
  const tsr_norm_pieces *p = c->base.task->norm;
  float *out = cuda_out(c, 0);
  const float *x = cuda_in(c, 0);
  bool here = cpu_counts(&c->base, 0);
  tsr_cuda_zero(c->state->stream, out, p->units * p->pieces * 4);
  for (int64_t u = 0; here && u < p->units; u++)
    for (int64_t k = 0; k < p->pieces; k++) {
      tsr_rectangle r = cpu_norm_rectangle(&c->base, u, k);
      if (r.rows && r.cols)
        tsr_cuda_sum_squares(
            c->state->stream, out + u * p->pieces + k, x + r.start, cuda_scratch(c), r.rows, r.cols,
            r.stride);
    }
}
const cuda_op cuda_norm_stats = {norm_stats_run, norm_stats_scratch};

/* inputs (units, pieces, 1), absent those of other stages; out (units, pieces, n) */
static void norm_join_run(const cuda_call *c) {
  const tsr_tensor *out = cuda_y(c, 0);
  int64_t n = out->shape[1], rows = tsr_tensor_elements(out) / n;
  tsr_cuda_zero(c->state->stream, cuda_out(c, 0), rows * n * 4);
  for (int i = 0; i < c->base.task->inputs_count; i++)
    if (cpu_counts(&c->base, i))
      tsr_cuda_scatter(c->state->stream, cuda_out(c, 0), cuda_in(c, i), 4, 1, &rows, &n, i);
}
const cuda_op cuda_norm_join = {norm_join_run, NULL};

/* inputs: stats[, hyper]: then of gradients with the loss scale */
static void clip_run(const cuda_call *c) {
  const tsr_tensor *stats = cuda_x(c, 0);
  bool scaled = c->base.task->inputs_count == 2;
  tsr_cuda_clip(
      c->state->stream, cuda_out(c, 0), cuda_in(c, 0), stats->shape[0], stats->shape[1],
      (float)cuda_attrs(c)->clip.max_norm, scaled ? cuda_hyper(c, 1, TSR_HYPER_LOSS_SCALE) : NULL);
}
const cuda_op cuda_clip = {clip_run, NULL};

/* ---- optimizers: updates that follow one another go many to a launch ---- */

/* How the update of a weight that is stored in bf16 ends; a compensation is the last input. */
static tsr_cuda_rounding rounding_of(const cuda_call *c, tsr_param_store store) {
  tsr_cuda_rounding r = {.kind = TSR_ROUND_STOCHASTIC, .key = c->key};
  if (store != TSR_STORE_KAHAN) {
    r.box = cpu_weight_box(&c->base);
    return r;
  }
  r.kind = TSR_ROUND_KAHAN;
  r.compensation = cuda_in(c, c->base.task->inputs_count - 1);
  return r;
}

/* inputs: AdamW: weight, gradient, m, v, hyper[, clip][, v_max][, compensation]
 *         SGD: weight, gradient, hyper[, clip][, momentum][, compensation]
 * All weights share `hyper` and what the norm says, `clip`. */
typedef struct {
  int hyper; /* an input */
  tsr_param_store store;
  bool adamw, amsgrad, momentum, clip;
} update_form;

static update_form form_of(const tsr_program *p, const tsr_task *t) {
  const tsr_attrs *attr = &p->graph->nodes[t->node].attr;
  update_form f = {.adamw = t->op == TSR_OP_ADAMW};
  f.hyper = f.adamw ? 4 : 2;
  f.store = f.adamw ? attr->adamw.store : attr->sgd.store;
  f.amsgrad = f.adamw && attr->adamw.amsgrad;
  f.momentum = !f.adamw && attr->sgd.momentum != 0;
  bool kahan = f.store == TSR_STORE_KAHAN;
  f.clip = t->inputs_count > f.hyper + 1 + f.amsgrad + f.momentum + kahan;
  return f;
}

/* Whether two updates differ in their weights and the weights' decay alone. */
static bool are_alike(const tsr_program *p, const tsr_task *a, const tsr_task *b) {
  tsr_attrs x = p->graph->nodes[a->node].attr, y = p->graph->nodes[b->node].attr;
  if (a->op != b->op || a->inputs_count != b->inputs_count) return false;
  update_form f = form_of(p, a);
  if (f.adamw) x.adamw.decay = y.adamw.decay;
  else x.sgd.decay = y.sgd.decay;
  if (!tsr_attrs_equal(a->op, &x, &y)) return false;
  for (int i = f.hyper; i <= f.hyper + f.clip; i++)
    if (a->inputs[i].value != b->inputs[i].value) return false;
  return true;
}

/* The update behind one, or NULL, where it is of the same launch. */
static const tsr_task *next_update(const tsr_program *p, const tsr_task *t) {
  const tsr_task *next = cuda_follower(p, t);
  return next && are_alike(p, t, next) ? next : NULL;
}

static bool is_first_update(const tsr_program *p, const tsr_task *t) {
  return t == p->tasks || next_update(p, t - 1) != t;
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

/* The first one's task does those behind it, which then do nothing. */
static void run_updates(const cuda_call *c, launch_updates *launch) {
  const tsr_program *p = c->base.program;
  const tsr_task *first = c->base.task;
  if (!is_first_update(p, first)) return;
  update_form f = form_of(p, first);
  tsr_param_store store = f.store;
  tsr_cuda_weight weights[TSR_CUDA_WEIGHTS];
  tsr_cuda_rounding roundings[TSR_CUDA_WEIGHTS];
  int count = 0;
  for (const tsr_task *t = first; t; t = next_update(p, t)) {
    cuda_call each = *c;
    each.base.task = t;
    each.key = c->key - first->node + t->node;
    weights[count] = weight_of(&each, &f);
    if (store != TSR_STORE_F32) roundings[count] = rounding_of(&each, store);
    if (++count < TSR_CUDA_WEIGHTS) continue;
    launch(c, &f, weights, store == TSR_STORE_F32 ? NULL : roundings, count);
    count = 0;
  }
  if (count) launch(c, &f, weights, store == TSR_STORE_F32 ? NULL : roundings, count);
}

static const float *clip_of(const cuda_call *c, const update_form *f) {
  return f->clip ? cuda_in(c, f->hyper + 1) : NULL;
}

static void launch_adamw(
    const cuda_call *c, const update_form *f, const tsr_cuda_weight *weights,
    const tsr_cuda_rounding *roundings, int count) {
  const tsr_adamw_attrs *attr = &cuda_attrs(c)->adamw;
  tsr_cuda_adamw_options o = {(float)attr->beta1, (float)attr->beta2, (float)attr->eps};
  o.lr = cuda_hyper(c, f->hyper, TSR_HYPER_LR);
  o.correction1 = cuda_hyper(c, f->hyper, TSR_HYPER_CORRECTION1);
  o.correction2 = cuda_hyper(c, f->hyper, TSR_HYPER_CORRECTION2);
  o.clip = clip_of(c, f);
  tsr_cuda_adamw(c->state->stream, &o, weights, roundings, count);
}

static void adamw_run(const cuda_call *c) { run_updates(c, launch_adamw); }
const cuda_op cuda_adamw = {adamw_run, NULL};

static void launch_sgd(
    const cuda_call *c, const update_form *f, const tsr_cuda_weight *weights,
    const tsr_cuda_rounding *roundings, int count) {
  const tsr_sgd_attrs *attr = &cuda_attrs(c)->sgd;
  tsr_cuda_sgd_options o = {(float)attr->momentum, (float)attr->dampening, attr->nesterov};
  o.lr = cuda_hyper(c, f->hyper, TSR_HYPER_LR);
  o.first = cuda_hyper(c, f->hyper, TSR_HYPER_FIRST);
  o.clip = clip_of(c, f);
  tsr_cuda_sgd(c->state->stream, &o, weights, roundings, count);
}

static void sgd_run(const cuda_call *c) { run_updates(c, launch_sgd); }
const cuda_op cuda_sgd = {sgd_run, NULL};
