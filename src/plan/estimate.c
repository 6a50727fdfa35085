// SPDX-License-Identifier: Apache-2.0
#include "plan/estimate.h"
#include "plan/path.h"
#include <assert.h>
#include <math.h>

enum { TRANSFERS_MAX = 2 * TSR_TRAFFIC_MAX, KNOWN_PATHS_MAX = 16 };

/* The farthest paths within groups; each takes a visit of all ranks to find. */
typedef struct {
  int count;
  tsr_machine_group groups[KNOWN_PATHS_MAX];
  const char *paths[KNOWN_PATHS_MAX];
} known_paths;

typedef struct {
  tsr_arena *arena;
  const tsr_estimate_options *o;
  tsr_estimate *e;
  int64_t ranks;                         /* of a stage */
  double *costs[TSR_ACTION_WEIGHTS + 1]; /* of the pipeline's actions, per virtual stage */
  int buckets;                           /* more than any task's */
  int (*fullest)[TSR_AXES]; /* per stage: coordinates of the rank that stands for all of its */
  double *arrives; /* per node: when what is sent before or after the pipeline's actions has
                      arrived; < 0: not yet sent */
  known_paths *known_paths;
} estimator;

/* ---- one task ---- */

tsr_machine_dtype tsr_task_dtype(const tsr_task *t, bool tf32) {
  for (int i = 0; i < t->inputs_count; i++) {
    if (t->inputs[i].dtype == TSR_BF16) return TSR_MACHINE_BF16;
    if (t->inputs[i].dtype == TSR_F16) return TSR_MACHINE_FP16;
  }
  return tf32 ? TSR_MACHINE_TF32 : TSR_MACHINE_F32;
}

/* As runtime/executor.c distributes work: whole ranks where they divide over the threads, else
 * every rank's work in as many parts; heads and rows divide, the units of a sum do not. */
tsr_machine_work
tsr_host_work(const tsr_program *p, const tsr_task *t, int64_t ranks, int threads) {
  tsr_machine_work w = tsr_task_work(p, t);
  if (tsr_op_is_collective(t->op)) {
    int64_t members = t->axis == TSR_PP ? ranks * p->pipeline->stages : ranks;
    int64_t groups = members / p->lowering.size[t->axis];
    return (tsr_machine_work){.bytes = w.bytes * (double)members, .calls = (double)groups};
  }
  bool divides = !tsr_task_is_product(t) || ranks % threads == 0;
  ranks /= tsr_task_ranks_apart(p, t);
  w.flops *= (double)ranks;
  w.bytes *= (double)ranks;
  w.calls *= (double)ranks / (divides ? threads : 1);
  return w;
}

static bool has_threads(const estimator *x) { return x->o->machine->threads > 0; }

static double task_seconds(const estimator *x, const tsr_program *p, const tsr_task *t) {
  const tsr_machine *m = x->o->machine;
  if (t->op == TSR_OP_SEND || t->op == TSR_OP_WAIT) return 0;
  if (!has_threads(x) && !tsr_task_runs_on(p, t, x->fullest[p->stage])) return 0;
  if (t->op == TSR_OP_RECEIVE && !has_threads(x)) return 0; /* the send's time is counted */
  tsr_machine_work work =
      has_threads(x) ? tsr_host_work(p, t, x->ranks, m->threads) : tsr_task_work(p, t);
  return tsr_machine_task_seconds(m, tsr_op_name(t->op), tsr_task_dtype(t, x->o->tf32), work);
}

/* The host writes a microbatch's inputs, which are copies of data in its memory. */
static double input_seconds(const estimator *x, const tsr_program *p, const tsr_part *part) {
  const tsr_machine *m = x->o->machine;
  double bytes = 0;
  if (!has_threads(x) || part->section != TSR_FORWARD || part->chunk) return 0;
  for (int i = 0; i < p->slot_groups_count; i++)
    if (p->slot_groups[i].segment == TSR_SEGMENT_INPUT) bytes += (double)p->slot_groups[i].bytes;
  return 2 * bytes * (double)x->ranks / (m->memory_bandwidth * m->efficiency_memory);
}

