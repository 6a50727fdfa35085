/* What a program costs on a mesh, without devices: memory, work and traffic per rank and step. */
#ifndef TSR_PLAN_PLAN_H
#define TSR_PLAN_PLAN_H
#include "parallel/parallel.h"
#include "schedule/program.h"

typedef struct {
  const char *op; /* all_reduce, … */
  int axis;
  int64_t count, elements_bytes,
      wire_bytes; /* per step of one rank; wire: sent by one rank, ring or tree alike */
} tsr_traffic;

typedef struct {
  int64_t parameters; /* unsharded, padding left out */
  double flops;       /* of one rank's step */
  tsr_traffic traffic[4 * TSR_AXES];
  int traffic_count;
} tsr_plan;

void tsr_plan_make(const tsr_program *program, tsr_plan *ret_plan);
/* Floating-point operations of one task on one rank, by the rule of ops.def's cost column. */
double tsr_task_flops(const tsr_task *task);

/* The same of a node before placement, whole; and the bytes that its outputs are. */
double tsr_node_flops(const tsr_graph *graph, int node);
double tsr_node_bytes(const tsr_graph *graph, int node);

/* The report of `check`: memory by kind, work, collectives. */
void tsr_plan_print(
    const tsr_plan *plan, const tsr_program *program, const tsr_parallel *parallel, tsr_text *text);

#endif
