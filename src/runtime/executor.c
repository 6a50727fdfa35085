// SPDX-License-Identifier: Apache-2.0
/* Steps the ranks of each stage through its program in lockstep, task by task: a device runs a task
 * for all of them. So a collective has all its inputs, because every rank has finished the task
 * before it. Stages take turns: one continues until it needs what another has not sent yet. */
#include "comm/engine_local.h"
#include "runtime/executable_internal.h"
#include <assert.h>
#include <string.h>

typedef struct {
  tsr_executable *executable;
  const tsr_process_options *options;
  const tsr_program *program;
  const int *ranks; /* of the stage */
  int ranks_count;
  const tsr_task *task;
  tsr_step_context at;
} task_run;

/* Returns when all work that the device has begun is done. */
static void wait_for_device(const tsr_executable *b) {
  const tsr_device *d = b->process->device;
  d->wait(d->state);
}

/* What a rank owns is written by its owner alone. */
static int find_running(const task_run *t) {
  const tsr_executable *b = t->executable;
  int count = 0;
  for (int i = 0; i < t->ranks_count; i++)
    if (tsr_task_runs_on(t->program, t->task, b->ranks[t->ranks[i]].coord))
      b->running[count++] = t->ranks[i];
  return count;
}

/* Whether the task gives f16 numbers made of the scaled loss. */
static bool is_scaled(const tsr_executable *b, const tsr_task *t) {
  bool scaled = b->scaled[t->node];
  for (int i = 0; i < t->nodes_count; i++) scaled |= b->scaled[t->nodes[i]];
  return scaled;
}

static void run_op(const task_run *t) {
  tsr_executable *b = t->executable;
  int running = find_running(t);
  const tsr_device *d = b->process->device;
  tsr_task_timer timer;
  tsr_launch launch = {
      .call = {.program = t->program, .task = t->task, .at = t->at},
      .memory = b->ranks,
      .ranks = b->running,
      .ranks_count = running,
      .losses = is_scaled(b, t->task) ? &b->losses : NULL,
      .nan_scores = &b->nan_scores,
      .hashes = tsr_executable_update_hashes(b, t->task)};
  if (!running) return;
  if (b->recording) timer = tsr_recorder_timer(b->recording), launch.timer = &timer;
  tsr_executable_compute_once(b, &launch);
  if (t->task->on_host) tsr_executable_run_on_host(b, &launch);
  else d->run(d->state, &launch);
  tsr_executable_copy_replicas(b, &launch);
  if (b->routing && t->task->op == TSR_OP_CHOOSE_EXPERTS) tsr_executable_keep_routing(b, &launch);
}

/* ---- collectives ---- */

/* A group that is all here is run by its first member, which over pp is on the first stage. */
static void
run_group(const task_run *t, const tsr_collective *c, const tsr_step_list *list, int first) {
  tsr_executable *b = t->executable;
  int64_t begin = tsr_recorder_now(b->recording);
  tsr_in_process_run(b->process->device, list, c);
  if (b->recording) wait_for_device(b);
  for (int m = 0; b->recording && m < c->members; m++)
    tsr_recorder_extend(
        b->recording, tsr_parallel_member(b->process->options.parallel, first, t->task->axis, m),
        begin);
}

static tsr_task_at place_of(const task_run *t) {
  return (tsr_task_at){t->executable, t->program, t->ranks, t->task, t->at};
}

/* What goes from device to device is done when the device is, which a recorder waits for. */
static void run_on_communicators(const task_run *t, const tsr_task_at *at) {
  tsr_executable *b = t->executable;
  int64_t begin = tsr_recorder_now(b->recording);
  tsr_device_begin_collective(at);
  if (!b->recording) return;
  wait_for_device(b);
  for (int i = 0; i < b->ranks_count[t->program->stage]; i++)
    tsr_recorder_extend(b->recording, t->ranks[i], begin);
}

/* Those of the task's groups that are all here, when they are first asked for; then what other
 * processes take part in. False while that is not done. */
