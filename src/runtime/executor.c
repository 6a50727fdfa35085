// SPDX-License-Identifier: Apache-2.0
/* Steps the ranks of each stage through its program in lockstep, task by task. A task's work is
 * dealt as (rank, range) jobs; a collective first has all its inputs, because every rank has
 * finished the task before it. Stages take turns: one goes on until it needs what another has not
 * sent yet. */
#include "comm/in_process.h"
#include "runtime/internal.h"
#include <assert.h>
#include <string.h>

typedef struct {
  tsr_bound *bound;
  const tsr_worker_options *options;
  const tsr_program *program;
  const int *ranks; /* of the stage */
  const tsr_task *task;
  const tsr_cpu_op *op;
  tsr_moment moment;
  int ranges; /* a rank's items are cut into */
  int round;
  int64_t items;
} task_run;

static tsr_cpu_call call_for(const task_run *t, int rank) {
  const tsr_worker_options *o = t->options;
  return (tsr_cpu_call){
      .k = o->kernels,
      .program = t->program,
      .task = t->task,
      .rank = &t->bound->ranks[rank],
      .moment = t->moment,
      .threads = o->threads,
      .round = t->round,
      .losses = t->bound->scaled[t->task->node] ? &t->bound->losses : NULL};
}

/* Ranges of many items begin at multiples of 16, so that vector kernels keep whole blocks. */
static int64_t cut(int64_t items, int index, int ranges) {
  if (index == ranges) return items;
  int64_t at = items * index / ranges;
  return items >= 64 * ranges ? at / 16 * 16 : at;
}

static void run_range(void *context, int job) {
  const task_run *t = context;
  tsr_cpu_call call = call_for(t, t->ranks[job / t->ranges]);
  int range = job % t->ranges;
  int64_t begin = cut(t->items, range, t->ranges), end = cut(t->items, range + 1, t->ranges);
  if (begin < end) t->op->run(&call, begin, end, range);
}

static void run_before(void *context, int job) {
  const task_run *t = context;
  tsr_cpu_call call = call_for(t, t->ranks[job / t->ranges]);
  t->op->before(&call, job % t->ranges, t->ranges);
}

static void run_after(void *context, int job) {
  const task_run *t = context;
  tsr_cpu_call call = call_for(t, t->ranks[job]);
  t->op->after(&call);
}

/* Jobs of which `each` are for a rank of the stage. */
static void run_jobs(task_run *t, tsr_pool_job *job, int each) {
  tsr_bound *b = t->bound;
  int jobs = b->ranks_count[t->program->stage] * each;
  if (b->recording) tsr_recorder_run(b->recording, b->worker->pool, job, t, jobs, t->ranks, each);
  else tsr_pool_run(b->worker->pool, job, t, jobs);
}

static void run_widen(void *context, int job) {
  const task_run *t = context;
  tsr_cpu_call call = call_for(t, t->ranks[job / t->ranges]);
  tsr_cpu_widen(&call, job % t->ranges, t->ranges);
}

static void run_narrow(void *context, int job) {
  const task_run *t = context;
  tsr_cpu_call call = call_for(t, t->ranks[job / t->ranges]);
  tsr_cpu_narrow(&call, job % t->ranges, t->ranges);
}

/* What is in a file is the host's to work on. */
static bool is_in_file(const task_run *t) {
  return t->options->state_folder && tsr_task_has_state(t->task);
}

static bool is_on_device(const task_run *t) {
  const tsr_device *d = t->options->device;
  return d && d->has(d->state, t->program, t->task) && !is_in_file(t);
}

/* Begins the task of every rank. */
static void run_on_device(const tsr_device *d, task_run *t) {
  tsr_recorder *r = t->bound->recording; /* which asks how long each task lasts */
  for (int i = 0; i < t->bound->ranks_count[t->program->stage]; i++) {
    int64_t begin = r ? tsr_recorder_now(r) : 0;
    tsr_cpu_call call = call_for(t, t->ranks[i]);
    d->run(d->state, &call);
    if (!r) continue;
    d->wait(d->state);
    tsr_recorder_extend(r, t->ranks[i], begin);
  }
}

