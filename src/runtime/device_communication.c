// SPDX-License-Identifier: Apache-2.0
/* A program's messages between processes, from device to device (device_communicators.h). What is
 * begun here waits on the device alone: the host continues with the next task. */
#include "runtime/executable_internal.h"
#include <string.h>

static const tsr_device *device_of(const tsr_executable *b) { return b->process->device; }
static const tsr_device_communicators *communicators_of(const tsr_executable *b) {
  return tsr_executable_rank_map(b)->communicators;
}

/* ---- collectives ---- */

static const tsr_device_communicator *communicator_of(const tsr_task_at *at, int first) {
  const tsr_device_communicators *communicators = communicators_of(at->executable);
  return communicators
      ->of_group[at->task->axis * at->executable->process->options.parallel->ranks + first];
}

void tsr_device_begin_collective(const tsr_task_at *at) {
  tsr_executable *b = at->executable;
  const tsr_device *d = device_of(b);
  tsr_collective c;
  bool all_here;
  tsr_task_describe(at, &c);
  const tsr_group_plan *plan = tsr_task_plans(at);
  for (int next = 0, first; (first = tsr_task_next_group(at, &c, &next, &all_here)) >= 0; plan++) {
    if (all_here) continue;
    const tsr_device_communicator *communicator = communicator_of(at, first);
    tsr_communicator_use *use = &b->communicator_uses[communicator->number];
    tsr_device_exchange call = {d, plan->lists[c.onto], plan->layout, &c, communicator->group};
    d->set_stream(d->state, communicator->group);
    d->wait_for_stream(d->state, NULL);
    tsr_device_exchange_begin(&call, use->memory, use->room);
    d->set_stream(d->state, NULL);
    int bucket = at->task->bucket;
    if (bucket) d->mark_stream(d->state, communicator->group, bucket), use->begun[bucket] = true;
    else d->wait_for_stream(d->state, communicator->group);
  }
}

/* Other buckets may be under way on the same streams, which this one's readers do not wait for. */
void tsr_device_wait_for_bucket(const tsr_task_at *at) {
  const tsr_executable *b = at->executable;
  const tsr_device *d = device_of(b);
  const tsr_device_communicators *communicators = communicators_of(b);
  int bucket = at->task->bucket;
  for (int i = 0; i < communicators->count; i++) {
    bool *begun = &b->communicator_uses[i].begun[bucket];
    if (*begun) d->wait_for_mark(d->state, communicators->all[i]->group, bucket);
    *begun = false;
  }
}

/* ---- from stage to stage ---- */

static const tsr_device_communicator *
communicator_between(const tsr_executable *b, int from, int to) {
  return communicators_of(b)->of_stages[from * b->programs->pipeline->stages + to];
}

bool tsr_device_has_transfer(const tsr_task_at *at) {
  int from, to;
  tsr_task_ends(at, &from, &to);
  const tsr_device_communicator *communicator = communicator_between(at->executable, from, to);
  return communicator && at->executable->communicator_uses[communicator->number].transfers;
}

bool tsr_device_has_all_transfers(const tsr_executable *b) {
  int stages = b->programs->pipeline->stages;
  for (int from = 0; from < stages; from++)
    for (int to = 0; to < stages; to++) {
      const tsr_device_communicator *c = from == to ? NULL : communicator_between(b, from, to);
      if (c && !b->communicator_uses[c->number].transfers) return false;
    }
  return true;
}

static int place_of(const tsr_device_communicator *communicator, int process) {
  int i = 0;
  while (communicator->processes[i] != process) i++;
  return i;
}

/* All of the stage's ranks at once. */
static void move(
    const tsr_task_at *at, const tsr_device_communicator *communicator, int own, int other,
    bool receives) {
  tsr_executable *b = at->executable;
  const tsr_device *d = device_of(b);
  const tsr_tensor *tensor = receives ? &at->task->outputs[0] : &at->task->inputs[0];
  tsr_device_message *room = b->communicator_uses[communicator->number].room;
  int count = 0;
  for (int i = 0; i < b->ranks_count[own]; i++) {
    int rank = b->ranks_of_stage[own][i];
    int there = tsr_parallel_member(b->process->options.parallel, rank, TSR_PP, other);
    if (!tsr_executable_holds(b, tensor->value, rank)) continue;
    room[count++] = (tsr_device_message){
        .peer = place_of(communicator, tsr_rank_map_process(tsr_executable_rank_map(b), there)),
        .receives = receives,
        .address = tsr_executable_address(b, tensor->value, rank, at->at.microbatch),
        .bytes = tsr_tensor_bytes(tensor)};
  }
  d->set_stream(d->state, communicator->group);
  d->wait_for_stream(d->state, NULL);
  if (count) d->exchange(d->state, communicator->group, room, count);
  d->set_stream(d->state, NULL);
}

void tsr_device_transfer(const tsr_task_at *at) {
  const tsr_device *d = device_of(at->executable);
  int from, to;
  tsr_task_ends(at, &from, &to);
  const tsr_device_communicator *communicator = communicator_between(at->executable, from, to);
  if (at->task->op == TSR_OP_SEND) move(at, communicator, from, to, false);
  if (at->task->op == TSR_OP_RECEIVE) move(at, communicator, to, from, true);
  if (at->task->op != TSR_OP_SEND) d->wait_for_stream(d->state, communicator->group);
}

