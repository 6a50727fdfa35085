// SPDX-License-Identifier: Apache-2.0
#include "compare/difference.h"
#include <string.h>

static const tsr_locked_step *step_at(const tsr_run_record *r, int64_t step) {
  int64_t at = step - r->first - 1;
  return at >= 0 && at < r->steps_count ? &r->steps[at] : NULL;
}

int64_t tsr_first_different_step(const tsr_run_record *a, const tsr_run_record *b) {
  int64_t first = a->first > b->first ? a->first : b->first;
  for (int64_t s = first + 1;; s++) {
    const tsr_locked_step *x = step_at(a, s), *y = step_at(b, s);
    if (!x || !y) return 0;
    if (x->loss != y->loss || x->weights != y->weights) return s;
  }
}

/* The first of a kind in the order of the step. */
static void note(tsr_difference *d, tsr_difference_kind kind, const char *name, int value) {
  if (d->kind && d->kind <= kind) return;
  d->kind = kind;
  d->name = name;
  d->value = value;
  d->task = -1;
}

static const tsr_stored_hash *find_stored(const tsr_run_record *r, const char *name) {
  for (int i = 0; i < r->stored_count; i++)
    if (!strcmp(r->stored[i].name, name)) return &r->stored[i];
  return NULL;
}

static void compare_stored(tsr_difference *d, const tsr_run_record *a, const tsr_run_record *b) {
  for (int i = 0; i < a->stored_count; i++) {
    const tsr_stored_hash *x = &a->stored[i], *y = find_stored(b, x->name);
    if (!y) continue;
    tsr_compared_count *count = x->is_state ? &d->state : &d->weights;
    bool same = tsr_traced_same_shape(&x->of, &y->of), same_after = same && x->after == y->after;
    count->compared++;
    count->differing += !same_after;
    if (!same || x->before != y->before) note(d, TSR_DIFFERS_STORED_BEFORE, x->name, x->value);
    if (!same_after) note(d, TSR_DIFFERS_STORED_AFTER, x->name, x->value);
  }
}

static void compare_value(tsr_difference *d, const tsr_traced_value *x, const tsr_traced_value *y) {
  bool gradient = !strncmp(x->name, "grad.", 5);
  bool differs = x->hash != y->hash || !tsr_traced_same_shape(x, y);
  tsr_compared_count *count = gradient ? &d->gradients : &d->tensors;
  tsr_difference_kind kind = x->task < 0 ? TSR_DIFFERS_INPUT : TSR_DIFFERS_TENSOR;
  count->compared++;
  count->differing += differs;
  if (!differs || (d->kind && d->kind <= kind)) return;
  note(d, kind, x->name, x->value);
  d->stage = x->stage;
  d->task = x->task;
}

/* Where only one run has a copy of a parameter, that is what the other one has stored. */
static void compare_copy(tsr_difference *d, const tsr_run_record *b, const tsr_traced_value *x) {
  static const char prefix[] = "copy.";
  bool is_copy = x->is_copy && x->dtype == TSR_F32;
  const tsr_stored_hash *y = is_copy ? find_stored(b, x->name + sizeof prefix - 1) : NULL;
  tsr_traced_value stored = *x;
  if (!y) return;
  stored.hash = y->before;
  compare_value(d, x, &stored);
}

/* A tensor that a run has in two forms that differ: what moved it is wrong. */
static void check_forms(tsr_difference *d, const tsr_run_record *r) {
  for (int i = 0; i < r->values_count; i++)
    if (r->values[i].differing >= 0 && !(d->kind && d->kind <= TSR_DIFFERS_FORM)) {
      note(d, TSR_DIFFERS_FORM, r->values[i].name, r->values[i].differing);
      d->record = r;
    }
}

tsr_difference tsr_difference_find(const tsr_run_record *a, const tsr_run_record *b) {
  tsr_difference d = {.task = -1};
  compare_stored(&d, a, b);
  for (int i = 0; i < a->values_count; i++) {
    const tsr_traced_value *y = tsr_run_record_find_traced(b, a->values[i].name);
    if (y) compare_value(&d, &a->values[i], y);
    else compare_copy(&d, b, &a->values[i]);
  }
  check_forms(&d, a);
  check_forms(&d, b);
  return d;
}
