// SPDX-License-Identifier: Apache-2.0
/* Inside the placement pass: the graph that is being made, and what completes and moves its values.
 */
#ifndef TSR_PASSES_PLACER_H
#define TSR_PASSES_PLACER_H
#include "passes/passes.h"

/* Where in the step a node is put. */
typedef struct {
  tsr_section section;
  int stage, block;
} tsr_where;

/* Where the samples of a value lie that the file has moved over dp, or of what is made of it. */
typedef struct {
  const tsr_node *by; /* the last move; NULL: there is none */
  int dim;            /* -1: nowhere in particular */
} tsr_moved_samples;

typedef struct {
  const tsr_graph *old;
  tsr_graph *g;
  const tsr_placing *placing;
  tsr_diags *diags;
  int *map;                /* old value → new value */
  struct tsr_moved **done; /* per new value: the redistributions that exist */
  int done_capacity;
  bool has_slices;          /* tp may split activations that weights do not split */
  tsr_placement *plain_tp;  /* per old value: what it is over tp without those */
  tsr_moved_samples *moved; /* per old value, of a step of several microbatches */
  bool *of_batch;           /* per old value: whether it depends on an input */
  tsr_placement *wanted;    /* per old value: what ZeRO makes of a gradient over dp; else whole */
  const tsr_node *reader;   /* the old node whose inputs are being moved; NULL: none is */
  bool ok;
} tsr_placer;

static const tsr_placement tsr_whole = {TSR_REPLICATE, 0};

/* Whether an axis splits anything, or the recipe's units would let it. */
static inline bool tsr_placer_is_active(const tsr_placing *p, int axis) {
  bool samples = axis == TSR_DP && p->batch == TSR_BATCH_BY_SAMPLE;
  return samples || p->size[axis] > 1 || p->units[axis] > 1 ||
         (axis == TSR_TP && p->sequence_units > 1);
}
static inline bool tsr_placer_is_partial(const tsr_placer *p, int value, int axis) {
  return p->g->values[value].placement[axis].kind == TSR_PARTIAL;
}
/* Whether an axis splits the dimension that another one is to split. */
static inline bool
tsr_placer_is_split_alike(const tsr_placer *p, int value, int axis, tsr_placement to) {
  tsr_placement is = p->g->values[value].placement[axis];
  return to.kind == TSR_SHARD && is.kind == TSR_SHARD && is.dim == to.dim;
}

/* Whether the ranks of dp add to a sum over microbatches in turn, in each microbatch: in a flat
 * tree, where a unit is a microbatch. */
static inline bool tsr_placer_adds_in_turn(const tsr_placer *p) {
  return p->old->units.tree == TSR_TREE_FLAT && p->placing->size[TSR_DP] > 1 &&
         p->old->microbatches > 1;
}

/* Whether ZeRO scatters gradients of each microbatch before they are added up. */
static inline bool tsr_placer_scatters_first(const tsr_placer *p) {
  return p->placing->zero >= 2 && p->placing->size[TSR_DP] > 1 && !tsr_placer_adds_in_turn(p);
}

/* Ranks that have different samples. */
static inline int tsr_placer_batch_ranks(const tsr_placer *p) {
  return p->placing->size[TSR_DP] * p->placing->size[TSR_EP];
}

/* Of which the sums of one microbatch are made. Those of ep are dp's. */
static inline int64_t tsr_placer_units(const tsr_placer *p, int axis) {
  bool several = axis == TSR_DP && p->old->microbatches > 1;
  return p->placing->units[axis] / (several ? p->old->microbatches : 1);
}
/* An accumulation of the gradient of experts' weights that needs no node; false: it needs one. */
bool tsr_placer_accumulate_experts(tsr_placer *p, const tsr_node *sum, int value);
/* After a node: its sums over experts are where the tokens are. */
void tsr_placer_return_tokens(tsr_placer *p, const tsr_node *n);
/* Into how many parts an axis, and where units split it (tp, cp) those, split a dimension at
 * least. */
int64_t tsr_placer_parts(const tsr_placing *placing, int axis);
/* Errors, at the value's place: a dimension that does not divide, or that two axes split. */
void tsr_placer_check_divides(tsr_placer *p, const tsr_value *v);
/* Of the layers of experts: a rank's are not a subtree of the tree in which experts are added. */
void tsr_placer_check_added_experts(tsr_placer *p, const tsr_node *n, const int *inputs);

/* Where ZeRO keeps a parameter, its state and its gradient over dp (zero_placement.c). */
tsr_placement tsr_placer_zero(const tsr_placer *p, int param);

/* Errors of placement_checks.c: of a parameter's declaration; of a random op, whose result is `dp`
 * over dp; of a sum over microbatches; of attention; of a sum, whose result is `out`; of
 * a sum behind a move over dp that the file writes out. */
void tsr_placer_check_declared(tsr_placer *p, const tsr_value *v);
void tsr_placer_check_random(tsr_placer *p, const tsr_node *n, tsr_placement dp);
void tsr_placer_check_accumulated(tsr_placer *p, const tsr_node *n);
void tsr_placer_check_positions(tsr_placer *p, const tsr_node *n);
void tsr_placer_check_summed(
    tsr_placer *p, const tsr_node *n, const int *inputs, const tsr_placement *out);
/* Of a node whose rule gave these placements over pp. */
bool tsr_placer_check_sum_over_pp(
    tsr_placer *p, const tsr_node *n, const tsr_placement *in, tsr_placement out);
/* A move over dp that the file writes out, of a value that had this placement. */
void tsr_placer_note_moved(tsr_placer *p, const tsr_node *n, tsr_placement was);
void tsr_placer_check_moved(
    tsr_placer *p, const tsr_node *n, const int *inputs, const tsr_placement *out);

/* The value with that placement over the axis, on the stage where it is needed; made once. */
int tsr_placer_redistribute(tsr_placer *p, int value, int axis, tsr_placement to, tsr_where at);
/* The moves over an axis that stand for one that the file writes out have its transport: those that
 * made `value`, and the values of the new graph from `begin` on. */
void tsr_placer_keep_transport(tsr_placer *p, const tsr_node *written, int value, int begin);
/* The value with zeros behind the last index of a dimension whose size the axis's parts do not
 * divide, as many as make it divide; the value itself where they divide. Made once. */
int tsr_placer_pad(tsr_placer *p, int value, int axis, int dim, tsr_where at);
/* The sum over microbatches `sum` of a value that is partial over dp, complete over dp in each of
 * them: whole, or in the placement of ZeRO. */
int tsr_placer_accumulate(tsr_placer *p, int value, tsr_placement to, const tsr_node *sum);
/* Units that stand apart, added; of the batch, where cp has completed them. */
int tsr_placer_sum_units(tsr_placer *p, int value, tsr_where at);
int tsr_placer_sum_batch(tsr_placer *p, int value, tsr_where at);
/* The value on another stage of the pipeline. */
int tsr_placer_receive(tsr_placer *p, int value, tsr_where at);
/* A partial sum in half precision is stored in f32, and so is the output of ops that pass it on,
 * but where the recipe adds ranks of tp in half precision (partial_sums.c). */
void tsr_placer_store_partial(const tsr_placer *p, tsr_value *v);
/* Summands in f32 stay so; their sum is rounded once, so its bits do not depend on where they were.
 */
int tsr_placer_round_complete(tsr_placer *p, int value, tsr_where at);
bool tsr_placer_is_complete(const tsr_value *v);
/* Where a value is completed: where it is. */
tsr_where tsr_placer_home(const tsr_placer *p, int value, tsr_where at);

#endif
