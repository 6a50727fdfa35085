// SPDX-License-Identifier: Apache-2.0
/* What the tests of the core share: graphs written as short texts, a mesh made by hand, and a
 * process that trains on numbers that are a function of an input's name, the sample and the
 * element.
 */
#ifndef TSR_TESTS_HARNESS_H
#define TSR_TESTS_HARNESS_H
#include "passes/passes.h"
#include "schedule/target.h"
#include "runtime/process.h"

/* "x 4,3,5" as an input, "t 4,3 tokens" as one that holds tokens. */
int harness_input(tsr_graph *g, const char *text);
/* "w 8,4" as a parameter; "w 8,4 0" is split over tp along dimension 0; "w 8,4,6 experts" is of
 * experts, which ep shares out, and "w 8,4,6 experts 0" is split over tp too. First values are normal
 * with deviation 0.5; vectors (one dimension) are decayed no more than norms and biases are. */
int harness_param(tsr_graph *g, const char *text);
/* "y: linear(x, w, b)": as a graph file writes it, names as the values have them. The first result.
 * Prints the errors and ends the process when the call is wrong. */
int harness_call(tsr_graph *g, const char *text);
/* The same, for calls that are expected to fail; places count columns of the text in line 1. */
bool harness_try(tsr_graph *g, const char *text, int *ret_value, tsr_diags *diags);
/* Several of them, separated by newlines or ';'. */
void harness_inputs(tsr_graph *g, const char *text);
void harness_params(tsr_graph *g, const char *text);
void harness_calls(tsr_graph *g, const char *text);
int harness_find(const tsr_graph *g, const char *name);
/* The text with numbers for $B and $T: samples of a microbatch, and positions. */
const char *harness_sized(tsr_arena *arena, const char *text, int64_t batch, int64_t sequence);

/* Every order of a pipeline, and with how many chunks a stage. */
typedef struct {
  tsr_pipeline_kind kind;
  int chunks;
} harness_order;
enum { HARNESS_ORDERS = 5 };
extern const harness_order harness_orders[HARNESS_ORDERS];

/* An optimizer that clips to that norm. */
#define HARNESS_ADAMW(clip)                                                                        \
  {                                                                                                \
    .kind = TSR_RULE_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1,        \
    .clip_max_norm = (clip)                                                                        \
  }

/* A mesh of pp × dp × ep × cp × tp ranks, row-major, pp outermost; 0 counts as 1. */
tsr_parallel harness_parallel(int pp, int dp, int ep, int cp, int tp);

typedef struct {
  int dp, tp, threads;
  int ep, cp; /* 0: 1 */
  bool zigzag;
  int pp, chunks;             /* 0: 1. The forward nodes are split into runs of equal number */
  tsr_pipeline_kind pipeline; /* of a pipeline */
  int zero, zero_groups;      /* ZeRO's stage; groups of dp that each shard for themselves */
  bool zero_owners;           /* a parameter has an owner */
  tsr_recomputing recompute;
  bool overlap;
  bool offload;           /* of activations of any size */
  int64_t offload_blocks; /* of each virtual stage; 0: all */
  tsr_dtype precision;    /* what is computed is stored in; parameters by optimizer.store */
  bool tp_in_half;        /* tsr_units; whoever makes the graph sets it there */
  float loss_scale;       /* of fp16; 0: 1 */
  int64_t microbatches, batch_units, tp_units;
  tsr_tree_shape tree;
  int64_t sequence_units; /* 0: positions are not split */
  int64_t expert_units;   /* 0: those of the graph */
  bool sequence_parallel;
  const tsr_optimizer *optimizer; /* NULL: none; then gradients become outputs d.<param> */
  int vocabulary;                 /* tokens are below it */
  bool ignore_some;               /* every fifth target is -100 */
} harness_options;

typedef struct {
  harness_options options;
  tsr_graph *graph, *placed;
  tsr_parallel parallel;
  tsr_cpu_context cpu;
  tsr_programs programs;
  tsr_process *process;
  tsr_executable *executable;
} harness;

enum { HARNESS_SEED = 1234 };

/* Where the ranks of all of a program's tests compute, and what a task needs there; NULL: the
 * CPU. */
extern const tsr_device *harness_device;
/* Without functions: the CPU's; where it has `fuses`, with those, its epilogues, its exact and its
 * tile_rows. */
extern tsr_target harness_target;
tsr_target harness_target_on(const tsr_cpu_context *cpu);

/* The forward graph through the passes to a program; false with diags printed to the caller's. */
bool harness_compile(tsr_graph *g, const harness_options *options, harness *ret, tsr_diags *diags);
/* The same, then memory and threads. Ends the process on errors. */
harness harness_open(tsr_arena *arena, tsr_graph *g, const harness_options *options);
void harness_close(harness *h);
/* One whole step: every microbatch, then the update. */
void harness_step(harness *h, int64_t step);
/* The step_scalars numbers of a step; INV_COUNT counts what `inv_count` was set to count. */
void harness_step_scalars(const harness *h, int64_t step, float step_scalars[TSR_SCALARS]);
/* An output or a parameter by name, whole; in `arena`. */
float *harness_read(tsr_arena *arena, const harness *h, const char *name, int64_t *ret_count);
float *harness_read_param(tsr_arena *arena, const harness *h, int param, int64_t *ret_count);

/* Numbers of a run that must be equal to those of another one, one after the other. */
typedef struct {
  float *data;
  int64_t count;
} harness_trace;
void harness_keep(tsr_arena *arena, harness_trace *trace, const float *data, int64_t count);
void harness_keep_weights(tsr_arena *arena, const harness *h, harness_trace *trace);

/* What input `name` holds: element i of a sample; tokens as integers. */
double
harness_number(const harness_options *o, const char *name, bool tokens, int64_t sample, int64_t i);

#endif
