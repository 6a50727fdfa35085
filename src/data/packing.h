// SPDX-License-Identifier: Apache-2.0
/* Samples of a fixed number of tokens that consist of whole documents.
 *
 * Best-fit decreasing: the documents of a part, by falling length, each go into the sample with the
 * least room that has enough, or into a new one. Of documents of one length the first goes first,
 * and of samples with the same room the one that received a document last. A sample has its
 * documents in the order in which it received them, so the packing depends on nothing but the
 * documents. */
#ifndef TSR_DATA_PACKING_H
#define TSR_DATA_PACKING_H
#include "base/arena.h"
#include "data/masked_documents.h"

typedef struct {
  bool best_fit;   /* else a sample is one document */
  bool drops;      /* documents of more than a sample's tokens; else they are cut behind these */
  int32_t padding; /* the token behind the last document */
} tsr_packing_rule;

/* A pack is a sample. Documents without a target (of what is left of them) are in no pack. */
typedef struct {
  const tsr_masked_documents *from;
  tsr_packing_rule rule;
  int64_t sequence;       /* tokens of a pack */
  int64_t first, end;     /* the part's documents */
  int64_t count;          /* packs */
  const int64_t *begins;  /* (count + 1) the first of its members, and the end */
  const int64_t *members; /* documents */
  /* Of the part's documents: those with more tokens than a pack, which are cut or dropped, and
   * those without a target. */
  int64_t truncated, dropped, untrained;
  int64_t tokens, targets; /* of all packs */
} tsr_packs;

/* Packs the documents [first, end); time O(n log sequence). */
void tsr_packs_make(
    tsr_arena *arena, const tsr_masked_documents *from, int64_t first, int64_t end,
    const tsr_packing_rule *rule, int64_t sequence, tsr_packs *ret);

/* The tokens that a pack has of a document. */
static inline int64_t tsr_pack_length(const tsr_packs *packs, int64_t document) {
  int64_t length = tsr_document_length(packs->from, document);
  return length < packs->sequence ? length : packs->sequence;
}
/* The tokens of all documents of a pack; what is behind them is padding. */
int64_t tsr_pack_tokens(const tsr_packs *packs, int64_t pack);

#endif
