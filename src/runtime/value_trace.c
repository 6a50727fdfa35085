// SPDX-License-Identifier: Apache-2.0
#include "runtime/value_trace.h"
#include "graph/element_runs.h"
#include "runtime/executable_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A value of the placed graph. */
typedef struct {
  int origin;   /* the value that collectives and sums of units have made into this one */
  int alias;    /* a value that is the same bytes, made of this one; -1: none */
  int next;     /* the next one that is made of the same; -1: none */
  bool traced;  /* complete, and the same on every mesh */
  bool sampled; /* of each microbatch: its samples */
  uint64_t hash;
  int64_t count, whole; /* elements in `hash`, and of the tensor */
  int stage, task;
  double sum, squares; /* of the elements in `hash` */
  float *capture;      /* NULL: not wanted */
} traced;

struct tsr_value_trace {
  tsr_executable *executable;
  traced *values;
  const char **names; /* per value */
  tsr_traced_value *list;
  int *entry_of; /* per value that is an origin: where the list has it */
  bool measures;
};

/* ---- which values ---- */

static bool is_complete(const tsr_value *v) {
  for (int a = 0; a < TSR_AXES; a++)
    if (v->placement[a].kind == TSR_PARTIAL) return false;
  return v->units == 0 && v->batch_units == 0 && v->completes_to == TSR_F32;
}

/* Parts of a sum that the mesh or the units decide about: steps of a ring, in which a rank has
 * other positions than its own, and pieces of the gradients' norm. */
static bool is_of_parts(const tsr_node *n) {
  return n->op == TSR_OP_RING_SHIFT || n->op == TSR_OP_NORM_STATS || n->op == TSR_OP_NORM_JOIN ||
         tsr_op_facts(n->op) & TSR_FACT_ADDS;
}

/* What a node only moves, completes or stores in another type; -1: it computes something else. The
 * name of what the placement inserts begins with its input's. */
static int moved_from(const tsr_graph *g, const tsr_node *n) {
  if (is_of_parts(n)) return -1;
  bool moves = tsr_op_moves(n->op) || n->op == TSR_OP_SUM_UNITS || n->op == TSR_OP_CAST ||
               n->op == TSR_OP_RECEIVE;
  if (!moves || n->inputs_count != 1 || tsr_node_accumulates(n)) return -1;
  const char *from = g->values[n->inputs[0]].name, *to = g->values[n->outputs[0]].name;
  size_t length = strlen(from);
  return !strncmp(from, to, length) && to[length] == '.' ? n->inputs[0] : -1;
}

/* Samples lie along the dimension that dp splits, but for what lasts beyond a microbatch. */
static bool is_sampled(const tsr_graph *g, const tsr_value *v) {
  if (v->placement[TSR_DP].kind != TSR_SHARD) return false;
  const tsr_node *n = v->kind == TSR_VALUE_NODE ? &g->nodes[v->node] : NULL;
  bool once = n && (n->section == TSR_PROLOGUE || n->section == TSR_UPDATE);
  return !once && !(n && tsr_node_accumulates(n));
}

/* A sum over the samples of one microbatch, or made of one: others have other samples. */
static bool is_of_microbatch(const tsr_value_trace *t, const tsr_graph *g, int value) {
  const tsr_value *origin = &g->values[t->values[value].origin];
  const tsr_node *n = origin->kind == TSR_VALUE_NODE ? &g->nodes[origin->node] : NULL;
  return n && n->section != TSR_PROLOGUE && n->section != TSR_UPDATE && !is_sampled(g, origin) &&
         !tsr_node_accumulates(n) && tsr_executable_microbatches(t->executable) > 1;
}

static int64_t
whole_elements(const tsr_value_trace *t, int value, int64_t ret_shape[TSR_DIMS_MAX]) {
  const tsr_graph *g = t->executable->programs->graph;
  const tsr_value *v = &g->values[value];
  int64_t count = 1;
  tsr_value_real_shape(g, v, ret_shape);
  if (t->values[value].sampled)
    ret_shape[v->placement[TSR_DP].dim] *= tsr_executable_microbatches(t->executable);
  for (int d = 0; d < v->ndim; d++) count *= ret_shape[d];
  return count;
}

static void describe(tsr_value_trace *t, int value) {
  const tsr_graph *g = t->executable->programs->graph;
  const tsr_value *v = &g->values[value];
  traced *is = &t->values[value];
  int64_t shape[TSR_DIMS_MAX];
  *is = (traced){.origin = value, .alias = -1, .next = -1};
  if (v->kind != TSR_VALUE_NODE && v->kind != TSR_VALUE_INPUT) return;
  int from = v->kind == TSR_VALUE_NODE ? moved_from(g, &g->nodes[v->node]) : -1;
  if (from >= 0) is->origin = t->values[from].origin;
  const tsr_value *origin = &g->values[is->origin];
  bool in_parts = origin->kind == TSR_VALUE_NODE && is_of_parts(&g->nodes[origin->node]);
  is->traced = is_complete(v) && !tsr_routed_is_rows(v->routed) && !in_parts &&
               !is_of_microbatch(t, g, value);
  is->sampled = is_sampled(g, v);
  is->whole = whole_elements(t, value, shape);
}

