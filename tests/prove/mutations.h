// SPDX-License-Identifier: Apache-2.0
/* Random mutations of the mesh's graph, programs, collectives, schedule and units. */
#ifndef TSR_TESTS_PROVE_MUTATIONS_H
#define TSR_TESTS_PROVE_MUTATIONS_H
#include "bug_recipes.h"

typedef enum {
  MUTATE_FORWARD, /* a node of the forward pass, which the interpreter computes, too */
  MUTATE_GRAPH,   /* any other node of the placed graph */
  MUTATE_PROGRAM,
  MUTATE_COLLECTIVE,
  MUTATE_SCHEDULE,
  MUTATE_UNITS,
  MUTATION_KINDS
} mutation_kind;
extern const char *const mutation_kind_names[MUTATION_KINDS];

typedef struct {
  mutation_kind kind;
  const char *name;
  bool (*apply)(bug *b);  /* false where there is nothing to change in this way */
  const char *equivalent; /* why one may change no result; NULL: each does */
  const fault *of;        /* of tests/schedule, in place of `apply` */
} mutation;

bool mutation_apply(const mutation *m, bug *b);

typedef struct {
  const mutation *items;
  int count;
} mutation_table;
extern const mutation_table graph_mutations, run_mutations;
/* The faults of tests/schedule that all ranks of a stage have. */
mutation_table program_mutations(tsr_arena *arena);

/* A number from 0 to n - 1, of the mutation's own. */
static inline int mutation_below(bug *b, int n) { return mutant_below(&b->m, n); }

/* Whether the interpreter computes another loss when the forward node of `b->node`'s name has the
 * attributes, the op and the inputs (by their names) that it has in the mutated graph. */
typedef enum { LOSS_SAME, LOSS_DIFFERS, LOSS_UNKNOWN } mutation_loss;
mutation_loss mutation_interpret(const bug *b);

#endif