/* ---- one transfer ---- */

static tsr_machine_collective kind_of(const estimator *x, tsr_op op) {
  switch ((int)op) {
  case TSR_OP_ALL_REDUCE:
    if (x->o->all_reduce == TSR_ALL_REDUCE_RING) return TSR_MACHINE_ALL_REDUCE_RING;
    return x->o->all_reduce == TSR_ALL_REDUCE_TREE ? TSR_MACHINE_ALL_REDUCE_DIRECTLY
                                                   : TSR_MACHINE_ALL_REDUCE;
  case TSR_OP_ALL_GATHER:
    return TSR_MACHINE_ALL_GATHER;
  case TSR_OP_REDUCE_SCATTER:
    return TSR_MACHINE_REDUCE_SCATTER;
  case TSR_OP_ALL_TO_ALL:
    return TSR_MACHINE_ALL_TO_ALL;
  case TSR_OP_BROADCAST:
    return TSR_MACHINE_BROADCAST;
  case TSR_OP_REDUCE:
    return TSR_MACHINE_REDUCE;
  }
  return TSR_MACHINE_SEND;
}

typedef struct {
  double seconds, sent_over[TSR_MACHINE_LINKS_MAX];
} transfer;

static void add_collective(
    const estimator *x, tsr_machine_collective kind, double bytes, tsr_machine_group group,
    transfer *ret) {
  double sent[TSR_MACHINE_LINKS_MAX];
  ret->seconds += tsr_machine_collective_seconds(x->o->machine, kind, bytes, group, NULL);
  tsr_machine_collective_bytes(x->o->machine, kind, bytes, group, sent);
  for (int l = 0; l < TSR_MACHINE_LINKS_MAX; l++) ret->sent_over[l] += sent[l];
}

/* A collective, a send to the next stage, or on one host its receiving. Of members that hold the
 * same blocks (hybrid sharding), gathering stays inside a group, and only slices are reduced
 * between the groups. */
static transfer transfer_of(const estimator *x, const tsr_program *p, const tsr_task *t) {
  transfer result = {0};
  const tsr_parallel *parallel = x->o->parallel;
  bool is_collective = tsr_op_is_collective(t->op);
  int axis = is_collective ? t->axis : TSR_PP, replicas = tsr_path_replicas(p, t);
  double bytes = (double)tsr_tensor_bytes(&t->inputs[0]);
  tsr_machine_group group = {
      parallel->size[axis] / replicas, parallel->stride[axis], parallel->ranks};
  if (!group.stride) group.stride = 1;
  add_collective(x, kind_of(x, t->op), bytes, group, &result);
  for (int l = 0; t->op == TSR_OP_RECEIVE && l < TSR_MACHINE_LINKS_MAX; l++)
    result.sent_over[l] = 0;
  if (replicas > 1 && (t->op == TSR_OP_REDUCE_SCATTER || t->op == TSR_OP_REDUCE)) {
    tsr_machine_group between = {replicas, group.stride * group.members, parallel->ranks};
    double slice = t->op == TSR_OP_REDUCE ? bytes : bytes / (double)group.members;
    add_collective(x, TSR_MACHINE_ALL_REDUCE, slice, between, &result);
  }
  if (has_threads(x)) result.seconds = task_seconds(x, p, t);
  else result.seconds += x->o->machine->overhead;
  return result;
}

/* A collective over the stages is every stage's, but one host does it once. */
static bool counts_here(const estimator *x, const tsr_program *p, const tsr_task *t) {
  if (!has_threads(x)) return tsr_task_runs_on(p, t, x->fullest[p->stage]);
  return t->axis != TSR_PP || p->stage == 0;
}

static double transfer_seconds(const estimator *x, const tsr_program *p, const tsr_task *t) {
  return counts_here(x, p, t) ? transfer_of(x, p, t).seconds : 0;
}

