// SPDX-License-Identifier: Apache-2.0
/* The end of a step: the gradients' norm, clipping, and the optimizers. */
#include "device/cpu/ops.h"
#include "device/cpu/part_hash.h"
#include <math.h>
#include <string.h>

static int64_t blocks_of(tsr_rectangle r) {
  return (r.rows * r.cols + TSR_SUM_BLOCK - 1) / TSR_SUM_BLOCK;
}

/* Elements [at, at + n) of a rectangle, one row after the other. */
static void gather(float *block, const float *x, const tsr_rectangle *r, int64_t at, int64_t n) {
  for (int64_t done = 0, take; done < n; done += take) {
    int64_t row = (at + done) / r->cols, col = (at + done) % r->cols;
    take = r->cols - col < n - done ? r->cols - col : n - done;
    memcpy(block + done, x + row * r->stride + col, (size_t)take * sizeof *block);
  }
}

/* The sum of one block of a rectangle, as the kernel takes it of all of them. */
static double block_squares(const cpu_call *c, const tsr_rectangle *r, int64_t index) {
  int64_t at = index * TSR_SUM_BLOCK, left = r->rows * r->cols - at;
  int64_t n = left < TSR_SUM_BLOCK ? left : TSR_SUM_BLOCK;
  const float *x = cpu_in(c, 0) + r->start;
  if (r->rows == 1 || r->stride == r->cols) return c->k->sum_squares(x + at, 1, n, n);
  float block[TSR_SUM_BLOCK];
  gather(block, x, r, at, n);
  return c->k->sum_squares(block, 1, n, n);
}

/* Items are blocks of one rectangle after the other; every rectangle may end within one. */
static int64_t stats_items(const tsr_task *t) {
  const tsr_tensor *y = &t->outputs[0];
  int64_t rectangles = y->shape[0] * (y->units ? y->units : 1);
  return tsr_tensor_elements(&t->inputs[0]) / TSR_SUM_BLOCK + rectangles;
}

static int64_t
stats_scratch(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, int threads) {
  (void)k, (void)p, (void)threads;
  return stats_items(t) * (int64_t)sizeof(double);
}

static void norm_stats_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const tsr_norm_grid g = tsr_task_norm_grid(&c->call);
  double *sums = cpu_scratch(c);
  int64_t item = 0; /* of the rectangle's first block */
  if (!tsr_task_counts(&c->call, 0)) return;
  for (int64_t u = 0; u < g.units; u++)
    for (int64_t k = 0; k < g.pieces && item < end; k++) {
      tsr_rectangle r = tsr_norm_grid_rectangle(&g, u, k);
      int64_t blocks = blocks_of(r), first = begin > item ? begin - item : 0;
      for (int64_t i = first; i < blocks && item + i < end; i++)
        sums[item + i] = block_squares(c, &r, i);
      item += blocks;
    }
}

static double add_doubles(const double *x, int64_t count) {
  double stack[TSR_TREE_DEPTH_MAX];
  tsr_tree_stack tree = {0};
  for (int64_t k = 0; k < count; k++) {
    stack[tsr_tree_push(&tree, tsr_tree_merges(count, k))] = x[k];
    for (int low; tsr_tree_merge(&tree, &low);) stack[low] += stack[low + 1];
  }
  return count ? stack[0] : 0;
}

/* out (units, pieces, 1) */
static void norm_stats_after(const cpu_call *c) {
  const tsr_norm_grid g = tsr_task_norm_grid(&c->call);
  const double *sums = cpu_scratch(c);
  float *out = cpu_out(c, 0);
  bool here = tsr_task_counts(&c->call, 0);
  for (int64_t u = 0; u < g.units; u++)
    for (int64_t k = 0; k < g.pieces; k++) {
      tsr_rectangle r = tsr_norm_grid_rectangle(&g, u, k);
      int64_t blocks = here ? blocks_of(r) : 0;
      out[u * g.pieces + k] = (float)add_doubles(sums, blocks);
      sums += blocks;
    }
}
const cpu_op cpu_norm_stats = {
    .items = stats_items,
    .scratch = stats_scratch,
    .run = norm_stats_run,
    .after = norm_stats_after};

static int64_t join_items(const tsr_task *t) { return t->inputs_count; }

