// SPDX-License-Identifier: Apache-2.0
#include "bug.h"
#include "prove/prove.h"
#include <stdio.h>

/* ---- bases and copies ---- */

void bug_open(bug_base *base, const bug_recipe *recipe) {
  char yaml[4096];
  int length = snprintf(
      yaml, sizeof yaml, "training_config: {seed: 5, max_steps: 4, eval_every: 0, %s}\n%s\n",
      recipe->settings, recipe->rest);
  if (length >= (int)sizeof yaml) abort();
  base->recipe = recipe;
  proof_open(&base->p, yaml);
  base->plan = proof_reduce(&base->p);
  if (base->plan.refused || base->plan.own_order) abort();
}

void bug_close(bug_base *base) { proof_close(&base->p); }

bug bug_begin(tsr_arena *arena, const bug_base *base) {
  bug b = {.arena = arena, .base = base, .plan = base->plan, .node = -1};
  tsr_compiled *c = &b.plan.mesh.compiled;
  c->programs = sample_copy_all(arena, &base->plan.mesh.compiled.programs);
  tsr_programs *programs = tsr_arena_alloc(arena, sizeof *programs);
  *programs = c->programs;
  b.m = (mutant){.arena = arena, .programs = programs};
  b.g = c->placed = mutant_graph(&b.m);
  c->programs = *programs;
  return b;
}

void bug_lower(bug *b, const tsr_lowering *how, const tsr_pipeline *pipeline) {
  tsr_compiled *c = &b->plan.mesh.compiled;
  const tsr_lowering lowering = how ? *how : c->programs.of_stage[0]->lowering;
  if (!pipeline) pipeline = c->programs.pipeline;
  c->programs = tsr_programs_make(b->g, &lowering, pipeline, &b->plan.mesh.options.target);
  *b->m.programs = c->programs;
}

/* ---- places ---- */

static const char *result_of(const bug *b, const tsr_node *n) {
  return n->outputs_count ? b->g->values[n->outputs[0]].name : "";
}

int bug_find(const bug *b, const char *name) {
  for (int i = 0; i < b->g->nodes_count; i++)
    if (!strcmp(b->g->nodes[i].name, name) || !strcmp(result_of(b, &b->g->nodes[i]), name))
      return i;
  fprintf(stderr, "%s, %s: no '%s'\n", b->base->recipe->family, b->base->recipe->mesh, name);
  abort();
}

int bug_find_value(const bug *b, const char *name) {
  for (int v = 0; v < b->g->values_count; v++)
    if (!strcmp(b->g->values[v].name, name)) return v;
  fprintf(stderr, "%s, %s: no '%s'\n", b->base->recipe->family, b->base->recipe->mesh, name);
  abort();
}

int bug_find_op(const bug *b, int from, tsr_op op, tsr_section section, const char *part) {
  for (int i = from + 1; i < b->g->nodes_count; i++) {
    const tsr_node *n = &b->g->nodes[i];
    bool here = section == TSR_SECTIONS || n->section == section;
    if (n->op == op && here && (strstr(n->name, part) || strstr(result_of(b, n), part))) return i;
  }
  return -1;
}

tsr_task *bug_task(const bug *b, int node, tsr_program **ret_program) {
  const tsr_programs *programs = &b->plan.mesh.compiled.programs;
  for (int s = 0; s < programs->pipeline->stages; s++)
    for (int t = 0; t < programs->of_stage[s]->tasks_count; t++) {
      tsr_task *task = &programs->of_stage[s]->tasks[t];
      if (task->node != node || task->op != b->g->nodes[node].op) continue;
      if (ret_program) *ret_program = programs->of_stage[s];
      return task;
    }
  fprintf(stderr, "no task of '%s'\n", b->g->nodes[node].name);
  abort();
}

int bug_idle_axis(const bug *b) {
  for (int axis = TSR_AXES; axis-- > 0;)
    if (b->plan.shape.size[axis] == 1) return axis;
  abort();
}

/* ---- changes ---- */

/* Nodes from `at` on stand one further behind. */
static void make_room(bug *b, int at) {
  tsr_graph *g = b->g;
  tsr_node *nodes = tsr_arena_array(b->arena, tsr_node, g->nodes_count + 1);
  memcpy(nodes, g->nodes, sizeof *nodes * (size_t)at);
  memcpy(nodes + at + 1, g->nodes + at, sizeof *nodes * (size_t)(g->nodes_count - at));
  g->nodes = nodes;
  g->nodes_capacity = ++g->nodes_count;
  for (int i = 0; i < g->nodes_count; i++)
    if (nodes[i].of >= at) nodes[i].of++;
  for (int v = 0; v < g->values_count; v++)
    if (g->values[v].kind == TSR_VALUE_NODE && g->values[v].node >= at) g->values[v].node++;
}