static void run_op(task_run *t) {
  tsr_worker *w = t->bound->worker;
  int ranks = t->bound->ranks_count[t->program->stage];
  t->items = t->op->items(t->task);
  t->ranges =
      ranks % w->options.threads ? w->options.threads * (t->op->ranges ? t->op->ranges : 1) : 1;
  bool copies = tsr_cpu_has_copies(t->task);
  if (copies) run_jobs(t, run_widen, t->ranges);
  int rounds = t->op->rounds ? t->op->rounds(t->task) : 1;
  for (t->round = 0; t->round < rounds; t->round++) {
    if (t->op->before) run_jobs(t, run_before, t->ranges);
    run_jobs(t, run_range, t->ranges);
  }
  if (t->op->after) run_jobs(t, run_after, 1);
  if (copies) run_jobs(t, run_narrow, t->ranges);
}

/* What the host is about to read or write is no longer used on a device. */
static void wait_for_device(const tsr_bound *b) {
  const tsr_device *d = b->worker->options.device;
  if (d) d->wait(d->state);
}

/* ---- collectives ---- */

typedef struct {
  tsr_collective collective;
  const tsr_step_list *list;
  int ranges;
  int64_t items;
} group_run;

static void run_group_range(void *context, int job) {
  const group_run *g = context;
  int64_t begin = cut(g->items, job, g->ranges), end = cut(g->items, job + 1, g->ranges);
  if (begin < end) tsr_in_process_run(g->list, &g->collective, begin, end);
}

/* A group that is all here is run by its first member, which over pp is on the first stage. */
static void
run_group(const task_run *t, const tsr_collective *c, const tsr_step_list *list, int first) {
  tsr_bound *b = t->bound;
  group_run g = {.collective = *c, .list = list, .ranges = b->worker->options.threads};
  g.items = tsr_in_process_items(list);
  int64_t begin = b->recording ? tsr_recorder_now(b->recording) : 0;
  if (b->worker->options.device) tsr_in_process_run_on(b->worker->options.device, list, c);
  else tsr_pool_run(b->worker->pool, run_group_range, &g, g.ranges);
  if (b->recording) wait_for_device(b);
  for (int m = 0; b->recording && m < c->members; m++)
    tsr_recorder_extend(
        b->recording, tsr_parallel_member(b->worker->options.parallel, first, t->task->axis, m),
        begin);
}

static tsr_task_at place_of(const task_run *t) {
  return (tsr_task_at){t->bound, t->program, t->ranks, t->task, t->moment};
}

/* What goes from device to device is done when the device is, which a recorder waits for. */
static void run_on_communicators(const task_run *t, const tsr_task_at *at) {
  tsr_bound *b = t->bound;
  int64_t begin = b->recording ? tsr_recorder_now(b->recording) : 0;
  tsr_device_begin_collective(at);
  if (!b->recording) return;
  wait_for_device(b);
  for (int i = 0; i < b->ranks_count[t->program->stage]; i++)
    tsr_recorder_extend(b->recording, t->ranks[i], begin);
}

/* Those of the task's groups that are all here, when they are first asked for; then what other
 * workers take part in. False while that is not done. */
static bool run_collective(const task_run *t) {
  tsr_task_at at = place_of(t);
  tsr_collective c;
  bool all_here;
  if (tsr_task_is_pending(&at)) return tsr_task_advance(&at);
  tsr_task_describe(&at, &c);
  const tsr_group_plan *plan = tsr_task_plans(&at);
  for (int next = 0, first; (first = tsr_task_next_group(&at, &c, &next, &all_here)) >= 0; plan++)
    if (all_here) run_group(t, &c, plan->list, first);
  if (tsr_bound_is_alone(t->bound)) return true;
  if (t->bound->communicator_uses) return run_on_communicators(t, &at), true;
  wait_for_device(t->bound);
  return tsr_task_advance(&at);
}