/* inputs (units, pieces, 1), absent those of other stages; out (units, rows, n) */
static void norm_join_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const tsr_tensor *out = &c->call.task->outputs[0];
  int64_t rows = out->shape[0], n = out->shape[1], units = tsr_tensor_elements(out) / (rows * n);
  for (int64_t i = begin; i < end; i++) {
    int64_t pieces = c->call.task->inputs[i].shape[0];
    const float *from = tsr_task_counts(&c->call, (int)i) ? cpu_in(c, (int)i) : NULL;
    float *to = cpu_out(c, 0) + i;
    for (int64_t row = 0; row < units * rows; row++)
      to[row * n] = from && row % rows < pieces ? from[row / rows * pieces + row % rows] : 0;
  }
}
const cpu_op cpu_norm_join = {.items = join_items, .run = norm_join_run};

static int64_t one_item(const tsr_task *t) {
  (void)t;
  return 1;
}

/* One gradient's rows, added by the tree. */
static double add_pieces(const float *x, int64_t pieces, int64_t stride) {
  double stack[TSR_TREE_DEPTH_MAX];
  tsr_tree_stack tree = {0};
  for (int64_t k = 0; k < pieces; k++) {
    stack[tsr_tree_push(&tree, tsr_tree_merges(pieces, k))] = x[k * stride];
    for (int low; tsr_tree_merge(&tree, &low);) stack[low] += stack[low + 1];
  }
  return stack[0];
}

/* PyTorch's clip_grad_norm_; inputs: stats[, step_scalars]: then of gradients with the loss scale,
 * which the norm and the factor are without. An overflow is no update. */
static void clip_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)begin, (void)end, (void)thread;
  bool scaled = c->call.task->inputs_count == 2;
  double sum = 0, max_norm = cpu_attrs(c)->clip.max_norm;
  double loss_scale = scaled ? (double)cpu_scalar(c, 1, TSR_SCALAR_LOSS_SCALE) : 1;
  int64_t pieces = c->call.task->inputs[0].shape[0], n = c->call.task->inputs[0].shape[1];
  for (int64_t i = 0; i < n; i++) sum += add_pieces(cpu_in(c, 0) + i, pieces, n);
  double norm = sqrt(sum) / loss_scale, factor = max_norm > 0 ? max_norm / (norm + 1e-6) : 1;
  float *out = cpu_out(c, 0);
  out[0] = (float)norm;
  out[1] = (float)((factor < 1 ? factor : 1) / loss_scale);
  out[2] = !scaled || isfinite(norm);
}
const cpu_op cpu_clip = {.items = one_item, .run = clip_run};

static int64_t weight_items(const tsr_task *t) { return tsr_tensor_elements(&t->inputs[0]); }

/* How the update of a weight that is stored in bf16 ends; a compensation is the last input. */
static tsr_rounding
rounding_of(const cpu_call *c, tsr_param_store store, const tsr_tensor_slice *slice) {
  const tsr_node *n = &c->call.program->graph->nodes[c->call.task->node];
  if (store == TSR_STORE_KAHAN) {
    const tsr_tensor *lost = &c->call.task->inputs[c->call.task->inputs_count - 1];
    uint16_t *compensation = (uint16_t *)(void *)tsr_operand_address(&c->call, lost);
    return (tsr_rounding){.kind = TSR_ROUND_KAHAN, .compensation = compensation};
  }
  uint64_t key = tsr_random_key(c->call.at.seed, n->stream, (uint64_t)c->call.at.step);
  return (tsr_rounding){.kind = TSR_ROUND_STOCHASTIC, .key = key, .slice = slice};
}

/* The norm's result for an update: input `at`, if there are more than `own` inputs. */
typedef struct {
  float factor;
  bool skips;
  int inputs; /* 0 or 1 */
} said;

static said norm_says(const cpu_call *c, int at, int own) {
  if (c->call.task->inputs_count == own) return (said){.factor = 1};
  const float *clip = cpu_in(c, at);
  return (said){clip[1], clip[2] == 0, 1};
}

/* ---- hashes of what an update writes ---- */

/* Elements of a weight that are hashed at once, while the first cache holds them; few enough for
 * the streams of the next ones, which the processor fetches ahead meanwhile. */
enum { HASHED_ELEMENTS = 512 };

/* Runs an update in pieces that are hashed one by one; one that is skipped is hashed, too. */
typedef void update_range(const cpu_call *c, const void *update, int64_t begin, int64_t end);
static void run_update(
    const cpu_call *c, update_range *run, const void *update, bool skips, int64_t begin,
    int64_t end) {
  cpu_update_hash hash = cpu_update_hash_of(c);
  int64_t each = hash.sum ? HASHED_ELEMENTS : end - begin;
  for (int64_t at = begin, next; at < end; at = next) {
    next = end - at < each ? end : at + each;
    if (!skips) run(c, update, at, next);
    cpu_update_hash_add(c, &hash, at, next);
  }
}

