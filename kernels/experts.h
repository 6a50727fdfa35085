// SPDX-License-Identifier: Apache-2.0
/* What the kernels of a mixture of experts (kernels.h) compute with. S tokens, E experts, k choices
 * of a token. */
#ifndef TSR_KERNELS_EXPERTS_H
#define TSR_KERNELS_EXPERTS_H
#include <stdbool.h>
#include <stdint.h>

/* The choice of a mixture of experts: each of S tokens chooses the k of E experts whose key = score
 * + bias is largest; of equal keys the lower expert. A score of -inf has the key -inf, and so has a
 * NaN. With groups > 1 (DeepSeek-V3's node-limited routing, arXiv 2412.19437) only experts of the
 * kept_groups groups with the largest group keys can be chosen; a group is a run of E / groups
 * experts, its key the sum of the group_top largest keys in it (added from the largest down); of
 * equal group keys the lower group. */
typedef struct {
  int64_t E, k;                           /* 1 <= k <= E */
  int64_t groups, kept_groups, group_top; /* groups 1: any expert; k <= kept_groups * E / groups */
} tsr_choice;

/* The weight of a chosen expert: its score, or its part of the softmax over the k chosen scores
 * (Mixtral, arXiv 2401.04088); where `normalizes` divided by the sum of the k + 1e-20; then times
 * `scale`. A bias of the choice never enters it. */
typedef struct {
  int64_t E, k;
  bool softmax, normalizes;
  float scale;
} tsr_choice_weights;

/* Rows of experts: a token's copy for one expert that it chose. Here are the rows of the experts
 * [first, first + count) of E, which are one subtree of base/reduction_tree.h's tree over all
 * experts; they lie by (expert, token). A plan (R, 2) has of each row its slot, token * k + choice,
 * and its expert (of E); behind the last row -1 and -1. */
typedef struct {
  int64_t E, k, first, count;
} tsr_experts;

typedef struct {
  int64_t slots, unit_tokens; /* 0: no choice is dropped */
} tsr_capacity;

/* What the summands of a token are rounded to: the type of its activations. */
typedef enum { TSR_LEAF_F32, TSR_LEAF_BF16, TSR_LEAF_F16 } tsr_leaf_type;

#endif
