// SPDX-License-Identifier: Apache-2.0
/* requires: a graph with placements and stages, a pipeline schedule
 * produces: one stage's tasks in the graph's order, with local shapes and the units that split
 * their sums; the two ends of what moves between stages; the order in which the parts run
 * invalidates: nothing */
#include "schedule/assign_target.h"
#include "schedule/classifier_calls.h"
#include "schedule/delay_gradients.h"
#include "schedule/fuse.h"
#include "schedule/host_tasks.h"
#include "schedule/offload.h"
#include "schedule/overlap.h"
#include "schedule/program.h"
#include "schedule/sink_updates.h"
#include <assert.h>
#include <string.h>

typedef struct {
  tsr_program *p;
  const tsr_graph *g;
  tsr_arena *arena;
  const tsr_pipeline_starts *starts;
  int capacity;
  int64_t *ends[TSR_SEGMENTS]; /* of segments without lifetimes, per coord of dp: bytes so far */
} lowering;

/* What a node makes is planned by lifetimes, unless it is kept or in the host's memory. */
static tsr_segment segment_of(const tsr_graph *g, const tsr_value *v) {
  static const tsr_segment segments[] = {
      [TSR_VALUE_INPUT] = TSR_SEGMENT_INPUT, [TSR_VALUE_STEP_SCALARS] = TSR_SEGMENT_INPUT,
      [TSR_VALUE_CONST] = TSR_SEGMENT_CONST, [TSR_VALUE_PARAM] = TSR_SEGMENT_PARAM,
      [TSR_VALUE_STATE] = TSR_SEGMENT_STATE, [TSR_VALUE_NODE] = TSR_SEGMENT_WORK};
  bool kept = v->kind == TSR_VALUE_NODE && tsr_op_facts(g->nodes[v->node].op) & TSR_FACT_KEPT;
  if (v->kind == TSR_VALUE_NODE && g->nodes[v->node].op == TSR_OP_OFFLOAD) return TSR_SEGMENT_HOST;
  return kept ? TSR_SEGMENT_CACHE : segments[v->kind];
}

/* What tp splits is quantised unit by unit. */
static void set_quantized_units(const lowering *l, const tsr_value *v, tsr_tensor *t) {
  tsr_placement tp = v->placement[TSR_TP];
  for (int d = 0; d < 2; d++) {
    bool split = tp.kind == TSR_SHARD && tp.dim == d;
    t->unit_shape[d] = split ? t->shape[d] / l->p->lowering.tp_units : t->shape[d];
  }
}

static tsr_tensor local_tensor(const lowering *l, int value) {
  const tsr_value *v = &l->g->values[value];
  tsr_tensor t = {
      .value = value,
      .dtype = v->dtype,
      .segment = segment_of(l->g, v),
      .slot_group = -1,
      .offset = -1,
      .ndim = v->ndim};
  memcpy(t.shape, v->shape, sizeof t.shape);
  for (int a = 0; a < TSR_AXES; a++)
    if (v->placement[a].kind == TSR_SHARD)
      t.shape[v->placement[a].dim] /=
          tsr_placement_blocks(v->placement[a], (int)l->p->lowering.size[a]);
  if (tsr_routed_is_rows(v->routed)) t.shape[0] = tsr_lowering_expert_rows(&l->p->lowering, v);
  if (tsr_dtype_is_quantized(v->dtype)) set_quantized_units(l, v, &t);
  t.units = v->units;
  if (v->placement[TSR_TP].kind == TSR_PARTIAL) t.units /= l->p->lowering.size[TSR_TP];
  if (v->units_of_sequence && v->placement[TSR_CP].kind == TSR_PARTIAL)
    t.units /= l->p->lowering.size[TSR_CP];
  if (v->batch_units) t.units = v->batch_units * (t.units ? t.units : 1);
  return t;
}

/* ---- which part a node is in ---- */

static int part_index(tsr_section section, int chunk, int chunks) {
  if (section == TSR_PROLOGUE) return 0;
  if (section == TSR_UPDATE) return 1 + 3 * chunks;
  return 1 + 3 * chunk + (int)(section - TSR_FORWARD);
}

