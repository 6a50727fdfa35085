// SPDX-License-Identifier: Apache-2.0
/* Inside the orders' files: the actions of all stages, one after another as they can happen. */
#ifndef TSR_SCHEDULE_ORDER_WALK_H
#define TSR_SCHEDULE_ORDER_WALK_H
#include "schedule/order.h"

enum { TSR_ACTION_KINDS = TSR_ACTION_WEIGHTS + 1 };

/* What an action needs from another virtual stage: that F or B of its microbatch. */
typedef struct {
  int stage;
  tsr_action action;
} tsr_need;

/* False if all that it needs is on its own virtual stage: F of the first, B of the last, W. */
bool tsr_order_needs(const tsr_order *order, int stage, tsr_action action, tsr_need *ret_need);

/* A place of its own for every action of a kind: 0 .. tsr_order_slots - 1 (of one kind). */
int64_t tsr_order_slots(const tsr_order *order);
int64_t tsr_order_slot(const tsr_order *order, int stage, tsr_action action);

typedef struct {
  const tsr_order *order;
  int *next;      /* per stage: its next action */
  bool *done[2];  /* F and B, per slot */
  int *ready;     /* a stack of the stages that may go on */
  bool *is_ready; /* per stage: whether it is on the stack */
  int ready_count;
} tsr_order_walk;

/* Of an order whose stages have every action once, F before B before W. */
void tsr_order_walk_begin(tsr_arena *arena, const tsr_order *order, tsr_order_walk *ret_walk);
/* False when all is done or every stage waits for another one. Constant time per action. */
bool tsr_order_walk_next(tsr_order_walk *walk, int *ret_stage, int *ret_index);

#endif
