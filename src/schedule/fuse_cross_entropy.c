// SPDX-License-Identifier: Apache-2.0
#include "schedule/fuse_cross_entropy.h"
#include "schedule/geometry.h"
#include "schedule/row_tiles.h"

enum { NODES_MAX = 6 };

/* Indices of tasks; -1: there is none. */
typedef struct {
  int linear, stats, loss; /* of the forward pass */
  int loss_dx, dx, dw;     /* of the backward pass */
} classifier;

static const tsr_task *task_at(const tsr_fusing *f, int task) { return &f->p->tasks[task]; }

static int root_of_input(const tsr_fusing *f, int task, int input) {
  return f->roots.of[tsr_task_input(f->p, task_at(f, task), input)];
}

static const tsr_node *node_at(const tsr_fusing *f, int task) {
  return &f->p->graph->nodes[task_at(f, task)->node];
}

static int output(const tsr_fusing *f, int task, int i) { return node_at(f, task)->outputs[i]; }

static bool is_plain(const tsr_fusing *f, int task) {
  return !f->absorbed[task] && !task_at(f, task)->fused && !task_at(f, task)->last_only;
}

/* The task of an op whose first input has these bytes. */
static int find_reader(const tsr_fusing *f, tsr_op op, int root) {
  for (int i = 0; i < f->p->tasks_count; i++)
    if (task_at(f, i)->op == op && is_plain(f, i) && root_of_input(f, i, 0) == root) return i;
  return -1;
}

static int find_writer(const tsr_fusing *f, tsr_op op, int root) {
  for (int i = 0; i < f->p->tasks_count; i++)
    if (task_at(f, i)->op == op && is_plain(f, i) && output(f, i, 0) == root) return i;
  return -1;
}

/* In the order of their nodes. */
static int list_tasks(const tsr_fusing *f, const classifier *c, int tasks[NODES_MAX]) {
  const int all[NODES_MAX] = {c->linear, c->stats, c->loss, c->loss_dx, c->dx, c->dw};
  int count = 0;
  for (int i = 0; i < NODES_MAX; i++) {
    if (all[i] < 0) continue;
    int at = count++;
    for (; at > 0 && task_at(f, tasks[at - 1])->node > task_at(f, all[i])->node; at--)
      tasks[at] = tasks[at - 1];
    tasks[at] = all[i];
  }
  return count;
}

/* Whether the tasks are there, and only they read the logits, the statistics and the gradient. */
static bool find_gradients(const tsr_fusing *f, classifier *c) {
  int gradient = output(f, c->loss_dx, 0);
  c->dx = find_reader(f, TSR_OP_LINEAR_DX, gradient);
  c->dw = find_reader(f, TSR_OP_LINEAR_DW, gradient);
  int count = (c->dx >= 0) + (c->dw >= 0);
  return count && f->roots.readers[gradient] == count;
}

static bool find_classifier(const tsr_fusing *f, int loss, classifier *ret) {
  classifier c = {.loss = loss, .dx = -1, .dw = -1};
  const int *readers = f->roots.readers;
  int logits = root_of_input(f, loss, 0), stats = root_of_input(f, loss, 1);
  c.linear = find_writer(f, TSR_OP_LINEAR, logits);
  c.stats = find_writer(f, TSR_OP_CE_STATS, stats);
  c.loss_dx = find_reader(f, TSR_OP_CE_LOSS_DX, logits);
  if (c.linear < 0 || c.stats < 0 || root_of_input(f, c.stats, 0) != logits) return false;
  bool trains = c.loss_dx >= 0;
  int rows = output(f, loss, 1);
  if (readers[logits] != 2 + trains || readers[stats] != 1 || readers[rows] != trains) return false;
  if (trains && (!find_gradients(f, &c) || root_of_input(f, c.loss_dx, 1) != rows)) return false;
  *ret = c;
  return true;
}

/* The logits and their gradient are whole rows in f32, and the gradient is that of the operands
 * which the forward pass read. */
