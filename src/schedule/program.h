/* The program: the ordered list of tasks that every rank runs for one step, with buffer offsets. It
 * knows no device; all ranks run the same list and only their coords differ. */
#ifndef TSR_SCHEDULE_PROGRAM_H
#define TSR_SCHEDULE_PROGRAM_H
#include "graph/graph.h"

/* A rank's memory: one buffer a segment. The first five live as long as the run and are laid out in
 * the order of the graph's values; WORK is planned by lifetimes. */
typedef enum {
  TSR_SEGMENT_PARAM,
  TSR_SEGMENT_STATE,
  TSR_SEGMENT_CONST,
  TSR_SEGMENT_INPUT,
  TSR_SEGMENT_WORK,
  TSR_SEGMENTS
} tsr_segment;

/* What bytes in WORK are for, for the report. */
typedef enum {
  TSR_USE_ACTIVATION,
  TSR_USE_GRADIENT,
  TSR_USE_COMMUNICATION,
  TSR_USE_SCRATCH,
  TSR_USES
} tsr_use;

typedef struct {
  int value; /* of the graph */
  tsr_segment segment;
  int64_t offset; /* bytes, a multiple of 64 */
  int ndim;
  int64_t shape[TSR_DIMS_MAX]; /* local */
  int64_t units;               /* local summands that stand before `shape`; 0: none */
} tsr_tensor;

typedef struct {
  int node; /* of the graph */
  tsr_op op;
  tsr_section section;
  int inputs_count;
  tsr_tensor *inputs, outputs[TSR_OUTPUTS_MAX];
  int64_t units; /* equal pieces of the summed dimension, added by base/tree.h; 1: not split */
  int axis;      /* of a collective, else -1 */
  int64_t scratch_offset, scratch_bytes; /* in WORK, for this task alone */
} tsr_task;

typedef struct {
  int64_t size[TSR_AXES];
  int64_t batch_units; /* of one rank's microbatch */
  int64_t tp_units;    /* of one rank */
  int64_t microbatches;
} tsr_lowering;

typedef struct {
  const tsr_graph *graph;
  tsr_lowering lowering;
  tsr_task *tasks;
  int tasks_count, update_begin; /* tasks before it run once a microbatch */
  tsr_tensor *tensors;           /* per graph value */
  int64_t bytes[TSR_SEGMENTS];
  int64_t peak_bytes[TSR_USES]; /* of WORK at its fullest moment, fragmentation apart */
  int peak_task;
  int64_t unplanned_bytes; /* WORK without reuse, to show what the plan saves */
} tsr_program;

/* Bytes of private memory that a task needs on the device. */
typedef int64_t
tsr_scratch_rule(const tsr_task *task, const tsr_program *program, const void *context);

/* Turns a placed graph into a program: local shapes, tasks, units, then offsets (memory.c).
 * Collectives over an axis of size 1, and reshapes, become other names of the same bytes. */
tsr_program *tsr_program_make(
    const tsr_graph *graph, const tsr_lowering *lowering, tsr_scratch_rule *scratch,
    const void *context);

/* Gives every tensor of WORK an offset such that no two that are alive at once overlap. */
void tsr_program_plan_memory(tsr_program *program);

int64_t tsr_program_bytes(const tsr_program *program); /* of one rank, all segments */
int64_t tsr_tensor_elements(const tsr_tensor *tensor); /* local, units included */
bool tsr_op_is_collective(tsr_op op);
/* A node that needs no task: its output is its input's bytes under another name. */
bool tsr_program_is_alias(const tsr_program *program, int node);

/* --dump program and --dump memory */
void tsr_program_print(const tsr_program *program, tsr_text *text);
void tsr_program_print_memory(const tsr_program *program, tsr_text *text);

#endif