static bool run_collective(const task_run *t) {
  tsr_task_at at = place_of(t);
  tsr_collective c;
  bool all_here;
  if (tsr_task_is_pending(&at)) return tsr_task_advance(&at);
  if (tsr_background_precedes(&at)) return false;
  tsr_task_describe(&at, &c);
  const tsr_group_plan *plan = tsr_task_plans(&at);
  for (int next = 0, first; (first = tsr_task_next_group(&at, &c, &next, &all_here)) >= 0; plan++)
    if (all_here) run_group(t, &c, plan->lists[c.onto], first);
  if (tsr_executable_is_alone(t->executable)) return true;
  if (t->executable->communicator_uses) return run_on_communicators(t, &at), true;
  wait_for_device(t->executable);
  return tsr_background_begin(&at) || tsr_task_advance(&at);
}

/* ---- to the host's memory and back ---- */

/* Each stage here has buckets of its own. */
static int copies_number(const task_run *t) {
  return t->task->bucket * t->program->pipeline->stages + t->program->stage;
}

static void begin_copies(const task_run *t) {
  tsr_executable *b = t->executable;
  const tsr_device *d = b->process->device;
  const tsr_tensor *in = &t->task->inputs[0];
  int64_t begin = tsr_recorder_now(b->recording);
  for (int i = 0; i < t->ranks_count; i++)
    b->copies[i] = (tsr_device_copy){
        .to = tsr_executable_address(b, t->task->outputs[0].value, t->ranks[i], t->at.microbatch),
        .from = tsr_executable_address(b, in->value, t->ranks[i], t->at.microbatch),
        .bytes = tsr_tensor_bytes(in)};
  if (d->begin_copies) d->begin_copies(d->state, copies_number(t), b->copies, t->ranks_count);
  else d->copy(d->state, b->copies, t->ranks_count);
  for (int i = 0; b->recording && i < t->ranks_count; i++)
    tsr_recorder_extend(b->recording, t->ranks[i], begin);
}

static bool waits_for_copies(const task_run *t) {
  const tsr_graph *g = t->program->graph;
  return t->task->op == TSR_OP_WAIT && tsr_op_copies_to_or_from_host(g->nodes[t->task->node].op);
}

static bool wait_for_copies(const task_run *t) {
  const tsr_device *d = t->executable->process->device;
  if (d->wait_for_copies) d->wait_for_copies(d->state, copies_number(t));
  return true;
}

/* ---- between stages ---- */

/* The copies between two stages' ranks that differ on pp alone, where both are here. */
static void copy_between_stages(const task_run *t) {
  tsr_executable *b = t->executable;
  const tsr_parallel *p = t->options->parallel;
  const tsr_device *d = b->process->device;
  const tsr_tensor *in = &t->task->inputs[0];
  int stage, chunk, count = 0;
  int64_t begin = tsr_recorder_now(b->recording);
  tsr_pipeline_locate(
      t->program->pipeline, tsr_value_stage(t->program->graph, in->value), &stage, &chunk);
  for (int i = 0; i < t->ranks_count; i++) {
    int from = tsr_parallel_member(p, t->ranks[i], TSR_PP, stage);
    if (!tsr_executable_has(b, in->value, from)) continue;
    b->copies[count++] = (tsr_device_copy){
        .to = tsr_executable_address(b, t->task->outputs[0].value, t->ranks[i], t->at.microbatch),
        .from = tsr_executable_address(b, in->value, from, t->at.microbatch),
        .bytes = tsr_tensor_bytes(in)};
  }
  d->copy(d->state, b->copies, count);
  for (int i = 0; b->recording && i < t->ranks_count; i++)
    tsr_recorder_extend(b->recording, t->ranks[i], begin);
}

/* The microbatch that a transfer is for; what is made once a step counts as the first one's. */
static int64_t transfer_microbatch(const task_run *t) {
  const tsr_graph *g = t->program->graph;
  const tsr_value *v = &g->values[g->nodes[t->task->node].inputs[0]];
  tsr_section made = v->kind == TSR_VALUE_NODE ? g->nodes[v->node].section : TSR_PROLOGUE;
  bool once = made == TSR_PROLOGUE || g->nodes[t->task->node].section == TSR_UPDATE;
  return once ? 0 : t->at.microbatch;
}

static bool has_arrived(const task_run *t, const tsr_transfer *of) {
  int64_t microbatch = transfer_microbatch(t), from = microbatch - t->task->lag, to = from;
  tsr_task_at at = place_of(t);
  if (t->task->lag == TSR_WAIT_ALL) from = 0, to = t->program->pipeline->microbatches - 1;
  for (int64_t m = from; m <= to; m++)
    if (m >= 0 && of[m].sent && !of[m].received && tsr_task_is_for_here(&at)) return false;
  return tsr_task_sent(&at, from, to);
}