static bool fits(const tsr_fusing *f, const classifier *c) {
  const tsr_tensor *logits = &f->p->tensors[output(f, c->linear, 0)];
  if (logits->dtype != TSR_F32 || logits->units) return false;
  if (c->loss_dx >= 0 && f->p->tensors[output(f, c->loss_dx, 0)].dtype != TSR_F32) return false;
  if (c->dx >= 0 &&
      (task_at(f, c->dx)->inputs_count != 2 || f->p->tensors[output(f, c->dx, 0)].units ||
       root_of_input(f, c->dx, 1) != root_of_input(f, c->linear, 1)))
    return false;
  return c->dw < 0 || root_of_input(f, c->dw, 1) == root_of_input(f, c->linear, 0);
}

/* Where rows are not alone a tile's GEMMs have calls of their own (classifier_calls.h), of operands
 * of one type. */
static bool has_calls(const tsr_fusing *f, const classifier *c) {
  const tsr_task *linear = task_at(f, c->linear);
  const tsr_tensor *x = &f->p->tensors[tsr_task_input(f->p, linear, 0)],
                   *w = &f->p->tensors[tsr_task_input(f->p, linear, 1)];
  return f->target->rows_are_alone || (x->dtype == w->dtype && !linear->fp8 && !x->units);
}

/* Tasks of the forward pass of a virtual stage, and of its backward pass. */
static bool have_two_parts(const tsr_fusing *f, const classifier *c) {
  const int all[NODES_MAX] = {c->linear, c->stats, c->loss, c->loss_dx, c->dx, c->dw};
  for (int i = 0; i < NODES_MAX; i++) {
    int first = i < 3 ? c->linear : c->loss_dx;
    if (all[i] < 0) continue;
    if (node_at(f, all[i])->stage != node_at(f, c->linear)->stage) return false;
    if (f->part_end[all[i]] != f->part_end[first]) return false;
  }
  tsr_section section = c->loss_dx >= 0 ? task_at(f, c->loss_dx)->section : TSR_BACKWARD;
  return task_at(f, c->linear)->section == TSR_FORWARD && section == TSR_BACKWARD;
}

/* The tasks of the statistics, or of the gradients. */
static bool find_part(const tsr_fusing *f, int task, classifier *ret) {
  bool of_stats = task_at(f, task)->op == TSR_OP_CE_STATS;
  classifier c = {-1, -1, -1, -1, -1, -1};
  int logits = root_of_input(f, task, 0);
  *(of_stats ? &c.stats : &c.loss_dx) = task;
  c.linear = find_writer(f, TSR_OP_LINEAR, logits);
  *ret = c;
  return c.linear >= 0 && tsr_fusing_reads(f, logits) == 1 && (of_stats || find_gradients(f, ret));
}

static bool is_one_part(const tsr_fusing *f, const int *tasks, int count) {
  for (int i = 1; i < count; i++) {
    if (node_at(f, tasks[i])->stage != node_at(f, tasks[0])->stage) return false;
    if (f->part_end[tasks[i]] != f->part_end[tasks[0]]) return false;
  }
  return true;
}

static bool find_tiles(const tsr_fusing *f, const classifier *c, tsr_row_tiles *ret) {
  const tsr_tensor *logits = &f->p->tensors[output(f, c->linear, 0)];
  const tsr_tensor *x = &f->p->tensors[tsr_task_input(f->p, task_at(f, c->linear), 0)];
  const tsr_reduction *weight = c->dw >= 0 ? &task_at(f, c->dw)->sum : NULL;
  int64_t calls = task_at(f, c->linear)->calls.rows,
          most = calls ? calls : f->target->tile_rows(tsr_tensor_last(logits)),
          runs = f->target->rows_are_alone ? 0 : tsr_tensor_row_runs(f->p, x);
  return tsr_row_tiles_make(weight, tsr_tensor_rows(logits), runs, most, ret) &&
         tsr_row_tiles_count(ret) > 1;
}

/* ---- the task ---- */

static void exchange(tsr_fusing *f, int *a, int *b) {
  tsr_task t = *task_at(f, *a);
  f->p->tasks[*a] = *task_at(f, *b);
  f->p->tasks[*b] = t;
  int index = *a;
  *a = *b;
  *b = index;
}

