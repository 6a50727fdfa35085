// SPDX-License-Identifier: Apache-2.0
/* What a run computes at its steps, as far as two runs are compared: of each step the loss and the
 * hash of all weights; of one step the hashes of all tensors; and the numbers of one tensor. */
#ifndef TSR_COMPARE_RUN_RECORD_H
#define TSR_COMPARE_RUN_RECORD_H
#include "config/recipe_keys.h"
#include "runtime/value_trace.h"
#include "train/trainer.h"

/* A parameter or a tensor of optimizer state. */
typedef struct {
  const char *name;
  int value; /* of the placed graph */
  bool is_state;
  tsr_traced_value of;    /* its name, value and shape */
  uint64_t before, after; /* hashes: before the traced step, and after it */
} tsr_stored_hash;

/* A tensor of the traced step whose numbers are kept. */
typedef struct {
  const char *name;       /* NULL: none is */
  bool is_stored, before; /* a parameter or state, before the step or after it */
} tsr_capture;

typedef struct {
  tsr_arena *arena;
  int64_t last;   /* the last step that is made */
  int64_t traced; /* the step whose tensors are hashed; 0: none */
  tsr_capture capture;

  /* What the run leaves. */
  const tsr_recipe_entry *recipe;
  int recipe_count;
  tsr_locked_step *steps; /* of steps first + 1, …; their chains are not set */
  int64_t first, steps_count;
  tsr_stored_hash *stored; /* in the order of the placed graph */
  int stored_count;
  const tsr_traced_value *values; /* in the order of the graph */
  int values_count;
  float *numbers;      /* of the captured tensor, whole; NULL: the run has none of that name */
  tsr_traced_value of; /* the tensor: name, value and shape */

  tsr_value_trace *trace;
  tsr_step_observer observer;
} tsr_run_record;

/* Makes ret->observer, which fills the rest while tsr_train runs with it. A capture needs a record
 * of the same run that has traced the step: `earlier`; else NULL. */
void tsr_run_record_init(
    tsr_arena *arena, int64_t last, int64_t traced, tsr_capture capture,
    const tsr_run_record *earlier, tsr_run_record *ret_record);

/* A tensor that the traced step has; NULL: there is none. */
const tsr_traced_value *tsr_run_record_find_traced(const tsr_run_record *record, const char *name);
/* The same, or a parameter or state; NULL: there is none. */
const tsr_traced_value *tsr_run_record_find(const tsr_run_record *record, const char *name);
int64_t tsr_traced_elements(const tsr_traced_value *value);
/* Zeros have one hash, whatever their number. */
bool tsr_traced_same_shape(const tsr_traced_value *a, const tsr_traced_value *b);

#endif