/* Sends, receives and waits; false when the stage has to wait. */
static bool run_transfer(task_run *t) {
  tsr_task_at at = place_of(t);
  if (waits_for_copies(t)) return wait_for_copies(t);
  /* Inside a process a collective is done when it has begun. */
  if (t->task->bucket && t->executable->communicator_uses) tsr_device_wait_for_bucket(&at);
  if (t->task->bucket) return tsr_background_has_ended(&at);
  if (t->executable->communicator_uses && tsr_device_has_transfer(&at))
    return tsr_device_transfer(&at), true;
  tsr_transfer *of = t->executable->transfers[t->task->node];
  int64_t microbatch = transfer_microbatch(t);
  if (!tsr_executable_is_alone(t->executable)) wait_for_device(t->executable);
  if (t->task->op == TSR_OP_WAIT) return has_arrived(t, of);
  if (t->task->op == TSR_OP_SEND) return of[microbatch].sent = tsr_task_send(&at, microbatch);
  bool arrived = tsr_task_receive(&at, microbatch), from_here = tsr_task_is_from_here(&at);
  if (!arrived || (from_here && !of[microbatch].sent)) return false;
  if (from_here) copy_between_stages(t);
  return of[microbatch].received = true;
}

/* What the recorder knows of the task that a stage is at; rank and span are not said here. */
static tsr_event event_at(const tsr_executable *b, int stage) {
  const tsr_program *p = b->programs->of_stage[stage];
  const tsr_stage_at *at = &b->at[stage];
  tsr_event event = {.task = at->task, .microbatch = p->runs[at->run].microbatch};
  tsr_op op = p->tasks[at->task].op;
  bool moves = op == TSR_OP_SEND || op == TSR_OP_RECEIVE || tsr_op_is_collective(op) ||
               tsr_op_copies_to_or_from_host(op);
  event.kind = moves ? TSR_EVENT_COMMUNICATION : TSR_EVENT_COMPUTE;
  return event;
}

/* A collective over pp is run by the stage that comes last, for all. */
static bool run_over_stages(task_run *t) {
  tsr_executable *b = t->executable;
  int stages = t->program->pipeline->stages;
  b->at[t->program->stage].waits_in = t->task->node;
  for (int s = 0; s < stages; s++)
    if (b->ranks_count[s] && b->at[s].waits_in != t->task->node) return false;
  if (!run_collective(t)) return false;
  for (int s = 0; s < stages; s++) {
    b->at[s].waits_in = -1;
    if (s == t->program->stage || !b->ranks_count[s]) continue;
    if (b->recording)
      tsr_recorder_end(b->recording, s, tsr_recorder_now(b->recording), event_at(b, s));
    b->at[s].task++;
  }
  return true;
}

static bool run_moved(task_run *t) {
  bool done = t->task->axis == TSR_PP ? run_over_stages(t) : run_collective(t);
  tsr_task_at at = place_of(t);
  if (done && t->executable->digests) tsr_executable_add_digests(&at);
  return done;
}

static bool run_kind(task_run *t) {
  switch ((int)t->task->op) {
  case TSR_OP_SEND:
  case TSR_OP_RECEIVE:
  case TSR_OP_WAIT:
    return run_transfer(t);
  case TSR_OP_OFFLOAD:
  case TSR_OP_RELOAD:
    return begin_copies(t), true;
  }
  if (!tsr_op_is_collective(t->task->op)) return run_op(t), true;
  return run_moved(t);
}

static bool run_task(task_run *t) {
  bool done = run_kind(t);
  if (!done || !t->executable->trace) return done;
  tsr_task_at at = place_of(t);
  tsr_value_trace_add(t->executable->trace, &at);
  return true;
}

/* The same with its events. */
static bool run_recorded(task_run *t) {
  tsr_executable *b = t->executable;
  int stage = t->program->stage;
  int64_t begin = tsr_recorder_now(b->recording);
  bool of_bucket = t->task->bucket && t->task->op == TSR_OP_WAIT; /* its collectives have events */
  bool done = run_task(t);
  if (!done && !of_bucket) tsr_recorder_wait(b->recording, stage);
  if (!done) return false;
  for (int i = 0; t->task->op == TSR_OP_SEND && i < b->ranks_count[stage]; i++)
    tsr_recorder_extend(b->recording, t->ranks[i], begin);
  return tsr_recorder_end(b->recording, stage, begin, event_at(b, stage)), true;
}

