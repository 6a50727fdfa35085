// SPDX-License-Identifier: Apache-2.0
/* What gradient rules add to the gradient of each value of a forward graph, before it is summed. */
#ifndef TSR_PASSES_GRADIENT_TERMS_H
#define TSR_PASSES_GRADIENT_TERMS_H
#include "passes/autodiff.h"

typedef struct tsr_gradient_part {
  struct tsr_gradient_part *next;
  int value, w;       /* w >= 0: the product value * w */
  tsr_fp8_recipe fp8; /* of that product */
  int of;             /* the forward node whose rule added it */
} tsr_gradient_part;

struct tsr_gradients {
  tsr_graph *g;
  tsr_gradient_part **parts; /* per value of the forward graph, in the order they were added */
  bool *wanted;
  int forward_counts; /* of the choices of all layers (TSR_BALANCE_FORWARD); -1: not yet made */
  bool *fixed;        /* the same for every microbatch: no input flows in */
  int values;
};

#endif
