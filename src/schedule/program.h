// SPDX-License-Identifier: Apache-2.0
/* The program: what the ranks of one stage of the pipeline do in a step, as lists of tasks with
 * buffer offsets, and the order in which the lists run. It knows no device; all ranks of a stage
 * run the same program and only their coords differ. What one rank owns (TSR_OWNED) has bytes on
 * that rank alone, and tasks whose results are owned run on the owner alone. */
#ifndef TSR_SCHEDULE_PROGRAM_H
#define TSR_SCHEDULE_PROGRAM_H
#include "base/quantized_layout.h"
#include "base/sequence_layout.h"
#include "base/tensor_slice.h"
#include "graph/graph.h"
#include "schedule/expert_rows.h"
#include "schedule/fp8_operands.h"
#include "schedule/norm_pieces.h"
#include "schedule/pipeline.h"
#include "schedule/row_tiles.h"
#include "schedule/sum_order.h"

/* A rank's memory: one buffer a segment. The first four are laid out in the order of the graph's
 * values, CACHE (what TSR_FACT_KEPT keeps) in that of its nodes; WORK is planned by lifetimes.
 * HOST is in the host's memory and has what is copied there (offload.h), in slot groups alone. */
typedef enum {
  TSR_SEGMENT_PARAM,
  TSR_SEGMENT_STATE,
  TSR_SEGMENT_CONST,
  TSR_SEGMENT_INPUT,
  TSR_SEGMENT_CACHE,
  TSR_SEGMENT_WORK,
  TSR_SEGMENT_HOST,
  TSR_SEGMENTS,
  TSR_SEGMENT_ABSENT = TSR_SEGMENTS /* of a value that this stage does not hold */
} tsr_segment;

/* What bytes in WORK are for, for the report. */
typedef enum {
  TSR_USE_ACTIVATION,
  TSR_USE_GRADIENT,
  TSR_USE_COMMUNICATION,
  TSR_USE_SCRATCH,
  TSR_USES
} tsr_use;

/* Values that live from one action of the pipeline schedule to another one have a place for every
 * microbatch that is alive at once: `slots` blocks of `bytes`, one after the other. Where chunks
 * keep the same kind of thing, their slot groups have one size and share their slots: `slots` is
 * then how many microbatches of all these chunks are alive at once. */
typedef struct {
  uint64_t parts;  /* that write or read it: bit 3 * chunk + action kind */
  int lag;         /* > 0: it lives until the last of them for the microbatch that much later */
  uint64_t chunks; /* that keep the same for each of their microbatches, as bits; 0: no other one */
  int pool;        /* the first slot group that has these slots */
  tsr_segment segment;
  int64_t offset, bytes; /* of the first slot; of one */
  int slots;
  int *slot_of; /* per microbatch */
} tsr_slot_group;

typedef struct {
  int value; /* of the graph */
  tsr_dtype dtype;
  tsr_segment segment;
  int slot_group; /* index into the program's slot groups, or -1 */
  int64_t offset; /* bytes, a multiple of 64; in a slot group, of its first slot */
  int ndim;
  int64_t shape[TSR_DIMS_MAX]; /* local */
  int64_t units;               /* local summands that stand before `shape`; 0: none */
  int64_t unit_shape[2];       /* of NF4: of what is quantised as a matrix of its own */
} tsr_tensor;

/* Tasks that one kernel computes together (fuse.h). */
typedef enum {
  TSR_FUSED_NONE,
  TSR_FUSED_EPILOGUE,
  TSR_FUSED_LINEAR_CROSS_ENTROPY,
  TSR_FUSED_LOGITS_GRADIENT,
  TSR_FUSED_SUM_NORM,
  TSR_FUSED_NORM_DX_SUM,
  TSR_FUSED_EMBEDDING_DW_SUM,
  TSR_FUSED_GEMMS,
  TSR_FUSED_UPDATES,
  TSR_FUSED_NORMS,
  TSR_FUSED_CASTS,
  TSR_FUSED_FORMS
} tsr_fused_form;

