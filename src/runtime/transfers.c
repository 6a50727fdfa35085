// SPDX-License-Identifier: Apache-2.0
/* What goes from one stage to another one that has ranks in other processes. */
#include "runtime/executable_internal.h"
#include <string.h>

/* Tags are of a node and a microbatch. What wraps around cannot meet: so many are never in flight
 * at once. */
static int transfer_tag(const tsr_executable *b, int node, int64_t microbatch) {
  int64_t number = node * (int64_t)b->programs->pipeline->microbatches + microbatch;
  return (int)(number % (TSR_TAGS_HALF - 2));
}

static const tsr_transport *transport_of(const tsr_task_at *at) {
  return tsr_executable_rank_map(at->executable)->transport;
}

static void lost(const tsr_task_at *at, const char *why) {
  tsr_wait_lost(&(tsr_waiting){.executable = at->executable, .stage = at->program->stage}, why);
}

/* ---- copies on the host, of a device that has memory of its own ---- */

/* From one rank's copy to the next one's. */
static int64_t part_bytes(const tsr_executable *b, int value, int rank) {
  int64_t bytes = tsr_tensor_bytes(&tsr_executable_program(b, rank)->tensors[value]);
  return (bytes + 255) / 256 * 256;
}

/* Parts of a stage's ranks from the device to their copies one after the other, or back: a value of
 * a transfer with the other stage, of which the other end is in another process. */
static void
copy_parts(const tsr_task_at *at, int value, int stage, int other, char *host, bool to_host) {
  tsr_executable *b = at->executable;
  const tsr_device *d = b->process->device;
  int64_t bytes = tsr_tensor_bytes(&b->programs->of_stage[stage]->tensors[value]);
  int count = 0;
  for (int i = 0; i < b->ranks_count[stage]; i++) {
    int rank = b->ranks_of_stage[stage][i];
    int there = tsr_parallel_member(b->process->options.parallel, rank, TSR_PP, other);
    if (tsr_executable_is_here(b, there) || !tsr_executable_holds(b, value, rank)) continue;
    char *device = tsr_executable_address(b, value, rank, at->at.microbatch);
    char *copy = host + i * part_bytes(b, value, rank);
    b->copies[count++] = (tsr_device_copy){
        .to = to_host ? copy : device, .from = to_host ? device : copy, .bytes = bytes};
  }
  if (count) d->copy(d->state, b->copies, count);
  if (to_host) d->wait(d->state);
}

/* Of the i-th of a stage's ranks here: where its part is for the transport. */
static void *message_address(const tsr_task_at *at, int value, int rank, char *host, int i) {
  if (!host) return tsr_executable_address(at->executable, value, rank, at->at.microbatch);
  return host + i * part_bytes(at->executable, value, rank);
}

/* The stage that a receive node is on, and the one that its value is from. */
void tsr_task_ends(const tsr_task_at *at, int *ret_from, int *ret_to) {
  const tsr_graph *g = at->program->graph;
  const tsr_node *n = &g->nodes[at->task->node];
  int chunk;
  tsr_pipeline_locate(at->program->pipeline, tsr_value_stage(g, n->inputs[0]), ret_from, &chunk);
  tsr_pipeline_locate(at->program->pipeline, n->stage, ret_to, &chunk);
}

bool tsr_task_send(const tsr_task_at *at, int64_t microbatch) {
  tsr_executable *b = at->executable;
  const tsr_parallel *p = b->process->options.parallel;
  tsr_transfer *t = &b->transfers[at->task->node][microbatch];
  int from, to, value = at->program->graph->nodes[at->task->node].inputs[0];
  char why[TSR_WHY_BYTES] = "";
  if (tsr_executable_is_alone(b)) return true;
  tsr_task_ends(at, &from, &to);
  if (t->out_host) copy_parts(at, value, from, to, t->out_host, true);
  for (int i = 0; i < b->ranks_count[from]; i++) {
    int rank = b->ranks_of_stage[from][i], target = tsr_parallel_member(p, rank, TSR_PP, to);
    t->out_waits[i] = !tsr_executable_is_here(b, target) && tsr_executable_holds(b, value, rank);
    if (!t->out_waits[i]) continue;
    const tsr_tensor *tensor = &at->program->tensors[value];
    if (!transport_of(at)->table->send(
            transport_of(at)->state, tsr_rank_map_process(tsr_executable_rank_map(b), target),
            transfer_tag(b, at->task->node, microbatch),
            message_address(at, value, rank, t->out_host, i), tsr_tensor_bytes(tensor), &t->out[i],
            why))
      lost(at, why);
  }
  return true;
}