/* ---- what they need ---- */

static void add_collective(tsr_executable *b, const tsr_program *p, const tsr_task *task) {
  tsr_task_at at = {.executable = b, .program = p, .task = task};
  tsr_collective c;
  bool all_here;
  tsr_task_describe(&at, &c);
  const tsr_group_plan *plan = tsr_task_plans(&at);
  for (int next = 0, first; (first = tsr_task_next_group(&at, &c, &next, &all_here)) >= 0; plan++) {
    if (all_here) continue;
    tsr_communicator_use *use = &b->communicator_uses[communicator_of(&at, first)->number];
    for (int onto = 0; onto < 2; onto++) {
      const tsr_step_list *list = plan->lists[onto];
      int64_t bytes = tsr_step_list_staging_bytes(list);
      if (bytes > use->bytes) use->bytes = bytes;
      if (list->messages_of_phase > use->messages) use->messages = list->messages_of_phase;
    }
  }
}

/* What a stage sends to another one, or gets from it, in the order of its program. */
typedef struct {
  int run, task;
} position;

static bool next_transfer(
    const tsr_executable *b, int stage, tsr_op op, int from, int to, position *at, int *ret_node,
    int64_t *ret_microbatch) {
  const tsr_program *p = b->programs->of_stage[stage];
  for (; at->run < p->runs_count; at->run++, at->task = -1) {
    const tsr_run *run = &p->runs[at->run];
    const tsr_part *part = &p->parts[run->part];
    if (at->task < 0) at->task = part->begin;
    while (at->task < part->end) {
      const tsr_task *t = &p->tasks[at->task++];
      int is_from, is_to;
      if (t->op != op || (t->last_only && run->microbatch + 1 < p->pipeline->microbatches))
        continue;
      tsr_task_ends(
          &(tsr_task_at){.executable = (tsr_executable *)b, .program = p, .task = t}, &is_from,
          &is_to);
      if (is_from != from || is_to != to) continue;
      *ret_node = t->node;
      *ret_microbatch = run->microbatch;
      return true;
    }
  }
  return false;
}

/* Messages of a communicator have one order, so both ends must have the same one. */
static bool orders_agree(const tsr_executable *b, int from, int to) {
  position out = {0, -1}, in = {0, -1};
  int out_node, in_node;
  int64_t out_microbatch, in_microbatch;
  for (;;) {
    bool sends = next_transfer(b, from, TSR_OP_SEND, from, to, &out, &out_node, &out_microbatch);
    bool gets = next_transfer(b, to, TSR_OP_RECEIVE, from, to, &in, &in_node, &in_microbatch);
    if (!sends || !gets) return sends == gets;
    if (out_node != in_node || out_microbatch != in_microbatch) return false;
  }
}

static void plan_transfers(tsr_executable *b) {
  int stages = b->programs->pipeline->stages;
  for (int from = 0; from < stages; from++)
    for (int to = 0; to < stages; to++) {
      const tsr_device_communicator *communicator =
          from == to ? NULL : communicator_between(b, from, to);
      if (!communicator) continue;
      tsr_communicator_use *use = &b->communicator_uses[communicator->number];
      use->transfers = orders_agree(b, from, to);
      if (b->ranks_count[from] > use->messages) use->messages = b->ranks_count[from];
      if (b->ranks_count[to] > use->messages) use->messages = b->ranks_count[to];
    }
}

void tsr_executable_plan_device_messages(tsr_arena *arena, tsr_executable *b) {
  const tsr_device_communicators *communicators = communicators_of(b);
  int buckets = 0;
  if (!communicators) return;
  b->communicator_uses = tsr_arena_array(arena, tsr_communicator_use, communicators->count);
  for (int s = 0; s < b->programs->pipeline->stages; s++) {
    const tsr_program *p = b->programs->of_stage[s];
    for (int i = 0; b->ranks_count[s] && i < p->tasks_count; i++) {
      if (tsr_op_is_collective(p->tasks[i].op)) add_collective(b, p, &p->tasks[i]);
      if (p->tasks[i].bucket > buckets) buckets = p->tasks[i].bucket;
    }
  }
  plan_transfers(b);
  for (int i = 0; i < communicators->count; i++) {
    tsr_communicator_use *use = &b->communicator_uses[i];
    use->room = tsr_arena_array(arena, tsr_device_message, use->messages);
    use->begun = tsr_arena_array(arena, bool, buckets + 1);
  }
}

int64_t tsr_executable_device_message_bytes(const tsr_executable *b) {
  int64_t sum = 0;
  for (int i = 0; b->communicator_uses && i < communicators_of(b)->count; i++)
    sum += b->communicator_uses[i].bytes;
  return sum;
}

void tsr_executable_place_device_messages(tsr_executable *b, char *memory) {
  for (int i = 0; b->communicator_uses && i < communicators_of(b)->count; i++) {
    b->communicator_uses[i].memory = memory;
    if (memory) memory += b->communicator_uses[i].bytes;
  }
}
