// SPDX-License-Identifier: Apache-2.0
#include "schedule/fuse_gemms.h"
#include "schedule/fuse.h"
#include <string.h>

typedef struct {
  tsr_fusing *f;
  int *last_read; /* per root: the last task that reads it */
  unsigned which; /* of TSR_GEMMS_* */
} batching;

typedef struct {
  int count, tasks[TSR_GEMMS_MAX];
  int at; /* the place where they run: one of them */
} batch;

static const tsr_task *task_at(const batching *b, int task) { return &b->f->p->tasks[task]; }
static const tsr_value *value_at(const batching *b, int value) {
  return &b->f->p->graph->values[value];
}
static const tsr_tensor *tensor_at(const batching *b, int value) {
  return &b->f->p->tensors[value];
}
static int input(const batching *b, int task, int i) {
  return tsr_task_input(b->f->p, task_at(b, task), i);
}
static int output(const batching *b, int task) {
  return tsr_task_output(b->f->p, task_at(b, task), 0);
}
static int root_of_input(const batching *b, int task, int i) {
  return b->f->roots.of[input(b, task, i)];
}

/* Inputs that are read: (x, w[, bias]) of linear, (dy, x) of linear_dw. */
static int inputs_of(const tsr_task *t) {
  int shape = tsr_task_shape_input(t);
  return t->inputs_count - (shape >= 0);
}

/* The input that the GEMMs of a batch share. */
static int shared_input(tsr_op op) { return op == TSR_OP_LINEAR ? 0 : 1; }

/* A plain GEMM, or one whose epilogue is a bias. */
static bool has_form(const batching *b, const tsr_task *t) {
  if (!t->fused) return true;
  if (t->fused != TSR_FUSED_EPILOGUE || t->nodes_count != 2 || t->inputs_count != 3) return false;
  const tsr_tensor *bias = tensor_at(b, t->values[2]), *y = tensor_at(b, t->results[0]);
  return t->outputs_count == 1 && bias->ndim == 1 && y->ndim > 1;
}

/* Operands of one type that are complete on this rank; sums over units have results in f32. */
static bool is_gemm(const batching *b, int task) {
  const tsr_task *t = task_at(b, task);
  bool dw = t->op == TSR_OP_LINEAR_DW;
  if ((t->op != TSR_OP_LINEAR && !dw) || b->f->absorbed[task] || t->fp8 || t->covered) return false;
  if (!(b->which & (dw ? TSR_GEMMS_LINEAR_DW : TSR_GEMMS_LINEAR))) return false;
  if (t->calls.rows || t->calls.run || !has_form(b, t)) return false;
  const tsr_tensor *y = tensor_at(b, output(b, task)), *first = tensor_at(b, input(b, task, 0));
  for (int k = 0; k < inputs_of(t); k++) {
    const tsr_tensor *x = tensor_at(b, input(b, task, k));
    if (x->segment == TSR_SEGMENT_ABSENT || x->units || x->dtype != first->dtype) return false;
  }
  if (dw) return y->dtype == TSR_F32 && !tsr_dtype_is_quantized(first->dtype);
  bool adds = tsr_reduction_is_split(&t->sum) || y->units;
  return !adds && (y->dtype == first->dtype || y->dtype == TSR_F32) &&
         !tsr_dtype_is_quantized(first->dtype);
}

static bool have_one_shape(const batching *b, int x, int y) {
  const tsr_tensor *s = tensor_at(b, x), *t = tensor_at(b, y);
  if (s->dtype != t->dtype || s->ndim != t->ndim || s->units != t->units) return false;
  for (int i = 0; i < s->ndim; i++)
    if (s->shape[i] != t->shape[i]) return false;
  for (int a = 0; a < TSR_AXES; a++)
    if (!tsr_placement_equal(value_at(b, x)->placement[a], value_at(b, y)->placement[a]))
      return false;
  return true;
}

static bool are_alike(const batching *b, int first, int task) {
  const tsr_task *t = task_at(b, first), *u = task_at(b, task);
  if (t->op != u->op || t->last_only != u->last_only || inputs_of(t) != inputs_of(u)) return false;
  int shared = shared_input(t->op);
  if (root_of_input(b, first, shared) != root_of_input(b, task, shared)) return false;
  if (b->f->p->graph->nodes[t->node].stage != b->f->p->graph->nodes[u->node].stage) return false;
  for (int k = 0; k < t->inputs_count; k++)
    if (!have_one_shape(b, input(b, first, k), input(b, task, k))) return false;
  return have_one_shape(b, output(b, first), output(b, task)) &&
         tsr_reduction_equal(&t->sum, &u->sum);
}

static bool reads_result(const batching *b, int task, int of) {
  for (int k = 0; k < inputs_of(task_at(b, task)); k++)
    if (root_of_input(b, task, k) == b->f->roots.of[output(b, of)]) return true;
  return false;
}

