/* The end of a step: the gradients' norm, clipping, and the optimizers. */
#include "device/cpu_ops.h"
#include <math.h>
#include <string.h>

/* Whether this rank's copy of input `i` counts in a sum that is owed over the output's partial
 * axes: where the input is split over such an axis every rank counts, where it is not only the
 * first does. */
static bool counts(const cpu_call *c, int i) {
  const tsr_value *in = cpu_value(c, &c->task->inputs[i]),
                  *out = cpu_value(c, &c->task->outputs[0]);
  for (int a = 0; a < TSR_AXES; a++)
    if (out->placement[a].kind == TSR_PARTIAL && in->placement[a].kind != TSR_SHARD &&
        c->rank->coord[a])
      return false;
  return true;
}

static int64_t stats_items(const tsr_task *t) { return t->inputs_count; }

/* out (units, n): the sum of squares of gradient i, for each tp unit of this rank */
static void norm_stats_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const tsr_tensor *out = &c->task->outputs[0];
  int64_t units = out->units ? out->units : 1, n = out->shape[0];
  for (int64_t i = begin; i < end; i++) {
    const tsr_tensor *x = &c->task->inputs[i];
    tsr_placement tp = cpu_value(c, x)->placement[TSR_TP];
    bool split = tp.kind == TSR_SHARD && out->units;
    int64_t pieces = split ? units : 1, rows = 1, cols = 1;
    for (int d = 0; d < x->ndim; d++) *(split && d < tp.dim ? &rows : &cols) *= x->shape[d];
    for (int64_t u = 0; u < units; u++) {
      double sum = 0;
      if (u < pieces && counts(c, (int)i))
        sum = c->k->sum_squares(cpu_in(c, (int)i) + u * (cols / pieces), rows, cols / pieces, cols);
      cpu_out(c, 0)[u * n + i] = (float)sum;
    }
  }
}
const tsr_cpu_op cpu_norm_stats = {.items = stats_items, .run = norm_stats_run};

static int64_t one_item(const tsr_task *t) {
  (void)t;
  return 1;
}

/* (norm, scale): PyTorch's clip_grad_norm_ */
static void clip_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)begin, (void)end, (void)thread;
  double sum = 0, max_norm = cpu_attr(c, 0);
  for (int64_t i = 0; i < c->task->inputs[0].shape[0]; i++) sum += cpu_in(c, 0)[i];
  double norm = sqrt(sum), scale = max_norm > 0 ? max_norm / (norm + 1e-6) : 1;
  cpu_out(c, 0)[0] = (float)norm;
  cpu_out(c, 0)[1] = (float)(scale < 1 ? scale : 1);
}
const tsr_cpu_op cpu_clip = {.items = one_item, .run = clip_run};

static int64_t weight_items(const tsr_task *t) { return tsr_tensor_elements(&t->inputs[0]); }

/* inputs: weight, gradient, m, v, hyper, clip[, v_max] */
static void adamw_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  tsr_adamw o = {
      .lr = cpu_hyper(c, 4, TSR_HYPER_LR),
      .beta1 = (float)cpu_attr(c, 0),
      .beta2 = (float)cpu_attr(c, 1)};
  o.eps = (float)cpu_attr(c, 2);
  o.weight_decay = (float)cpu_attr(c, 3);
  o.amsgrad = cpu_attr(c, 4) != 0;
  o.correction1 = cpu_hyper(c, 4, TSR_HYPER_CORRECTION1);
  o.correction2 = cpu_hyper(c, 4, TSR_HYPER_CORRECTION2);
  c->k->adamw(
      &o, cpu_in(c, 0), cpu_in(c, 2), cpu_in(c, 3), o.amsgrad ? cpu_in(c, 6) : NULL, cpu_in(c, 1),
      cpu_in(c, 5)[1], begin, end);
}
const tsr_cpu_op cpu_adamw = {.items = weight_items, .run = adamw_run};

/* inputs: weight, gradient, hyper, clip[, momentum] */
static void sgd_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  tsr_sgd o = {.lr = cpu_hyper(c, 2, TSR_HYPER_LR), .momentum = (float)cpu_attr(c, 0)};
  o.dampening = (float)cpu_attr(c, 1);
  o.weight_decay = (float)cpu_attr(c, 2);
  o.nesterov = cpu_attr(c, 3) != 0;
  o.first = cpu_hyper(c, 2, TSR_HYPER_FIRST) != 0;
  float *momentum = c->task->inputs_count == 5 ? cpu_in(c, 4) : NULL;
  c->k->sgd(&o, cpu_in(c, 0), momentum, cpu_in(c, 1), cpu_in(c, 3)[1], begin, end);
}
const tsr_cpu_op cpu_sgd = {.items = weight_items, .run = sgd_run};
