/* The messages of a program between workers: collectives of which some members are elsewhere, and
 * what goes from one stage to another one that is. */
#include "runtime/internal.h"
#include <assert.h>
#include <string.h>

/* Tags of transfers and of collectives are in two halves; each is of a node and a microbatch, or a
 * node and a group. What wraps around cannot meet: so many are never under way at once. */
enum { HALF = TSR_TRANSPORT_TAGS / 2 };

static int transfer_tag(const tsr_bound *b, int node, int64_t microbatch) {
  return (int)((node * (int64_t)b->programs->order->microbatches + microbatch) % (HALF - 2));
}
static int group_tag(const tsr_bound *b, int node, int first) {
  int64_t ranks = b->worker->options.parallel->ranks;
  return HALF + (int)((node * ranks + first) % (HALF - 2));
}

/* ---- collectives ---- */

void tsr_task_describe(const tsr_task_at *at, tsr_collective *c) {
  const tsr_task *t = at->task;
  const tsr_tensor *in = &t->inputs[0];
  const tsr_attrs *attr = &at->program->graph->nodes[t->node].attr;
  *c = (tsr_collective){.op = t->op, .ndim = in->ndim, .from = -1, .to = -1};
  c->k = at->bound->worker->options.kernels;
  c->members = at->bound->worker->options.parallel->size[t->axis];
  c->element = tsr_dtype_bytes(in->dtype);
  c->in = at->bound->worker->in;
  c->out = at->bound->worker->out;
  memcpy(c->shape, in->shape, sizeof c->shape);
  assert(!in->units || t->op == TSR_OP_ALL_REDUCE);
  if (in->units) c->shape[0] *= in->units;
  if (t->op == TSR_OP_REDUCE_SCATTER) c->to = attr->scatter.dim;
  if (t->op == TSR_OP_RING_SHIFT) c->by = (int)attr->ring_shift.by;
  if (t->op == TSR_OP_ALL_TO_ALL) c->to = attr->all_to_all.dim;
  const tsr_value *v = &at->program->graph->values[in->value];
  tsr_placement before = v->placement[t->axis];
  tsr_placement after = at->program->graph->values[t->outputs[0].value].placement[t->axis];
  c->groups = before.groups > 1 ? before.groups : after.groups > 1 ? after.groups : 1;
  if (before.kind == TSR_SHARD && t->op != TSR_OP_RING_SHIFT) c->from = before.dim;
  c->zigzag = t->axis == TSR_CP && at->program->lowering.zigzag;
  if (c->from >= 0) c->shape[c->from] *= tsr_placement_blocks(before, c->members);
}

int tsr_task_next_group(
    const tsr_task_at *at, const tsr_collective *c, int *next, bool *ret_all_here) {
  tsr_bound *b = at->bound;
  tsr_worker *w = b->worker;
  const tsr_parallel *p = w->options.parallel;
  int axis = at->task->axis;
  for (; *next < p->ranks; ++*next) {
    int first = *next, here = 0;
    bool other_stage = axis != TSR_PP && b->ranks[first].coord[TSR_PP] != at->program->stage;
    if (b->ranks[first].coord[axis] || other_stage) continue;
    for (int m = 0; m < c->members; m++) {
      int member = tsr_parallel_member(p, first, axis, m);
      bool is_here = tsr_bound_is_here(b, member);
      here += is_here;
      w->worker_of[m] = tsr_rank_map_process(&w->options.rank_map, member);
      int64_t i = at->moment.microbatch;
      w->in[m] = is_here ? tsr_bound_address(b, at->task->inputs[0].value, member, i) : NULL;
      w->out[m] = is_here ? tsr_bound_address(b, at->task->outputs[0].value, member, i) : NULL;
    }
    if (!here) continue;
    *ret_all_here = here == c->members;
    ++*next;
    return first;
  }
  return -1;
}

static void run_jobs(void *pool, void (*job)(void *, int), void *context, int jobs) {
  tsr_pool_run(pool, job, context, jobs);
}

