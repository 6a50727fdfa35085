#include "device/cuda_norms.h"
#include "device/cuda_recast.h"
#include "device/cuda_tail.h"
#include "device/cuda_tasks.h"

/* The gradients of a norm's weights and their updates stand between its backward and the sum. */
enum { NEAR = 32 };

static bool is_norm(const tsr_task *t) {
  return t->op == TSR_OP_LAYERNORM || t->op == TSR_OP_RMSNORM;
}
static bool is_norm_dx(const tsr_task *t) {
  return t->op == TSR_OP_LAYERNORM_DX || t->op == TSR_OP_RMSNORM_DX;
}

/* Whether the norm's kernel gets copies, of which nobody else knows. */
static bool takes_copies(const tsr_program *p, const tsr_task *norm) {
  cuda_recast_task copies;
  return cuda_recast(p, norm, &copies);
}

/* The same elements in the same order. */
static bool are_same_place(const cuda_call *c, const tsr_tensor *a, const tsr_tensor *b) {
  return cpu_address(&c->base, a) == cpu_address(&c->base, b) && a->dtype == b->dtype &&
         tsr_tensor_elements(a) == tsr_tensor_elements(b);
}

/* Whether rows of `out` may be written while other rows of `in` have yet to be read. */
static bool may_write(const cuda_call *c, const tsr_tensor *out, const tsr_tensor *in) {
  return !in || !cuda_overlap(c, out, in) || are_same_place(c, out, in);
}

/* ---- forward: x = from + row + plus, right before the norm of x ---- */

typedef struct {
  const tsr_tensor *from, *row, *plus;
} summands;

/* Of which the last addition is task `at`; false: a product does that, in its end or behind it. */
static bool find_summands(const cuda_call *c, int at, summands *ret_sum) {
  const tsr_task *tasks = c->base.program->tasks, *add = &tasks[at];
  cuda_call product = *c;
  for (int i = at - 1; i >= 0 && i >= at - 2; i--) {
    cuda_tail tail = cuda_tail_of(c, &tasks[i]);
    if (tail.bias == add) return false; /* of one row, which looks like a residual */
    if (tail.residual != add) continue;
    product.base.task = &tasks[i];
    *ret_sum =
        (summands){&tasks[i].outputs[0], tail.bias ? &tail.bias->inputs[1] : NULL, tail.plus};
    return !cuda_linear_ends_with_tail(&product);
  }
  *ret_sum = (summands){&add->inputs[0], NULL, &add->inputs[1]};
  return true;
}

/* Whether a norm does the addition before it. */
static bool norm_adds(const cuda_call *c, const tsr_task *norm, summands *ret_sum) {
  const tsr_program *p = c->base.program;
  int at = (int)(norm - p->tasks) - 1;
  if (at < 0) return false;
  const tsr_task *add = &p->tasks[at];
  if (!cuda_adds_tensors(add) || cuda_follower(p, add) != norm) return false;
  const tsr_tensor *x = &norm->inputs[0], *sum = &add->outputs[0];
  if (x->value != sum->value || takes_copies(p, norm)) return false;
  if (!find_summands(c, at, ret_sum)) return false;
  const tsr_tensor *in[] = {ret_sum->from, ret_sum->row, ret_sum->plus};
  for (int i = 0; i < 3; i++) {
    if (!may_write(c, x, in[i]) || !may_write(c, &norm->outputs[0], in[i])) return false;
    for (int k = 1; in[i] && k < norm->outputs_count; k++)
      if (cuda_overlap(c, &norm->outputs[k], in[i])) return false;
  }
  return true;
}

/* The summands' places in *ret_there; NULL: there is nothing to add. */
static const tsr_cuda_summands *sum_before(const cuda_call *c, tsr_cuda_summands *ret_there) {
  summands sum;
  if (!cuda_is_listed(c->base.program, c->base.task) || !norm_adds(c, c->base.task, &sum)) return NULL;
  *ret_there = (tsr_cuda_summands){
      cpu_address(&c->base, sum.from), sum.row ? cpu_address(&c->base, sum.row) : NULL,
      cpu_address(&c->base, sum.plus)};
  return ret_there;
}

static tsr_cuda_type type_of(const cuda_call *c) { return cuda_type(cuda_y(c, 0)); }

static void layernorm_run(const cuda_call *c) {
  const tsr_tensor *x = cuda_x(c, 0);
  tsr_cuda_summands sum;
  tsr_cuda_layernorm(
      c->state->stream, type_of(c), cuda_out(c, 0), cuda_out(c, 1), cuda_out(c, 2), cuda_in(c, 0),
      sum_before(c, &sum), cuda_in(c, 1), c->base.task->inputs_count == 3 ? cuda_in(c, 2) : NULL,
      cpu_rows(x), cpu_last(x), (float)cuda_attrs(c)->norm.eps);
}
const cuda_op cuda_layernorm = {layernorm_run, NULL};

static void rmsnorm_run(const cuda_call *c) {
  const tsr_tensor *x = cuda_x(c, 0);
  tsr_cuda_summands sum;
  tsr_cuda_rmsnorm(
      c->state->stream, type_of(c), cuda_out(c, 0), cuda_out(c, 1), cuda_in(c, 0),
      sum_before(c, &sum), cuda_in(c, 1), cpu_rows(x), cpu_last(x), (float)cuda_attrs(c)->norm.eps);
}
const cuda_op cuda_rmsnorm = {rmsnorm_run, NULL};

