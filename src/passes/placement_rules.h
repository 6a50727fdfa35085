// SPDX-License-Identifier: Apache-2.0
/* What a placement rule sees: one node on one axis. */
#ifndef TSR_PASSES_PLACEMENT_RULES_H
#define TSR_PASSES_PLACEMENT_RULES_H
#include "passes/passes.h"

typedef struct {
  const tsr_graph *g; /* the graph being read */
  const tsr_node *node;
  const tsr_graph
      *placed;       /* the graph being made, and the node's inputs there: what they are over */
  const int *inputs; /* the other axes, of which dp and cp come before tp */
  int axis, members; /* members: ranks of a group over the axis */
  int64_t parts;     /* into how many pieces the axis (or its units) splits a dimension, at least */
  bool slices_are_units; /* tp's slices of the positions are runs of the sequence's units */
  tsr_placement *in;     /* in: each input's placement; out: the one that the op requires */
  tsr_placement out[TSR_OUTPUTS_MAX];
  bool of_weights;        /* parameters alone make what it is of: no dimension is of positions */
  bool sequence_parallel; /* between tp's products, activations are split along the sequence */
  int64_t units; /* out: the result keeps so many summands apart (tsr_value.units); 0: none */
  bool units_of_sequence; /* out: as in tsr_value */
  bool pads_split;        /* out: the op sums over the dimension that the axis splits, so one that
                             the parts do not divide may end with zeros */
  const char *error;      /* out: why it cannot be, or NULL */
} tsr_placement_rule_call;

/* What a loss is whose rows the axis splits: a partial sum, or each sample's number beside the
 * sample (tsr_pass_by_sample). */
static inline tsr_placement tsr_placement_rule_of_loss(const tsr_placement_rule_call *c) {
  bool by_sample = tsr_axis_splits_batch(c->axis) && tsr_loss_samples(c->node) > 0;
  return (tsr_placement){by_sample ? TSR_SHARD : TSR_PARTIAL, 0, 0};
}

void tsr_placement_rule_apply(tsr_placement_rule_call *call);

#endif
