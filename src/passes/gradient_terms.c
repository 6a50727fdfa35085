// SPDX-License-Identifier: Apache-2.0
#include "passes/gradient_terms.h"

bool tsr_gradient_wanted(const tsr_gradients *grads, int value) {
  return value < grads->values && grads->wanted[value];
}

void tsr_gradient_give_product(tsr_gradients *grads, int of, int dy, int w, tsr_fp8_recipe fp8) {
  if (!tsr_gradient_wanted(grads, of)) return;
  tsr_gradient_part **end = &grads->parts[of];
  while (*end) end = &(*end)->next;
  *end = tsr_arena_alloc(grads->g->arena, sizeof **end);
  **end = (tsr_gradient_part){NULL, dy, w, fp8, grads->g->of};
}

void tsr_gradient_give(tsr_gradients *grads, int of, int value) {
  tsr_gradient_give_product(grads, of, value, -1, TSR_FP8_OFF);
}