/* ---- the place ---- */

/* Whether a value lives longer, or one is written earlier, than before the tasks moved. */
static bool extends_lifetimes(const batching *b, const batch *g, int at) {
  for (int i = 0; i < g->count; i++) {
    if (at < g->tasks[i]) return true;
    for (int k = 0; k < inputs_of(task_at(b, g->tasks[i])); k++) {
      int root = root_of_input(b, g->tasks[i], k);
      bool planned = tensor_at(b, root)->segment == TSR_SEGMENT_WORK;
      if (planned && b->last_read[root] < at) return true;
    }
  }
  return false;
}

/* The latest place of those of its tasks where all of them can run; -1: there is none. */
static int find_place(const batching *b, const batch *g) {
  for (int i = g->count - 1; i >= 0; i--) {
    int at = g->tasks[i];
    if (!(b->which & TSR_GEMMS_EXTENDING) && extends_lifetimes(b, g, at)) continue;
    if (tsr_fusing_can_meet(b->f, g->tasks, g->count, at)) return at;
  }
  return -1;
}

/* Adds a task that can run with the others. */
static void add_task(const batching *b, batch *g, int task) {
  for (int i = 0; i < g->count; i++)
    if (reads_result(b, g->tasks[i], task) || reads_result(b, task, g->tasks[i])) return;
  g->tasks[g->count++] = task;
  int at = find_place(b, g);
  if (at >= 0) g->at = at;
  else g->count--;
}

/* ---- the task ---- */

/* Into the order of the graph. */
static void sort_by_node(const batching *b, batch *g) {
  for (int i = 1; i < g->count; i++)
    for (int k = i; k > 0 && task_at(b, g->tasks[k])->node < task_at(b, g->tasks[k - 1])->node;
         k--) {
      int later = g->tasks[k - 1];
      g->tasks[k - 1] = g->tasks[k];
      g->tasks[k] = later;
    }
}

/* Whether the nodes come one after another in the order of the tasks. */
static bool are_in_order(const batching *b, const batch *g) {
  for (int i = 0; i + 1 < g->count; i++) {
    const tsr_task *t = task_at(b, g->tasks[i]);
    int last = t->fused ? t->nodes[t->nodes_count - 1] : t->node;
    if (last >= task_at(b, g->tasks[i + 1])->node) return false;
  }
  return true;
}

static void fuse(const batching *b, batch *g) {
  int nodes = 0, inputs = 0;
  tsr_task fused = *task_at(b, g->at);
  int each = inputs_of(&fused), covers = tsr_task_nodes(&fused);
  fused.nodes = tsr_arena_array(b->f->arena, int, g->count *covers);
  int *values = tsr_arena_array(b->f->arena, int, g->count *each),
      *results = tsr_arena_array(b->f->arena, int, g->count);
  for (int i = 0; i < g->count; i++) {
    const tsr_task *of = task_at(b, g->tasks[i]);
    for (int k = 0; k < covers; k++) fused.nodes[nodes++] = of->fused ? of->nodes[k] : of->node;
    for (int k = 0; k < each; k++) values[inputs++] = input(b, g->tasks[i], k);
    results[i] = output(b, g->tasks[i]);
    b->f->absorbed[g->tasks[i]] = g->tasks[i] != g->at;
  }
  fused.fused = TSR_FUSED_GEMMS;
  fused.nodes_count = nodes;
  fused.values = values;
  fused.results = results;
  fused.inputs_count = inputs;
  fused.outputs_count = g->count;
  b->f->p->tasks[g->at] = fused;
}

static void find_last_reads(batching *b) {
  const tsr_program *p = b->f->p;
  b->last_read = tsr_arena_array(b->f->arena, int, p->graph->values_count + 1);
  for (int i = 0; i < p->tasks_count; i++)
    for (int k = 0; k < p->tasks[i].inputs_count; k++) b->last_read[root_of_input(b, i, k)] = i;
}

void tsr_fuse_gemms(tsr_fusing *f, unsigned gemms) {
  batching b = {.f = f, .which = gemms};
  find_last_reads(&b);
  for (int i = 0; i < f->p->tasks_count; i++) {
    batch g = {1, {i}, i};
    if (f->p->tasks[i].fused == TSR_FUSED_GEMMS || !is_gemm(&b, i)) continue;
    for (int k = i + 1; k < f->part_end[i] && g.count < TSR_GEMMS_MAX; k++)
      if (is_gemm(&b, k) && are_alike(&b, i, k)) add_task(&b, &g, k);
    if (g.count < 2) continue;
    sort_by_node(&b, &g);
    if (are_in_order(&b, &g)) fuse(&b, &g);
  }
}