static int part_of(const lowering *l, tsr_section section, int virtual_stage) {
  int chunk;
  if (!tsr_program_has_stage(l->p, virtual_stage, &chunk)) return -1;
  return part_index(section, chunk, l->p->pipeline->chunks);
}

/* Where a value is made on this stage: before the first microbatch when no node makes it. */
static int part_of_value(const lowering *l, int value) {
  const tsr_value *v = &l->g->values[value];
  tsr_section section = v->kind == TSR_VALUE_NODE ? l->g->nodes[v->node].section : TSR_PROLOGUE;
  return part_of(l, section, tsr_value_stage(l->g, value));
}

/* ---- tasks ---- */

static tsr_task *add_task(lowering *l, tsr_op op, tsr_section section, int node) {
  tsr_arena_grow(
      l->arena, (void **)&l->p->tasks, sizeof *l->p->tasks, l->p->tasks_count, &l->capacity);
  tsr_task *t = &l->p->tasks[l->p->tasks_count++];
  *t = (tsr_task){.node = node, .op = op, .section = section, .axis = -1};
  t->sum = tsr_reduction_none();
  return t;
}

/* The next place in a segment without lifetimes, on the ranks that hold the tensor: what different
 * ranks own may have the same place. The segment is as large as its largest rank's part. */
static void place_next(lowering *l, tsr_tensor *t) {
  tsr_placement dp = l->g->values[t->value].placement[TSR_DP];
  int size = (int)l->p->lowering.size[TSR_DP];
  int64_t *ends = l->ends[t->segment], end;
  t->offset = 0;
  for (int r = 0; r < size; r++)
    if (tsr_placement_holds(dp, size, r) && ends[r] > t->offset) t->offset = ends[r];
  end = t->offset + (tsr_tensor_bytes(t) + 63) / 64 * 64;
  for (int r = 0; r < size; r++)
    if (tsr_placement_holds(dp, size, r)) ends[r] = end;
  if (end > l->p->bytes[t->segment]) l->p->bytes[t->segment] = end;
}

static void add_node(lowering *l, int index) {
  const tsr_node *n = &l->g->nodes[index];
  for (int o = 0; o < n->outputs_count; o++) {
    tsr_tensor *t = &l->p->tensors[n->outputs[o]];
    *t = local_tensor(l, n->outputs[o]);
    if (t->segment == TSR_SEGMENT_CACHE) place_next(l, t);
  }
  if (tsr_program_is_alias(l->p, index)) return;
  tsr_task *t = add_task(l, n->op, n->section, index);
  t->inputs_count = n->inputs_count;
  t->outputs_count = n->outputs_count;
  t->axis = tsr_node_axis(n);
  t->sum = tsr_reduction_of(l->p, index);
  t->norm = tsr_norm_pieces_of(l->p, index);
  t->experts = tsr_expert_rows_of(l->p, index);
  t->fp8 = tsr_fp8_operands_of(l->p, t);
}

/* What leaves this stage: one for every receive node elsewhere (or in another chunk). */
typedef struct send {
  struct send *next;
  int node, value, part;
} send;

static void add_send(lowering *l, const send *s, tsr_section section) {
  add_task(l, TSR_OP_SEND, section, s->node)->inputs_count = 1;
}

static void add_wait(lowering *l, const send *s, tsr_section section, int lag) {
  tsr_task *t = add_task(l, TSR_OP_WAIT, section, s->node);
  t->inputs_count = 1;
  t->lag = lag;
}

/* A part of the body that its own virtual stage runs, as an action's kind. */
static bool is_body(tsr_section s) { return s >= TSR_FORWARD && s <= TSR_WEIGHTS; }
static tsr_action_kind kind_of(tsr_section s) { return (tsr_action_kind)(s - TSR_FORWARD); }

/* How many microbatches later what is sent is asked for. */
static int lag_of(const lowering *l, const send *s) {
  const tsr_node *to = &l->g->nodes[s->node];
  const tsr_section from = l->p->parts[s->part].section;
  if (!is_body(to->section)) return l->p->pipeline->microbatches;
  return tsr_pipeline_lag(
      l->starts, kind_of(from), tsr_value_stage(l->g, s->value), kind_of(to->section), to->stage);
}

