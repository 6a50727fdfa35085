// SPDX-License-Identifier: Apache-2.0
/* Attributes that several ops have, in whichever set. */
#include "graph/graph.h"

int64_t tsr_loss_samples(const tsr_node *loss) {
  return loss->op == TSR_OP_SQUARED_ERROR ? loss->attr.squared_error.samples
                                          : loss->attr.ce_loss.samples;
}

double tsr_node_dropout(const tsr_node *n) {
  if (n->op == TSR_OP_DROPOUT) return n->attr.dropout.p;
  return n->op == TSR_OP_ATTENTION ? n->attr.attention.dropout : 0;
}