int bug_insert(bug *b, int value, tsr_op op, const tsr_attrs *attr) {
  tsr_graph *g = b->g;
  int at = g->values[value].node + 1;
  make_room(b, at);
  const tsr_node *maker = &g->nodes[at - 1];
  int result = tsr_graph_copy_value(g, &g->values[value]);
  tsr_value *v = &g->values[result];
  v->name = tsr_arena_printf(b->arena, "%s.fault", v->name);
  v->node = at;
  v->output = 0;
  tsr_node *n = &g->nodes[at];
  *n = (tsr_node){.op = op, .section = maker->section, .name = v->name, .inputs_count = 1};
  n->inputs = tsr_arena_array(b->arena, int, 1);
  n->inputs[0] = value;
  n->outputs_count = 1;
  n->outputs[0] = result;
  n->attr = *attr;
  n->stream = v->name;
  n->block = maker->block;
  n->of = maker->of;
  n->stage = maker->stage;
  n->location = maker->location;
  for (int i = at + 1; i < g->nodes_count; i++)
    for (int k = 0; k < g->nodes[i].inputs_count; k++)
      if (g->nodes[i].inputs[k] == value) g->nodes[i].inputs[k] = result;
  for (int i = 0; i < g->outputs_count; i++)
    if (g->outputs[i].value == value) g->outputs[i].value = result;
  if (g->loss == value) g->loss = result;
  return at;
}

static tsr_tensor room_in_state(tsr_program *p, const tsr_tensor *like) {
  int64_t *end = &p->bytes[TSR_SEGMENT_STATE];
  tsr_tensor t = *like;
  t.segment = TSR_SEGMENT_STATE;
  t.slot_group = -1;
  t.offset = (*end + 63) / 64 * 64;
  *end = t.offset + (tsr_tensor_bytes(like) + 63) / 64 * 64;
  return t;
}

/* SGD with the momentum m, which begins as the gradient and with a dampening of 1 stays that: its
 * gradient is the value, its weight a tensor that no one reads. The index of the node. */
static int add_copy_node(bug *b, int value) {
  tsr_graph *g = b->g;
  tsr_node *nodes = tsr_arena_array(b->arena, tsr_node, g->nodes_count + 1);
  memcpy(nodes, g->nodes, sizeof *nodes * (size_t)g->nodes_count);
  g->nodes = nodes;
  tsr_node *n = &nodes[g->nodes_count];
  *n = (tsr_node){.op = TSR_OP_SGD, .section = TSR_PROLOGUE, .name = "stale", .inputs_count = 4};
  n->inputs = tsr_arena_array(b->arena, int, 4);
  n->inputs[0] = n->inputs[1] = n->inputs[3] = value;
  n->inputs[2] = g->step_scalars;
  n->attr.sgd = (tsr_sgd_attrs){.momentum = 1, .dampening = 1};
  n->of = -1;
  n->block = -1;
  n->location = g->values[value].location;
  g->nodes_capacity = ++g->nodes_count;
  return g->nodes_count - 1;
}

/* A value for what is kept, which programs find by its number. */
static int add_kept(bug *b, tsr_program *p, int value, int node, tsr_tensor tensor) {
  const tsr_programs *programs = &b->plan.mesh.compiled.programs;
  int kept = tsr_graph_copy_value(b->g, &b->g->values[value]);
  tsr_value *v = &b->g->values[kept];
  v->kind = TSR_VALUE_NODE;
  v->node = node;
  v->output = 0;
  v->param = -1;
  for (int s = 0; s < programs->pipeline->stages; s++) {
    tsr_program *of = programs->of_stage[s];
    tsr_tensor *tensors = tsr_arena_array(b->arena, tsr_tensor, b->g->values_count);
    memcpy(tensors, of->tensors, sizeof *tensors * (size_t)kept);
    tensors[kept] = (tsr_tensor){.segment = TSR_SEGMENT_ABSENT, .slot_group = -1};
    of->tensors = tensors;
  }
  tensor.value = kept;
  p->tensors[kept] = tensor;
  return kept;
}

int bug_make_stale(bug *b, tsr_program *p, int value, int from) {
  const tsr_tensor now = p->tensors[value];
  tsr_tensor weight = room_in_state(p, &now);
  tsr_task copy = {.op = TSR_OP_SGD, .section = TSR_PROLOGUE, .inputs_count = 4, .axis = -1};
  int readers = 0;
  copy.node = add_copy_node(b, value);
  int index = add_kept(b, p, value, copy.node, room_in_state(p, &now));
  const tsr_tensor kept = p->tensors[index];
  copy.sum = tsr_reduction_none();
  copy.inputs = tsr_arena_array(b->arena, tsr_tensor, 4);
  copy.inputs[0] = weight;
  copy.inputs[1] = now;
  copy.inputs[2] = p->tensors[b->g->step_scalars];
  copy.inputs[3] = kept;
  for (int t = from + 1; t < p->tasks_count; t++)
    for (int k = 0; k < p->tasks[t].inputs_count; k++) {
      bool updates = tsr_op_facts(p->tasks[t].op) & TSR_FACT_UPDATE;
      if (p->tasks[t].inputs[k].value != value || updates) continue;
      p->tasks[t].inputs[k] = kept;
      readers++;
    }
  sample_insert_task(b->arena, p, from + 1, copy, 0);
  b->next_step = true;
  return readers;
}
