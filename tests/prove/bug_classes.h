// SPDX-License-Identifier: Apache-2.0
/* Fourteen classes of bugs of distributed training that were published, each as several faults in
 * the mesh's programs. */
#ifndef TSR_TESTS_PROVE_BUG_CLASSES_H
#define TSR_TESTS_PROVE_BUG_CLASSES_H
#include "bug_recipes.h"

typedef enum {
  BUG_GRADIENT_SCALE,
  BUG_MISSING_REDUCTION,
  BUG_STALE_GATHER,
  BUG_WRONG_GROUP,
  BUG_TIED_TWICE,
  BUG_LOSS_COUNT,
  BUG_HEADS,
  BUG_POSITIONS,
  BUG_DROPOUT,
  BUG_NORM_GRADIENT,
  BUG_STAGE_INPUT,
  BUG_STATE_SHARD,
  BUG_LOCAL_NORM,
  BUG_STALE_STAGE,
  BUG_CLASSES
} bug_class;
extern const char *const bug_class_names[BUG_CLASSES];

typedef struct {
  bug_class class;
  bug_run run;
  const char *name;
  void (*apply)(bug *b);
} bug_variant;

/* bug_sums.c, bug_moves.c, bug_splits.c */
typedef struct {
  const bug_variant *items;
  int count;
} bug_variants;
extern const bug_variants bugs_of_sums, bugs_of_moves, bugs_of_splits;
#define BUG_VARIANTS(name, table)                                                                  \
  const bug_variants name = {table, (int)(sizeof(table) / sizeof *(table))}

/* The gradient that an update reads, of the parameter of this name. */
int bug_gradient(const bug *b, const char *param);
/* A collective runs over another axis, on all stages. The graph stays. */
void bug_run_over(bug *b, int node, int axis);

#endif