typedef struct tsr_task {
  int node; /* of the graph; of a send or a wait the receive node; of a fused task its base */
  tsr_op op;
  tsr_section section;
  int inputs_count, outputs_count;
  tsr_tensor *inputs, *outputs;
  tsr_reduction sum;              /* how what the task sums is made of the recipe's units */
  const tsr_norm_pieces *norm;    /* of norm_stats, per node: of what its norm is made; else NULL */
  const tsr_expert_rows *experts; /* of a task on rows of experts; else NULL */
  const tsr_fp8_operands *fp8;    /* how it quantises its operands to FP8; NULL: it does not */
  int axis;                       /* of a collective, else -1 */
  int lag;    /* of a wait: it is for the microbatch so many before; TSR_WAIT_ALL */
  int bucket; /* > 0: a collective or a copy to or from the host that only begins here, and the wait
                 for it; those of one number follow each other and move together */
  bool last_only; /* of a task of the body: only the last microbatch runs it */
  tsr_fused_form fused;
  int nodes_count, *nodes;  /* of a fused task: all that it covers, in graph order */
  struct tsr_task *covered; /* of a linear_cross_entropy or logits_gradient: its nodes' own tasks,
                               whose operands have no memory where they are elided; else NULL */
  tsr_row_tiles tiles;      /* of a linear_cross_entropy */
  tsr_row_calls calls;      /* of a classifier's GEMM, where bits depend on a call's rows */
  const int *values;        /* what the inputs are; NULL: what the node's are */
  const int *results;       /* what the outputs are; NULL: what the node's are */
  bool on_host; /* the target has no kernel for it: the host runs `host`, and it has no scratch */
  const struct tsr_host_task *host;
  /* Where the kernel computes in another type than an operand has: the inputs and the outputs as it
   * reads and writes them, some of them copies in front of the scratch, cast before or after. NULL:
   * they are the task's. */
  tsr_tensor *kernel_inputs, *kernel_outputs;
  int64_t cast_bytes;                    /* of such copies */
  int64_t scratch_offset, scratch_bytes; /* in WORK, for this task alone; with the copies */
} tsr_task;

/* Bytes of a task's operands that are copied to the host before it runs there, or back behind it.
 */
typedef struct {
  tsr_tensor tensor; /* in the device's memory */
  int64_t offset;    /* in the host's WORK */
  int64_t bytes;
  bool in, out;
} tsr_host_copy;

/* A task that the host runs for a device with memory of its own (host_tasks.h). */
typedef struct tsr_host_task {
  tsr_task
      task; /* with operands and scratch in the host's WORK; state that is in a file in STATE */
  tsr_host_copy *copies;
  int copies_count;
  int64_t bytes; /* of WORK */
} tsr_host_task;

static inline const tsr_tensor *tsr_kernel_inputs(const tsr_task *t) {
  return t->kernel_inputs ? t->kernel_inputs : t->inputs;
}
static inline const tsr_tensor *tsr_kernel_outputs(const tsr_task *t) {
  return t->kernel_outputs ? t->kernel_outputs : t->outputs;
}

/* How many graph nodes a task covers. */
static inline int tsr_task_nodes(const tsr_task *t) { return t->fused ? t->nodes_count : 1; }

/* Whether a task reads or writes an optimizer's state. */
static inline bool tsr_task_has_state(const tsr_task *t) {
  for (int i = 0; i < t->inputs_count; i++)
    if (t->inputs[i].segment == TSR_SEGMENT_STATE) return true;
  for (int i = 0; i < t->outputs_count; i++)
    if (t->outputs[i].segment == TSR_SEGMENT_STATE) return true;
  return false;
}
enum { TSR_WAIT_ALL = -1 };

/* Tasks [begin, end) are one section of one chunk; chunk 0 of prologue and update is all there is.
 */
typedef struct {
  tsr_section section;
  int chunk, begin, end;
} tsr_part;

/* A step is these, one after the other. */
typedef struct {
  int part, microbatch; /* microbatch: 0 for the prologue, the last one for the update */
} tsr_run;

typedef struct {
  int64_t size[TSR_AXES];
  int64_t batch_units;    /* of one rank's microbatch; ranks of dp and ep have different ones */
  int64_t tp_units;       /* of one rank */
  int64_t sequence_units; /* of one rank's positions; 0 or 1: they are not split */
  bool zigzag;            /* over cp (base/sequence_layout.h) */
  int64_t expert_leaves;  /* of a step's gradient of experts, all of dp; 1 without */
  int64_t microbatches;
  tsr_tree_shape tree;   /* of every sum of units; flat: batch_units is 1 */
  bool overlap;          /* collectives over dp run beside other tasks */
  int64_t bucket_bytes;  /* of which so many bytes begin together */
  bool microbatch_first; /* a step's samples go to microbatches first, then to dp's ranks; those of
                            ep always share the samples of a microbatch out */
} tsr_lowering;

/* Bytes of WORK, and the tasks of the memory plan's order from the first to the last of which they
 * are taken: of a value, or of one task's scratch. A value that takes over the bytes of another one
 * begins with the task that writes it, and the other one ends before. A value of a slot group has
 * `slots` pieces of memory, `stride` bytes apart. What is taken at once on one rank has different
 * bytes. */
typedef struct {
  int value; /* -1: scratch */
  tsr_use use;
  int holders; /* 0: every rank; else the place of its owner in the group of dp, from 1 */
  int slots;   /* 1 of others */
  int64_t offset, bytes, stride; /* of the first slot; of one */
  int first, last;               /* indices of plan_order */
} tsr_work_piece;

