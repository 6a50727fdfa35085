// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"
#include "plan/expert_room.h"
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
  int64_t in = tsr_tensor_bytes(&t->inputs[0]);
  switch ((int)t->op) {
  case TSR_OP_SEND:
  case TSR_OP_RING_SHIFT:
  case TSR_OP_BROADCAST:
    return in;
  case TSR_OP_ALL_REDUCE:
    return 2 * in * (members - 1) / members;
  case TSR_OP_ALL_GATHER:
    return tsr_tensor_bytes(&t->outputs[0]) - in;
  default:
    return in * (members - 1) / members;
  }
}

int64_t tsr_task_times(const tsr_program *program, int task) {
  return program->tasks[task].last_only ? 1 : tsr_program_times(program, task);
}

void tsr_plan_find_fullest(const tsr_program *program, int ret_coord[TSR_AXES]) {
  const tsr_graph *g = program->graph;
  int64_t ranks = program->lowering.size[TSR_DP];
  int64_t *bytes = tsr_arena_array(g->arena, int64_t, ranks);
  int coord[TSR_AXES] = {0}, *dp = &coord[TSR_DP], fullest = 0;
  for (int v = 0; v < g->values_count; v++) {
    bool is_kept = g->values[v].kind == TSR_VALUE_PARAM || g->values[v].kind == TSR_VALUE_STATE;
    if (!is_kept || program->tensors[v].segment == TSR_SEGMENT_ABSENT) continue;
    if (g->values[v].placement[TSR_DP].kind != TSR_OWNED) continue; /* all have as much of it */
    int64_t size = tsr_tensor_bytes(&program->tensors[v]);
    for (*dp = 0; *dp < ranks; (*dp)++)
      if (tsr_program_holds(program, v, coord)) bytes[*dp] += size;
  }
  for (int i = 1; i < ranks; i++)
    if (bytes[i] > bytes[fullest]) fullest = i;
  memset(ret_coord, 0, sizeof coord);
  ret_coord[TSR_DP] = fullest;
}

void tsr_plan_make(const tsr_program *program, tsr_plan *plan) {
  int coord[TSR_AXES];
  *plan = (tsr_plan){0};
  tsr_plan_find_fullest(program, coord);
  for (int i = 0; i < program->graph->params_count; i++)
    plan->parameters += tsr_param_real_elements(&program->graph->params[i]);
  for (int i = 0; i < program->tasks_count; i++) {
    const tsr_task *t = &program->tasks[i];
    int64_t times = tsr_task_times(program, i);
    if (!tsr_task_runs_on(program, t, coord)) continue;
    plan->flops += tsr_task_flops(program, t) * (double)times;
    if (!tsr_op_is_collective(t->op) && t->op != TSR_OP_SEND) continue;
    int axis = t->op == TSR_OP_SEND ? TSR_PP : t->axis;
    tsr_traffic *traffic = find_traffic(plan, tsr_op_name(t->op), axis);
    traffic->count += times;
    traffic->elements_bytes += times * tsr_tensor_bytes(&t->inputs[0]);
    traffic->wire_bytes += times * wire_bytes(t, program->lowering.size[axis]);
  }
}

/* ---- memory ---- */

void tsr_memory_of(const tsr_programs *programs, int count, int stage, tsr_memory *ret) {
  const tsr_program *first = programs[0].of_stage[stage];
  *ret = (tsr_memory){.fullest = first};
  ret->parameters = first->bytes[TSR_SEGMENT_PARAM];
  ret->state = first->bytes[TSR_SEGMENT_STATE];
  for (int i = 0; i < count; i++) {
    const tsr_program *p = programs[i].of_stage[stage];
    ret->sources += p->bytes[TSR_SEGMENT_CONST] + p->bytes[TSR_SEGMENT_INPUT];
    if (p->bytes[TSR_SEGMENT_HOST] > ret->on_host) ret->on_host = p->bytes[TSR_SEGMENT_HOST];
    if (p->bytes[TSR_SEGMENT_CACHE] > ret->cache) ret->cache = p->bytes[TSR_SEGMENT_CACHE];
    if (p->bytes[TSR_SEGMENT_WORK] > ret->fullest->bytes[TSR_SEGMENT_WORK]) ret->fullest = p;
  }
  ret->work = ret->fullest->bytes[TSR_SEGMENT_WORK];
  ret->total = ret->parameters + ret->state + ret->sources + ret->cache + ret->work;
}