/* The fused task's base is the last GEMM of a row, which takes the place of the last task of a row
 * that is none. */
static void move_base(tsr_fusing *f, classifier *c) {
  if (c->loss_dx >= 0) exchange(f, c->dx >= 0 ? &c->dx : &c->dw, &c->loss_dx);
  else exchange(f, &c->linear, c->loss >= 0 ? &c->loss : &c->stats);
}

static int base_of(const classifier *c) {
  if (c->loss_dx < 0) return c->linear;
  return c->dx >= 0 ? c->dx : c->dw;
}

/* Fuses the tasks at the place of the loss or of its gradient; returns the task. */
static tsr_task *fuse(tsr_fusing *f, tsr_fused_form form, classifier *c) {
  int tasks[NODES_MAX];
  move_base(f, c);
  int count = list_tasks(f, c, tasks);
  tsr_task *covered = tsr_arena_array(f->arena, tsr_task, count);
  for (int i = 0; i < count; i++) covered[i] = *task_at(f, tasks[i]);
  tsr_fuse_tasks(f, form, tasks, count, base_of(c));
  f->p->tasks[base_of(c)].covered = covered;
  return &f->p->tasks[base_of(c)];
}

void tsr_fuse_cross_entropy(tsr_fusing *f, int loss) {
  classifier c;
  tsr_row_tiles tiles;
  int tasks[NODES_MAX];
  if (task_at(f, loss)->op != TSR_OP_CE_LOSS || !is_plain(f, loss)) return;
  if (!find_classifier(f, loss, &c) || !fits(f, &c) || !has_calls(f, &c)) return;
  if (!have_two_parts(f, &c)) return;
  int count = list_tasks(f, &c, tasks), at = c.loss_dx >= 0 ? c.loss_dx : c.loss;
  if (!tsr_fusing_can_meet(f, tasks, count, at) || !find_tiles(f, &c, &tiles)) return;
  fuse(f, TSR_FUSED_LINEAR_CROSS_ENTROPY, &c)->tiles = tiles;
}

void tsr_fuse_cross_entropy_part(tsr_fusing *f, int task) {
  classifier c;
  tsr_row_tiles tiles;
  int tasks[NODES_MAX];
  tsr_op op = task_at(f, task)->op;
  if ((op != TSR_OP_CE_STATS && op != TSR_OP_CE_LOSS_DX) || !is_plain(f, task)) return;
  if (!find_part(f, task, &c) || !fits(f, &c) || !has_calls(f, &c)) return;
  int count = list_tasks(f, &c, tasks);
  if (!is_one_part(f, tasks, count) || !tsr_fusing_can_meet(f, tasks, count, task)) return;
  if (find_tiles(f, &c, &tiles)) fuse(f, TSR_FUSED_LINEAR_CROSS_ENTROPY, &c)->tiles = tiles;
}

/* Whether a GEMM that reads the gradient reads it as the half precision of its other operand. */
static bool rounds(const tsr_fusing *f, const classifier *c, int task) {
  if (task < 0) return true;
  const tsr_tensor *other = &f->p->tensors[tsr_task_input(f->p, task_at(f, task), 1)];
  return tsr_dtype_is_half(other->dtype) && !other->units &&
         f->part_end[task] == f->part_end[c->loss_dx];
}

void tsr_fuse_logits_gradient(tsr_fusing *f, int loss_dx) {
  classifier c = {-1, -1, -1, loss_dx, -1, -1};
  int tasks[NODES_MAX];
  if (task_at(f, loss_dx)->op != TSR_OP_CE_LOSS_DX || !is_plain(f, loss_dx)) return;
  if (f->p->tensors[output(f, loss_dx, 0)].dtype != TSR_F32 || !find_gradients(f, &c)) return;
  if (!rounds(f, &c, c.dx) || !rounds(f, &c, c.dw)) return;
  if (c.dx >= 0 && task_at(f, c.dx)->inputs_count != 2) return;
  int count = list_tasks(f, &c, tasks);
  if (tsr_fusing_can_meet(f, tasks, count, loss_dx)) fuse(f, TSR_FUSED_LOGITS_GRADIENT, &c);
}
