// SPDX-License-Identifier: Apache-2.0
/* The sums of a record. */
#include "report/profile.h"
#include "plan/plan.h"
#include "schedule/fuse.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* What one run of a task costs on a rank, and where it belongs; per stage and task. */
typedef struct {
  double flops, bytes;
  int virtual_stage, section;
} task_facts;

typedef struct {
  tsr_arena *arena;
  tsr_profile *profile;
  const tsr_pipeline *pipeline;
  task_facts **facts;             /* per stage */
  int *row_of;                    /* per op and axis: its row + 1 */
  int64_t (*ns)[TSR_EVENT_KINDS]; /* per rank */
  int64_t whole;                  /* nanoseconds of all steps */
  int64_t receives;
  double receive_seconds;
} summing;

static int stage_of(const summing *s, int rank) {
  return tsr_parallel_coord(s->profile->record.parallel, rank, TSR_PP);
}

static double seconds_of(const tsr_event *e) { return 1e-9 * (double)(e->end - e->begin); }

static double bytes_of(const tsr_task *t) {
  double bytes = 0;
  if (t->op == TSR_OP_SEND) return 0; /* it only marks the bytes as available */
  for (int i = 0; i < t->inputs_count; i++) bytes += (double)tsr_tensor_bytes(&t->inputs[i]);
  if (t->axis >= 0 || t->op == TSR_OP_RECEIVE) return bytes;
  for (int i = 0; i < t->outputs_count; i++) bytes += (double)tsr_tensor_bytes(&t->outputs[i]);
  return bytes;
}

/* What there is to compute: the field's custom counts masked scores too. */
static double flops_of(const tsr_program *p, const tsr_task *t) {
  bool attention = t->op == TSR_OP_ATTENTION || t->op == TSR_OP_ATTENTION_DX ||
                   t->op == TSR_OP_DOCUMENT_ATTENTION || t->op == TSR_OP_DOCUMENT_ATTENTION_DX;
  double flops = tsr_task_flops(p, t);
  if (!attention) return flops;
  double length = (double)t->inputs[t->op == TSR_OP_ATTENTION ? 0 : 1].shape[1];
  return flops * tsr_attention_share(&p->graph->nodes[t->node].attr.attention, length);
}

static void find_facts(summing *s) {
  s->facts = tsr_arena_array(s->arena, task_facts *, s->pipeline->stages);
  for (int stage = 0; stage < s->pipeline->stages; stage++) {
    const tsr_program *p = s->profile->record.programs->of_stage[stage];
    s->facts[stage] = tsr_arena_array(s->arena, task_facts, p->tasks_count);
    for (int k = 0; k < p->parts_count; k++)
      for (int t = p->parts[k].begin; t < p->parts[k].end; t++) {
        task_facts *f = &s->facts[stage][t];
        f->section = (int)p->parts[k].section;
        f->virtual_stage = tsr_pipeline_virtual(s->pipeline, stage, p->parts[k].chunk);
        f->flops = flops_of(p, &p->tasks[t]);
        f->bytes = bytes_of(&p->tasks[t]);
      }
  }
}

/* ---- ops ---- */

enum {
  ROWS_PER_OP = TSR_AXES + 1,
  INPUT_ROW = TSR_OPS * ROWS_PER_OP,
  CLASSIFIER_ROW, /* a fused task with its loss (schedule/fuse.h) */
  ROWS
};

static tsr_profile_op *find_row(summing *s, const tsr_event *e, const tsr_task *t) {
  int key = t ? (int)t->op * ROWS_PER_OP + t->axis + 1 : INPUT_ROW;
  if (t && t->covered) key = CLASSIFIER_ROW;
  if (!s->row_of[key]) {
    s->row_of[key] = ++s->profile->ops_count;
    s->profile->ops[s->row_of[key] - 1] = (tsr_profile_op){
        .op = t ? tsr_task_kind_name(t) : "inputs", .axis = t ? t->axis : -1, .kind = e->kind};
  }
  return &s->profile->ops[s->row_of[key] - 1];
}

/* Ties by name, so that the order is one. */
static int by_seconds(const void *a, const void *b) {
  const tsr_profile_op *x = a, *y = b;
  if (x->seconds != y->seconds) return x->seconds < y->seconds ? 1 : -1;
  int pipeline = strcmp(x->op, y->op);
  return pipeline ? pipeline : x->axis - y->axis;
}

