// SPDX-License-Identifier: Apache-2.0
/* How long a pipeline schedule takes with given costs, and its bubble. */
#include "schedule/pipeline.h"
#include "schedule/pipeline_walk.h"
#include <assert.h>

static double cost_of(
    const tsr_pipeline *pipeline, const tsr_pipeline_costs *costs, int stage, tsr_action action) {
  const double *per_kind[] = {costs->forward, costs->backward, costs->weights};
  assert(per_kind[action.kind]);
  return per_kind[action.kind][tsr_pipeline_virtual(pipeline, stage, action.chunk)];
}

static void make_times(tsr_arena *arena, const tsr_pipeline *pipeline, tsr_pipeline_times *times) {
  *times = (tsr_pipeline_times){0};
  times->busy = tsr_arena_array(arena, double, pipeline->stages);
  times->start = tsr_arena_array(arena, double *, pipeline->stages);
  times->end = tsr_arena_array(arena, double *, pipeline->stages);
  for (int s = 0; s < pipeline->stages; s++) {
    times->start[s] = tsr_arena_array(arena, double, pipeline->counts[s]);
    times->end[s] = tsr_arena_array(arena, double, pipeline->counts[s]);
  }
}

/* An action begins when its stage has done what comes before and what it needs has arrived. */
void tsr_pipeline_time(
    tsr_arena *arena, const tsr_pipeline *pipeline, const tsr_pipeline_costs *costs,
    tsr_pipeline_times *ret_times) {
  tsr_pipeline_times *t = ret_times;
  make_times(arena, pipeline, t);
  double *arrival[2]; /* of F and B, per slot: when it is done */
  tsr_arena *scratch = tsr_arena_new();
  for (int kind = 0; kind < 2; kind++)
    arrival[kind] = tsr_arena_array(scratch, double, tsr_pipeline_slots(pipeline));
  tsr_pipeline_walk walk;
  tsr_pipeline_walk_begin(scratch, pipeline, &walk);
  for (int s, i; tsr_pipeline_walk_next(&walk, &s, &i);) {
    tsr_action a = pipeline->actions[s][i];
    double start = i ? t->end[s][i - 1] : 0;
    tsr_need need;
    if (tsr_pipeline_needs(pipeline, s, a, &need)) {
      double there = arrival[a.kind][tsr_pipeline_slot(pipeline, need.stage, need.action)];
      if (need.stage != s) there += costs->send;
      if (there > start) start = there;
    }
    double cost = cost_of(pipeline, costs, s, a);
    t->start[s][i] = start;
    t->end[s][i] = start + cost;
    t->busy[s] += cost;
    if (a.kind != TSR_ACTION_WEIGHTS)
      arrival[a.kind][tsr_pipeline_slot(pipeline, s, a)] = start + cost;
    if (start + cost > t->total) t->total = start + cost;
  }
  double busy = 0;
  for (int s = 0; s < pipeline->stages; s++) {
    assert(walk.next[s] == pipeline->counts[s]);
    busy += t->busy[s];
  }
  tsr_arena_free(scratch);
  if (t->total > 0) t->bubble = 1 - busy / (pipeline->stages * t->total);
}

tsr_pipeline_starts tsr_pipeline_find_starts(tsr_arena *arena, const tsr_pipeline *pipeline) {
  int stages = pipeline->stages * pipeline->chunks;
  tsr_pipeline_starts s = {.microbatches = pipeline->microbatches};
  double *one = tsr_arena_array(arena, double, stages),
         *two = tsr_arena_array(arena, double, stages);
  for (int i = 0; i < stages; i++) one[i] = 1, two[i] = pipeline->splits_backward ? 1 : 2;
  tsr_pipeline_costs costs = {.forward = one, .backward = two, .weights = one};
  tsr_pipeline_times times;
  tsr_pipeline_time(arena, pipeline, &costs, &times);
  for (int k = 0; k <= TSR_ACTION_WEIGHTS; k++)
    s.start[k] = tsr_arena_array(arena, double, stages * pipeline->microbatches);
  for (int stage = 0; stage < pipeline->stages; stage++)
    for (int i = 0; i < pipeline->counts[stage]; i++) {
      const tsr_action *a = &pipeline->actions[stage][i];
      int v = tsr_pipeline_virtual(pipeline, stage, a->chunk);
      s.start[a->kind][v * pipeline->microbatches + a->microbatch] = times.start[stage][i];
    }
  return s;
}

int tsr_pipeline_lag(
    const tsr_pipeline_starts *s, tsr_action_kind kind, int from, tsr_action_kind taken_in,
    int to) {
  const double *sent = s->start[kind] + from * s->microbatches;
  const double *taken = s->start[taken_in] + to * s->microbatches;
  int lag = 1;
  for (int k = lag; k < s->microbatches; k++)
    if (taken[k - lag] >= sent[k]) k = lag++; /* again from the first that it speaks of */
  return lag;
}