/* Of groups that were asked for before, as every stage has the same ones. */
static const char *farthest_path(const estimator *x, tsr_machine_group g) {
  known_paths *known = x->known_paths;
  for (int i = 0; i < known->count; i++) {
    const tsr_machine_group *k = &known->groups[i];
    if (k->members == g.members && k->stride == g.stride && k->ranks == g.ranks)
      return known->paths[i];
  }
  const char *path = tsr_path_farthest(x->o->machine, g);
  if (known->count == KNOWN_PATHS_MAX) return path;
  known->groups[known->count] = g;
  return known->paths[known->count++] = path;
}

static tsr_estimate_transfer *find_transfer(
    const estimator *x, tsr_estimate_stage *s, const tsr_program *p, const tsr_task *task) {
  int axis = tsr_op_is_collective(task->op) ? task->axis : TSR_PP;
  const tsr_node *node = &p->graph->nodes[task->node];
  bool nccl = tsr_node_needs_nccl(node);
  for (int i = 0; i < s->transfers_count; i++) {
    tsr_estimate_transfer *t = &s->transfers[i];
    if (t->op == task->op && t->axis == axis && (t->nccl != NULL) == nccl) return t;
  }
  if (!s->transfers) s->transfers = tsr_arena_array(x->arena, tsr_estimate_transfer, TRANSFERS_MAX);
  assert(s->transfers_count < TRANSFERS_MAX);
  tsr_estimate_transfer *t = &s->transfers[s->transfers_count++];
  *t = (tsr_estimate_transfer){.op = task->op, .axis = axis, .nccl = nccl ? node : NULL};
  t->path = farthest_path(x, tsr_path_group(x->o->parallel, p, task));
  return t;
}

/* On one host what is sent is copied when it is received. */
static bool is_transfer(const estimator *x, const tsr_program *p, const tsr_task *t) {
  if (t->op == TSR_OP_RECEIVE) return has_threads(x);
  return t->op == TSR_OP_SEND || (tsr_op_is_collective(t->op) && counts_here(x, p, t));
}

static void count_transfers(const estimator *x, int stage) {
  const tsr_program *p = x->o->programs->of_stage[stage];
  tsr_estimate_stage *s = &x->e->stages[stage];
  for (int i = 0; i < p->tasks_count; i++) {
    const tsr_task *t = &p->tasks[i];
    if (!is_transfer(x, p, t)) continue;
    double times = (double)tsr_task_times(p, i);
    transfer one = transfer_of(x, p, t);
    tsr_estimate_transfer *row = find_transfer(x, s, p, t);
    row->count += (int64_t)times;
    row->bytes += times * (double)tsr_tensor_bytes(&t->inputs[0]);
    row->seconds += times * one.seconds;
    s->communication += times * one.seconds;
    for (int l = 0; l < TSR_MACHINE_LINKS_MAX; l++) {
      row->sent_over[l] += times * one.sent_over[l];
      row->sent += times * one.sent_over[l];
    }
  }
}

/* ---- tasks one after another ---- */

/* What a stage's rank does, and when its links are free of what it only began. */
typedef struct {
  const tsr_program *p;
  double now, links_free, copies_free;
  double *done; /* per bucket: when it is complete */
  double compute, waits, copied, copies, copies_open;
  int at, end; /* tasks */
} lane;

static lane new_lane(const estimator *x, int stage) {
  lane l = {.p = x->o->programs->of_stage[stage]};
  l.done = tsr_arena_array(x->arena, double, x->buckets);
  return l;
}

static void wait_until(lane *l, double time) {
  if (time <= l->now) return;
  l->waits += time - l->now;
  l->now = time;
}

/* Of an activation, to the host or back, in the order in which copies begin. */
static void begin_copy(const estimator *x, lane *l, const tsr_task *t) {
  double bytes = (double)tsr_tensor_bytes(&t->inputs[0]);
  double seconds = bytes / tsr_machine_host_rate(x->o->machine);
  l->copies_free = fmax(l->copies_free, l->now) + seconds;
  l->done[t->bucket] = l->copies_free;
  l->copied += t->op == TSR_OP_OFFLOAD ? bytes : 0;
  l->copies += seconds;
}

