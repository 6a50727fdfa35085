// SPDX-License-Identifier: Apache-2.0
/* The interpreter (src/interpreter) beside a run on one rank: loss and gradients of its first step.
 * Half precision is compared in f32: the same model, recipe and samples without the casts. */
#ifndef TSR_PROVE_REFERENCE_H
#define TSR_PROVE_REFERENCE_H
#include "prove/recorded_run.h"

/* Relative to the interpreter's loss, and to the largest element of a parameter's gradient, which
 * counts as at least a thousandth of the largest element of all gradients: a gradient can cancel
 * out, as that of a key's bias does. A graph is ill-conditioned where a change of every result by
 * its last f32 bit moves loss or gradients by more. Then 16 times what they move by is allowed too.
 * Gradients that are all so small that a step along them changes no bit of the loss count as zero.
 */
#define TSR_LOSS_TOLERANCE 2e-6
#define TSR_GRADIENT_TOLERANCE 1e-5

typedef struct {
  bool in_f32;          /* the recipe's precision is half */
  bool ill_conditioned; /* the tolerance is the wider one */
  bool overflows; /* f32 cannot hold a number of the step, or its square: nothing to compare */
  double loss_error, gradient_error; /* relative, the largest */
  const char *parameter;             /* with the largest error; NULL: there is none */
  int64_t element;
  double found, wanted; /* that element */
  tsr_location location;
} tsr_reference_result;

/* `state` is that of `run`, whose gradients are outputs; f32. */
bool tsr_reference_compare(
    tsr_arena *arena, const tsr_prove_run *run, const tsr_cpu_context *cpu,
    const tsr_synthetic *data, const tsr_state *state, tsr_reference_result *ret, tsr_diags *diags);

bool tsr_reference_agrees(const tsr_reference_result *result);
/* The failures of a result that does not agree. */
void tsr_reference_explain(const tsr_reference_result *result, tsr_diags *diags);

#endif
