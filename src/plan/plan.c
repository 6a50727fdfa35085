#include "plan/plan.h"
#include "graph/infer.h"
#include <string.h>

static tsr_traffic *find_traffic(tsr_plan *plan, const char *op, int axis) {
  for (int i = 0; i < plan->traffic_count; i++)
    if (!strcmp(plan->traffic[i].op, op) && plan->traffic[i].axis == axis) return &plan->traffic[i];
  tsr_traffic *t = &plan->traffic[plan->traffic_count++];
  *t = (tsr_traffic){.op = op, .axis = axis};
  return t;
}

/* What one member sends: an all-reduce is a reduce-scatter and an all-gather. */
static int64_t wire_bytes(const tsr_task *t, int64_t members) {
  int64_t in = tsr_tensor_elements(&t->inputs[0]) * 4,
          out = tsr_tensor_elements(&t->outputs[0]) * 4;
  switch ((int)t->op) {
  case TSR_OP_ALL_REDUCE:
    return 2 * in * (members - 1) / members;
  case TSR_OP_ALL_GATHER:
    return out * (members - 1) / members;
  default:
    return in * (members - 1) / members;
  }
}

void tsr_plan_make(const tsr_program *program, tsr_plan *plan) {
  *plan = (tsr_plan){0};
  for (int i = 0; i < program->graph->params_count; i++) {
    const tsr_param *p = &program->graph->params[i];
    int64_t n = p->valid0;
    for (int d = 1; d < p->ndim; d++) n *= p->shape[d];
    plan->parameters += n;
  }
  for (int i = 0; i < program->tasks_count; i++) {
    const tsr_task *t = &program->tasks[i];
    int64_t times = tsr_program_times(program, i);
    plan->flops += tsr_task_flops(t) * (double)times;
    if (!tsr_op_is_collective(t->op)) continue;
    tsr_traffic *traffic = find_traffic(plan, tsr_op_name(t->op), t->axis);
    traffic->count += times;
    traffic->elements_bytes += times * tsr_tensor_elements(&t->inputs[0]) * 4;
    traffic->wire_bytes += times * wire_bytes(t, program->lowering.size[t->axis]);
  }
}

static void print_row(tsr_text *text, const char *what, int64_t bytes) {
  tsr_text_add(text, "  %-20s %22s  %10s\n", what, tsr_text_count(bytes), tsr_text_bytes(bytes));
}

/* WORK holds by turns what its kinds need; shown is the moment when it holds the most. */
static void print_fullest(const tsr_program *p, tsr_text *text) {
  static const char *const kinds[TSR_USES] = {
      "activations", "gradients", "communication", "scratch"};
  int64_t resident = 0;
  for (int u = 0; u < TSR_USES; u++) resident += p->peak_bytes[u];
  if (!p->tasks_count) return;
  tsr_text_add(
      text, "work at its fullest, task %d of %d, %s:\n", p->peak_task, p->tasks_count,
      p->graph->nodes[p->tasks[p->peak_task].node].name);
  for (int u = 0; u < TSR_USES; u++) print_row(text, kinds[u], p->peak_bytes[u]);
  print_row(text, "gaps", p->bytes[TSR_SEGMENT_WORK] - resident);
}

void tsr_plan_print(
    const tsr_plan *plan, const tsr_program *program, const tsr_parallel *parallel,
    tsr_text *text) {
  tsr_text_add(text, "parameters: %s\n", tsr_text_count(plan->parameters));
  if (parallel->ranks == 1) tsr_text_add(text, "memory of the one rank, bytes:\n");
  else tsr_text_add(text, "memory of each of %s ranks, bytes:\n", tsr_text_count(parallel->ranks));
  print_row(text, "parameters", program->bytes[TSR_SEGMENT_PARAM]);
  print_row(text, "optimizer state", program->bytes[TSR_SEGMENT_STATE]);
  print_row(
      text, "constants and inputs",
      program->bytes[TSR_SEGMENT_CONST] + program->bytes[TSR_SEGMENT_INPUT]);
  print_row(text, "work", program->bytes[TSR_SEGMENT_WORK]);
  print_row(text, "total", tsr_program_bytes(program));
  print_fullest(program, text);
  tsr_text_add(text, "work of each rank and step: %.4g FLOP\n", plan->flops);
  tsr_text_add(text, "collectives of each rank and step:%s\n", plan->traffic_count ? "" : " none");
  for (int i = 0; i < plan->traffic_count; i++) {
    const tsr_traffic *t = &plan->traffic[i];
    tsr_text_add(
        text, "  %-14s over %s  %6s times  %20s bytes, %s sent\n", t->op, tsr_axis_name(t->axis),
        tsr_text_count(t->count), tsr_text_count(t->elements_bytes), tsr_text_bytes(t->wire_bytes));
  }
}
