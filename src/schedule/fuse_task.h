// SPDX-License-Identifier: Apache-2.0
/* Inside the fuse pass: what its forms share. */
#ifndef TSR_SCHEDULE_FUSE_TASK_H
#define TSR_SCHEDULE_FUSE_TASK_H
#include "schedule/target.h"

/* The names of the same bytes: a reshape's result, that of a collective over one rank. */
typedef struct {
  int *of;      /* per value: the value whose bytes it names */
  int *readers; /* per such value: how many read it under any of its names; a node that only gives
                   it another name is none of them */
} tsr_fusing_roots;

typedef struct {
  tsr_program *p;
  const tsr_target *target;
  tsr_arena *arena;
  tsr_fusing_roots roots;
  bool *absorbed; /* per task: another one covers it */
  int *part_end;  /* per task: where its part ends */
  int *last_read; /* per value: the last task that reads it */
} tsr_fusing;

tsr_fusing_roots tsr_fusing_roots_of(const tsr_program *program);

/* How many inputs of tasks read a value, which is a root: those that an op has for its gradient's
 * sake alone are not read. */
int tsr_fusing_reads(const tsr_fusing *fusing, int root);

/* Whether all of them can run at the place `at`: what they read is written by then, and nobody
 * reads what they write, or writes what they read, before. */
bool tsr_fusing_can_meet(const tsr_fusing *fusing, const int *tasks, int count, int at);

/* Fuses tasks, in the order of their nodes, into one at the place of `base`, which is one of them.
 */
void tsr_fuse_tasks(tsr_fusing *fusing, tsr_fused_form form, const int *tasks, int count, int base);

#endif