static void add_op(summing *s, const tsr_event *e, const tsr_task *t, const task_facts *f) {
  tsr_profile_op *row = find_row(s, e, t);
  row->count++;
  row->seconds += seconds_of(e);
  if (!t) return;
  row->bytes += f->bytes;
  if (e->kind == TSR_EVENT_COMPUTE) row->flops += f->flops;
  bool between = t->op == TSR_OP_SEND || t->op == TSR_OP_RECEIVE;
  if (e->kind == TSR_EVENT_COMMUNICATION)
    s->profile->axis_seconds[between ? TSR_PP : t->axis] += seconds_of(e);
}

/* ---- actions of the pipeline ---- */

static void add_action(summing *s, const tsr_event *e, const tsr_task *t, const task_facts *f) {
  if (t && t->op == TSR_OP_RECEIVE) {
    s->receives++;
    s->receive_seconds += seconds_of(e);
    return;
  }
  /* an event of inputs does not name the stage's chunk: they count as the first's */
  int section = t ? f->section : (int)TSR_FORWARD;
  int at = t ? f->virtual_stage : tsr_pipeline_virtual(s->pipeline, stage_of(s, e->rank), 0);
  tsr_profile_actions *a = &s->profile->actions[at];
  if (e->background) return;
  if (section == TSR_FORWARD) a->forward += seconds_of(e);
  if (section == TSR_BACKWARD) a->backward += seconds_of(e);
  if (section == TSR_WEIGHTS) a->weights += seconds_of(e);
}

static double bubble_of(
    const tsr_pipeline *pipeline, const tsr_profile_actions *actions, double send, double *busy) {
  tsr_arena *scratch = tsr_arena_new();
  int stages = pipeline->stages * pipeline->chunks;
  double *of[3];
  for (int k = 0; k < 3; k++) of[k] = tsr_arena_array(scratch, double, stages);
  for (int v = 0; v < stages; v++) {
    of[0][v] = actions[v].forward;
    of[1][v] = actions[v].backward;
    of[2][v] = actions[v].weights;
  }
  tsr_pipeline_costs costs = {.forward = of[0], .backward = of[1], .weights = of[2], .send = send};
  tsr_pipeline_times times;
  tsr_pipeline_time(scratch, pipeline, &costs, &times);
  for (int s = 0; busy && s < pipeline->stages; s++) busy[s] = times.busy[s];
  double bubble = times.bubble;
  tsr_arena_free(scratch);
  return bubble;
}

double tsr_profile_even_bubble(const tsr_pipeline *pipeline) {
  tsr_arena *scratch = tsr_arena_new();
  int stages = pipeline->stages * pipeline->chunks;
  tsr_profile_actions *even = tsr_arena_array(scratch, tsr_profile_actions, stages);
  for (int v = 0; v < stages; v++)
    even[v] = (tsr_profile_actions){1, pipeline->splits_backward ? 1 : 2, 1};
  double bubble = bubble_of(pipeline, even, 0, NULL);
  tsr_arena_free(scratch);
  return bubble;
}

static void finish_actions(summing *s) {
  tsr_profile *p = s->profile;
  const tsr_pipeline *o = s->pipeline;
  double times = (double)p->record.steps_count * o->microbatches * p->record.parallel->ranks /
                 (double)o->stages;
  for (int v = 0; v < o->stages * o->chunks; v++) {
    p->actions[v].forward /= times;
    p->actions[v].backward /= times;
    p->actions[v].weights /= times;
  }
  if (s->receives) p->send = s->receive_seconds / (double)s->receives;
  p->bubble = bubble_of(o, p->actions, p->send, p->busy);
  p->bubble_even = tsr_profile_even_bubble(o);
}

/* ---- ranks ---- */

static int by_begin(const void *a, const void *b) {
  const tsr_event *x = *(const tsr_event *const *)a, *y = *(const tsr_event *const *)b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return (x->end > y->end) - (x->end < y->end);
}

/* Nanoseconds in which any of the events (sorted here) is active. */
static int64_t covered(const tsr_event **events, int64_t count) {
  int64_t sum = 0, until = INT64_MIN;
  qsort(events, (size_t)count, sizeof *events, by_begin);
  for (int64_t i = 0; i < count; i++) {
    int64_t begin = events[i]->begin > until ? events[i]->begin : until;
    if (events[i]->end > begin) sum += events[i]->end - begin;
    if (events[i]->end > until) until = events[i]->end;
  }
  return sum;
}

