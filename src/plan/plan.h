// SPDX-License-Identifier: Apache-2.0
/* What a program costs on a mesh, without devices: memory, work and traffic per rank and step. */
#ifndef TSR_PLAN_PLAN_H
#define TSR_PLAN_PLAN_H
#include "parallel/parallel.h"
#include "plan/machine.h"
#include "schedule/program.h"

typedef struct {
  const char *op; /* all_reduce, …, send */
  int axis;
  int64_t count, elements_bytes,
      wire_bytes; /* per step of one rank; wire: sent by one rank, ring or tree alike */
} tsr_traffic;

enum { TSR_TRAFFIC_MAX = 8 * TSR_AXES };
typedef struct {
  int64_t parameters; /* unsharded, padding left out */
  double flops;       /* of one rank's step */
  tsr_traffic traffic[TSR_TRAFFIC_MAX];
  int traffic_count;
} tsr_plan;

void tsr_plan_make(const tsr_program *program, tsr_plan *ret_plan);
/* The coordinates of the first rank of those that own the most parameters and state: of ZeRO's
 * owners plans show that one. */
void tsr_plan_find_fullest(const tsr_program *program, int ret_coord[TSR_AXES]);
/* How often one rank runs a task in a step: tasks for the last microbatch alone, once. */
int64_t tsr_task_times(const tsr_program *program, int task);
/* Floating-point operations of one task on one rank, by the rule of ops.def's cost column; of a
 * fused task those of all its nodes. */
double tsr_task_flops(const tsr_program *program, const tsr_task *task);
/* The share of a sequence's pairs of query and key that attention of these attributes sees. */
double tsr_attention_share(const tsr_attention_attrs *attr, double length);
/* With the bytes that it reads and writes, and the times that it calls its kernel: a product once
 * for each unit of its sum, attention for each head of a sample, other ops for each row. Of
 * attention the flops are the share that is not masked. */
tsr_machine_work tsr_task_work(const tsr_program *program, const tsr_task *task);
/* A matrix product, forward or backward. */
bool tsr_task_is_product(const tsr_task *task);

/* The same of a node before placement, whole; and the bytes that its outputs are. */
double tsr_node_flops(const tsr_graph *graph, int node);
double tsr_node_bytes(const tsr_graph *graph, int node);

/* The work of a step's model, however it is computed, in a graph before placement: the forward
 * pass's products and attention, of which causal attention counts by its half, times three where
 * the graph has a loss (the backward pass makes two gradients of each product, and one where the
 * weight is frozen). What is computed again does not count. */
typedef struct {
  double products, attention; /* flops of all microbatches, of the backward pass too */
  double forward;             /* products of the forward pass */
} tsr_model_work;
tsr_model_work tsr_model_work_of(const tsr_graph *graph, int64_t microbatches);

/* Bytes of each rank of a stage: parameters and state of the first of `programs`, the largest cache
 * and work segments of any, constants and inputs of each. That is what tsr_process_open allocates
 * for them. */
typedef struct {
  int64_t parameters, state, sources /* constants and inputs */, cache, work, total;
  int64_t on_host;            /* activations in the host's memory, which the total leaves out */
  const tsr_program *fullest; /* whose work segment is the largest */
} tsr_memory;
void tsr_memory_of(const tsr_programs *programs, int count, int stage, tsr_memory *ret_memory);

/* The report of `check`: memory by kind, work, collectives. Of several stages memory as a table,
 * work and collectives of the stage that has the most to do. */
void tsr_plan_print(
    const tsr_programs *programs, int count, const tsr_parallel *parallel, tsr_text *text);
/* How many parameters are trained and frozen, and their bytes, of all ranks without replicas;
 * nothing where all are trained. */
void tsr_plan_print_trained(const tsr_graph *graph, tsr_text *text);
/* That table: a row for each stage; neighbours that are alike share one. */
void tsr_memory_print(const tsr_programs *programs, int count, tsr_text *text);

#endif