/* ---- a step ---- */

typedef struct {
  tsr_executable *executable;
  tsr_input_source source;
} step_run;

static void begin_run(const step_run *s, const tsr_program *p, const tsr_run *run) {
  tsr_executable *b = s->executable;
  if (p->parts[run->part].section != TSR_FORWARD) return;
  tsr_inputs_supply(b, p->stage, run, &s->source);
  if (!b->trace) return;
  tsr_step_context step = {b->process->options.seed, b->step, run->microbatch};
  tsr_task_at at = {b, p, b->ranks_of_stage[p->stage], NULL, step};
  tsr_value_trace_add_inputs(b->trace, &at, run);
}

/* Goes on until the stage is done or waits; whether it got anywhere. */
static bool run_stage(const step_run *s, int stage) {
  tsr_executable *b = s->executable;
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
      task_run t = {b, &b->process->options, p, b->ranks_of_stage[stage], b->ranks_count[stage]};
      t.task = &p->tasks[at->task];
      t.at = (tsr_step_context){b->process->options.seed, b->step, run->microbatch};
      if (t.task->last_only && run->microbatch + 1 < p->pipeline->microbatches) continue;
      if (!(b->recording ? run_recorded(&t) : run_task(&t))) return moved;
      tsr_background_advance(b);
    }
  }
  return moved;
}

/* The first stage here that is not done is what the report is about. */
static void wait_for_others(const tsr_executable *b, tsr_waiting *w) {
  w->stage = 0;
  while (b->at[w->stage].run == b->programs->of_stage[w->stage]->runs_count) w->stage++;
  tsr_wait_round(w);
}

/* All stages, from their first task to their last. */
static void run_stages(const void *step) {
  const step_run *s = step;
  tsr_executable *b = s->executable;
  const tsr_graph *g = b->programs->graph;
  int stages = b->programs->pipeline->stages, done = 0;
  for (int i = 0; i < stages; i++) {
    b->at[i] = (tsr_stage_at){.task = -1, .waits_in = -1};
    if (!b->ranks_count[i]) b->at[i].run = b->programs->of_stage[i]->runs_count;
  }
  for (int i = 0; i < g->nodes_count; i++)
    for (int m = 0; b->transfers[i] && m < b->programs->pipeline->microbatches; m++)
      b->transfers[i][m].sent = b->transfers[i][m].received = b->transfers[i][m].begun = false;
  tsr_waiting waiting = {.executable = b};
  while (done < stages) {
    bool moved = tsr_background_advance(b);
    done = 0;
    for (int i = 0; i < stages; i++) {
      moved |= run_stage(s, i);
      done += b->at[i].run == b->programs->of_stage[i]->runs_count;
    }
    /* The verifier has proved that no circle of waits closes: what does not move waits for
     * others. */
    assert(moved || done == stages || !tsr_executable_is_alone(b));
    if (moved || done == stages) waiting.since = 0;
    else wait_for_others(b, &waiting);
  }
}

void tsr_executable_run(tsr_executable *b, int64_t step, tsr_fill_row *fill, void *context) {
  step_run s = {b, {step, fill, context}};
  const tsr_device *d = b->process->device;
  bool recorded = b->recorder && tsr_recorder_begin_step(b->recorder, step);
  b->recording = recorded ? b->recorder : NULL;
  b->step = step;
  tsr_inputs_begin(b, &s.source);
  tsr_executable_begin_hashes(b);
  if (b->trace) tsr_value_trace_begin(b->trace);
  d->begin_step(
      d->state, b->programs->graph, &(tsr_step_context){b->process->options.seed, step, 0});
  if (!tsr_executable_run_captured(b, run_stages, &s)) run_stages(&s);
  tsr_inputs_ahead(b);
  wait_for_device(b);
  tsr_executable_finish_messages(b);
  if (b->recording) tsr_recorder_end_step(b->recorder);
}

void tsr_executable_set_step_scalars(tsr_executable *b, const float step_scalars[TSR_SCALARS]) {
  int value = b->programs->graph->step_scalars;
  for (int r = 0; value >= 0 && r < b->process->options.parallel->ranks; r++)
    if (tsr_executable_is_here(b, r))
      tsr_device_write(
          b->process->device, tsr_executable_address(b, value, r, 0), step_scalars,
          sizeof(float) * TSR_SCALARS);
}