/* Before its bytes are used again, what a part sent must have arrived. A forward value is asked for
 * when the backward pass of its microbatch begins, which no task has to wait for: that pass needs
 * what the receivers made of it. Others are asked for some microbatches later. */
static void add_waits(lowering *l, const send *sends, int part, int last_part) {
  bool forward_only = l->p->pipeline->forward_only;
  tsr_section section = l->p->parts[part].section;
  for (const send *s = sends; s; s = s->next) {
    tsr_section from = l->p->parts[s->part].section;
    bool lagging = is_body(from) && (from != TSR_FORWARD || forward_only);
    if (lagging && s->part == part) add_wait(l, s, section, lag_of(l, s));
    if (from == TSR_FORWARD && !lagging && part == s->part + 1) add_wait(l, s, section, 0);
    if (part == last_part && (lagging || from == TSR_PROLOGUE))
      add_wait(l, s, section, TSR_WAIT_ALL);
  }
}

/* The part that sends: where the value is made; but at the step's end what is then a complete sum,
 * and with the backward pass what an earlier stage's backward pass wants, since that stage takes
 * nothing before the gradients that come from here. */
static int sending_part(const lowering *l, const tsr_node *receive) {
  int value = receive->inputs[0], part = part_of_value(l, value);
  if (part < 0) return -1;
  if (receive->section == TSR_UPDATE) return l->p->parts_count - 1;
  int stage = tsr_value_stage(l->g, value);
  bool back = l->p->parts[part].section == TSR_FORWARD && receive->section != TSR_FORWARD;
  return back && receive->stage < stage ? part_of(l, TSR_BACKWARD, stage) : part;
}

static send *find_sends(const lowering *l, send **ret_of_value) {
  send *all = NULL, **end = &all;
  for (int i = 0; i < l->g->nodes_count; i++) {
    const tsr_node *n = &l->g->nodes[i];
    if (n->op != TSR_OP_RECEIVE) continue;
    int value = n->inputs[0], part = sending_part(l, n);
    if (part < 0) continue;
    send *s = tsr_arena_alloc(l->arena, sizeof *s), *copy = tsr_arena_alloc(l->arena, sizeof *s);
    *s = *copy = (send){NULL, i, value, part};
    *end = s;
    end = &s->next;
    copy->next = ret_of_value[value];
    ret_of_value[value] = copy;
  }
  return all;
}

static void add_sends(lowering *l, const send *of_value, int part) {
  for (const send *s = of_value; s; s = s->next)
    if (s->part == part) add_send(l, s, l->p->parts[part].section);
}

/* Nodes of each part in the graph's order, as lists. */
static int *sort_nodes(const lowering *l, int *begin) {
  int *part = tsr_arena_array(l->arena, int, l->g->nodes_count + 1);
  int *sorted = tsr_arena_array(l->arena, int, l->g->nodes_count + 1);
  for (int i = 0; i < l->g->nodes_count; i++) {
    part[i] = part_of(l, l->g->nodes[i].section, l->g->nodes[i].stage);
    if (part[i] >= 0) begin[part[i] + 1]++;
  }
  for (int k = 0; k < l->p->parts_count; k++) begin[k + 1] += begin[k];
  int *at = tsr_arena_array(l->arena, int, l->p->parts_count + 1);
  memcpy(at, begin, sizeof *at * (size_t)l->p->parts_count);
  for (int i = 0; i < l->g->nodes_count; i++)
    if (part[i] >= 0) sorted[at[part[i]]++] = i;
  return sorted;
}

