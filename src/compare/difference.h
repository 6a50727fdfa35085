// SPDX-License-Identifier: Apache-2.0
/* The first thing in which two runs differ. */
#ifndef TSR_COMPARE_DIFFERENCE_H
#define TSR_COMPARE_DIFFERENCE_H
#include "compare/run_record.h"

/* In the order in which a step has them. */
typedef enum {
  TSR_DIFFERS_NOTHING,
  TSR_DIFFERS_STORED_BEFORE, /* a parameter or state, before the step */
  TSR_DIFFERS_INPUT,
  TSR_DIFFERS_TENSOR, /* that a task computes */
  TSR_DIFFERS_FORM,   /* two forms of one tensor, in the run of `record` */
  TSR_DIFFERS_STORED_AFTER
} tsr_difference_kind;

/* How many of a kind were compared, and how many differ. */
typedef struct {
  int64_t compared, differing;
} tsr_compared_count;

typedef struct {
  tsr_difference_kind kind;
  const char *name;             /* of the tensor */
  const tsr_run_record *record; /* of a FORM: whose it is */
  int value;                    /* of the first run's placed graph; of a FORM of its record's */
  int stage, task;              /* that has written it in the first run; task -1: none has */
  tsr_compared_count tensors, gradients, weights, state;
} tsr_difference;

/* The first step that both records have and in which the loss or the weights differ; 0: none. */
int64_t tsr_first_different_step(const tsr_run_record *a, const tsr_run_record *b);

/* Of the step that both trace. Names of parameters' gradients begin with "grad.". */
tsr_difference tsr_difference_find(const tsr_run_record *a, const tsr_run_record *b);

#endif
