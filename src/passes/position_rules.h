// SPDX-License-Identifier: Apache-2.0
/* Which nodes of a forward graph compute every position of a sequence by itself, as the placement
 * rules know: a graph whose positions are split, one to a part, needs no other part's numbers
 * there. So each node's rule is asked as if positions were split over an axis (cp). What it wants
 * split of the values that no position makes is a table by position, of which rows can be looked
 * up. Of the ops that want other positions too only attention is known here.
 *
 * Ops that read or write rows of experts compute every token by itself, whatever batch and position
 * it is of: their rules are asked as if samples were split, over dp, and a token were one. Rows of
 * experts are then in the place of positions. */
#ifndef TSR_PASSES_POSITION_RULES_H
#define TSR_PASSES_POSITION_RULES_H
#include "passes/passes.h"

typedef struct {
  const tsr_graph *g;
  int64_t length;  /* positions */
  int *dim;        /* per value: which dimension are positions, or rows of tokens; -1: none */
  bool adds;       /* a loss may add up positions, and a node may draw random numbers */
  const char *why; /* of a node that mixes positions: what it does */
} tsr_positions;

/* Nothing has positions yet: the caller sets `dim` of the inputs. */
tsr_positions tsr_positions_new(const tsr_graph *g, int64_t length);

/* What an input of a node is for the positions that the node computes. */
typedef enum {
  TSR_POSITIONS_KEPT,  /* as it is */
  TSR_POSITIONS_TABLE, /* a table (positions, features): each position's row */
  TSR_POSITIONS_ROPE   /* the table of a rope */
} tsr_position_input;

/* Whether a node computes positions; others are made of parameters alone. */
bool tsr_positions_has(const tsr_positions *p, const tsr_node *n);
/* What the inputs of such a node are, and which dimension of its outputs are positions. False where
 * it mixes positions; attention is taken as if it did not. */
bool tsr_positions_inputs(tsr_positions *p, const tsr_node *n, tsr_position_input *ret_inputs);
/* Sets `why`; returns false. `format` is of the node's description and one more text. */
bool tsr_positions_refuse(tsr_positions *p, const tsr_node *n, const char *what);
/* "linear 'q'" */
const char *tsr_positions_describe(const tsr_positions *p, const tsr_node *n);
/* Whether a node reads or writes rows of experts. */
bool tsr_positions_reads_rows(const tsr_node *n);

/* The table of which a value of TSR_POSITIONS_TABLE is the slice of the first dimension, from row
 * `ret_begin` on; or the value. */
int tsr_positions_table(const tsr_graph *g, int value, int64_t *ret_begin);

#endif