/* ---- between stages ---- */

/* The copies between two stages' ranks that differ on pp alone. */
static void run_receive_rank(void *context, int job) {
  const task_run *t = context;
  const tsr_parallel *p = t->options->parallel;
  const tsr_tensor *in = &t->task->inputs[0];
  int rank = t->ranks[job], stage, chunk;
  tsr_order_locate(
      t->program->order, tsr_value_stage(t->program->graph, in->value), &stage, &chunk);
  int from = tsr_parallel_member(p, rank, TSR_PP, stage);
  if (!tsr_bound_is_here(t->bound, from)) return;
  const tsr_device *d = t->options->device;
  void *to = tsr_bound_address(t->bound, t->task->outputs[0].value, rank, t->moment.microbatch),
       *sent = tsr_bound_address(t->bound, in->value, from, t->moment.microbatch);
  if (d) d->copy(d->state, to, sent, tsr_tensor_bytes(in));
  else memcpy(to, sent, (size_t)tsr_tensor_bytes(in));
}

/* The microbatch that a transfer is for; what is made once a step counts as the first one's. */
static int64_t transfer_microbatch(const task_run *t) {
  const tsr_graph *g = t->program->graph;
  const tsr_value *v = &g->values[g->nodes[t->task->node].inputs[0]];
  tsr_section made = v->kind == TSR_VALUE_NODE ? g->nodes[v->node].section : TSR_PROLOGUE;
  bool once = made == TSR_PROLOGUE || g->nodes[t->task->node].section == TSR_UPDATE;
  return once ? 0 : t->moment.microbatch;
}

static bool has_arrived(const task_run *t, const tsr_transfer *of) {
  int64_t microbatch = transfer_microbatch(t), from = microbatch - t->task->lag, to = from;
  tsr_task_at at = place_of(t);
  if (t->task->lag == TSR_WAIT_ALL) from = 0, to = t->program->order->microbatches - 1;
  for (int64_t m = from; m <= to; m++)
    if (m >= 0 && of[m].sent && !of[m].received && tsr_task_is_for_here(&at)) return false;
  return tsr_task_sent(&at, from, to);
}

/* Sends, receives and waits; false when the stage has to wait. */
static bool run_transfer(task_run *t) {
  tsr_task_at at = place_of(t);
  /* Inside a worker a collective is done when it has begun. */
  if (t->task->bucket && t->bound->communicator_uses) tsr_device_wait_for_bucket(&at);
  if (t->task->bucket) return true;
  if (t->bound->communicator_uses && tsr_device_has_transfer(&at))
    return tsr_device_transfer(&at), true;
  tsr_transfer *of = t->bound->transfers[t->task->node];
  int64_t microbatch = transfer_microbatch(t);
  if (!tsr_bound_is_alone(t->bound)) wait_for_device(t->bound);
  if (t->task->op == TSR_OP_WAIT) return has_arrived(t, of);
  if (t->task->op == TSR_OP_SEND) return of[microbatch].sent = tsr_task_send(&at, microbatch);
  bool arrived = tsr_task_receive(&at, microbatch), from_here = tsr_task_is_from_here(&at);
  if (!arrived || (from_here && !of[microbatch].sent)) return false;
  bool device = t->options->device;
  for (int i = 0; from_here && device && i < t->bound->ranks_count[t->program->stage]; i++)
    run_receive_rank(t, i);
  if (from_here && !device) run_jobs(t, run_receive_rank, 1);
  return of[microbatch].received = true;
}

/* What the recorder knows of the task that a stage is at; rank and span are not said here. */
static tsr_event event_at(const tsr_bound *b, int stage) {
  const tsr_program *p = b->programs->of_stage[stage];
  const tsr_stage_at *at = &b->at[stage];
  tsr_event event = {.task = at->task, .microbatch = p->runs[at->run].microbatch};
  tsr_op op = p->tasks[at->task].op;
  bool moves = op == TSR_OP_SEND || op == TSR_OP_RECEIVE || tsr_op_is_collective(op);
  event.kind = moves ? TSR_EVENT_COMMUNICATION : TSR_EVENT_COMPUTE;
  return event;
}