static int64_t gaps(const tsr_program *p) {
  int64_t bytes = p->bytes[TSR_SEGMENT_WORK];
  for (int u = 0; u < TSR_USES; u++) bytes -= p->peak_bytes[u];
  return bytes;
}

static void print_bytes(tsr_text *text, const char *what, int64_t bytes) {
  tsr_text_add(
      text, "  %-20s %22s  %10s\n", what, tsr_text_count(bytes).text, tsr_text_bytes(bytes).text);
}

static const char *const use_names[TSR_USES] = {
    "activations", "gradients", "communication", "scratch"};

static const char *peak_name(const tsr_program *p) {
  return p->graph->nodes[p->tasks[p->peak_task].node].name;
}

/* WORK holds by turns what its kinds need; shown is the moment when it holds the most. */
static void print_rank_memory(const tsr_memory *m, tsr_text *text) {
  print_bytes(text, "parameters", m->parameters);
  print_bytes(text, "optimizer state", m->state);
  print_bytes(text, "constants and inputs", m->sources);
  if (m->cache) print_bytes(text, "key/value cache", m->cache);
  print_bytes(text, "work", m->work);
  print_bytes(text, "total", m->total);
  if (m->on_host) print_bytes(text, "activations on host", m->on_host);
  const tsr_program *p = m->fullest;
  if (!p->tasks_count) return;
  tsr_text_add(
      text, "work at its fullest, task %d of %d, %s:\n", p->peak_task, p->tasks_count,
      peak_name(p));
  for (int u = 0; u < TSR_USES; u++) print_bytes(text, use_names[u], p->peak_bytes[u]);
  print_bytes(text, "gaps", gaps(p));
}

static bool is_alike(const tsr_memory *a, const tsr_memory *b) {
  for (int u = 0; u < TSR_USES; u++)
    if (a->fullest->peak_bytes[u] != b->fullest->peak_bytes[u]) return false;
  return a->parameters == b->parameters && a->state == b->state && a->sources == b->sources &&
         a->cache == b->cache && a->work == b->work;
}

static void print_stage(const tsr_memory *m, const char *label, tsr_text *text) {
  const tsr_program *p = m->fullest;
  tsr_text_add(
      text, "  %-7s %10s %10s %10s", label, tsr_text_bytes(m->parameters).text,
      tsr_text_bytes(m->state).text, tsr_text_bytes(m->sources + m->cache).text);
  for (int u = 0; u < TSR_USES; u++)
    tsr_text_add(text, " %11s", tsr_text_bytes(p->peak_bytes[u]).text);
  tsr_text_add(text, " %10s %20s\n", tsr_text_bytes(gaps(p)).text, tsr_text_count(m->total).text);
}

/* Of the stage that has the most. */
static void print_on_host(const tsr_programs *programs, int count, tsr_text *text) {
  int64_t most = 0;
  int stage = 0;
  for (int s = 0; s < programs->pipeline->stages; s++) {
    tsr_memory m;
    tsr_memory_of(programs, count, s, &m);
    if (m.on_host > most) most = m.on_host, stage = s;
  }
  if (most)
    tsr_text_add(
        text, "  activations in the host's memory: %s of each rank%s\n", tsr_text_bytes(most).text,
        programs->pipeline->stages > 1
            ? tsr_arena_printf(programs->graph->arena, " of stage %d", stage)
            : "");
}

void tsr_memory_print(const tsr_programs *programs, int count, tsr_text *text) {
  int stages = programs->pipeline->stages, begin = 0, fullest = 0;
  tsr_memory first, m, most;
  tsr_text_add(
      text, "  %-7s %10s %10s %10s %11s %11s %11s %11s %10s %20s\n", "stage", "parameters", "state",
      "sources", "activations", "gradients", "communicat.", "scratch", "gaps", "total bytes");
  tsr_memory_of(programs, count, 0, &first);
  most = first;
  for (int s = 1; s <= stages; s++) {
    if (s < stages) tsr_memory_of(programs, count, s, &m);
    if (s < stages && m.total > most.total) most = m, fullest = s;
    if (s < stages && is_alike(&first, &m)) continue;
    char label[32];
    snprintf(label, sizeof label, s - begin > 1 ? "%d-%d" : "%d", begin, s - 1);
    print_stage(&first, label, text);
    first = m;
    begin = s;
  }
  const tsr_program *p = most.fullest;
  if (!p->tasks_count) return;
  tsr_text_add(
      text, "  fullest: stage %d, %s, in task %d of %d: %s of the %s\n", fullest,
      tsr_text_bytes(most.total).text, p->peak_task, p->tasks_count, peak_name(p),
      tsr_section_name(p->tasks[p->peak_task].section));
  print_on_host(programs, count, text);
}