static tsr_remote_call call_of(const tsr_task_at *at, const tsr_collective *c, int first) {
  tsr_worker *w = at->bound->worker;
  const tsr_rank_map *h = &w->options.rank_map;
  return (tsr_remote_call){
      .transport = h->transport,
      .collective = c,
      .worker_of = w->worker_of,
      .hosts = h->hosts,
      .group = h->groups[at->task->axis * w->options.parallel->ranks + first],
      .tag = group_tag(at->bound, at->task->node, first),
      .run = run_jobs,
      .pool = w->pool,
      .threads = w->options.threads};
}

static tsr_meeting *meeting_of(const tsr_task_at *at) {
  int stages = at->program->order->stages;
  return &at->bound->meetings[at->task->axis == TSR_PP ? stages : at->program->stage];
}

static int64_t now_of(const tsr_bound *b) {
  return b->recording ? tsr_recorder_now(b->recording) : 0;
}

/* A group's collective is done: an event of its members that are here. */
static void record_group(const tsr_task_at *at, int first, int64_t since) {
  const tsr_bound *b = at->bound;
  const tsr_parallel *p = b->worker->options.parallel;
  for (int m = 0; b->recording && m < p->size[at->task->axis]; m++) {
    int member = tsr_parallel_member(p, first, at->task->axis, m);
    if (tsr_bound_is_here(b, member)) tsr_recorder_extend(b->recording, member, since);
  }
}

static void begin(const tsr_task_at *at, tsr_meeting *m) {
  tsr_collective c;
  tsr_task_describe(at, &c);
  char *memory = m->staging;
  bool all_here;
  m->node = at->task->node;
  m->count = 0;
  m->since = now_of(at->bound);
  for (int next = 0, first; (first = tsr_task_next_group(at, &c, &next, &all_here)) >= 0;) {
    if (all_here) continue;
    tsr_remote_call call = call_of(at, &c, first);
    m->firsts[m->count] = first;
    m->calls[m->count++] = tsr_remote_begin(&call, memory);
    memory += (tsr_remote_bytes(&call) + 63) / 64 * 64;
  }
}

bool tsr_task_is_met(const tsr_task_at *at) { return meeting_of(at)->node >= 0; }

bool tsr_task_meet(const tsr_task_at *at) {
  tsr_meeting *m = meeting_of(at);
  if (m->node < 0) begin(at, m);
  int kept = 0;
  for (int i = 0; i < m->count; i++) {
    tsr_remote_state state = tsr_remote_go_on(m->calls[i]);
    if (state == TSR_REMOTE_DONE) record_group(at, m->firsts[i], m->since);
    if (state == TSR_REMOTE_DONE) continue;
    m->firsts[kept] = m->firsts[i];
    m->calls[kept++] = m->calls[i];
    if (state == TSR_REMOTE_PENDING) continue;
    m->count = kept;
    tsr_wait_lost(
        &(tsr_waiting){.bound = at->bound, .stage = at->program->stage},
        tsr_remote_why(m->calls[kept - 1]));
  }
  m->count = kept;
  if (!kept) m->node = -1;
  return !kept;
}

/* ---- what they need ---- */

/* Bytes and calls of one task. */
static int64_t task_bytes(const tsr_task_at *at, int *ret_calls) {
  tsr_collective c;
  int64_t sum = 0;
  bool all_here;
  tsr_task_describe(at, &c);
  for (int next = 0, first; (first = tsr_task_next_group(at, &c, &next, &all_here)) >= 0;) {
    if (all_here) continue;
    tsr_remote_call call = call_of(at, &c, first);
    sum += (tsr_remote_bytes(&call) + 63) / 64 * 64;
    ++*ret_calls;
  }
  return sum;
}

/* Messages of a value from stage to stage, of the microbatches of one node. */
static void plan_transfer(tsr_arena *arena, tsr_bound *b, int node) {
  int most = b->ranks_most;
  for (int m = 0; m < b->programs->order->microbatches; m++) {
    tsr_transfer *t = &b->transfers[node][m];
    t->out = tsr_arena_array(arena, tsr_message, most);
    t->in = tsr_arena_array(arena, tsr_message, most);
    t->out_waits = tsr_arena_array(arena, bool, most);
    t->in_waits = tsr_arena_array(arena, bool, most);
  }
}