typedef struct {
  const char *name;
  int value;
} named;

static int by_name(const void *a, const void *b) {
  const named *x = a, *y = b;
  int order = strcmp(x->name, y->name);
  return order ? order : x->value - y->value;
}

/* Nodes may share a name: "NAME#2" is the second one. What is stored has its own. */
static void number_names(tsr_arena *arena, tsr_value_trace *t, const tsr_graph *g) {
  named *all = tsr_arena_array(arena, named, 2 * g->values_count + 1);
  int count = 0;
  for (int v = 0; v < g->values_count; v++) {
    bool stored = g->values[v].kind == TSR_VALUE_PARAM || g->values[v].kind == TSR_VALUE_STATE;
    if (stored) all[count++] = (named){g->values[v].name, -1};
    if (t->values[v].origin == v) all[count++] = (named){t->names[v], v};
  }
  qsort(all, (size_t)count, sizeof *all, by_name);
  for (int i = 0, same = 1; i < count; i++) {
    same = i && !strcmp(all[i].name, all[i - 1].name) ? same + 1 : 1;
    if (same > 1 && all[i].value >= 0)
      t->names[all[i].value] = tsr_arena_printf(arena, "%s#%d", all[i].name, same);
  }
}

/* Not what is stored. */
static bool is_computed(const tsr_value *v) {
  return v->kind == TSR_VALUE_NODE || v->kind == TSR_VALUE_INPUT;
}

/* "sum.NAME", a sum over microbatches, is what one microbatch alone has as NAME; the summand, which
 * only some of the nodes have as a value, is of a microbatch. */
static void name_sums(tsr_arena *arena, tsr_value_trace *t, const tsr_graph *g) {
  static const char prefix[] = "sum.";
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    if (!tsr_node_accumulates(n)) continue;
    const char *name = t->names[n->outputs[0]];
    size_t length = strncmp(name, prefix, sizeof prefix - 1) ? 0 : sizeof prefix - 1;
    t->names[n->outputs[0]] = name + length;
    if (n->op != TSR_OP_ACCUMULATE && !tsr_op_moves(n->op)) continue;
    int of = t->values[n->inputs[0]].origin;
    t->names[of] = tsr_arena_printf(arena, "microbatch.%s", t->names[of]);
  }
}

/* Gradients have the names of their parameters, whatever sums them up. */
static void name_values(tsr_arena *arena, tsr_value_trace *t, const tsr_graph *g) {
  t->names = tsr_arena_array(arena, const char *, g->values_count + 1);
  for (int v = 0; v < g->values_count; v++) {
    const char *name = g->values[v].name;
    t->names[v] = is_computed(&g->values[v]) ? name : tsr_arena_printf(arena, "copy.%s", name);
  }
  name_sums(arena, t, g);
  for (int p = 0; g->grads && p < g->params_count; p++)
    if (g->grads[p] >= 0)
      t->names[t->values[g->grads[p]].origin] =
          tsr_arena_printf(arena, "grad.%s", g->params[p].name);
  if (g->loss >= 0) t->names[t->values[g->loss].origin] = "loss";
  number_names(arena, t, g);
}

/* A node without a task gives its input's bytes another name. */
static void link_alias(tsr_value_trace *t, const tsr_program *p, int node) {
  const tsr_node *n = &p->graph->nodes[node];
  if (!n->outputs_count || !tsr_program_is_alias(p, node)) return;
  traced *of = &t->values[n->inputs[0]];
  t->values[n->outputs[0]].next = of->alias;
  of->alias = n->outputs[0];
}

tsr_value_trace *tsr_executable_trace(tsr_arena *arena, tsr_executable *b) {
  const tsr_graph *g = b->programs->graph;
  tsr_value_trace *t = tsr_arena_alloc(arena, sizeof *t);
  *t = (tsr_value_trace){.executable = b};
  t->values = tsr_arena_array(arena, traced, g->values_count + 1);
  t->list = tsr_arena_array(arena, tsr_traced_value, g->values_count + 1);
  t->entry_of = tsr_arena_array(arena, int, g->values_count + 1);
  for (int v = 0; v < g->values_count; v++) describe(t, v);
  name_values(arena, t, g);
  for (int i = 0; i < g->nodes_count; i++) link_alias(t, b->programs->of_stage[0], i);
  return b->trace = t;
}