typedef struct {
  const tsr_graph *graph;
  tsr_lowering lowering;
  const tsr_pipeline *pipeline;
  int stage;
  const int *chunk_of; /* per virtual stage: which chunk of this stage it is, or -1 */
  tsr_task *tasks;
  int tasks_count;
  tsr_part *parts;
  int parts_count;
  tsr_run *runs;
  int runs_count;
  tsr_slot_group *slot_groups;
  int slot_groups_count;
  const int *readers;  /* per graph value: how many inputs of nodes, outputs of the graph */
  tsr_tensor *tensors; /* per graph value; TSR_SEGMENT_ABSENT where this stage has none */
  const int *nodes;    /* of the graph, in its order: those that this stage runs */
  int nodes_count;
  const int *values; /* of the graph, in its order: those of which this stage has a tensor */
  int values_count;
  int64_t bytes[TSR_SEGMENTS];
  int64_t host_bytes;           /* of the host's memory, for the tasks that it runs for a device */
  int64_t peak_bytes[TSR_USES]; /* of WORK at its fullest moment, fragmentation apart */
  int peak_task;
  int peak_holders;      /* whose pieces the peak has beside those of every rank; 0: nobody's */
  const int *plan_order; /* the tasks, in the order in which memory is planned */
  const tsr_work_piece *pieces; /* by the first task, then by the offset */
  int pieces_count;
  int64_t unplanned_bytes; /* WORK without reuse, to show what the plan saves */
} tsr_program;

/* What a mesh runs: a program for each stage of the pipeline. */
typedef struct {
  const tsr_graph *graph;
  const tsr_pipeline *pipeline;
  tsr_program **of_stage; /* pipeline->stages of them */
} tsr_programs;

struct tsr_target;
/* Turns each stage's part of a placed graph into a program: local shapes, tasks, units, then
 * offsets (memory_plan.c). Collectives over an axis of size 1, and reshapes, become other names of
 * the same bytes. The schedule's microbatches are the lowering's. `target`: what the programs are
 * for (target.h). */
tsr_programs tsr_programs_make(
    const tsr_graph *graph, const tsr_lowering *lowering, const tsr_pipeline *pipeline,
    const struct tsr_target *target);

/* The values of a task's operands. */
int tsr_task_input(const tsr_program *program, const tsr_task *task, int index);
int tsr_task_output(const tsr_program *program, const tsr_task *task, int index);
/* The input that a task reads for its shape alone, or -1; a fused task has none of these. */
static inline int tsr_task_shape_input(const tsr_task *t) {
  return t->fused ? -1 : tsr_op_shape_input(t->op, t->inputs_count);
}

/* Gives every tensor of WORK an offset such that no two that are alive at once overlap. */
void tsr_program_plan_memory(tsr_program *program);

/* Of one rank's memory on the device: all segments but HOST. */
int64_t tsr_program_bytes(const tsr_program *program);
int64_t tsr_tensor_elements(const tsr_tensor *tensor); /* local, units included */
int64_t tsr_tensor_bytes(const tsr_tensor *tensor);
/* Of a tensor in NF4. */
tsr_quantized_layout tsr_tensor_quantized_layout(const tsr_tensor *tensor);
/* The part of a whole tensor that a rank of these coordinates holds; of the sequence over cp in
 * zigzag layout only its place among the members' parts (base/sequence_layout.h). */
tsr_tensor_slice tsr_program_slice(const tsr_program *program, int value, const int *coord);
/* Whether a rank of these coordinates holds (a part of) the value, if its stage does. */
bool tsr_program_holds(const tsr_program *program, int value, const int *coord);
/* Whether a rank of these coordinates runs a task: where it holds what the task writes, or of a
 * task without outputs the first input. All members of a collective's group run it. */
bool tsr_task_runs_on(const tsr_program *program, const tsr_task *task, const int *coord);
/* One of so many ranks runs a task; 1: all of its stage do. */
int64_t tsr_task_ranks_apart(const tsr_program *program, const tsr_task *task);
bool tsr_op_is_collective(tsr_op op);
/* How often a step runs a task. */
int64_t tsr_program_times(const tsr_program *program, int task);
/* The value whose bytes a task's first output is: it adds to them (TSR_FACT_ADDS), or it is an
 * all-reduce of what no other task reads; -1: its output has its own bytes. */
int tsr_program_in_place(const tsr_program *program, int node);
/* A node that needs no task: its output is its input's bytes under another name. */
bool tsr_program_is_alias(const tsr_program *program, int node);
/* Per value of the graph: the value whose bytes it names, which is itself unless an alias makes it.
 */
int *tsr_program_roots(const tsr_program *program, tsr_arena *arena);
/* Whether an input is written when a part begins: at every forward pass of a chunk that needs it.
 */