/* ---- backward: dx, to which another gradient is added some tasks later ---- */

/* Whether task t leaves alone what a sum that is done early reads and writes, `other` and `out`.
 * That is a matter of bytes: a value may lie in another one's place. What waits for a bucket
 * completes its inputs. */
static bool leaves_alone(
    const cuda_call *c, const tsr_task *t, const tsr_tensor *out, const tsr_tensor *other) {
  for (int i = 0; i < t->inputs_count; i++) {
    if (t->inputs[i].segment == TSR_SEGMENT_ABSENT) continue;
    if (cuda_overlap(c, out, &t->inputs[i])) return false;
    if (t->op == TSR_OP_WAIT && cuda_overlap(c, other, &t->inputs[i])) return false;
  }
  for (int i = 0; i < t->outputs_count; i++)
    if (t->outputs[i].segment != TSR_SEGMENT_ABSENT && cuda_overlap(c, other, &t->outputs[i]))
      return false;
  return true;
}

/* Whether the sum may be written at the norm's time: it lies where dx or the other gradient does,
 * the other gradient is complete, and no task in between reads those bytes. */
static bool may_add_early(
    const cuda_call *c, const tsr_task *norm, const tsr_task *add, const tsr_tensor *other) {
  const tsr_tensor *out = &add->outputs[0], *dx = &norm->outputs[0];
  if (!are_same_place(c, out, other) && !are_same_place(c, out, dx)) return false;
  for (const tsr_task *t = norm + 1; t < add; t++)
    if (!leaves_alone(c, t, out, other)) return false;
  for (int i = 0; i < norm->inputs_count; i++)
    if (!may_write(c, out, &norm->inputs[i])) return false;
  return may_write(c, out, other);
}

/* The addition that a norm's backward does, and the gradient that it adds; or NULL. */
static const tsr_task *
find_sum(const cuda_call *c, const tsr_task *norm, const tsr_tensor **ret_other) {
  const tsr_program *p = c->base.program;
  int dx = norm->outputs[0].value, at = (int)(norm - p->tasks);
  if (p->readers[dx] != 1 || takes_copies(p, norm)) return NULL;
  for (int i = at + 1; i < p->tasks_count && i <= at + NEAR; i++) {
    const tsr_task *t = &p->tasks[i];
    if (t->op != TSR_OP_ADD || (t->inputs[0].value != dx && t->inputs[1].value != dx)) continue;
    if (!cuda_are_together(p, norm, t)) return NULL;
    *ret_other = &t->inputs[t->inputs[0].value == dx];
    bool alike = cuda_adds_tensors(t) && t->outputs[0].dtype == norm->outputs[0].dtype;
    return alike && may_add_early(c, norm, t, *ret_other) ? t : NULL;
  }
  return NULL;
}

/* Where dx goes, and what is added to it. */
typedef struct {
  void *to;
  const void *plus;
} sum_behind;

static sum_behind sum_of(const cuda_call *c) {
  const tsr_tensor *other;
  const tsr_task *norm = c->base.task,
                 *add = cuda_is_listed(c->base.program, norm) ? find_sum(c, norm, &other) : NULL;
  if (!add) return (sum_behind){cuda_out(c, 0), NULL};
  return (sum_behind){cpu_address(&c->base, &add->outputs[0]), cpu_address(&c->base, other)};
}

static void layernorm_dx_run(const cuda_call *c) {
  const tsr_tensor *x = cuda_y(c, 0);
  sum_behind sum = sum_of(c);
  tsr_cuda_layernorm_backward(
      c->state->stream, type_of(c), sum.to, cuda_in(c, 0), cuda_in(c, 1), cuda_in(c, 2),
      cuda_in(c, 3), cuda_in(c, 4), sum.plus, cpu_rows(x), cpu_last(x));
}
const cuda_op cuda_layernorm_dx = {layernorm_dx_run, NULL};

static void rmsnorm_dx_run(const cuda_call *c) {
  const tsr_tensor *x = cuda_y(c, 0);
  sum_behind sum = sum_of(c);
  tsr_cuda_rmsnorm_backward(
      c->state->stream, type_of(c), sum.to, cuda_in(c, 0), cuda_in(c, 1), cuda_in(c, 2),
      cuda_in(c, 3), sum.plus, cpu_rows(x), cpu_last(x));
}
const cuda_op cuda_rmsnorm_dx = {rmsnorm_dx_run, NULL};

/* ---- the additions ---- */

bool cuda_is_in_norm(const cuda_call *c) {
  const tsr_program *p = c->base.program;
  const tsr_task *add = c->base.task;
  summands sum;
  const tsr_tensor *other;
  if (!cuda_is_listed(p, add)) return false;
  const tsr_task *next = cuda_follower(p, add);
  if (next && is_norm(next) && norm_adds(c, next, &sum)) return true;
  int at = (int)(add - p->tasks);
  for (int i = at - 1; i >= 0 && i >= at - NEAR; i--)
    if (is_norm_dx(&p->tasks[i]) && find_sum(c, &p->tasks[i], &other) == add) return true;
  return false;
}
