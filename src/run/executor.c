/* Steps all ranks through the program, task by task. A task's work is dealt as (rank, range) jobs;
 * a collective first has all its inputs, because every rank has finished the task before it. */
#include "comm/collective.h"
#include "run/internal.h"
#include <assert.h>
#include <string.h>

typedef struct {
  tsr_bound *bound;
  const tsr_task *task;
  const tsr_cpu_op *op;
  tsr_moment moment;
  int ranges; /* a rank's items are cut into */
  int64_t items;
} task_run;

static tsr_cpu_call call_for(const task_run *t, int rank) {
  const tsr_worker_options *o = &t->bound->worker->options;
  return (tsr_cpu_call){o->kernels, t->bound->program, t->task, &t->bound->ranks[rank],
                        t->moment,  o->threads};
}

/* Ranges begin at multiples of 16 items, so that vector kernels and products keep whole blocks. */
static int64_t cut(int64_t items, int index, int ranges) {
  if (index == ranges) return items;
  int64_t at = items * index / ranges;
  return items >= 64 * ranges ? at / 16 * 16 : at;
}

static void run_range(void *context, int job) {
  const task_run *t = context;
  tsr_cpu_call call = call_for(t, job / t->ranges);
  int range = job % t->ranges;
  int64_t begin = cut(t->items, range, t->ranges), end = cut(t->items, range + 1, t->ranges);
  if (begin < end) t->op->run(&call, begin, end, range);
}

static void run_before(void *context, int rank) {
  const task_run *t = context;
  tsr_cpu_call call = call_for(t, rank);
  t->op->before(&call);
}

static void run_after(void *context, int rank) {
  const task_run *t = context;
  tsr_cpu_call call = call_for(t, rank);
  t->op->after(&call);
}

static void run_op(task_run *t) {
  tsr_worker *w = t->bound->worker;
  int ranks = w->options.parallel->ranks;
  t->items = t->op->items(t->task);
  t->ranges = ranks % w->options.threads ? w->options.threads : 1;
  if (t->op->before) tsr_pool_run(w->pool, run_before, t, ranks);
  tsr_pool_run(w->pool, run_range, t, ranks * t->ranges);
  if (t->op->after) tsr_pool_run(w->pool, run_after, t, ranks);
}

/* ---- collectives ---- */

typedef struct {
  tsr_collective collective;
  int ranges;
  int64_t items;
} group_run;

static void run_group_range(void *context, int job) {
  const group_run *g = context;
  int64_t begin = cut(g->items, job, g->ranges), end = cut(g->items, job + 1, g->ranges);
  if (begin < end) tsr_collective_run(&g->collective, begin, end);
}

/* The tensor as the collective sees it: whole over its axis; kept units are its first dimension's
 * front. */
static void describe(const task_run *t, tsr_collective *c) {
  const tsr_tensor *in = &t->task->inputs[0];
  const double *attr = t->bound->program->graph->nodes[t->task->node].attr;
  *c = (tsr_collective){.op = t->task->op, .ndim = in->ndim, .from = -1, .to = -1};
  c->k = t->bound->worker->options.kernels;
  c->members = t->bound->worker->options.parallel->size[t->task->axis];
  memcpy(c->shape, in->shape, sizeof c->shape);
  assert(!in->units || t->task->op == TSR_OP_ALL_REDUCE);
  if (in->units) c->shape[0] *= in->units;
  if (t->task->op == TSR_OP_REDUCE_SCATTER) c->to = (int)attr[1];
  if (t->task->op == TSR_OP_ALL_TO_ALL) c->to = (int)attr[2];
  const tsr_value *v = &t->bound->program->graph->values[in->value];
  if (v->placement[t->task->axis].kind == TSR_SHARD) c->from = v->placement[t->task->axis].dim;
  if (c->from >= 0) c->shape[c->from] *= c->members;
}

