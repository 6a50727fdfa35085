// SPDX-License-Identifier: Apache-2.0
/* Single faults, chosen by a seed, to be put into a sound program. */
#ifndef TSR_TESTS_SCHEDULE_FAULTS_H
#define TSR_TESTS_SCHEDULE_FAULTS_H
#include "sample.h"

typedef struct {
  tsr_arena *arena;
  tsr_program *p;         /* a copy, of one stage, that gets the fault */
  uint64_t state;         /* of the numbers that choose */
  tsr_programs *programs; /* of which p is one; NULL where a fault is in one program */
  tsr_verify_mesh *mesh;
  const harness *h; /* what it was made from */
} mutant;

/* A number from 0 to n - 1. */
int mutant_below(mutant *m, int n);
/* A task or value that is of the kind asked for, or -1. */
typedef bool mutant_task_kind(const mutant *m, const tsr_task *t);
int mutant_pick_task(mutant *m, mutant_task_kind *wanted);
typedef bool mutant_value_kind(const mutant *m, int value);
int mutant_pick_value(mutant *m, mutant_value_kind *wanted);
bool mutant_is_work(const mutant *m, int value); /* has bytes of its own in WORK */
bool mutant_is_framed(const mutant *m, int value);

typedef struct {
  const char *name;
  bool (*apply)(mutant *m); /* false where the program has nothing to spoil in this way */
  bool one_rank;            /* the fault is in the program of one rank of the stage */
  int made, refused;        /* counted by the test */
} fault;
extern fault faults[];
extern const int faults_count;

/* ---- faults that a single rule rejects (test_verify_rules.c) ---- */

/* What running the program does that the verifier accepts without the rule. */
typedef enum {
  EFFECT_HARM,  /* other bits, a crash, or no end */
  EFFECT_NONE,  /* the same bits; `why` */
  EFFECT_UNRUN, /* it is not run; `why` */
} rule_effect;

/* The runs that are spoilt (test_verify_rules.c). */
typedef enum {
  ON_ALONE,
  ON_LOSS,
  ON_OVERLAP,
  ON_TP,
  ON_DP3,
  ON_ZERO,
  ON_ZERO_OVERLAP,
  ON_FLAT,
  ON_OWNERS,
  ON_ZIGZAG,
  ON_PIPE,
  ON_PIPE_DP,
  ON_CHUNKS,
  ON_FORWARD,
  ON_FP8,
  ON_EXPERTS,
  ON_EXPERT_AXES,
  ON_OFFLOAD,
  RULE_SAMPLES
} rule_sample;

typedef struct {
  const char *rule; /* the format of its message */
  bool (*apply)(mutant *m);
  rule_sample sample;
  rule_effect effect;
  const char *why;
  const char *guards; /* what would be indexed by the wrong number: the check of the program ends
                         here without the rule, too; NULL: it goes on */
} rule_fault;
typedef struct {
  const rule_fault *items;
  int count;
} rule_faults;
extern const rule_faults faults_of_lists, faults_of_tasks, faults_of_memory, faults_of_moves,
    faults_of_sums, faults_of_graphs, faults_of_experts;
#define RULE_FAULTS(name, table)                                                                   \
  const rule_faults name = {table, (int)(sizeof(table) / sizeof *(table))}

/* So many bytes behind all others in WORK. */
int64_t mutant_room(tsr_program *p, int64_t bytes);
/* Another place for a value of WORK, with room of its own; tasks and other names follow. */
void mutant_move_value(mutant *m, int value);
/* Puts a number that makes no sense into one field of the program. */
void mutant_garble(mutant *m);
/* A task of an op of the program, with a seed; -1: none. */
int mutant_pick_op(mutant *m, tsr_op op);
/* The programs get a graph of their own, to be changed. */
tsr_graph *mutant_graph(mutant *m);
/* Lowered anew, from the graph that they have; p stays the one of its stage. */
void mutant_lower(mutant *m, const tsr_lowering *how);

#endif