/* ---- while a step runs ---- */

static void forget(traced *is) {
  is->hash = 0;
  is->count = 0;
  is->sum = is->squares = 0;
}

void tsr_value_trace_begin(tsr_value_trace *t) {
  for (int v = 0; v < t->executable->programs->graph->values_count; v++) forget(&t->values[v]);
}

/* Numbers of a part, as f32. */
static void read_numbers(
    const tsr_kernels *k, const tsr_hash_part *p, int64_t first, int64_t count, float *out) {
  const char *from = (const char *)p->data + first * tsr_dtype_bytes(p->dtype);
  if (p->dtype == TSR_BF16) k->bf16_to_f32(out, (const uint16_t *)(const void *)from, 0, count);
  else if (p->dtype == TSR_F16) k->fp16_to_f32(out, (const uint16_t *)(const void *)from, 0, count);
  else memcpy(out, from, sizeof(float) * (size_t)count);
}

static void measure(const tsr_kernels *k, const tsr_hash_part *p, tsr_element_run run, traced *is) {
  enum { PIECE = 512 };
  float numbers[PIECE];
  for (int64_t i = 0; i < run.count; i += PIECE) {
    int64_t count = run.count - i < PIECE ? run.count - i : PIECE;
    read_numbers(k, p, run.at + i, count, numbers);
    for (int64_t n = 0; n < count; n++) {
      double x = isfinite(numbers[n]) ? (double)numbers[n] : 0;
      is->sum += x;
      is->squares += x * x;
    }
  }
}

static void add_slice(tsr_value_trace *t, int value, tsr_hash_part *part) {
  const tsr_executable *b = t->executable;
  const tsr_kernels *k = b->process->options.kernels;
  const tsr_device *d = b->process->host;
  traced *is = &t->values[value];
  d->hash(d->state, part, &is->hash);
  for (tsr_element_run run = {0};
       tsr_element_run_next(&part->part, &part->padding, part->begin, part->end, &run);) {
    is->count += run.count;
    if (is->capture) read_numbers(k, part, run.at, run.count, is->capture + run.whole);
    if (t->measures && part->dtype != TSR_I32) measure(k, part, run, is);
  }
}

/* The parts of zigzag positions are two runs each (base/sequence_layout.h). */
static void add_zigzag(
    tsr_value_trace *t, const tsr_task_call *c, int value, const tsr_tensor *of,
    tsr_hash_part *part) {
  int dim = tsr_operand_zigzag_dim(c, of);
  tsr_tensor_slice whole = part->part;
  const char *at = part->data;
  int64_t runs = 2, elements = 1;
  for (int d = 0; d < dim; d++) runs *= of->shape[d];
  for (int d = dim; d < of->ndim; d++) elements *= of->shape[d];
  for (int64_t i = 0; i < runs; i++) {
    part->part = tsr_operand_run_slice(c, of, &whole, dim, i);
    part->data = at + i * (elements / 2) * tsr_dtype_bytes(of->dtype);
    part->end = elements / 2;
    add_slice(t, value, part);
  }
}

static void add_rank(tsr_value_trace *t, const tsr_task_at *at, int value, int rank) {
  const tsr_executable *b = t->executable;
  const tsr_program *p = tsr_executable_program(b, rank);
  const tsr_tensor *of = &p->tensors[value];
  const tsr_padding *padding = tsr_value_padding(p->graph, &p->graph->values[value]);
  tsr_task_call call = {p, at->task, &b->ranks[rank], at->at};
  tsr_device_view view;
  tsr_hash_part part = {
      .data = tsr_executable_view(b, value, rank, at->at.microbatch, TSR_VIEW_READ, &view),
      .dtype = of->dtype,
      .end = tsr_tensor_elements(of)};
  bool sampled = t->values[value].sampled;
  part.part = sampled ? tsr_operand_sample_slice(&call, of) : tsr_operand_slice(&call, of);
  part.padding = padding && padding->blocks ? *padding : (tsr_padding){0, part.part.global[0], 1};
  if (tsr_operand_zigzag_dim(&call, of) >= 0) add_zigzag(t, &call, value, of, &part);
  else add_slice(t, value, &part);
  tsr_device_view_close(&view);
}

/* Whether a rank has a part of a value that no rank before it has. A collective over pp is run
 * once, by the stage that comes last. */
static bool has_part(const tsr_value_trace *t, const tsr_task_at *at, int value, int rank) {
  const tsr_executable *b = t->executable;
  bool over_pp = at->task && at->task->axis == TSR_PP;
  return (over_pp || b->ranks[rank].coord[TSR_PP] == at->program->stage) &&
         tsr_executable_holds(b, value, rank) &&
         tsr_executable_first_holder(b, value, rank) == rank;
}

