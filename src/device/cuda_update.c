/* The end of a step: the gradients' norm, clipping, and the optimizers. */
#include "device/cuda_ops.h"

/* A piece at a time. */
static int64_t norm_stats_scratch(const tsr_program *p, const tsr_task *t) {
  (void)p;
  return tsr_cuda_sum_scratch(1, tsr_tensor_elements(&t->inputs[0]));
}

/* out (units, pieces, 1) */
static void norm_stats_run(const cuda_call *c) {
  cpu_pieces p = cpu_find_pieces(&c->base);
  float *out = cuda_out(c, 0);
  const float *x = cuda_in(c, 0);
  bool here = cpu_counts(&c->base, 0);
  tsr_cuda_zero(c->state->stream, out, p.units * p.pieces * 4);
  for (int64_t u = 0; here && u < p.units; u++)
    for (int64_t k = 0; k < p.pieces; k++) {
      cpu_rectangle r = cpu_piece_of(&p, u, k);
      if (r.rows && r.cols)
        tsr_cuda_sum_squares(
            c->state->stream, out + u * p.pieces + k, x + r.start, cuda_scratch(c), r.rows, r.cols,
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
      (float)cuda_attr(c, 0), scaled ? cuda_hyper(c, 1, TSR_HYPER_LOSS_SCALE) : NULL);
}
const cuda_op cuda_clip = {clip_run, NULL};

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

/* What the norm says to an update: input `at`, where the `own` other inputs leave one over. */
static const float *clip_of(const cuda_call *c, int at, int own) {
  return c->base.task->inputs_count == own ? NULL : cuda_in(c, at);
}

/* inputs: weight, gradient, m, v, hyper[, clip][, v_max][, compensation] */
static void adamw_run(const cuda_call *c) {
  tsr_param_store store = (tsr_param_store)cuda_attr(c, 5);
  bool amsgrad = cuda_attr(c, 4) != 0;
  tsr_cuda_adamw_options o = {
      (float)cuda_attr(c, 0), (float)cuda_attr(c, 1), (float)cuda_attr(c, 2),
      (float)cuda_attr(c, 3)};
  o.lr = cuda_hyper(c, 4, TSR_HYPER_LR);
  o.correction1 = cuda_hyper(c, 4, TSR_HYPER_CORRECTION1);
  o.correction2 = cuda_hyper(c, 4, TSR_HYPER_CORRECTION2);
  o.clip = clip_of(c, 5, 5 + amsgrad + (store == TSR_STORE_KAHAN));
  float *v_max = amsgrad ? cuda_in(c, o.clip ? 6 : 5) : NULL;
  int64_t n = tsr_tensor_elements(cuda_x(c, 0));
  if (store == TSR_STORE_F32) {
    tsr_cuda_adamw(
        c->state->stream, &o, cuda_in(c, 0), cuda_in(c, 2), cuda_in(c, 3), v_max, cuda_in(c, 1), n);
    return;
  }
  tsr_cuda_rounding rounding = rounding_of(c, store);
  tsr_cuda_adamw_bf16(
      c->state->stream, &o, &rounding, cuda_in(c, 0), cuda_in(c, 2), cuda_in(c, 3), v_max,
      cuda_in(c, 1), n);
}
const cuda_op cuda_adamw = {adamw_run, NULL};

/* inputs: weight, gradient, hyper[, clip][, momentum][, compensation] */
static void sgd_run(const cuda_call *c) {
  tsr_param_store store = (tsr_param_store)cuda_attr(c, 4);
  bool has_momentum = cuda_attr(c, 0) != 0;
  tsr_cuda_sgd_options o = {
      (float)cuda_attr(c, 0), (float)cuda_attr(c, 1), (float)cuda_attr(c, 2), cuda_attr(c, 3) != 0};
  o.lr = cuda_hyper(c, 2, TSR_HYPER_LR);
  o.first = cuda_hyper(c, 2, TSR_HYPER_FIRST);
  o.clip = clip_of(c, 3, 3 + has_momentum + (store == TSR_STORE_KAHAN));
  float *momentum = has_momentum ? cuda_in(c, o.clip ? 4 : 3) : NULL;
  int64_t n = tsr_tensor_elements(cuda_x(c, 0));
  if (store == TSR_STORE_F32) {
    tsr_cuda_sgd(c->state->stream, &o, cuda_in(c, 0), momentum, cuda_in(c, 1), n);
    return;
  }
  tsr_cuda_rounding rounding = rounding_of(c, store);
  tsr_cuda_sgd_bf16(c->state->stream, &o, &rounding, cuda_in(c, 0), momentum, cuda_in(c, 1), n);
}
const cuda_op cuda_sgd = {sgd_run, NULL};
