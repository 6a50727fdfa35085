// SPDX-License-Identifier: Apache-2.0
#include "plan/rank_traffic.h"
#include "plan/path.h"
#include "plan/plan.h"

typedef struct {
  tsr_arena *arena;
  const tsr_programs *programs;
  const tsr_parallel *parallel;
  tsr_all_reduce_algorithm all_reduce;
  tsr_rank_traffic *traffic;
} maker;

static bool is_same(const tsr_rank_flow *a, const tsr_rank_flow *b) {
  return a->op == b->op && a->axis == b->axis && a->stage == b->stage && a->pairs == b->pairs &&
         a->members == b->members && a->stride == b->stride && a->distance == b->distance &&
         a->root == b->root && a->owner == b->owner && a->owners == b->owners;
}

static void add_flow(const maker *m, tsr_rank_flow flow) {
  tsr_rank_traffic *t = m->traffic;
  if (flow.bytes <= 0 || flow.members < 2) return;
  for (int i = 0; i < t->count; i++) {
    if (!is_same(&t->flows[i], &flow)) continue;
    t->flows[i].bytes += flow.bytes;
    t->flows[i].count += flow.count;
    return;
  }
  tsr_arena_grow(m->arena, (void **)&t->flows, sizeof *t->flows, t->count, &t->capacity);
  t->flows[t->count++] = flow;
}

/* Of a task that only the owners on dp of what it reads run, over another axis. */
static void set_owner(const tsr_program *p, const tsr_task *t, tsr_rank_flow *flow) {
  const tsr_tensor *decides = t->outputs_count ? &t->outputs[0] : &t->inputs[0];
  tsr_placement dp = p->graph->values[decides->value].placement[TSR_DP];
  flow->owner = -1;
  if (dp.kind != TSR_OWNED || flow->axis == TSR_DP) return;
  flow->owner = dp.owner;
  flow->owners = tsr_placement_blocks(dp, (int)p->lowering.size[TSR_DP]);
}

static void add_collective(const maker *m, const tsr_program *p, int task) {
  const tsr_task *t = &p->tasks[task];
  int64_t times = tsr_task_times(p, task), replicas = tsr_path_replicas(p, t);
  tsr_machine_group group = tsr_path_group(m->parallel, p, t);
  const tsr_attrs *attr = &p->graph->nodes[t->node].attr;
  tsr_rank_flow flow = {t->op,         t->axis,     p->stage, TSR_PAIRS_EACH_OTHER,
                        group.members, group.stride};
  double whole = (double)times * (double)tsr_tensor_bytes(&t->inputs[0]);
  double slice = whole / (double)group.members;
  flow.count = times;
  set_owner(p, t, &flow);
  flow.bytes = slice; /* reduce_scatter, all_to_all */
  if (t->op == TSR_OP_ALL_REDUCE) flow.bytes = 2 * slice;
  if (t->op == TSR_OP_ALL_GATHER) flow.bytes = whole;
  if (t->op == TSR_OP_ALL_REDUCE && m->all_reduce == TSR_ALL_REDUCE_RING) {
    flow.pairs = TSR_PAIRS_NEXT;
    flow.distance = 1;
    flow.bytes = 2 * slice * (double)(group.members - 1);
  }
  if (t->op == TSR_OP_RING_SHIFT) {
    flow.pairs = TSR_PAIRS_NEXT;
    flow.distance = (int)attr->ring_shift.by;
    flow.bytes = whole;
  }
  if (t->op == TSR_OP_BROADCAST || t->op == TSR_OP_REDUCE) {
    flow.pairs = t->op == TSR_OP_BROADCAST ? TSR_PAIRS_FROM_ROOT : TSR_PAIRS_TO_ROOT;
    flow.root = (int)(attr->broadcast.root % group.members);
    flow.bytes = whole;
  }
  bool sums_copies = tsr_op_sums_members(t->op) && replicas > 1;
  if (sums_copies && t->op != TSR_OP_ALL_REDUCE) {
    /* Hybrid sharding: first among the members of one copy, then the slices of all copies. */
    flow.members = group.members / replicas;
    double part = t->op == TSR_OP_REDUCE ? whole : whole / (double)flow.members;
    if (t->op != TSR_OP_REDUCE) flow.bytes = part;
    flow.root = flow.root % (int)flow.members;
    tsr_rank_flow between = flow;
    between.pairs = TSR_PAIRS_EACH_OTHER;
    between.root = 0;
    between.members = replicas;
    between.stride = group.stride * flow.members;
    between.bytes = 2 * part / (double)replicas;
    add_flow(m, between);
  }
  add_flow(m, flow);
}

/* A send's node is the receive. */
static void add_send(const maker *m, const tsr_program *p, int task) {
  const tsr_task *t = &p->tasks[task];
  int virtual_stage = p->graph->nodes[t->node].stage, to = p->stage, chunk;
  for (int s = 0; s < p->pipeline->stages; s++)
    if (tsr_program_has_stage(m->programs->of_stage[s], virtual_stage, &chunk)) to = s;
  if (to == p->stage) return;
  tsr_rank_flow flow = {t->op, TSR_PP, p->stage, TSR_PAIRS_STAGES, m->parallel->size[TSR_PP]};
  flow.stride = m->parallel->stride[TSR_PP];
  flow.distance = to;
  set_owner(p, t, &flow);
  flow.count = tsr_task_times(p, task);
  flow.bytes = (double)flow.count * (double)tsr_tensor_bytes(&t->inputs[0]);
  add_flow(m, flow);
}