/* ---- the report of `check` ---- */

static void print_traffic(const tsr_plan *plan, const char *where, tsr_text *text) {
  tsr_text_add(
      text, "collectives of each rank%s and step:%s\n", where, plan->traffic_count ? "" : " none");
  for (int i = 0; i < plan->traffic_count; i++) {
    const tsr_traffic *t = &plan->traffic[i];
    tsr_text_add(
        text, "  %-14s over %s  %6s times  %20s bytes, %s sent\n", t->op, tsr_axis_name(t->axis),
        tsr_text_count(t->count).text, tsr_text_count(t->elements_bytes).text,
        tsr_text_bytes(t->wire_bytes).text);
  }
}

/* The stage whose ranks compute the most. */
static int find_costliest(const tsr_programs *programs, tsr_plan *ret_plan, double *ret_mean) {
  int costliest = 0;
  double sum = 0;
  tsr_plan_make(programs->of_stage[0], ret_plan);
  for (int s = 0; s < programs->pipeline->stages; s++) {
    tsr_plan plan;
    tsr_plan_make(programs->of_stage[s], &plan);
    sum += plan.flops;
    if (plan.flops > ret_plan->flops) *ret_plan = plan, costliest = s;
  }
  *ret_mean = sum / programs->pipeline->stages;
  return costliest;
}

void tsr_plan_print_trained(const tsr_graph *g, tsr_text *text) {
  int64_t count[2] = {0}, bytes[2] = {0};
  for (int v = 0; v < g->values_count; v++) {
    const tsr_value *value = &g->values[v];
    if (value->kind != TSR_VALUE_PARAM) continue;
    const tsr_param *p = &g->params[value->param];
    int64_t n = tsr_param_real_elements(p);
    count[p->is_frozen] += n;
    bytes[p->is_frozen] += tsr_dtype_size(value->dtype, n);
  }
  if (!count[1]) return;
  tsr_text_add(
      text, "trained: %s parameters, %.4g%% of all, %s; frozen: %s, %s\n",
      tsr_text_count(count[0]).text, 100 * (double)count[0] / (double)(count[0] + count[1]),
      tsr_text_bytes(bytes[0]).text, tsr_text_count(count[1]).text, tsr_text_bytes(bytes[1]).text);
}

void tsr_plan_print(
    const tsr_programs *programs, int count, const tsr_parallel *parallel, tsr_text *text) {
  tsr_plan plan;
  tsr_memory memory;
  double mean;
  int stages = programs->pipeline->stages, costliest = find_costliest(programs, &plan, &mean);
  tsr_text_add(
      text, "model: %s, %s parameters\n", programs->graph->name,
      tsr_text_count(plan.parameters).text);
  tsr_plan_print_trained(programs->graph, text);
  if (parallel->ranks == 1) tsr_text_add(text, "memory of the one rank, bytes:\n");
  else
    tsr_text_add(
        text, "memory of each of %s ranks, bytes:\n", tsr_text_count(parallel->ranks).text);
  if (stages == 1) {
    tsr_memory_of(programs, count, 0, &memory);
    print_rank_memory(&memory, text);
    tsr_expert_room_print(programs, text);
    tsr_text_add(text, "work of each rank and step: %.4g FLOP\n", plan.flops);
    print_traffic(&plan, "", text);
    return;
  }
  tsr_memory_print(programs, count, text);
  tsr_expert_room_print(programs, text);
  tsr_text_add(
      text,
      "work of each rank and step: %.4g FLOP, at most %.4g in stage %d, %.2f times the mean\n",
      mean, plan.flops, costliest, mean > 0 ? plan.flops / mean : 1);
  char where[32];
  snprintf(where, sizeof where, " of stage %d", costliest);
  print_traffic(&plan, where, text);
}