static void add_parts(lowering *l) {
  tsr_program *p = l->p;
  int last = p->parts_count - 1;
  int *begin = tsr_arena_array(l->arena, int, p->parts_count + 1);
  int *nodes = sort_nodes(l, begin);
  send **of_value = tsr_arena_array(l->arena, send *, l->g->values_count);
  send *sends = find_sends(l, of_value);
  for (int k = 0; k < p->parts_count; k++) {
    tsr_section section = p->parts[k].section;
    p->parts[k].begin = p->tasks_count;
    add_waits(l, sends, k, last);
    for (const send *s = sends; s; s = s->next) /* of what existed before the part */
      if (s->part == k && part_of_value(l, s->value) != k) add_send(l, s, section);
    for (int v = 0; k == 0 && v < l->g->values_count; v++)
      if (l->g->values[v].kind != TSR_VALUE_NODE) add_sends(l, of_value[v], k);
    for (int i = begin[k]; i < begin[k + 1]; i++) {
      const tsr_node *n = &l->g->nodes[nodes[i]];
      add_node(l, nodes[i]);
      for (int o = 0; o < n->outputs_count; o++) add_sends(l, of_value[n->outputs[o]], k);
    }
    for (const send *s = sends; s && k == last; s = s->next)
      if (s->part == last) add_wait(l, s, section, TSR_WAIT_ALL);
    p->parts[k].end = p->tasks_count;
  }
}

static void make_parts(lowering *l) {
  tsr_program *p = l->p;
  int chunks = p->pipeline->chunks;
  p->parts_count = 2 + 3 * chunks;
  p->parts = tsr_arena_array(l->arena, tsr_part, p->parts_count);
  p->parts[0].section = TSR_PROLOGUE;
  p->parts[p->parts_count - 1].section = TSR_UPDATE;
  for (int c = 0; c < chunks; c++)
    for (int s = TSR_FORWARD; s <= TSR_WEIGHTS; s++)
      p->parts[part_index((tsr_section)s, c, chunks)] =
          (tsr_part){.section = (tsr_section)s, .chunk = c};
  add_parts(l);
}

static void make_runs(lowering *l) {
  tsr_program *p = l->p;
  int actions = p->pipeline->counts[p->stage];
  p->runs = tsr_arena_array(l->arena, tsr_run, actions + 2);
  p->runs[p->runs_count++] = (tsr_run){0, 0};
  for (int i = 0; i < actions; i++) {
    const tsr_action *a = &p->pipeline->actions[p->stage][i];
    tsr_section section = (tsr_section)(TSR_FORWARD + (int)a->kind);
    p->runs[p->runs_count++] =
        (tsr_run){part_index(section, a->chunk, p->pipeline->chunks), a->microbatch};
  }
  p->runs[p->runs_count++] = (tsr_run){p->parts_count - 1, p->pipeline->microbatches - 1};
}

/* ---- values that no node makes ---- */

static void mark_used(const lowering *l, bool *used) {
  for (int i = 0; i < l->g->nodes_count; i++) {
    const tsr_node *n = &l->g->nodes[i];
    if (!tsr_program_has_node(l->p, i) || n->op == TSR_OP_RECEIVE) continue;
    for (int k = 0; k < n->inputs_count; k++) used[n->inputs[k]] = true;
  }
}

/* Parameters lie in their order, which all programs of a model share. */
static void place_params(lowering *l) {
  int *value = tsr_arena_array(l->arena, int, l->g->params_count + 1);
  for (int i = 0; i < l->g->values_count; i++)
    if (l->g->values[i].kind == TSR_VALUE_PARAM) value[l->g->values[i].param] = i;
  for (int p = 0; p < l->g->params_count; p++) {
    tsr_tensor *t = &l->p->tensors[value[p]];
    if (t->segment == TSR_SEGMENT_PARAM) place_next(l, t);
  }
}

/* Segments that live as long as the run: every value that this stage uses (and every parameter that
 * it owns) its place, in the graph's order. Inputs are in slot groups, which memory_plan.c
 * makes. */