/* A collective over pp is run by the stage that comes last, for all. */
static bool run_over_stages(task_run *t) {
  tsr_bound *b = t->bound;
  int stages = t->program->order->stages;
  b->at[t->program->stage].meets = t->task->node;
  for (int s = 0; s < stages; s++)
    if (b->ranks_count[s] && b->at[s].meets != t->task->node) return false;
  if (!run_collective(t)) return false;
  for (int s = 0; s < stages; s++) {
    b->at[s].meets = -1;
    if (s == t->program->stage || !b->ranks_count[s]) continue;
    if (b->recording)
      tsr_recorder_end(b->recording, s, tsr_recorder_now(b->recording), event_at(b, s));
    b->at[s].task++;
  }
  return true;
}

static bool run_task(task_run *t) {
  switch ((int)t->task->op) {
  case TSR_OP_SEND:
  case TSR_OP_RECEIVE:
  case TSR_OP_WAIT:
    return run_transfer(t);
  }
  t->op = tsr_cpu_find(t->task->op);
  if (t->op && is_on_device(t)) return run_on_device(t->options->device, t), true;
  if (t->op) return wait_for_device(t->bound), run_op(t), true;
  if (t->task->axis == TSR_PP) return run_over_stages(t);
  return run_collective(t);
}

/* The same with its events. */
static bool run_recorded(task_run *t) {
  tsr_bound *b = t->bound;
  int stage = t->program->stage;
  int64_t begin = tsr_recorder_now(b->recording);
  if (!run_task(t)) return tsr_recorder_wait(b->recording, stage), false;
  for (int i = 0; t->task->op == TSR_OP_SEND && i < b->ranks_count[stage]; i++)
    tsr_recorder_extend(b->recording, t->ranks[i], begin);
  return tsr_recorder_end(b->recording, stage, begin, event_at(b, stage)), true;
}

/* ---- a step ---- */

typedef struct {
  tsr_bound *bound;
  tsr_input_source source;
} step_run;

static void begin_run(const step_run *s, const tsr_program *p, const tsr_run *run) {
  if (p->parts[run->part].section != TSR_FORWARD) return;
  if (s->bound->worker->options.device) tsr_inputs_copy(s->bound, p->stage, run);
  else tsr_inputs_fill(s->bound, p->stage, run, &s->source);
}

/* Goes on until the stage is done or waits; whether it got anywhere. */
static bool run_stage(const step_run *s, int stage) {
  tsr_bound *b = s->bound;
  const tsr_program *p = b->programs->of_stage[stage];
  tsr_stage_at *at = &b->at[stage];
  bool moved = false;
  for (; at->run < p->runs_count; at->run++, at->task = -1) {
    const tsr_run *run = &p->runs[at->run];
    const tsr_part *part = &p->parts[run->part];
    if (at->task < 0) {
      begin_run(s, p, run);
      at->task = part->begin;
      moved = true;
    }
    for (; at->task < part->end; at->task++, moved = true) {
      task_run t = {b, &b->worker->options, p, b->ranks_of_stage[stage]};
      t.task = &p->tasks[at->task];
      t.moment = (tsr_moment){b->worker->options.seed, b->step, run->microbatch};
      if (t.task->last_only && run->microbatch + 1 < p->order->microbatches) continue;
      if (!(b->recording ? run_recorded(&t) : run_task(&t))) return moved;
    }
  }
  return moved;
}

/* The first stage here that is not done is what the report is about. */
static void wait_for_others(const tsr_bound *b, tsr_waiting *w) {
  w->stage = 0;
  while (b->at[w->stage].run == b->programs->of_stage[w->stage]->runs_count) w->stage++;
  tsr_wait_round(w);
}

