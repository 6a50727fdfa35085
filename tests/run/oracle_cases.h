// SPDX-License-Identifier: Apache-2.0
/* Small graphs of several ops, for programs to be compared with the interpreter on. Samples are 4
 * and positions 4 in each, so that a recipe can split them; other sizes are odd where they can be.
 */
#ifndef TSR_TESTS_ORACLE_CASES_H
#define TSR_TESTS_ORACLE_CASES_H
#include "harness.h"

/* A recipe's units; with and without several microbatches. */
typedef struct {
  const char *name;
  int batch, sequence, tp, microbatches, expert;
} oracle_recipe;
enum { ORACLE_RECIPES = 5 };
extern const oracle_recipe oracle_recipes[ORACLE_RECIPES];

/* Recipes as a set, in their order. */
enum oracle_recipe_set {
  ORACLE_ONE = 1,
  ORACLE_BATCH = 2,
  ORACLE_SEQUENCE = 4,
  ORACLE_BATCH_TWICE = 8, /* 2 microbatches */
  ORACLE_SEQUENCE_TWICE = 16,
  ORACLE_POSITIONS = ORACLE_SEQUENCE | ORACLE_SEQUENCE_TWICE,
  ORACLE_TWICE = ORACLE_BATCH_TWICE | ORACLE_SEQUENCE_TWICE
};

typedef struct {
  const char *name, *inputs, *params, *calls; /* as the harness takes them; the loss is `loss` */
  unsigned refused; /* recipes that a diagnostic refuses; the others must give right numbers */
} oracle_case;
extern const oracle_case oracle_cases[];
extern const int oracle_cases_count;

/* The case's forward graph, whose loss is an output; and what the harness needs to run it on one
 * rank. */
tsr_graph *oracle_build(tsr_arena *arena, const oracle_case *c, const oracle_recipe *r);
harness_options oracle_options(const oracle_recipe *r);

#endif
