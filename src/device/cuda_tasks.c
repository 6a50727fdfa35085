#include "device/cuda_tasks.h"

bool cuda_is_listed(const tsr_program *p, const tsr_task *t) {
  return t >= p->tasks && t < p->tasks + p->tasks_count;
}

bool cuda_are_together(const tsr_program *p, const tsr_task *a, const tsr_task *b) {
  int first = (int)(a - p->tasks), last = (int)(b - p->tasks);
  if (a->last_only != b->last_only) return false;
  for (int i = 0; i < p->parts_count; i++)
    if (first >= p->parts[i].begin && last < p->parts[i].end) return true;
  return false;
}

const tsr_task *cuda_follower(const tsr_program *p, const tsr_task *t) {
  bool ends = t + 1 == p->tasks + p->tasks_count;
  return !ends && cuda_are_together(p, t, t + 1) ? t + 1 : NULL;
}

bool cuda_is_here(const tsr_tensor *x, const tsr_tensor *y) {
  return x->dtype == y->dtype && x->segment != TSR_SEGMENT_ABSENT && !x->units;
}

bool cuda_adds_tensors(const tsr_task *t) {
  const tsr_tensor *sum = &t->outputs[0];
  if (t->op != TSR_OP_ADD || t->inputs[0].value == t->inputs[1].value) return false;
  for (int i = 0; i < 2; i++)
    if (!cuda_is_here(&t->inputs[i], sum) ||
        tsr_tensor_elements(&t->inputs[i]) != tsr_tensor_elements(sum))
      return false;
  return cuda_is_here(sum, sum);
}

bool cuda_overlap(const cuda_call *c, const tsr_tensor *a, const tsr_tensor *b) {
  const char *x = (char *)cpu_address(&c->base, a), *y = (char *)cpu_address(&c->base, b);
  return x < y + tsr_tensor_elements(b) * tsr_dtype_bytes(b->dtype) &&
         y < x + tsr_tensor_elements(a) * tsr_dtype_bytes(a->dtype);
}
