// SPDX-License-Identifier: Apache-2.0
/* DoRA: the norms of the rows of an adapted weight, which are constants for the gradient. */
#include "interpreter/rule.h"
#include <math.h>

/* w (out, in), a (r, in), b (out, r) → (out) */
static void forward_adapted_squares(const tsr_interpreted *n) {
  const double *w = n->in[0], *a = n->in[1], *b = n->in[2];
  int64_t in = n->type[0]->shape[1], rank = n->type[1]->shape[0];
  for (int64_t o = 0; o < n->type[0]->shape[0]; o++) {
    n->out[o] = 0;
    for (int64_t i = 0; i < in; i++) {
      double x = w[o * in + i];
      for (int64_t k = 0; k < rank; k++)
        x += n->node->attr.scale.factor * b[o * rank + k] * a[k * in + i];
      n->out[o] += x * x;
    }
  }
}
static void no_gradient(const tsr_interpreted *n) { (void)n; }
const tsr_interpreter_rule tsr_interpret_adapted_squares = {
    .forward = forward_adapted_squares, .vjp = no_gradient};

static double over_root(double x, double squares) { return squares > 0 ? x / sqrt(squares) : 0; }
static void forward_divide_root(const tsr_interpreted *n) {
  for (int64_t i = 0; i < tsr_interpreted_size(n, 0); i++)
    n->out[i] = over_root(n->in[0][i], n->in[1][i]);
}
static void vjp_divide_root(const tsr_interpreted *n) {
  for (int64_t i = 0; i < tsr_interpreted_size(n, 0); i++)
    n->d_in[0][i] += over_root(n->d_out[i], n->in[1][i]);
}
const tsr_interpreter_rule tsr_interpret_divide_root = {
    .forward = forward_divide_root, .vjp = vjp_divide_root};