static void wait_for_copies(lane *l, const tsr_task *t) {
  double open = fmax(0, l->done[t->bucket] - l->now);
  l->now += open;
  l->copies_open += open;
}

static void do_task(const estimator *x, lane *l, const tsr_task *t) {
  if (tsr_op_copies_to_or_from_host(t->op)) {
    begin_copy(x, l, t);
    return;
  }
  if (t->op == TSR_OP_WAIT && tsr_op_copies_to_or_from_host(l->p->graph->nodes[t->node].op)) {
    wait_for_copies(l, t);
    return;
  }
  bool is_collective = tsr_op_is_collective(t->op);
  double seconds = is_collective ? transfer_seconds(x, l->p, t) : task_seconds(x, l->p, t);
  if (t->op == TSR_OP_WAIT && t->bucket) {
    wait_until(l, l->done[t->bucket]);
  } else if (is_collective && t->bucket && !has_threads(x)) {
    l->links_free = fmax(l->links_free, l->now) + seconds;
    l->done[t->bucket] = l->links_free;
  } else if (is_collective || t->op == TSR_OP_RECEIVE) {
    wait_until(l, l->now + seconds);
  } else {
    l->now += seconds;
    l->compute += seconds;
  }
}

static void do_part(const estimator *x, lane *l, int part, bool last) {
  double inputs = input_seconds(x, l->p, &l->p->parts[part]);
  l->now += inputs;
  l->compute += inputs;
  for (int i = l->p->parts[part].begin; i < l->p->parts[part].end; i++)
    if (last || !l->p->tasks[i].last_only) do_task(x, l, &l->p->tasks[i]);
}

/* ---- the pipeline ---- */

static bool is_body(const tsr_part *part) {
  return part->section != TSR_PROLOGUE && part->section != TSR_UPDATE;
}

/* A microbatch's part by itself, the last one's or another's; what it only began is not waited for.
 */
static void add_part(const estimator *x, int stage, int part, bool last, double times) {
  lane l = new_lane(x, stage);
  tsr_estimate_stage *s = &x->e->stages[stage];
  do_part(x, &l, part, last);
  s->compute += times * l.compute;
  s->waits += times * l.waits;
  s->copied += times * l.copied;
  s->copies += times * l.copies;
  s->copies_open += times * l.copies_open;
  const tsr_part *p = &l.p->parts[part];
  if (!last)
    x->costs[p->section - TSR_FORWARD][tsr_pipeline_virtual(l.p->pipeline, stage, p->chunk)] =
        l.now;
}

/* What an action sends to another stage takes to arrive; the slowest of all actions. */
static double slowest_send(const estimator *x) {
  double slowest = 0;
  for (int s = 0; s < x->o->programs->pipeline->stages; s++) {
    const tsr_program *p = x->o->programs->of_stage[s];
    for (int k = 0; k < p->parts_count; k++) {
      double sum = 0;
      for (int i = p->parts[k].begin; is_body(&p->parts[k]) && i < p->parts[k].end; i++)
        if (p->tasks[i].op == TSR_OP_SEND) sum += transfer_of(x, p, &p->tasks[i]).seconds;
      slowest = fmax(slowest, sum);
    }
  }
  return slowest;
}

static void time_pipeline(const estimator *x) {
  const tsr_pipeline *pipeline = x->o->programs->pipeline;
  x->e->costs = (tsr_pipeline_costs){x->costs[0], x->costs[1], x->costs[2], 0};
  if (!has_threads(x)) x->e->costs.send = slowest_send(x);
  for (int s = 0; s < pipeline->stages; s++) {
    const tsr_program *p = x->o->programs->of_stage[s];
    for (int k = 0; k < p->parts_count; k++) {
      if (!is_body(&p->parts[k])) continue;
      add_part(x, s, k, false, pipeline->microbatches - 1);
      add_part(x, s, k, true, 1);
    }
  }
  tsr_pipeline_time(x->arena, pipeline, &x->e->costs, &x->e->times);
}

/* ---- before and after it ---- */