/* Asks for the messages that are still under way; whether none is. */
static bool test_all(const tsr_task_at *at, tsr_message *messages, bool *waits, int count) {
  char why[TSR_WHY_BYTES] = "";
  bool done = true;
  for (int i = 0; i < count; i++) {
    if (!waits[i]) continue;
    tsr_message_state state =
        transport_of(at)->table->test(transport_of(at)->state, &messages[i], why);
    if (state == TSR_MESSAGE_FAILED) lost(at, why);
    waits[i] = state == TSR_MESSAGE_PENDING;
    done &= !waits[i];
  }
  return done;
}

bool tsr_task_receive(const tsr_task_at *at, int64_t microbatch) {
  tsr_executable *b = at->executable;
  const tsr_parallel *p = b->process->options.parallel;
  tsr_transfer *t = &b->transfers[at->task->node][microbatch];
  int from, to, value = at->task->outputs[0].value;
  char why[TSR_WHY_BYTES] = "";
  if (tsr_executable_is_alone(b)) return true;
  tsr_task_ends(at, &from, &to);
  if (!t->begun) t->since = tsr_recorder_now(b->recording);
  for (int i = 0; !t->begun && i < b->ranks_count[to]; i++) {
    int rank = b->ranks_of_stage[to][i], source = tsr_parallel_member(p, rank, TSR_PP, from);
    t->in_waits[i] = !tsr_executable_is_here(b, source) && tsr_executable_holds(b, value, rank);
    if (!t->in_waits[i]) continue;
    const tsr_tensor *tensor = &at->task->outputs[0];
    if (!transport_of(at)->table->receive(
            transport_of(at)->state, tsr_rank_map_process(tsr_executable_rank_map(b), source),
            transfer_tag(b, at->task->node, microbatch),
            message_address(at, value, rank, t->in_host, i), tsr_tensor_bytes(tensor), &t->in[i],
            why))
      lost(at, why);
  }
  t->begun = true;
  if (!test_all(at, t->in, t->in_waits, b->ranks_count[to])) return false;
  if (t->in_host) copy_parts(at, value, to, from, t->in_host, false);
  for (int i = 0; b->recording && i < b->ranks_count[to]; i++) {
    int rank = b->ranks_of_stage[to][i];
    bool came = !tsr_executable_is_here(b, tsr_parallel_member(p, rank, TSR_PP, from));
    if (came) tsr_recorder_extend(b->recording, rank, t->since);
  }
  return true;
}

bool tsr_task_sent(const tsr_task_at *at, int64_t first, int64_t last) {
  tsr_executable *b = at->executable;
  int from, to;
  bool done = true;
  if (tsr_executable_is_alone(b)) return true;
  tsr_task_ends(at, &from, &to);
  for (int64_t m = first < 0 ? 0 : first; m <= last; m++) {
    tsr_transfer *t = &b->transfers[at->task->node][m];
    done &= test_all(at, t->out, t->out_waits, b->ranks_count[from]);
  }
  return done;
}

/* Until what a rank of the stage at `place` has sent has left. */
static void
finish_message(tsr_executable *b, int node, int microbatch, int location, tsr_waiting *waiting) {
  const tsr_transport *transport = tsr_executable_rank_map(b)->transport;
  tsr_transfer *t = &b->transfers[node][microbatch];
  char why[TSR_WHY_BYTES] = "";
  while (t->out_waits[location]) {
    tsr_message_state state = transport->table->test(transport->state, &t->out[location], why);
    if (state == TSR_MESSAGE_FAILED) tsr_wait_lost(waiting, why);
    t->out_waits[location] = state == TSR_MESSAGE_PENDING;
    if (state == TSR_MESSAGE_PENDING) tsr_wait_round(waiting);
    else waiting->since = 0;
  }
}