static void place_sources(lowering *l) {
  bool *used = tsr_arena_array(l->arena, bool, l->g->values_count);
  mark_used(l, used);
  for (int i = 0; i < l->g->values_count; i++) {
    const tsr_value *v = &l->g->values[i];
    tsr_tensor *t = &l->p->tensors[i];
    int chunk, stage = tsr_value_stage(l->g, i);
    *t = (tsr_tensor){.value = i, .segment = TSR_SEGMENT_ABSENT, .slot_group = -1, .offset = -1};
    if (v->kind == TSR_VALUE_NODE || !tsr_program_has_stage(l->p, stage, &chunk)) continue;
    if (!used[i] && stage == TSR_EVERY_STAGE && v->kind != TSR_VALUE_STEP_SCALARS) continue;
    *t = local_tensor(l, i);
    if (v->kind != TSR_VALUE_INPUT && v->kind != TSR_VALUE_PARAM) place_next(l, t);
  }
  place_params(l);
}

static void bind_task(lowering *l, tsr_task *t) {
  const tsr_node *n = &l->g->nodes[t->node];
  if (!t->inputs) t->inputs = tsr_arena_array(l->arena, tsr_tensor, t->inputs_count + 1);
  if (!t->outputs) t->outputs = tsr_arena_array(l->arena, tsr_tensor, t->outputs_count + 1);
  for (int k = 0; k < t->inputs_count; k++)
    t->inputs[k] = l->p->tensors[tsr_task_input(l->p, t, k)];
  for (int k = 0; k < t->outputs_count; k++)
    t->outputs[k] = l->p->tensors[tsr_task_output(l->p, t, k)];
  if (t->op != TSR_OP_RECEIVE) return;
  t->inputs[0] = local_tensor(l, n->inputs[0]);
  t->inputs[0].segment = TSR_SEGMENT_ABSENT;
}

/* Copies the tensors, now with offsets, into the tasks; what is made in place, and aliases, take
 * their source's place. */
static void bind_tensors(lowering *l) {
  for (int i = 0; i < l->g->nodes_count; i++) {
    const tsr_node *n = &l->g->nodes[i];
    if (!tsr_program_has_node(l->p, i) || !n->outputs_count) continue;
    bool alias = tsr_program_is_alias(l->p, i);
    int source = alias ? n->inputs[0] : tsr_program_in_place(l->p, i);
    if (source < 0) continue;
    const tsr_tensor *from = &l->p->tensors[source];
    tsr_tensor *to = &l->p->tensors[n->outputs[0]];
    to->segment = from->segment;
    to->offset = from->offset;
    to->slot_group = from->slot_group;
  }
  for (int i = 0; i < l->p->tasks_count; i++) {
    tsr_task *t = &l->p->tasks[i];
    bind_task(l, t);
    for (int k = 0; t->covered && k < t->nodes_count; k++) bind_task(l, &t->covered[k]);
  }
}

static const int *count_readers(const tsr_graph *g) {
  int *readers = tsr_arena_array(g->arena, int, g->values_count + 1);
  for (int i = 0; i < g->nodes_count; i++)
    for (int k = 0; k < g->nodes[i].inputs_count; k++) readers[g->nodes[i].inputs[k]]++;
  for (int i = 0; i < g->outputs_count; i++) readers[g->outputs[i].value]++;
  if (g->loss >= 0) readers[g->loss]++;
  return readers;
}

static const int *find_chunks(tsr_arena *arena, const tsr_pipeline *pipeline, int stage) {
  int count = pipeline->stages * pipeline->chunks;
  int *chunk_of = tsr_arena_array(arena, int, count);
  for (int i = 0; i < count; i++) chunk_of[i] = -1;
  for (int c = 0; c < pipeline->chunks; c++) chunk_of[tsr_pipeline_virtual(pipeline, stage, c)] = c;
  return chunk_of;
}

/* What may be done or not; each choice is sound. */
typedef struct {
  unsigned gemms; /* as of tsr_program_fuse */
  bool delays;    /* gradients are (delay_gradients.h) */
} choice;