/* Whether a stage may do its next task; an arrival is known when the other stage has sent. */
static bool is_ready(const estimator *x, const lane *lanes, const lane *l, double *ret_from) {
  const tsr_task *t = &l->p->tasks[l->at];
  *ret_from = l->now;
  if (t->op == TSR_OP_RECEIVE) {
    *ret_from = x->arrives[t->node];
    return *ret_from >= 0;
  }
  if (t->axis != TSR_PP || !tsr_op_is_collective(t->op)) return true;
  for (int s = 0; s < l->p->pipeline->stages; s++) {
    const lane *other = &lanes[s];
    if (other->at < other->end && other->p->tasks[other->at].node == t->node)
      *ret_from = fmax(*ret_from, other->now);
    else if (other->at < other->end) return false;
  }
  return true;
}

static void note_send(const estimator *x, const lane *l) {
  const tsr_task *t = &l->p->tasks[l->at];
  if (t->op == TSR_OP_SEND) x->arrives[t->node] = l->now + transfer_seconds(x, l->p, t);
}

/* Does every stage's tasks up to its end; a meeting over pp moves all of its stages at once. */
static void do_lanes(const estimator *x, lane *lanes) {
  int stages = x->o->programs->pipeline->stages;
  for (bool moved = true; moved;) {
    moved = false;
    for (int s = 0; s < stages; s++)
      for (double from; lanes[s].at < lanes[s].end && is_ready(x, lanes, &lanes[s], &from);) {
        const tsr_task *t = &lanes[s].p->tasks[lanes[s].at];
        bool waits_in = t->axis == TSR_PP && tsr_op_is_collective(t->op);
        for (int o = waits_in ? 0 : s; o < (waits_in ? stages : s + 1); o++) {
          lane *l = &lanes[o];
          if (l->at == l->end) continue;
          if (from > l->now) l->now = from;
          note_send(x, l);
          do_task(x, l, &l->p->tasks[l->at++]);
        }
        moved = true;
      }
  }
}

static void do_parts(const estimator *x, lane *lanes, bool update) {
  for (int i = 0; i < x->o->programs->graph->nodes_count; i++) x->arrives[i] = 0;
  for (int s = 0; s < x->o->programs->pipeline->stages; s++) {
    const tsr_program *p = lanes[s].p;
    const tsr_part *part = &p->parts[update ? p->parts_count - 1 : 0];
    lanes[s].at = part->begin;
    lanes[s].end = part->end;
    for (int i = part->begin; i < part->end; i++)
      if (p->tasks[i].op == TSR_OP_SEND) x->arrives[p->tasks[i].node] = -1;
  }
  do_lanes(x, lanes);
}

static double latest(const estimator *x, const lane *lanes) {
  double time = 0;
  for (int s = 0; s < x->o->programs->pipeline->stages; s++) time = fmax(time, lanes[s].now);
  return time;
}

/* The last microbatch's parts again, at their times, for what they begin and the update waits for.
 */
static void do_last_runs(const estimator *x, lane *l) {
  const tsr_program *p = l->p;
  const tsr_pipeline_times *times = &x->e->times;
  int actions = p->pipeline->counts[p->stage];
  double begin = x->e->before;
  for (int i = 0; i < actions; i++) {
    const tsr_run *run = &p->runs[i + 1];
    if (run->microbatch != p->pipeline->microbatches - 1) continue;
    l->now = fmax(l->now, begin + times->start[p->stage][i]);
    do_part(x, l, run->part, true);
  }
  if (actions) l->now = fmax(l->now, begin + times->end[p->stage][actions - 1]);
  l->compute = l->waits = 0; /* counted as the pipeline's */
}

static void add_lane(const estimator *x, int stage, const lane *l) {
  x->e->stages[stage].compute += l->compute;
  x->e->stages[stage].waits += l->waits;
}

