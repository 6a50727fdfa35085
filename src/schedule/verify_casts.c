// SPDX-License-Identifier: Apache-2.0
/* The copies in which a kernel reads and writes operands in another type (assign_target.h). */
#include "schedule/verify_checks.h"

typedef struct {
  tsr_verify *v;
  const tsr_verify_subject *s;
  int task;
  int64_t at; /* where the next copy must be */
} check;

static bool same_shape(const tsr_tensor *a, const tsr_tensor *b) {
  bool same = a->ndim == b->ndim && a->units == b->units;
  for (int d = 0; same && d < a->ndim; d++) same = a->shape[d] == b->shape[d];
  return same;
}

static bool check_operand(check *c, const char *what, const tsr_tensor *t, const tsr_tensor *k) {
  tsr_tensor want = *t;
  if (k->dtype != t->dtype) {
    want.segment = TSR_SEGMENT_WORK;
    want.slot_group = -1;
    want.offset = c->at;
    want.dtype = k->dtype;
    c->at += tsr_verify_aligned(tsr_tensor_elements(t) * tsr_dtype_bytes(k->dtype));
  }
  if (k->segment == want.segment && k->slot_group == want.slot_group && k->offset == want.offset &&
      same_shape(k, &want))
    return true;
  return tsr_verify_say_task(
      c->v, c->s, c->task, -1, "its kernel has %s '%s' %s, which is %s", what,
      c->v->graph->values[t->value].name, tsr_verify_address(c->v, k->segment, k->offset),
      tsr_verify_address(c->v, want.segment, want.offset));
}

bool tsr_verify_casts(tsr_verify *v, const tsr_verify_subject *s, int task, const tsr_task *t) {
  check c = {v, s, task, t->scratch_offset};
  for (int k = 0; k < t->inputs_count; k++)
    if (!check_operand(&c, "input", &t->inputs[k], &tsr_kernel_inputs(t)[k])) return false;
  for (int k = 0; k < t->outputs_count; k++)
    if (!check_operand(&c, "output", &t->outputs[k], &tsr_kernel_outputs(t)[k])) return false;
  int64_t bytes = c.at - t->scratch_offset;
  if (t->cast_bytes == bytes && bytes <= t->scratch_bytes) return true;
  return tsr_verify_say_task(
      v, s, task, -1, "its kernel's copies have %lld bytes, of which %lld are planned",
      (long long)bytes,
      (long long)(t->cast_bytes < t->scratch_bytes ? t->cast_bytes : t->scratch_bytes));
}