/* `shared`: the members that are the same for every stage. `ret_delayed`: whether a gradient is. */
static tsr_program *make_program(
    const tsr_program *shared, const tsr_pipeline_starts *starts, int stage,
    const tsr_target *target, choice how_to, bool *ret_delayed) {
  const tsr_graph *graph = shared->graph;
  const tsr_lowering *how = &shared->lowering;
  tsr_program *p = tsr_arena_alloc(graph->arena, sizeof *p);
  *p = *shared;
  p->stage = stage;
  p->chunk_of = find_chunks(graph->arena, p->pipeline, stage);
  p->tensors = tsr_arena_array(graph->arena, tsr_tensor, graph->values_count);
  lowering l = {.p = p, .g = graph, .arena = graph->arena, .starts = starts};
  for (int s = 0; s < TSR_SEGMENTS; s++)
    l.ends[s] = tsr_arena_array(graph->arena, int64_t, (int)how->size[TSR_DP]);
  place_sources(&l);
  make_parts(&l);
  if (how->overlap) tsr_program_overlap(p, how->bucket_bytes);
  tsr_program_offload(p);
  make_runs(&l);
  tsr_program_sink_updates(p, target);
  tsr_program_split_classifiers(p, target);
  tsr_program_fuse(p, target, how_to.gemms);
  *ret_delayed = how_to.delays && tsr_program_delay_gradients(p);
  bind_tensors(&l); /* shapes, for the target */
  tsr_program_size_outputs(p, target);
  bind_tensors(&l);
  tsr_program_assign(p, target);
  tsr_program_plan_memory(p);
  bind_tensors(&l); /* offsets */
  tsr_program_bind_kernels(p);
  tsr_program_plan_host_tasks(p, target);
  return p;
}

static bool has_form(const tsr_program *p, tsr_fused_form form) {
  for (int i = 0; i < p->tasks_count; i++)
    if (p->tasks[i].fused == form) return true;
  return false;
}

/* Batches of GEMMs move tasks, and need scratch for all of their sums: the first choice whose plan
 * needs no more memory than without them. */
static tsr_program *make_fused(
    const tsr_program *shared, const tsr_pipeline_starts *starts, int stage,
    const tsr_target *target, bool delays, bool *ret_delayed) {
  static const unsigned choices[] = {
      TSR_GEMMS_LINEAR | TSR_GEMMS_LINEAR_DW | TSR_GEMMS_EXTENDING,
      TSR_GEMMS_LINEAR | TSR_GEMMS_LINEAR_DW, TSR_GEMMS_LINEAR_DW, TSR_GEMMS_LINEAR};
  choice how = {choices[0], delays};
  tsr_program *p = make_program(shared, starts, stage, target, how, ret_delayed);
  if (!has_form(p, TSR_FUSED_GEMMS)) return p;
  how.gemms = 0;
  tsr_program *separate = make_program(shared, starts, stage, target, how, ret_delayed);
  for (size_t i = 1; p->bytes[TSR_SEGMENT_WORK] > separate->bytes[TSR_SEGMENT_WORK]; i++) {
    if (i == sizeof choices / sizeof *choices) return separate;
    how.gemms = choices[i];
    p = make_program(shared, starts, stage, target, how, ret_delayed);
  }
  return p;
}

/* With gradients that are delayed, if it needs no more memory than without. */
static tsr_program *make_smallest(
    const tsr_program *shared, const tsr_pipeline_starts *starts, int stage,
    const tsr_target *target) {
  bool delayed;
  tsr_program *p = make_fused(shared, starts, stage, target, true, &delayed);
  if (!delayed) return p;
  tsr_program *early = make_fused(shared, starts, stage, target, false, &delayed);
  return early->bytes[TSR_SEGMENT_WORK] < p->bytes[TSR_SEGMENT_WORK] ? early : p;
}

tsr_programs tsr_programs_make(
    const tsr_graph *graph, const tsr_lowering *how, const tsr_pipeline *pipeline,
    const tsr_target *target) {
  tsr_programs all = {.graph = graph, .pipeline = pipeline};
  tsr_pipeline_starts starts = tsr_pipeline_find_starts(graph->arena, pipeline);
  all.of_stage = tsr_arena_array(graph->arena, tsr_program *, pipeline->stages);
  const tsr_program shared = {
      .graph = graph, .lowering = *how, .pipeline = pipeline, .readers = count_readers(graph)};
  assert(pipeline->microbatches == how->microbatches);
  for (int s = 0; s < pipeline->stages; s++)
    all.of_stage[s] = make_smallest(&shared, &starts, s, target);
  return all;
}
