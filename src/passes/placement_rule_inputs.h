// SPDX-License-Identifier: Apache-2.0
/* What the files of placement rules share: questions about a call's inputs, and answers for all of
 * them. */
#ifndef TSR_PASSES_PLACEMENT_RULE_INPUTS_H
#define TSR_PASSES_PLACEMENT_RULE_INPUTS_H
#include "passes/placement_rules.h"

typedef tsr_placement_rule_call call;

static const tsr_placement whole = {TSR_REPLICATE, 0};
static inline tsr_placement shard(int dim) { return (tsr_placement){TSR_SHARD, dim}; }

static inline const tsr_value *input(const call *c, int i) {
  return &c->g->values[c->node->inputs[i]];
}
static inline int ndim(const call *c, int i) { return input(c, i)->ndim; }
static inline bool is_shard(tsr_placement p, int dim) {
  return p.kind == TSR_SHARD && p.dim == dim;
}
static inline bool is_last(const call *c, int i) { return is_shard(c->in[i], ndim(c, i) - 1); }
static inline bool is_owned(const call *c, int i) { return c->in[i].kind == TSR_OWNED; }
/* Split along a dimension before the last: rows, whatever they mean. */
static inline bool is_rows(const call *c, int i) {
  return c->in[i].kind == TSR_SHARD && !is_last(c, i);
}

static inline void want_all(call *c, tsr_placement p) {
  for (int i = 0; i < c->node->inputs_count; i++) c->in[i] = p;
}
static inline void give_all(call *c, tsr_placement p) {
  for (int i = 0; i < TSR_OUTPUTS_MAX; i++) c->out[i] = p;
}

/* What an input is over another axis. */
static inline tsr_placement over(const call *c, int i, int axis) {
  return c->placed->values[c->inputs[i]].placement[axis];
}

/* The rules of ops.def's column `place`. */
#define OP(id, name, min, max, outputs, attrs, facts, infer, gradient, place, ...)                 \
  void tsr_place_##place(call *c);
#include "graph/ops.def"
#undef OP

#endif