void tsr_rank_traffic_make(
    tsr_arena *arena, const tsr_programs *programs, const tsr_parallel *parallel,
    tsr_all_reduce_algorithm all_reduce, tsr_rank_traffic *ret_traffic) {
  maker m = {arena, programs, parallel, all_reduce, ret_traffic};
  *ret_traffic = (tsr_rank_traffic){0};
  for (int s = 0; s < programs->pipeline->stages; s++) {
    const tsr_program *p = programs->of_stage[s];
    for (int i = 0; i < p->tasks_count; i++) {
      if (tsr_op_is_collective(p->tasks[i].op)) add_collective(&m, p, i);
      if (p->tasks[i].op == TSR_OP_SEND) add_send(&m, p, i);
    }
  }
}

/* ---- between blocks ---- */

/* What a group's members of each block are, of a flow. */
typedef struct {
  const tsr_rank_flow *flow;
  const tsr_parallel *parallel;
  const int *block_of;
  int *senders, *members; /* by block: those that take part; all. 0 between groups */
  int *touched, touched_count;
  tsr_block_traffic_visitor *visit;
  void *context;
} group_walk;

static bool sends(const group_walk *w, int rank) {
  const tsr_rank_flow *f = w->flow;
  int dp = tsr_parallel_coord(w->parallel, rank, TSR_DP);
  return tsr_parallel_coord(w->parallel, rank, TSR_PP) == f->stage &&
         (f->owner < 0 || dp % f->owners == f->owner);
}

static void visit_pairs(const group_walk *w, int from, int to, int64_t pairs) {
  if (pairs) w->visit(w->context, w->flow, from, to, pairs);
}

/* The members at `begin`, `begin` + stride, …: each to each other one. Counted by blocks, because
 * the pairs are as many as the square of the members. */
static void visit_each_other(group_walk *w, int64_t first) {
  const tsr_rank_flow *f = w->flow;
  for (int64_t k = 0; k < f->members; k++) {
    int rank = (int)(first + k * f->stride), block = w->block_of[rank];
    if (!w->members[block]++) w->touched[w->touched_count++] = block;
    w->senders[block] += sends(w, rank);
  }
  for (int i = 0; i < w->touched_count; i++)
    for (int k = 0; k < w->touched_count; k++) {
      int from = w->touched[i], to = w->touched[k];
      int64_t others = w->members[to] - (from == to); /* no rank sends to itself */
      visit_pairs(w, from, to, w->senders[from] * others);
    }
  for (; w->touched_count; w->touched_count--)
    w->senders[w->touched[w->touched_count - 1]] = w->members[w->touched[w->touched_count - 1]] = 0;
}

/* Which member receives what member `from` of a group sends; -1: none. */
static int64_t receiver_of(const tsr_rank_flow *f, int64_t from) {
  int64_t to = f->distance;
  if (f->pairs == TSR_PAIRS_NEXT)
    to = ((from + f->distance) % f->members + f->members) % f->members;
  if (f->pairs == TSR_PAIRS_TO_ROOT) to = f->root;
  return to == from && f->pairs != TSR_PAIRS_STAGES ? -1 : to;
}

static void visit_group(group_walk *w, int64_t first) {
  const tsr_rank_flow *f = w->flow;
  if (f->pairs == TSR_PAIRS_EACH_OTHER) {
    visit_each_other(w, first);
    return;
  }
  bool from_root = f->pairs == TSR_PAIRS_FROM_ROOT;
  for (int64_t k = 0; k < f->members; k++) {
    int64_t from = from_root ? f->root : k, to = from_root ? k : receiver_of(f, k);
    int sender = (int)(first + from * f->stride);
    if (to < 0 || (from_root && to == from) || !sends(w, sender)) continue;
    visit_pairs(w, w->block_of[sender], w->block_of[first + to * f->stride], 1);
  }
}

void tsr_rank_traffic_visit(
    tsr_arena *arena, const tsr_rank_traffic *traffic, const tsr_parallel *parallel,
    const int *block_of, int blocks, tsr_block_traffic_visitor *visit, void *context) {
  group_walk w = {.parallel = parallel, .block_of = block_of, .visit = visit, .context = context};
  w.senders = tsr_arena_array(arena, int, blocks);
  w.members = tsr_arena_array(arena, int, blocks);
  w.touched = tsr_arena_array(arena, int, blocks);
  for (int i = 0; i < traffic->count; i++) {
    const tsr_rank_flow *f = w.flow = &traffic->flows[i];
    for (int rank = 0; rank < parallel->ranks; rank++)
      if (rank / f->stride % f->members == 0) visit_group(&w, rank);
  }
}
