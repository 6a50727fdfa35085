// SPDX-License-Identifier: Apache-2.0
/* Steps that several runs of a sweep share, so that they are made once.
 *
 * Two runs compute the same bits up to a step if their configurations differ in nothing but the
 * learning rates and the number of steps, and the rates of all updates up to there are the same
 * bits. The runs of a group (of equal configurations otherwise) so form a tree: at a node they are
 * together up to a step, behind which some of them end or have another rate. */
#ifndef TSR_SWEEP_PREFIX_H
#define TSR_SWEEP_PREFIX_H
#include "train/learning_rate.h"

typedef struct {
  const char *group;  /* what its configuration is otherwise, as a text; NULL: it shares nothing */
  tsr_lr_curve curve; /* its rates */
  int64_t steps;      /* the first step that it is looked at after; its own step at least */
} tsr_prefix_run;

typedef struct {
  int parent;   /* the node whose end it begins at; -1: step 0 */
  int64_t step; /* its end */
  int run;      /* the first of its runs, whose configuration it is trained with */
} tsr_prefix_node;

typedef struct {
  tsr_prefix_node *nodes; /* parents before their children */
  int count;
  int *leaf; /* the node that a run begins at the end of; -1: none */
} tsr_prefix_tree;

/* The tree of the runs. A node is worth a process of its own if it has a tenth of the steps of the
 * shortest of its runs, which has one step at least behind it. */
tsr_prefix_tree tsr_prefix_tree_make(tsr_arena *arena, const tsr_prefix_run *runs, int count);

/* The folder of a node in that of the sweep: "prefix-001", from 1. */
const char *tsr_prefix_folder(tsr_arena *arena, int node);

#endif