/* ---- optimizers ---- */

typedef struct {
  tsr_adamw o;
  float *w, *m, *v, *v_max;
  const float *grad;
  float factor;
  tsr_param_store store;
  tsr_rounding rounding;
} adamw_update;

static void adamw_range(const cpu_call *c, const void *update, int64_t begin, int64_t end) {
  const adamw_update *u = update;
  if (u->store == TSR_STORE_F32)
    c->k->adamw(&u->o, u->w, u->m, u->v, u->v_max, u->grad, u->factor, begin, end);
  else
    c->k->adamw_bf16(
        &u->o, &u->rounding, (uint16_t *)(void *)u->w, u->m, u->v, u->v_max, u->grad, u->factor,
        begin, end);
}

/* inputs: weight, gradient, m, v, step_scalars[, clip][, v_max][, compensation] */
static void adamw_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const tsr_adamw_attrs *attr = &cpu_attrs(c)->adamw;
  said clip = norm_says(c, 5, 5 + attr->amsgrad + (attr->store == TSR_STORE_KAHAN));
  tsr_adamw o = {
      .lr = cpu_scalar(c, 4, TSR_SCALAR_LR),
      .beta1 = (float)attr->beta1,
      .beta2 = (float)attr->beta2};
  o.eps = (float)attr->eps;
  o.weight_decay = (float)attr->decay;
  o.amsgrad = attr->amsgrad;
  o.coupled = attr->coupled;
  o.correction1 = cpu_scalar(c, 4, TSR_SCALAR_CORRECTION1);
  o.correction2 = cpu_scalar(c, 4, TSR_SCALAR_CORRECTION2);
  adamw_update u = {
      .o = o,
      .w = cpu_in(c, 0),
      .m = cpu_in(c, 2),
      .v = cpu_in(c, 3),
      .v_max = o.amsgrad ? cpu_in(c, 5 + clip.inputs) : NULL,
      .grad = cpu_in(c, 1),
      .factor = clip.factor,
      .store = attr->store};
  tsr_tensor_slice slice = tsr_operand_slice(&c->call, &c->call.task->inputs[0]);
  if (u.store != TSR_STORE_F32) u.rounding = rounding_of(c, u.store, &slice);
  run_update(c, adamw_range, &u, clip.skips, begin, end);
}
const cpu_op cpu_adamw = {.items = weight_items, .run = adamw_run, .takes_half = true};

typedef struct {
  tsr_sgd o;
  float *w, *momentum;
  const float *grad;
  float factor;
  tsr_param_store store;
  tsr_rounding rounding;
} sgd_update;

static void sgd_range(const cpu_call *c, const void *update, int64_t begin, int64_t end) {
  const sgd_update *u = update;
  if (u->store == TSR_STORE_F32)
    c->k->sgd(&u->o, u->w, u->momentum, u->grad, u->factor, begin, end);
  else
    c->k->sgd_bf16(
        &u->o, &u->rounding, (uint16_t *)(void *)u->w, u->momentum, u->grad, u->factor, begin, end);
}

/* inputs: weight, gradient, step_scalars[, clip][, momentum][, compensation] */
static void sgd_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const tsr_sgd_attrs *attr = &cpu_attrs(c)->sgd;
  bool has_momentum = attr->momentum != 0;
  said clip = norm_says(c, 3, 3 + has_momentum + (attr->store == TSR_STORE_KAHAN));
  tsr_sgd o = {.lr = cpu_scalar(c, 2, TSR_SCALAR_LR), .momentum = (float)attr->momentum};
  o.dampening = (float)attr->dampening;
  o.weight_decay = (float)attr->decay;
  o.nesterov = attr->nesterov;
  o.first = cpu_scalar(c, 2, TSR_SCALAR_FIRST) != 0;
  sgd_update u = {
      .o = o,
      .w = cpu_in(c, 0),
      .momentum = has_momentum ? cpu_in(c, 3 + clip.inputs) : NULL,
      .grad = cpu_in(c, 1),
      .factor = clip.factor,
      .store = attr->store};
  tsr_tensor_slice slice = tsr_operand_slice(&c->call, &c->call.task->inputs[0]);
  if (u.store != TSR_STORE_F32) u.rounding = rounding_of(c, u.store, &slice);
  run_update(c, sgd_range, &u, clip.skips, begin, end);
}
const cpu_op cpu_sgd = {.items = weight_items, .run = sgd_run, .takes_half = true};