static void finish_rank(summing *s, int rank, const tsr_event **work, int64_t count) {
  tsr_profile *p = s->profile;
  const int64_t *ns = s->ns[rank];
  int64_t sum = ns[TSR_EVENT_COMPUTE] + ns[TSR_EVENT_INPUT] + ns[TSR_EVENT_COMMUNICATION];
  int64_t busy = covered(work, count);
  tsr_profile_rank *r = &p->ranks[rank];
  r->compute = 1e-9 * (double)ns[TSR_EVENT_COMPUTE];
  r->input = 1e-9 * (double)ns[TSR_EVENT_INPUT];
  r->communication = 1e-9 * (double)ns[TSR_EVENT_COMMUNICATION];
  r->waiting = 1e-9 * (double)ns[TSR_EVENT_WAIT];
  r->overlapped = 1e-9 * (double)(sum - busy);
  r->idle = 1e-9 * (double)(s->whole - busy);
  p->all.compute += r->compute;
  p->all.input += r->input;
  p->all.communication += r->communication;
  p->all.overlapped += r->overlapped;
  p->all.waiting += r->waiting;
  p->all.idle += r->idle;
}

/* The events that are not waiting, by rank. */
static void finish_ranks(summing *s) {
  const tsr_record *record = &s->profile->record;
  int ranks = record->parallel->ranks;
  int64_t *begin = tsr_arena_array(s->arena, int64_t, ranks + 2);
  const tsr_event **work = tsr_arena_array(s->arena, const tsr_event *, record->events_count + 1);
  for (int64_t i = 0; i < record->events_count; i++)
    if (record->events[i].kind != TSR_EVENT_WAIT) begin[record->events[i].rank + 2]++;
  for (int r = 0; r < ranks; r++) begin[r + 2] += begin[r + 1];
  for (int64_t i = 0; i < record->events_count; i++)
    if (record->events[i].kind != TSR_EVENT_WAIT)
      work[begin[record->events[i].rank + 1]++] = &record->events[i];
  for (int r = 0; r < ranks; r++) finish_rank(s, r, work + begin[r], begin[r + 1] - begin[r]);
  s->profile->unused = 1e-9 * (double)(s->whole - covered(work, begin[ranks]));
}

void tsr_profile_make(tsr_arena *arena, const tsr_record *record, tsr_profile *p) {
  const tsr_pipeline *pipeline = record->programs->pipeline;
  summing s = {.arena = arena, .profile = p, .pipeline = pipeline};
  assert(record->steps_count > 0 && !record->lost);
  *p = (tsr_profile){.record = *record};
  p->ranks = tsr_arena_array(arena, tsr_profile_rank, record->parallel->ranks);
  p->axis_seconds = tsr_arena_array(arena, double, TSR_AXES);
  p->ops = tsr_arena_array(arena, tsr_profile_op, ROWS);
  p->actions = tsr_arena_array(arena, tsr_profile_actions, pipeline->stages * pipeline->chunks);
  p->busy = tsr_arena_array(arena, double, pipeline->stages);
  s.row_of = tsr_arena_array(arena, int, ROWS);
  s.ns = tsr_arena_alloc(arena, sizeof *s.ns * (size_t)record->parallel->ranks);
  find_facts(&s);
  for (int i = 0; i < record->steps_count; i++)
    s.whole += record->steps[i].end - record->steps[i].begin;
  p->seconds = 1e-9 * (double)s.whole;
  for (int64_t i = 0; i < record->events_count; i++) {
    const tsr_event *e = &record->events[i];
    int stage = stage_of(&s, e->rank);
    const tsr_task *t = e->task < 0 ? NULL : &record->programs->of_stage[stage]->tasks[e->task];
    const task_facts *f = t ? &s.facts[stage][e->task] : NULL;
    s.ns[e->rank][e->kind] += e->end - e->begin;
    if (e->kind == TSR_EVENT_WAIT) continue;
    add_op(&s, e, t, f);
    add_action(&s, e, t, f);
  }
  finish_ranks(&s);
  finish_actions(&s);
  qsort(p->ops, (size_t)p->ops_count, sizeof *p->ops, by_seconds);
}
