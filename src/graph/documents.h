// SPDX-License-Identifier: Apache-2.0
/* The documents of a sample, of which a sample of tokens may have several. */
#ifndef TSR_GRAPH_DOCUMENTS_H
#define TSR_GRAPH_DOCUMENTS_H
#include "graph/graph.h"
#include <string.h>

/* An input (batch, sequence) i32: the position of each token in its document. It is 0 at the first
 * token of the sample and of each document, and rises by 1 inside a document. A padding token is a
 * document of its own, so its position is 0. */
#define TSR_DOCUMENT_POSITIONS "documents.positions"

static inline bool tsr_value_is_document_positions(const tsr_value *v) {
  return v->kind == TSR_VALUE_INPUT && !strcmp(v->name, TSR_DOCUMENT_POSITIONS);
}

/* An input (batch, sequence) i32: the class of each document at its last token, -100 elsewhere. */
#define TSR_DOCUMENT_LABELS "document_labels"

/* Of an input's name: whether a loss compares it with logits. */
static inline bool tsr_input_is_target(const char *name) {
  return !strcmp(name, "targets") || !strcmp(name, "labels") || !strcmp(name, TSR_DOCUMENT_LABELS);
}

#endif