void tsr_bound_plan_messages(tsr_arena *arena, tsr_bound *b) {
  int stages = b->programs->order->stages;
  b->meetings = tsr_arena_array(arena, tsr_meeting, stages + 1);
  for (int s = 0; s <= stages; s++) b->meetings[s].node = -1;
  if (tsr_bound_is_alone(b)) return;
  for (int s = 0; s < stages; s++)
    if (b->ranks_count[s] > b->ranks_most) b->ranks_most = b->ranks_count[s];
  int *calls = tsr_arena_array(arena, int, stages + 1);
  for (int s = 0; s < stages; s++) {
    const tsr_program *p = b->programs->of_stage[s];
    for (int i = 0; b->ranks_count[s] && i < p->tasks_count; i++) {
      tsr_task_at at = {.bound = b, .program = p, .task = &p->tasks[i]};
      if (!tsr_op_is_collective(at.task->op) || tsr_bound_hosting(b)->links) continue;
      int of = at.task->axis == TSR_PP ? stages : s, count = 0;
      int64_t bytes = task_bytes(&at, &count);
      if (bytes > b->meetings[of].bytes) b->meetings[of].bytes = bytes;
      if (count > calls[of]) calls[of] = count;
    }
  }
  for (int s = 0; s <= stages; s++) {
    b->meetings[s].calls = tsr_arena_array(arena, tsr_remote *, calls[s] + 1);
    b->meetings[s].firsts = tsr_arena_array(arena, int, calls[s] + 1);
  }
  b->reports = tsr_arena_array(arena, tsr_report, tsr_bound_hosting(b)->workers);
  b->last_words = tsr_arena_array(arena, char, TSR_LAST_WORDS_BYTES);
  for (int i = 0; i < b->programs->graph->nodes_count; i++)
    if (b->transfers[i]) plan_transfer(arena, b, i);
}

int64_t tsr_bound_staging_bytes(const tsr_bound *b) {
  int64_t sum = 0;
  for (int s = 0; s <= b->programs->order->stages; s++) sum += b->meetings[s].bytes;
  return sum;
}

void tsr_bound_place_messages(tsr_bound *b, char *staging) {
  for (int s = 0; s <= b->programs->order->stages; s++) {
    b->meetings[s].staging = staging;
    if (staging) staging += b->meetings[s].bytes;
  }
}

/* ---- from stage to stage ---- */

static const tsr_transport *transport_of(const tsr_task_at *at) {
  return tsr_bound_hosting(at->bound)->transport;
}

static void lost(const tsr_task_at *at, const char *why) {
  tsr_wait_lost(&(tsr_waiting){.bound = at->bound, .stage = at->program->stage}, why);
}

/* The stage that a receive node is on, and the one that its value is from. */
void tsr_task_ends(const tsr_task_at *at, int *ret_from, int *ret_to) {
  const tsr_graph *g = at->program->graph;
  const tsr_node *n = &g->nodes[at->task->node];
  int chunk;
  tsr_order_locate(at->program->order, tsr_value_stage(g, n->inputs[0]), ret_from, &chunk);
  tsr_order_locate(at->program->order, n->stage, ret_to, &chunk);
}

