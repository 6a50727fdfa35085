// SPDX-License-Identifier: Apache-2.0
/* What shape rules share (infer.c, infer_experts.c). */
#ifndef TSR_GRAPH_INFER_RULE_H
#define TSR_GRAPH_INFER_RULE_H
#include "graph/infer.h"
#include <stdarg.h>
#include <string.h>

typedef struct {
  tsr_arena *arena;
  const tsr_graph *graph;
  const tsr_node *node;
  const tsr_value *in[TSR_CALL_INPUTS_MAX]; /* the first few inputs */
  tsr_type *out;
} inference;

/* Sets the outputs' types; what is wrong with the inputs, or NULL. */
typedef const char *infer_rule(const inference *i);

static inline tsr_type type_of(const tsr_value *v) {
  tsr_type t = {.dtype = v->dtype, .ndim = v->ndim, .routed = v->routed};
  memcpy(t.shape, v->shape, sizeof t.shape);
  return t;
}

static inline const char *wrong(const inference *i, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static inline const char *wrong(const inference *i, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = tsr_arena_vprintf(i->arena, format, args);
  va_end(args);
  return text;
}

static inline const char *shape_of(const inference *i, const tsr_value *v) {
  return tsr_value_shape_text(i->arena, v);
}

static inline bool same_shape(const tsr_value *a, const tsr_value *b) {
  if (a->ndim != b->ndim) return false;
  return !memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->ndim);
}

static inline int64_t last_dim(const tsr_value *v) { return v->shape[v->ndim - 1]; }

/* infer_experts.c */
infer_rule tsr_infer_choose_experts, tsr_infer_expert_weights, tsr_infer_expert_weights_dx,
    tsr_infer_expert_plan, tsr_infer_permute_experts, tsr_infer_expert_linear, tsr_infer_expert_add,
    tsr_infer_expert_linear_dx, tsr_infer_combine_experts, tsr_infer_combine_experts_dx,
    tsr_infer_balance_loss, tsr_infer_balance_loss_dx, tsr_infer_expert_counts;

#endif
