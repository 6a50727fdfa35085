// SPDX-License-Identifier: Apache-2.0
#include "prove/locate.h"

/* The configuration of the run on one rank, with the same samples in so many microbatches. */
static tsr_config *in_microbatches(const tsr_location_search *s, int64_t microbatches) {
  const tsr_prove_run *single = &s->plan->single;
  tsr_config *c = tsr_arena_alloc(s->request->arena, sizeof *c);
  *c = *single->config;
  c->training.batch_size *= single->compiled.programs.pipeline->microbatches;
  c->training.batch_size /= microbatches;
  c->training.gradient_accumulation_steps = microbatches;
  return c;
}

/* Whether the last microbatch has the same samples in both, and no two microbatches are alive at
 * once. Outputs are not rounded to half precision, so only programs in f32 stay what they are. */
static bool values_are_comparable(const tsr_location_search *s) {
  const tsr_pipeline *mesh = s->plan->mesh.compiled.programs.pipeline;
  const tsr_config *c = s->request->config;
  bool by_microbatch = s->plan->shape.size[TSR_DP] == 1 || c->zero.stage >= 2;
  bool alike = mesh->microbatches == 1 || (by_microbatch && mesh->stages * mesh->chunks == 1);
  return alike && c->training.precision == TSR_PRECISION_F32;
}

/* Runs both again for one step, in as many microbatches, with what their nodes make as outputs. */
static bool
locate_value(const tsr_location_search *s, tsr_state_difference *ret, tsr_state *ret_state) {
  tsr_arena *arena = s->request->arena;
  tsr_prove_run *runs = tsr_arena_array(arena, tsr_prove_run, 2); /* of which states are */
  tsr_state states[2];
  int64_t microbatches = s->plan->mesh.compiled.programs.pipeline->microbatches;
  tsr_config *configs[2] = {s->plan->mesh.config, in_microbatches(s, microbatches)};
  tsr_diags *ignored = tsr_diags_new(arena);
  tsr_recording how = *s->how;
  how.steps = 1;
  how.ends_small = false;
  for (int i = 0; i < 2; i++)
    if (!tsr_prove_compile(s->request, configs[i], TSR_OUTPUTS_VALUES, &runs[i], ignored) ||
        !tsr_state_run(arena, &runs[i], &how, &states[i], ignored))
      return false;
  *ret_state = states[0];
  return !tsr_state_compare_values(&states[0], &states[1], ret);
}

bool tsr_locate(const tsr_location_search *s, tsr_state_difference *ret, tsr_state *ret_state) {
  tsr_state_difference value;
  if (tsr_state_compare(s->mesh, s->single, ret)) return false;
  if (ret->step == 0 && values_are_comparable(s) && locate_value(s, &value, ret_state))
    *ret = value;
  else *ret_state = *s->mesh;
  return true;
}