void tsr_executable_finish_messages(tsr_executable *b) {
  tsr_waiting waiting = {.executable = b, .stage = -1, .what = "waits until what it sent has left"};
  b->steps_done = b->step + 1;
  if (tsr_executable_is_alone(b)) return;
  for (int n = 0; n < b->programs->graph->nodes_count; n++) {
    if (!b->transfers[n]) continue;
    tsr_task task = {.node = n};
    int from, to;
    waiting.node = n + 1;
    tsr_task_ends(
        &(tsr_task_at){.executable = b, .program = b->programs->of_stage[0], .task = &task}, &from,
        &to);
    for (int i = 0; i < b->ranks_count[from]; i++) {
      int target =
          tsr_parallel_member(b->process->options.parallel, b->ranks_of_stage[from][i], TSR_PP, to);
      int peer = tsr_rank_map_process(tsr_executable_rank_map(b), target);
      waiting.peers = &peer;
      waiting.peers_count = 1;
      for (int m = 0; m < b->programs->pipeline->microbatches; m++)
        finish_message(b, n, m, i, &waiting);
    }
  }
}

/* Whether some rank here of stage `one` has its counterpart of the other stage here, too. */
static bool has_pair(const tsr_task_at *at, int one, int other) {
  tsr_executable *b = at->executable;
  for (int i = 0; i < b->ranks_count[one]; i++) {
    int rank = b->ranks_of_stage[one][i];
    if (tsr_executable_is_here(
            b, tsr_parallel_member(b->process->options.parallel, rank, TSR_PP, other)))
      return true;
  }
  return false;
}

bool tsr_task_is_from_here(const tsr_task_at *at) {
  int from, to;
  tsr_task_ends(at, &from, &to);
  return has_pair(at, to, from);
}

bool tsr_task_is_for_here(const tsr_task_at *at) {
  int from, to;
  tsr_task_ends(at, &from, &to);
  return has_pair(at, from, to);
}

/* ---- what they need ---- */

/* Messages of a value from stage to stage, of the microbatches of one node. */
static void plan_transfer(tsr_arena *arena, tsr_executable *b, int node) {
  int most = b->ranks_most;
  for (int m = 0; m < b->programs->pipeline->microbatches; m++) {
    tsr_transfer *t = &b->transfers[node][m];
    t->out = tsr_arena_array(arena, tsr_message, most);
    t->in = tsr_arena_array(arena, tsr_message, most);
    t->out_waits = tsr_arena_array(arena, bool, most);
    t->in_waits = tsr_arena_array(arena, bool, most);
  }
}

void tsr_executable_plan_transfers(tsr_arena *arena, tsr_executable *b) {
  for (int s = 0; s < b->programs->pipeline->stages; s++)
    if (b->ranks_count[s] > b->ranks_most) b->ranks_most = b->ranks_count[s];
  for (int i = 0; i < b->programs->graph->nodes_count; i++)
    if (b->transfers[i]) plan_transfer(arena, b, i);
}

/* One copy for each slot of the value: the program's waits keep them apart as they do the slots. */
static int64_t place_side(
    tsr_executable *b, int node, int value, int stage, bool sends, int64_t at, char *memory) {
  const tsr_program *p = b->programs->of_stage[stage];
  const tsr_tensor *t = &p->tensors[value];
  const tsr_slot_group *group = t->slot_group < 0 ? NULL : &p->slot_groups[t->slot_group];
  int64_t each = 0;
  for (int i = 0; i < b->ranks_count[stage]; i++)
    each += part_bytes(b, value, b->ranks_of_stage[stage][i]);
  for (int m = 0; memory && m < p->pipeline->microbatches; m++) {
    tsr_transfer *transfer = &b->transfers[node][m];
    char *copy = memory + at + (group ? group->slot_of[m] * each : 0);
    if (sends) transfer->out_host = copy;
    else transfer->in_host = copy;
  }
  return at + each * (group ? group->slots : 1);
}

int64_t tsr_executable_place_transfers(tsr_executable *b, char *memory) {
  const tsr_graph *g = b->programs->graph;
  int64_t at = 0;
  for (int n = 0; n < g->nodes_count; n++) {
    if (!b->transfers[n]) continue;
    tsr_task task = {.node = n};
    tsr_task_at of = {.executable = b, .program = b->programs->of_stage[0], .task = &task};
    int from, to;
    tsr_task_ends(&of, &from, &to);
    if (b->ranks_count[from]) at = place_side(b, n, g->nodes[n].inputs[0], from, true, at, memory);
    if (b->ranks_count[to]) at = place_side(b, n, g->nodes[n].outputs[0], to, false, at, memory);
  }
  return at;
}