static void run_collective(const task_run *t) {
  tsr_worker *w = t->bound->worker;
  const tsr_parallel *p = w->options.parallel;
  group_run g;
  describe(t, &g.collective);
  g.collective.in = w->in;
  g.collective.out = w->out;
  g.items = tsr_collective_items(&g.collective);
  g.ranges = w->options.threads;
  for (int rank = 0; rank < p->ranks; rank++) {
    if (tsr_parallel_coord(p, rank, t->task->axis))
      continue; /* a group is run by its first member */
    for (int m = 0; m < g.collective.members; m++) {
      int member = tsr_parallel_member(p, rank, t->task->axis, m);
      w->in[m] = tsr_bound_address(t->bound, t->task->inputs[0].value, member);
      w->out[m] = tsr_bound_address(t->bound, t->task->outputs[0].value, member);
    }
    tsr_pool_run(w->pool, run_group_range, &g, g.ranges);
  }
}

static void run_tasks(tsr_bound *b, int begin, int end, tsr_moment moment) {
  for (int i = begin; i < end; i++) {
    task_run t = {.bound = b, .task = &b->program->tasks[i], .moment = moment};
    t.op = tsr_cpu_find(t.task->op);
    if (t.op) run_op(&t);
    else run_collective(&t);
  }
}

/* ---- inputs ---- */

typedef struct {
  tsr_bound *bound;
  tsr_moment moment;
  tsr_fill_row *fill;
  void *context;
} filling;

/* Rows of dimension 0 come from the data; an input that no data is for is random by its name. */
static void fill_input(const filling *f, int value, int rank) {
  const tsr_value *v = &f->bound->program->graph->values[value];
  tsr_box box = tsr_bound_box(f->bound, value, rank);
  char *part = (char *)tsr_bound_address(f->bound, value, rank);
  int64_t row = 4;
  for (int d = 1; d < box.ndim; d++) row *= box.shape[d];
  if (!f->fill) {
    int64_t rows = 1;
    for (int d = 0; d < box.ndim - 1; d++) rows *= box.shape[d];
    const tsr_worker_options *o = &f->bound->worker->options;
    uint64_t key = tsr_random_key(o->seed, v->name, (uint64_t)f->moment.step);
    o->kernels->random_normal((float *)(void *)part, 0, 1, key, &box, 0, rows);
    return;
  }
  int64_t microbatches = f->bound->program->lowering.microbatches;
  int64_t first = box.offset[0] * microbatches + f->moment.microbatch * box.shape[0];
  for (int64_t i = 0; i < box.shape[0]; i++)
    f->fill(f->context, v->name, first + i, part + i * row);
}

static void fill_rank(void *context, int rank) {
  const filling *f = context;
  const tsr_graph *g = f->bound->program->graph;
  for (int v = 0; v < g->values_count; v++)
    if (g->values[v].kind == TSR_VALUE_INPUT) fill_input(f, v, rank);
}

void tsr_bound_run_body(
    tsr_bound *b, int64_t step, int64_t microbatch, tsr_fill_row *fill, void *context) {
  filling f = {b, {b->worker->options.seed, step, microbatch}, fill, context};
  tsr_pool_run(b->worker->pool, fill_rank, &f, b->worker->options.parallel->ranks);
  run_tasks(b, 0, b->program->update_begin, f.moment);
}

void tsr_bound_run_update(tsr_bound *b, int64_t step) {
  tsr_moment moment = {b->worker->options.seed, step, b->program->lowering.microbatches - 1};
  run_tasks(b, b->program->update_begin, b->program->tasks_count, moment);
}

void tsr_bound_set_hyper(tsr_bound *b, const float hyper[TSR_HYPERS]) {
  if (b->program->graph->hyper < 0) return;
  for (int r = 0; r < b->worker->options.parallel->ranks; r++)
    memcpy(tsr_bound_address(b, b->program->graph->hyper, r), hyper, sizeof(float) * TSR_HYPERS);
}
