// SPDX-License-Identifier: Apache-2.0
#include "prove/locate.h"

/* Of two that differ in a step, whether the first one is made before the other one. Weights and
 * state come behind all that tasks compute. */
static bool is_before(const tsr_state_difference *a, const tsr_state_difference *traced) {
  bool made = a->kind <= TSR_RECORDED_GRADIENTS && !a->is_absent;
  return made && a->value->node < traced->value->node;
}

/* Both runs again, which keep the numbers of the value. */
static void capture(const tsr_location_search *s, tsr_state_difference *d) {
  tsr_state mesh, single;
  tsr_diags *ignored = tsr_diags_new(s->arena);
  tsr_recording how = *s->how;
  how.capture = (tsr_capture_request){d->traced, d->step};
  if (tsr_state_run(s->arena, &s->plan->mesh, &how, &mesh, ignored) &&
      tsr_state_run(s->arena, &s->plan->single, &how, &single, ignored))
    tsr_state_add_element(&mesh, &single, d);
}

bool tsr_locate(const tsr_location_search *s, tsr_state_difference *ret) {
  tsr_state_difference value;
  if (tsr_state_compare(s->mesh, s->single, ret)) return false;
  if (!tsr_state_find_value(s->mesh, s->single, ret->step, &value)) return true;
  if (is_before(ret, &value)) return true;
  if (value.is_gradient) tsr_state_add_gradient(s->mesh, s->single, &value);
  else if (!value.form) capture(s, &value);
  if (!value.location.file) value.location = ret->location;
  value.kind = ret->kind;
  value.tensors = ret->tensors;
  value.tensors_differing = ret->tensors_differing;
  *ret = value;
  return true;
}
