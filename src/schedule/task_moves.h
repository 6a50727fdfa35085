// SPDX-License-Identifier: Apache-2.0
/* Tasks that a pass puts elsewhere in a program's lists, and waits that it adds: collectives and
 * copies that only begin where they stand. */
#ifndef TSR_SCHEDULE_TASK_MOVES_H
#define TSR_SCHEDULE_TASK_MOVES_H
#include "schedule/program.h"

/* Before a task of a part, or at the part's end. */
typedef struct {
  int part, task;
} tsr_task_spot;

typedef struct tsr_put_task tsr_put_task;
typedef struct {
  tsr_program *p;
  tsr_put_task **before; /* per task: what is put before it */
  tsr_put_task **at_end; /* per part: what is put at its end */
  bool *is_moved;        /* per task */
  int added, buckets;    /* waits; the last bucket's number */
} tsr_task_moves;

/* Until tsr_task_moves_end the program's lists stay as they are. Buckets are numbered behind those
 * that the program has. */
tsr_task_moves tsr_task_moves_begin(tsr_program *program);
void tsr_task_move(tsr_task_moves *m, tsr_task_spot at, int task);
/* Moves tasks to a spot where they only begin, as a bucket, and adds the wait for them. Each has
 * one input and one output. */
void tsr_task_begin_bucket(
    tsr_task_moves *m, const int *tasks, int count, bool last_only, tsr_task_spot begin,
    tsr_task_spot wait);
void tsr_task_moves_end(tsr_task_moves *m);

static inline const tsr_node *tsr_task_node(const tsr_program *p, int task) {
  return &p->graph->nodes[p->tasks[task].node];
}

#endif
