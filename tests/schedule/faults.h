/* Single faults, chosen by a seed, to be put into a sound program. */
#ifndef TSR_TESTS_SCHEDULE_FAULTS_H
#define TSR_TESTS_SCHEDULE_FAULTS_H
#include "sample.h"

typedef struct {
  tsr_arena *arena;
  tsr_program *p; /* a copy, of one stage, that gets the fault */
  uint64_t state; /* of the numbers that choose */
} mutant;

/* A number from 0 to n - 1. */
int mutant_below(mutant *m, int n);

typedef struct {
  const char *name;
  bool (*apply)(mutant *m); /* false where the program has nothing to spoil in this way */
  bool one_rank;            /* the fault is in the program of one rank of the stage */
  int made, refused;        /* counted by the test */
} fault;
extern fault faults[];
extern const int faults_count;

#endif