static void time_ends(const estimator *x) {
  int stages = x->o->programs->pipeline->stages;
  lane *lanes = tsr_arena_array(x->arena, lane, stages);
  for (int s = 0; s < stages; s++) lanes[s] = new_lane(x, s);
  do_parts(x, lanes, false);
  x->e->before = latest(x, lanes);
  for (int s = 0; s < stages; s++) {
    add_lane(x, s, &lanes[s]);
    do_last_runs(x, &lanes[s]);
  }
  double body = latest(x, lanes);
  do_parts(x, lanes, true);
  for (int s = 0; s < stages; s++) add_lane(x, s, &lanes[s]);
  x->e->step = latest(x, lanes);
  x->e->after = x->e->step - body;
}

/* ---- the whole ---- */

/* All tasks one after another. */
static void add_up(const estimator *x) {
  x->e->step = 0;
  for (int s = 0; s < x->o->programs->pipeline->stages; s++)
    x->e->step += x->e->stages[s].compute + x->e->stages[s].waits + x->e->stages[s].copies_open;
}

static void count_work(const estimator *x) {
  const tsr_programs *programs = x->o->programs;
  double of_dtype[TSR_MACHINE_DTYPES] = {0};
  for (int s = 0; s < programs->pipeline->stages; s++) {
    const tsr_program *p = programs->of_stage[s];
    for (int i = 0; i < p->tasks_count; i++) {
      const tsr_task *t = &p->tasks[i];
      double flops = tsr_task_flops(p, t) * (double)tsr_task_times(p, i);
      if (!tsr_task_runs_on(p, t, x->fullest[p->stage])) continue;
      x->e->stages[s].flops += flops;
      if (tsr_task_is_product(t)) of_dtype[tsr_task_dtype(t, x->o->tf32)] += flops;
    }
    count_transfers(x, s);
  }
  for (int t = 0; t < TSR_MACHINE_DTYPES; t++)
    if (of_dtype[t] > of_dtype[x->e->dtype]) x->e->dtype = (tsr_machine_dtype)t;
}

static int count_buckets(const tsr_programs *programs) {
  int buckets = 1;
  for (int s = 0; s < programs->pipeline->stages; s++)
    for (int i = 0; i < programs->of_stage[s]->tasks_count; i++)
      if (programs->of_stage[s]->tasks[i].bucket >= buckets)
        buckets = programs->of_stage[s]->tasks[i].bucket + 1;
  return buckets;
}

void tsr_estimate_make(
    tsr_arena *arena, const tsr_estimate_options *options, tsr_estimate *ret_estimate) {
  tsr_estimate *e = ret_estimate;
  int stages = options->programs->pipeline->stages;
  tsr_estimate_options o = *options;
  o.tf32 = o.tf32 && o.machine->flops[TSR_MACHINE_TF32] > 0;
  estimator x = {.arena = arena, .o = &o, .e = e};
  x.known_paths = tsr_arena_alloc(arena, sizeof *x.known_paths);
  *e = (tsr_estimate){.stages = tsr_arena_array(arena, tsr_estimate_stage, stages)};
  x.ranks = options->parallel->ranks / stages;
  x.buckets = count_buckets(options->programs);
  x.fullest = tsr_arena_alloc(arena, sizeof *x.fullest * (size_t)stages);
  for (int s = 0; s < stages; s++)
    tsr_plan_find_fullest(options->programs->of_stage[s], x.fullest[s]);
  for (int k = 0; k <= TSR_ACTION_WEIGHTS; k++)
    x.costs[k] =
        tsr_arena_array(arena, double, (size_t)stages * options->programs->pipeline->chunks);
  x.arrives = tsr_arena_array(arena, double, options->programs->graph->nodes_count + 1);
  e->devices = has_threads(&x) ? 1 : options->parallel->ranks;
  count_work(&x);
  time_pipeline(&x);
  time_ends(&x);
  if (has_threads(&x)) add_up(&x);
  for (int s = 0; s < stages; s++)
    e->stages[s].idle =
        fmax(0, e->step - e->stages[s].compute - e->stages[s].waits - e->stages[s].copies_open);
  e->model = tsr_model_work_of(options->graph, options->programs->pipeline->microbatches);
  double possible = (double)e->devices * tsr_machine_peak(options->machine, e->dtype) * e->step;
  e->utilization = possible > 0 ? (e->model.products + e->model.attention) / possible : 0;
}
