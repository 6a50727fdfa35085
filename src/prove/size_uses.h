// SPDX-License-Identifier: Apache-2.0
/* Where the sizes of a graph file stand: in which dimensions, and what splits these. */
#ifndef TSR_PROVE_SIZE_USES_H
#define TSR_PROVE_SIZE_USES_H
#include "model/graph_file.h"
#include "prove/size_rule.h"

/* What the run splits dimensions into, at full and at reduced size. */
typedef struct {
  tsr_size_split axis[TSR_AXES]; /* of a placement that names the axis; tp: its units */
  tsr_size_split sequence_units, zero_shards; /* 1 where there are none */
  bool has_tp;                                /* more than one rank, whatever its units are */
  tsr_size_split stages;                      /* virtual ones */
  int64_t recompute_every;                    /* blocks; 0 or 1: all alike */
  const char *fixed_blocks;                   /* why the number of blocks stays, or NULL */
} tsr_run_splits;

typedef enum {
  TSR_USE_SHAPE,   /* `expr` is a dimension */
  TSR_USE_TIMES,   /* `expr` counts repetitions */
  TSR_USE_WINDOW,  /* `expr` is the window of attention */
  TSR_USE_SPLIT,   /* `split` divides `expr` */
  TSR_USE_QUOTIENT /* `expr` is divided by `divisor`: a / b, a // b or a % b */
} tsr_size_use_kind;

typedef struct {
  tsr_size_use_kind kind;
  const tsr_expr *expr, *divisor;
  tsr_size_split split;
  int owner;    /* in the default of the size of this index; -1: elsewhere */
  bool is_size; /* the owner's default is this quotient a / b */
  bool rest;    /* a % b */
} tsr_size_use;

typedef struct {
  tsr_size_use *items;
  int count, capacity;
  int literal_tensors; /* parameters and inputs with a dimension that is written as a number */
} tsr_size_uses;

tsr_size_uses
tsr_size_uses_find(tsr_arena *arena, const tsr_graph_file *file, const tsr_run_splits *splits);

/* Calls `visit` for each name whose value is a factor or a summand of the expression: not for
 * divisors, conditions and indices, and not inside functions that round. */
typedef void tsr_name_visit(void *context, const char *name);
void tsr_size_names(const tsr_expr *expr, tsr_name_visit *visit, void *context);

#endif
