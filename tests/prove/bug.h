// SPDX-License-Identifier: Apache-2.0
/* Faults in the mesh's program of a proof: the graph, the tasks, the collectives, the schedule or
 * the units of the run on the mesh are changed between the two phases of a proof, and the run on
 * one rank stays what it is. */
#ifndef TSR_TESTS_PROVE_BUG_H
#define TSR_TESTS_PROVE_BUG_H
#include "proof.h"
#include "tests/schedule/faults.h"

/* A configuration, reduced and compiled. */
typedef struct {
  const char *family, *mesh; /* "llama", "dp 2" */
  const char *settings;      /* of training_config */
  const char *rest;          /* the model's and the mesh's sections */
} bug_recipe;

typedef struct {
  const bug_recipe *recipe;
  proof p;
  tsr_reduced_run plan;
} bug_base;

void bug_open(bug_base *base, const bug_recipe *recipe);
void bug_close(bug_base *base);

/* A copy of the plan that gets a fault. */
typedef struct {
  tsr_arena *arena;
  const bug_base *base;
  tsr_reduced_run plan; /* its mesh has a graph and programs of its own */
  tsr_graph *g;         /* the placed one */
  mutant m;             /* of one of the programs, for faults of tests/schedule */
  int node;             /* of `g`, in which the fault is; -1: it has no place */
  bool next_step;       /* the fault shows in the next step alone */
} bug;

bug bug_begin(tsr_arena *arena, const bug_base *base);
/* Lowers the graph anew, with these units and this schedule (NULL: those that it had), and verifies
 * nothing. */
void bug_lower(bug *b, const tsr_lowering *how, const tsr_pipeline *pipeline);

/* ---- what is changed ---- */

/* By the name of the node, or of its first result; ends the test where there is none. */
int bug_find(const bug *b, const char *name);
/* The same for a value. */
int bug_find_value(const bug *b, const char *name);
/* The node behind `from` (-1: the first) that has this op, in this section (TSR_SECTIONS: any), and
 * this text in its name; -1: there is none. */
int bug_find_op(const bug *b, int from, tsr_op op, tsr_section section, const char *part);
/* A node behind the one that makes `value`; what reads the value behind it reads the new one's
 * result. The node's index. Before bug_lower. */
int bug_insert(bug *b, int value, tsr_op op, const tsr_attrs *attr);
/* The task of a node, and its program; the first of several. */
tsr_task *bug_task(const bug *b, int node, tsr_program **ret_program);
/* An axis of the mesh with one rank. */
int bug_idle_axis(const bug *b);
/* From the second step on, tasks of the program that read `value` (a parameter, or what another
 * stage sends of one) read what it was in the first. After bug_lower; behind `from`, which task it
 * is. How many tasks do. */
int bug_make_stale(bug *b, tsr_program *p, int value, int from);

/* ---- what is found ---- */

typedef enum {
  BUG_MISSED,  /* the proof ends without a difference */
  BUG_FOUND,   /* with one */
  BUG_CRASHED, /* it does not end */
} bug_outcome;

typedef struct {
  bool refused; /* by the static verifier */
  bool verifier_crashed;
  bug_outcome proof;
  char first[64];    /* "losses of step 1": what the report says to differ first */
  char message[512]; /* the first one, and its place */
  char file[256];
  int line;
} bug_result;

/* In a process of its own, that ends after some seconds. */
bug_result bug_try(const bug *b);

/* The tensor that a message names, without "the gradient of "; in the arena. */
const char *bug_named(const bug *b, const char *message);
/* Whether what the message names is made from what the fault's node makes: in the same step, or for
 * a message about a later one in any. And the line is that of what is named. */
bool bug_is_downstream(const bug *b, const bug_result *result);

#endif
