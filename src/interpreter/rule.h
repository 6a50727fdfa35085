// SPDX-License-Identifier: Apache-2.0
/* The rules of the interpreter: how an op is computed, and its vector-Jacobian product. */
#ifndef TSR_INTERPRETER_RULE_H
#define TSR_INTERPRETER_RULE_H
#include "interpreter/interpreter.h"

/* One node and where its numbers are. */
typedef struct tsr_interpreted {
  const tsr_node *node;
  const tsr_value *type[TSR_CALL_INPUTS_MAX], *out_type; /* for their shapes */
  const double *in[TSR_CALL_INPUTS_MAX];
  double *out;         /* the first output; others are never read here */
  const double *d_out; /* the gradient of the loss by it */
  double *
      d_in[TSR_CALL_INPUTS_MAX]; /* a vjp adds to them; NULL of tokens and step_scalars. Two of them
                                        are the same where the node has the same input twice */
  double *saved;                 /* from forward to vjp: as many as the rule asked for */
  double *mask;                  /* what dropout multiplies by; NULL: nothing is dropped */
  const tsr_interpreter_step *step;
  const struct tsr_interpreted *all; /* of the graph's nodes, this one among them */
  int all_count;
} tsr_interpreted;

typedef struct {
  void (*forward)(const tsr_interpreted *n); /* NULL: forward graphs have no such op */
  void (*vjp)(const tsr_interpreted *n);
  int64_t (*saved)(const tsr_interpreted *n); /* NULL: none */
  /* NULL: an op without dropout. p, and the shape of what is dropped; returns its dimensions. */
  int (*mask_shape)(const tsr_interpreted *n, double *ret_p, int64_t ret_shape[TSR_DIMS_MAX]);
  double (*loss)(const tsr_interpreted *n); /* what it adds to the step's loss; NULL: nothing */
  bool statistics; /* numbers for another node's gradient alone: not computed here */
} tsr_interpreter_rule;

/* By the names of ops.def's column `gradient`. */
extern const tsr_interpreter_rule tsr_interpret_linear, tsr_interpret_matmul,
    tsr_interpret_embedding, tsr_interpret_add, tsr_interpret_sub, tsr_interpret_mul,
    tsr_interpret_scale, tsr_interpret_unary, tsr_interpret_gated, tsr_interpret_dropout,
    tsr_interpret_layernorm, tsr_interpret_rmsnorm, tsr_interpret_softmax, tsr_interpret_rope,
    tsr_interpret_rope_at, tsr_interpret_attention, tsr_interpret_document_attention,
    tsr_interpret_reshape, tsr_interpret_transpose, tsr_interpret_slice, tsr_interpret_unslice,
    tsr_interpret_concat, tsr_interpret_expand_heads, tsr_interpret_identity,
    tsr_interpret_ce_stats, tsr_interpret_ce_loss, tsr_interpret_squared, tsr_interpret_router,
    tsr_interpret_choice, tsr_interpret_expert_weights, tsr_interpret_permute_experts,
    tsr_interpret_expert_linear, tsr_interpret_expert_add, tsr_interpret_clamped_swiglu,
    tsr_interpret_combine_experts, tsr_interpret_balance_loss, tsr_interpret_router_z_loss,
    tsr_interpret_adapted_squares, tsr_interpret_divide_root;

static inline int64_t tsr_interpreted_size(const tsr_interpreted *n, int input) {
  return tsr_value_elements(n->type[input]);
}
static inline int64_t tsr_interpreted_columns(const tsr_interpreted *n, int input) {
  return n->type[input]->shape[n->type[input]->ndim - 1];
}
static inline int64_t tsr_interpreted_rows(const tsr_interpreted *n, int input) {
  return tsr_interpreted_size(n, input) / tsr_interpreted_columns(n, input);
}

/* x times 1 + rounding or 1 - rounding of the step: its draw, `which` and i decide. `which` is
 * 8 * value + one of these, and more where a value is rounded several times. */
enum { TSR_ROUND_RESULT, TSR_ROUND_GRADIENT, TSR_ROUND_SUM, TSR_ROUND_INSIDE };
double tsr_interpreter_round(const tsr_interpreter_step *step, uint64_t which, int64_t i, double x);
/* x, a number that op computes on the way to element i and may cancel: multiplied by 1 + rounding
 * or 1 - rounding where the step has one. Different `what` draw differently. */
double tsr_interpreted_round(const tsr_interpreted *n, int what, int64_t i, double x);

/* y = softmax(x) of n numbers; y may be x. Returns log(sum(exp(x))). */
double tsr_interpreter_softmax(double *y, const double *x, int64_t n);
/* The table (positions, rotary_dim / 2, 2) of cosines and sines that a rope constant is. */
void tsr_interpreter_rope_table(double *out, const tsr_value *table);

#endif