static void add_value(tsr_value_trace *t, const tsr_task_at *at, int value) {
  const tsr_executable *b = t->executable;
  const tsr_graph *g = b->programs->graph;
  traced *is = &t->values[value];
  bool last = at->at.microbatch + 1 == at->program->pipeline->microbatches;
  int node = g->values[value].node;
  bool once = node >= 0 && g->nodes[node].section == TSR_PROLOGUE;
  for (int v = is->alias; v >= 0; v = t->values[v].next) add_value(t, at, v);
  if (!is->traced || !(is->sampled || last || once)) return;
  bool begun = is->sampled; /* else of the last execution */
  for (int r = 0; r < b->process->options.parallel->ranks; r++) {
    if (!has_part(t, at, value, r)) continue;
    if (!begun) forget(is);
    begun = true;
    is->stage = at->program->stage;
    is->task = at->task ? (int)(at->task - at->program->tasks) : -1;
    add_rank(t, at, value, r);
  }
}

void tsr_value_trace_add(tsr_value_trace *t, const tsr_task_at *at) {
  const tsr_device *d = t->executable->process->device;
  d->wait(d->state);
  for (int i = 0; i < at->task->outputs_count; i++) add_value(t, at, at->task->outputs[i].value);
}

/* A stage fills an input for each of its chunks that reads it. */
static bool is_filled_first(const tsr_program *p, int part, int value) {
  bool before = false;
  for (int i = 0; i < part; i++) before |= tsr_program_fills(p, i, value);
  return !before && tsr_program_fills(p, part, value);
}

void tsr_value_trace_add_inputs(tsr_value_trace *t, const tsr_task_at *at, const tsr_run *run) {
  const tsr_graph *g = t->executable->programs->graph;
  for (int v = 0; v < g->values_count; v++)
    if (g->values[v].kind == TSR_VALUE_INPUT && is_filled_first(at->program, run->part, v))
      add_value(t, at, v);
}

/* ---- reading ---- */

static bool is_again(const tsr_graph *g, int origin) {
  static const char prefix[] = "recompute."; /* of the ring's steps, too */
  return g->values[origin].kind == TSR_VALUE_NODE &&
         !strncmp(g->values[origin].name, prefix, sizeof prefix - 1);
}

/* The first complete form of each tensor; `whole`: those that the step has computed wholly. */
static int list_values(const tsr_value_trace *t, bool whole, const tsr_traced_value **ret) {
  const tsr_graph *g = t->executable->programs->graph;
  int count = 0;
  for (int v = 0; v < g->values_count; v++) {
    const traced *is = &t->values[v];
    if (!is->traced || (whole && is->count != is->whole)) continue;
    tsr_traced_value *entry = &t->list[t->entry_of[is->origin]];
    bool known = t->entry_of[is->origin] < count && t->values[entry->value].origin == is->origin;
    if (known) {
      bool cast = g->values[v].dtype != g->values[entry->value].dtype;
      if (entry->hash != is->hash && !cast && entry->differing < 0) entry->differing = v;
      continue;
    }
    t->entry_of[is->origin] = count;
    t->list[count] = (tsr_traced_value){
        .name = t->names[is->origin],
        .value = v,
        .stage = is->stage,
        .task = is->task,
        .dtype = g->values[v].dtype,
        .ndim = g->values[v].ndim,
        .hash = is->hash,
        .is_copy = !is_computed(&g->values[is->origin]),
        .is_again = is_again(g, is->origin),
        .differing = -1};
    whole_elements(t, v, t->list[count++].shape);
  }
  *ret = t->list;
  return count;
}

int tsr_value_trace_read(const tsr_value_trace *t, const tsr_traced_value **ret) {
  return list_values(t, true, ret);
}

int tsr_value_trace_candidates(const tsr_value_trace *t, const tsr_traced_value **ret) {
  return list_values(t, false, ret);
}

void tsr_value_trace_capture(tsr_value_trace *t, int value, float *out) {
  t->values[value].capture = out;
}

void tsr_value_trace_measure(tsr_value_trace *t) { t->measures = true; }

void tsr_value_trace_sizes(const tsr_value_trace *t, tsr_value_size *ret) {
  const tsr_graph *g = t->executable->programs->graph;
  for (int v = 0; v < g->values_count; v++) ret[v] = (tsr_value_size){.square = -1};
  for (int v = 0; v < g->values_count; v++) {
    const traced *is = &t->values[v];
    double n = (double)is->count;
    if (is->traced && is->count && is->count == is->whole && g->values[v].dtype != TSR_I32)
      ret[is->origin] = (tsr_value_size){is->squares / n, is->sum / n};
  }
  for (int v = 0; v < g->values_count; v++) ret[v] = ret[t->values[v].origin];
}
