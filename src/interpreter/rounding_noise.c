// SPDX-License-Identifier: Apache-2.0
/* The roundings of a step with `rounding` above 0. */
#include "interpreter/rule.h"

/* splitmix64 of the draw, which number it is, and the element */
double
tsr_interpreter_round(const tsr_interpreter_step *step, uint64_t which, int64_t i, double x) {
  uint64_t bits = (step->draw << 48) + (which << 24) + 0x9e3779b97f4a7c15u * ((uint64_t)i + 1);
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  return x * (1 + ((bits ^ (bits >> 31)) & 1 ? step->rounding : -step->rounding));
}

double tsr_interpreted_round(const tsr_interpreted *n, int what, int64_t i, double x) {
  uint64_t which = 8 * (uint64_t)n->node->outputs[0] + TSR_ROUND_INSIDE + (uint64_t)what;
  return n->step->rounding > 0 ? tsr_interpreter_round(n->step, which, i, x) : x;
}