/* All stages, from their first task to their last. */
static void run_stages(const step_run *s) {
  tsr_bound *b = s->bound;
  const tsr_graph *g = b->programs->graph;
  int stages = b->programs->order->stages, done = 0;
  for (int i = 0; i < stages; i++) {
    b->at[i] = (tsr_stage_at){.task = -1, .meets = -1};
    if (!b->ranks_count[i]) b->at[i].run = b->programs->of_stage[i]->runs_count;
  }
  for (int i = 0; i < g->nodes_count; i++)
    for (int m = 0; b->transfers[i] && m < b->programs->order->microbatches; m++)
      b->transfers[i][m].sent = b->transfers[i][m].received = b->transfers[i][m].begun = false;
  tsr_waiting waiting = {.bound = b};
  while (done < stages) {
    bool moved = false;
    done = 0;
    for (int i = 0; i < stages; i++) {
      moved |= run_stage(s, i);
      done += b->at[i].run == b->programs->of_stage[i]->runs_count;
    }
    /* The verifier has proved that no circle of waits closes: what does not move waits for
     * others. */
    assert(moved || done == stages || !tsr_bound_is_alone(b));
    if (moved || done == stages) waiting.since = 0;
    else wait_for_others(b, &waiting);
  }
}

/* ---- a step as one piece of work of the device ---- */

static bool
is_device_work(const tsr_worker_options *o, const tsr_program *p, const tsr_task *task) {
  task_run t = {.program = p, .task = task, .options = o};
  return !tsr_cpu_find(task->op) || is_on_device(&t);
}

/* Whether a step is nothing but work that the device begins, the same in every step. */
static bool is_recordable(const tsr_bound *b) {
  const tsr_worker_options *o = &b->worker->options;
  if (!o->device || !tsr_bound_is_alone(b) || b->recording || b->unrecordable) return false;
  for (int s = 0; s < b->programs->order->stages; s++) {
    const tsr_program *p = b->programs->of_stage[s];
    for (int i = 0; i < p->tasks_count; i++)
      if (!is_device_work(o, p, &p->tasks[i])) return false;
  }
  return true;
}

/* The first step is begun task by task, which leaves all that a task makes once; the next ones are
 * recorded, one for each of the two sets of inputs. False: it is not done yet. */
static bool run_as_one(const step_run *s) {
  tsr_bound *b = s->bound;
  const tsr_device *d = b->worker->options.device;
  void **recorded = &b->recorded[tsr_inputs_turn(b)];
  if (!is_recordable(b) || !b->device_steps++) return false;
  if (!*recorded && d->record(d->state)) {
    run_stages(s);
    *recorded = d->recorded(d->state);
  }
  if (*recorded) d->replay(d->state, *recorded);
  else b->unrecordable = true;
  return *recorded;
}

static void run_on(const step_run *s) {
  tsr_bound *b = s->bound;
  const tsr_device *d = b->worker->options.device;
  tsr_inputs_begin(b, &s->source);
  const tsr_moment moment = {b->worker->options.seed, b->step, 0};
  d->begin_step(d->state, b->programs->graph, &moment);
  if (!run_as_one(s)) run_stages(s);
  tsr_inputs_ahead(b);
  wait_for_device(b);
}

void tsr_bound_run(tsr_bound *b, int64_t step, tsr_fill_row *fill, void *context) {
  step_run s = {b, {step, fill, context}};
  bool recorded = b->recorder && tsr_recorder_begin_step(b->recorder, step);
  b->recording = recorded ? b->recorder : NULL;
  b->step = step;
  if (b->worker->options.device) run_on(&s);
  else run_stages(&s);
  tsr_bound_finish_messages(b);
  if (b->recording) tsr_recorder_end_step(b->recorder);
}

void tsr_bound_set_hyper(tsr_bound *b, const float hyper[TSR_HYPERS]) {
  int value = b->programs->graph->hyper;
  for (int r = 0; value >= 0 && r < b->worker->options.parallel->ranks; r++)
    if (tsr_bound_is_here(b, r))
      memcpy(tsr_bound_address(b, value, r, 0), hyper, sizeof(float) * TSR_HYPERS);
}
