#include "device/cuda_tail.h"
#include "device/cuda_tasks.h"

/* Whether a task adds a row to y. */
static bool adds_row(const tsr_task *t, const tsr_tensor *y) {
  if (t->op != TSR_OP_ADD || t->inputs[0].value != y->value) return false;
  const tsr_tensor *row = &t->inputs[1];
  return row->value != y->value && row->ndim == 1 && row->shape[0] == cpu_last(y) &&
         cuda_is_here(row, y) && cuda_is_here(&t->outputs[0], y);
}

/* Whether a task adds another tensor like y to y. */
static bool adds_tensor(const tsr_task *t, const tsr_tensor *y) {
  return cuda_adds_tensors(t) && t->outputs[0].dtype == y->dtype &&
         (t->inputs[0].value == y->value || t->inputs[1].value == y->value);
}

static bool takes_gelu(const tsr_task *t, const tsr_tensor *y) {
  return t->op == TSR_OP_GELU && t->inputs[0].value == y->value && cuda_is_here(&t->outputs[0], y);
}

static bool is_linear(const tsr_program *p, const tsr_task *t) {
  return cuda_is_listed(p, t) && t->op == TSR_OP_LINEAR && !tsr_reduction_is_split(&t->sum) &&
         cuda_is_here(&t->inputs[0], &t->outputs[0]) && cuda_is_here(&t->inputs[1], &t->outputs[0]);
}

cuda_tail cuda_tail_of(const cuda_call *c, const tsr_task *t) {
  const tsr_program *p = c->base.program;
  cuda_tail tail = {0};
  if (!is_linear(p, t)) return tail;
  const tsr_task *next = cuda_follower(p, t);
  tail.sum = &t->outputs[0];
  if (next && adds_row(next, tail.sum) && p->readers[tail.sum->value] == 1) {
    tail.last = tail.bias = next;
    tail.sum = &next->outputs[0];
    next = cuda_follower(p, next);
  }
  if (next && adds_tensor(next, tail.sum) && p->readers[tail.sum->value] == 1) {
    tail.last = tail.residual = next;
    tail.plus = &next->inputs[next->inputs[0].value == tail.sum->value];
  } else if (next && takes_gelu(next, tail.sum)) tail.last = tail.gelu = next;
  return tail;
}

bool cuda_tail_is_exact(const cuda_tail *tail, tsr_dtype dtype) {
  return dtype == TSR_F32 && !tail->gelu && !(tail->bias && tail->residual);
}

static bool holds(const cuda_tail *tail, const tsr_task *t) {
  return tail->bias == t || tail->residual == t || tail->gelu == t;
}

bool cuda_is_in_tail(const cuda_call *c) {
  const tsr_program *p = c->base.program;
  const tsr_task *t = c->base.task;
  if (!cuda_is_listed(p, t)) return false;
  int at = (int)(t - p->tasks);
  for (int i = at - 1; i >= 0 && i >= at - 2; i--) {
    cuda_tail tail = cuda_tail_of(c, &p->tasks[i]);
    if (holds(&tail, t)) return true;
  }
  return false;
}

static void *place_of(const cuda_call *c, const tsr_tensor *t) {
  return t ? cpu_address(&c->base, t) : NULL;
}

void cuda_run_tail(const cuda_call *c, const cuda_tail *tail) {
  const tsr_tensor *y = cuda_y(c, 0), *row = tail->bias ? &tail->bias->inputs[1] : NULL;
  const tsr_tensor *sum = tail->gelu && tail->bias ? tail->sum : NULL;
  tsr_cuda_tail(
      c->state->stream, cuda_type(y), place_of(c, &tail->last->outputs[0]), place_of(c, sum),
      cuda_out(c, 0), place_of(c, row), place_of(c, tail->plus), tail->gelu != NULL, cpu_rows(y),
      cpu_last(y));
}