bool tsr_program_fills(const tsr_program *program, int part, int input);
/* Whether this stage runs a virtual stage, and as which of its chunks (0 of TSR_EVERY_STAGE). */
static inline bool tsr_program_has_stage(const tsr_program *p, int virtual_stage, int *ret_chunk) {
  *ret_chunk = virtual_stage == TSR_EVERY_STAGE ? 0 : p->chunk_of[virtual_stage];
  return *ret_chunk >= 0;
}
/* Whether this stage runs a node. */
static inline bool tsr_program_has_node(const tsr_program *p, int node) {
  int chunk;
  return tsr_program_has_stage(p, p->graph->nodes[node].stage, &chunk);
}

/* The record of a node's sum on each rank (schedule/sum_order.h), and of a gradient's norm. */
tsr_reduction tsr_reduction_of(const tsr_program *program, int node);
const tsr_norm_pieces *tsr_norm_pieces_of(const tsr_program *program, int node);
/* Of a node on rows of experts, else NULL. */
const tsr_expert_rows *tsr_expert_rows_of(const tsr_program *program, int node);
/* Of a task that quantises its operands to FP8, else NULL; its sum and experts are set. */
const tsr_fp8_operands *tsr_fp8_operands_of(const tsr_program *program, const tsr_task *task);
/* A rank's experts, and its room for their rows. */
int64_t tsr_lowering_experts_here(const tsr_lowering *lowering, const tsr_value *rows);
int64_t tsr_lowering_expert_rows(const tsr_lowering *lowering, const tsr_value *rows);
/* The stack entries, each of a tensor's bytes, that a sum over microbatches has; 1: of others. */
int64_t tsr_program_stack_entries(const tsr_program *program, int value);

/* Where a tensor lies in its segment for a microbatch. */
static inline int64_t
tsr_tensor_offset(const tsr_program *p, const tsr_tensor *t, int64_t microbatch) {
  if (t->slot_group < 0) return t->offset;
  const tsr_slot_group *f = &p->slot_groups[t->slot_group];
  return t->offset + f->bytes * f->slot_of[microbatch];
}

/* Whether cp splits a dimension in zigzag order: positions it does, experts it does not. */
static inline bool tsr_lowering_is_zigzag(const tsr_lowering *l, const tsr_value *v, int dim) {
  tsr_placement cp = v->placement[TSR_CP];
  return l->zigzag && l->size[TSR_CP] > 1 && cp.kind == TSR_SHARD && cp.dim == dim &&
         !(dim == 0 && tsr_routed_is_weights(v->routed));
}

/* The ranks of tp that share a member of cp's positions, each with a run of `local` of them. */
static inline int tsr_lowering_inner_ranks(const tsr_lowering *l, const tsr_value *v, int dim) {
  tsr_placement tp = v->placement[TSR_TP];
  return tp.kind == TSR_SHARD && tp.dim == dim ? l->size[TSR_TP] : 1;
}

/* In zigzag order the position, in the whole sequence, of the i-th of a part's `local`. */
static inline int64_t tsr_lowering_zigzag_position(
    const tsr_lowering *l, const tsr_value *v, int dim, const int *coord, int64_t local,
    int64_t i) {
  int inner = tsr_lowering_inner_ranks(l, v, dim);
  int64_t first = inner > 1 ? coord[TSR_TP] * local : 0;
  return tsr_sequence_position(true, l->size[TSR_CP], coord[TSR_CP], inner * local, first + i);
}

/* Ranks that have different samples. */
static inline int64_t tsr_lowering_batch_ranks(const tsr_lowering *l) {
  return l->size[TSR_DP] * l->size[TSR_EP];
}

/* Of a step's samples, which lie along a dimension of the value, the first that a rank's part of a
 * microbatch holds; `offset` is where the part begins in the microbatch, `local` its size. */
static inline int64_t tsr_sample_offset(
    const tsr_lowering *l, const tsr_value *v, int dim, int64_t offset, int64_t local,
    int64_t microbatch) {
  tsr_placement ep = v->placement[TSR_EP];
  bool shared = ep.kind == TSR_SHARD && ep.dim == dim; /* by the ranks of ep */
  int64_t of_dp = shared ? local * l->size[TSR_EP] : local;
  if (l->microbatch_first) return microbatch * v->shape[dim] + offset;
  return offset / of_dp * of_dp * l->microbatches + microbatch * of_dp + offset % of_dp;
}

/* "linear", "linear+add+gelu", "12 adamw" */
typedef struct {
  char text[64];
} tsr_task_name;
tsr_task_name tsr_task_op_name(const tsr_program *program, const tsr_task *task);

/* --dump program and --dump memory */
void tsr_program_print(const tsr_program *program, tsr_text *text);
void tsr_program_print_memory(const tsr_program *program, tsr_text *text);

#endif