bool tsr_task_send(const tsr_task_at *at, int64_t microbatch) {
  tsr_bound *b = at->bound;
  const tsr_parallel *p = b->worker->options.parallel;
  tsr_transfer *t = &b->transfers[at->task->node][microbatch];
  int from, to, value = at->program->graph->nodes[at->task->node].inputs[0];
  char why[TSR_WHY_BYTES] = "";
  if (tsr_bound_is_alone(b)) return true;
  tsr_task_ends(at, &from, &to);
  for (int i = 0; i < b->ranks_count[from]; i++) {
    int rank = b->ranks_of_stage[from][i], target = tsr_parallel_member(p, rank, TSR_PP, to);
    t->out_waits[i] = !tsr_bound_is_here(b, target);
    if (!t->out_waits[i]) continue;
    const tsr_tensor *tensor = &at->program->tensors[value];
    if (!transport_of(at)->table->send(
            transport_of(at)->state, tsr_rank_map_process(tsr_bound_hosting(b), target),
            transfer_tag(b, at->task->node, microbatch),
            tsr_bound_address(b, value, rank, at->moment.microbatch), tsr_tensor_bytes(tensor),
            &t->out[i], why))
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
  tsr_bound *b = at->bound;
  const tsr_parallel *p = b->worker->options.parallel;
  tsr_transfer *t = &b->transfers[at->task->node][microbatch];
  int from, to, value = at->task->outputs[0].value;
  char why[TSR_WHY_BYTES] = "";
  if (tsr_bound_is_alone(b)) return true;
  tsr_task_ends(at, &from, &to);
  if (!t->begun) t->since = now_of(b);
  for (int i = 0; !t->begun && i < b->ranks_count[to]; i++) {
    int rank = b->ranks_of_stage[to][i], source = tsr_parallel_member(p, rank, TSR_PP, from);
    t->in_waits[i] = !tsr_bound_is_here(b, source);
    if (!t->in_waits[i]) continue;
    const tsr_tensor *tensor = &at->task->outputs[0];
    if (!transport_of(at)->table->receive(
            transport_of(at)->state, tsr_rank_map_process(tsr_bound_hosting(b), source),
            transfer_tag(b, at->task->node, microbatch),
            tsr_bound_address(b, value, rank, at->moment.microbatch), tsr_tensor_bytes(tensor),
            &t->in[i], why))
      lost(at, why);
  }
  t->begun = true;
  if (!test_all(at, t->in, t->in_waits, b->ranks_count[to])) return false;
  for (int i = 0; b->recording && i < b->ranks_count[to]; i++) {
    int rank = b->ranks_of_stage[to][i];
    bool came = !tsr_bound_is_here(b, tsr_parallel_member(p, rank, TSR_PP, from));
    if (came) tsr_recorder_extend(b->recording, rank, t->since);
  }
  return true;
}

bool tsr_task_sent(const tsr_task_at *at, int64_t first, int64_t last) {
  tsr_bound *b = at->bound;
  int from, to;
  bool done = true;
  if (tsr_bound_is_alone(b)) return true;
  tsr_task_ends(at, &from, &to);
  for (int64_t m = first < 0 ? 0 : first; m <= last; m++) {
    tsr_transfer *t = &b->transfers[at->task->node][m];
    done &= test_all(at, t->out, t->out_waits, b->ranks_count[from]);
  }
  return done;
}

/* Until what a rank of the stage at `place` has sent has left. */
static void
finish_message(tsr_bound *b, int node, int microbatch, int place, tsr_waiting *waiting) {
  const tsr_transport *transport = tsr_bound_hosting(b)->transport;
  tsr_transfer *t = &b->transfers[node][microbatch];
  char why[TSR_WHY_BYTES] = "";
  while (t->out_waits[place]) {
    tsr_message_state state = transport->table->test(transport->state, &t->out[place], why);
    if (state == TSR_MESSAGE_FAILED) tsr_wait_lost(waiting, why);
    t->out_waits[place] = state == TSR_MESSAGE_PENDING;
    if (state == TSR_MESSAGE_PENDING) tsr_wait_round(waiting);
    else waiting->since = 0;
  }
}

void tsr_bound_finish_messages(tsr_bound *b) {
  tsr_waiting waiting = {.bound = b, .stage = -1, .what = "waits until what it sent has left"};
  b->steps_done = b->step + 1;
  if (tsr_bound_is_alone(b)) return;
  for (int n = 0; n < b->programs->graph->nodes_count; n++) {
    if (!b->transfers[n]) continue;
    tsr_task task = {.node = n};
    int from, to;
    waiting.node = n + 1;
    tsr_task_ends(
        &(tsr_task_at){.bound = b, .program = b->programs->of_stage[0], .task = &task}, &from, &to);
    for (int i = 0; i < b->ranks_count[from]; i++) {
      int target =
          tsr_parallel_member(b->worker->options.parallel, b->ranks_of_stage[from][i], TSR_PP, to);
      int peer = tsr_rank_map_process(tsr_bound_hosting(b), target);
      waiting.peers = &peer;
      waiting.peers_count = 1;
      for (int m = 0; m < b->programs->order->microbatches; m++)
        finish_message(b, n, m, i, &waiting);
    }
  }
}

/* Whether some rank here of stage `one` has its counterpart of the other stage here, too. */
static bool has_pair(const tsr_task_at *at, int one, int other) {
  tsr_bound *b = at->bound;
  for (int i = 0; i < b->ranks_count[one]; i++) {
    int rank = b->ranks_of_stage[one][i];
    if (tsr_bound_is_here(b, tsr_parallel_member(b->worker->options.parallel, rank, TSR_PP, other)))
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
