// SPDX-License-Identifier: Apache-2.0
#include "train/pipeline_partition.h"
#include "plan/plan.h"
#include <stdio.h>
#include <string.h>

/* ---- the schedule ---- */

static tsr_location schedule_place(const tsr_config *c) {
  tsr_location location = tsr_config_location(c, "pipeline.schedule");
  if (!location.line) location = tsr_config_location(c, "schedule.pipeline");
  return location.line ? location : tsr_axis_place(c, TSR_PP);
}

/* The share of a step in which stages of equal cost, whose backward pass takes twice the forward
 * one's time, wait. */
static double bubble_of(tsr_arena *arena, const tsr_pipeline *pipeline) {
  int stages = pipeline->stages * pipeline->chunks;
  double *one = tsr_arena_array(arena, double, stages),
         *two = tsr_arena_array(arena, double, stages);
  for (int i = 0; i < stages; i++) one[i] = 1, two[i] = pipeline->splits_backward ? 1 : 2;
  tsr_pipeline_costs costs = {.forward = one, .backward = two, .weights = one};
  tsr_pipeline_times times;
  tsr_pipeline_time(arena, pipeline, &costs, &times);
  return 100 * times.bubble;
}

static void
note_bubble(tsr_arena *arena, const tsr_config *c, const tsr_pipeline *pipeline, tsr_diags *diags) {
  int stages = pipeline->stages, m = pipeline->microbatches;
  tsr_location location = tsr_config_location(c, "schedule.pipeline_microbatches");
  if (!location.line) location = schedule_place(c);
  double bubble = bubble_of(arena, pipeline);
  if (m < stages)
    tsr_diag_warning(
        diags, location, "%d microbatch%s for %d stages: %.0f %% of the pipeline's time is idle", m,
        m == 1 ? "" : "es", stages, bubble);
  else if (m < 2 * stages)
    tsr_diag_note(
        diags, location,
        "%d microbatches for %d stages: a bubble of %.0f %%; twice the stages or more make it "
        "small",
        m, stages, bubble);
}

static int chunks_of(const tsr_config *c, tsr_pipeline_kind kind) {
  if (c->pipeline.virtual_stages) return (int)c->pipeline.virtual_stages;
  return kind == TSR_PIPELINE_INTERLEAVED || kind == TSR_PIPELINE_ZB_V ? 2 : 1;
}

bool tsr_pipeline_order(
    tsr_arena *arena, const tsr_config *c, const tsr_parallel *p, const tsr_pipeline **ret_order,
    tsr_diags *diags) {
  int stages = p->size[TSR_PP], microbatches = (int)p->microbatches;
  tsr_location location = schedule_place(c);
  if (stages == 1) {
    *ret_order = tsr_pipeline_make(arena, TSR_PIPELINE_1F1B, 1, 1, microbatches);
    return true;
  }
  if (c->pipeline.schedule_file) {
    tsr_pipeline *pipeline;
    bool ok = tsr_pipeline_read(
        arena, c->pipeline.schedule_file, location, stages, microbatches, &pipeline, diags);
    if (ok) note_bubble(arena, c, pipeline, diags);
    *ret_order = pipeline;
    return ok;
  }
  tsr_pipeline_kind kind = tsr_pipeline_find(c->pipeline.schedule);
  int chunks = chunks_of(c, kind);
  if (!tsr_pipeline_possible(kind, stages, chunks, microbatches, location, diags)) return false;
  *ret_order = tsr_pipeline_make(arena, kind, stages, chunks, microbatches);
  note_bubble(arena, c, *ret_order, diags);
  return true;
}

/* ---- the split ---- */

/* What cannot be split: a block, with what stands before the first or behind the last one. */
typedef struct {
  int first; /* node */
  double cost;
} piece;

static int find_pieces(const tsr_graph *g, bool memory, piece *pieces) {
  int count = 0, block = -1;
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    if (n->section > TSR_FORWARD) break;
    if (!count || (n->block >= 0 && n->block != block)) {
      if (!count || block >= 0) pieces[count++] = (piece){i, 0};
      block = n->block;
    }
    pieces[count - 1].cost += memory ? tsr_node_bytes(g, i) : tsr_node_flops(g, i);
  }
  return count;
}

/* The least possible cost of the costliest of `stages` runs of pieces, by halving: a bound is
 * enough when runs that stay below it, each as long as can be, are no more than the stages. */
static int runs_below(const piece *pieces, int count, double bound) {
  int runs = 1;
  double sum = 0;
  for (int i = 0; i < count; i++) {
    if (sum + pieces[i].cost > bound) runs++, sum = 0;
    sum += pieces[i].cost;
  }
  return runs;
}

static double least_bound(const piece *pieces, int count, int stages) {
  double low = 0, high = 0;
  for (int i = 0; i < count; i++) {
    if (pieces[i].cost > low) low = pieces[i].cost;
    high += pieces[i].cost;
  }
  for (int step = 0; step < 60 && low < high; step++) {
    double middle = (low + high) / 2;
    if (runs_below(pieces, count, middle) <= stages) high = middle;
    else low = middle;
  }
  return high;
}

/* Stages as equal as they can be below the bound: each takes pieces until it has its share of what
 * is left, and more where the stages behind it could not hold the rest. */
static void balance(const piece *pieces, int count, int stages, int *ret_begin) {
  double bound = least_bound(pieces, count, stages) * (1 + 1e-12), left = 0;
  for (int i = 0; i < count; i++) left += pieces[i].cost;
  for (int stage = 0, i = 0; stage < stages; stage++) {
    int behind = stages - 1 - stage;
    double sum = 0, share = left / (behind + 1);
    ret_begin[stage] = i;
    for (; i < count && (behind == 0 || count - i > behind); i++) {
      bool fits = sum + pieces[i].cost <= bound;
      bool wanted = sum == 0 || sum + pieces[i].cost / 2 <= share;
      if (sum > 0 && (!fits || (!wanted && runs_below(pieces + i, count - i, bound) <= behind)))
        break;
      sum += pieces[i].cost;
    }
    left -= sum;
  }
}

/* How many stages there must be, and why: "the mesh has 2". */
typedef struct {
  char text[96];
} stages_text;

static stages_text needed_stages(const tsr_pipeline *p) {
  stages_text t;
  if (p->chunks == 1) snprintf(t.text, sizeof t.text, "the mesh has %d", p->stages);
  else
    snprintf(
        t.text, sizeof t.text, "the pipeline schedule has %d, %d a rank of pp = %d",
        p->stages * p->chunks, p->chunks, p->stages);
  return t;
}

static bool split_by_blocks(
    const tsr_config *c, int blocks, const tsr_pipeline *pipeline, int *ret_begin,
    tsr_diags *diags) {
  const tsr_config_pipeline *p = &c->pipeline;
  tsr_location location = p->blocks_place;
  int sum = 0, stages = pipeline->stages * pipeline->chunks;
  if (p->blocks_count != stages)
    return tsr_diag_error(
        diags, location, "blocks_per_rank has the blocks of %d stage%s, but %s", p->blocks_count,
        p->blocks_count == 1 ? "" : "s", needed_stages(pipeline).text);
  for (int i = 0; i < stages; i++) {
    ret_begin[i] = sum;
    sum += (int)p->blocks_per_rank[i];
  }
  if (sum == blocks) return true;
  tsr_diag_error(diags, location, "Number of blocks must match number of blocks per rank.");
  tsr_diag_hint(diags, "the model has %d blocks, blocks_per_rank adds up to %d", blocks, sum);
  return false;
}

static bool split_by_name(
    const tsr_config *c, const tsr_pipeline *pipeline, tsr_stage_split *ret, tsr_diags *diags) {
  const tsr_config_pipeline *p = &c->pipeline;
  int stages = pipeline->stages * pipeline->chunks;
  ret->location = tsr_config_location(c, "pipeline.stages");
  if (p->stages_count != stages)
    return tsr_diag_error(
        diags, ret->location, "%d pipeline stage%s named, but %s", p->stages_count,
        p->stages_count == 1 ? " is" : "s are", needed_stages(pipeline).text);
  for (int i = 1; i < stages; i++) ret->first[i - 1] = p->stages[i].begin;
  return true;
}

/* By the graph file's receives. */
static bool split_by_marks(
    const tsr_graph *g, const tsr_config *c, const tsr_pipeline *pipeline, tsr_stage_split *ret,
    tsr_diags *diags) {
  const tsr_stage_mark *last = &g->stage_marks[g->stage_marks_count - 1];
  ret->location = last->location;
  tsr_location named = tsr_config_location(
      c, c->pipeline.stages_count ? "pipeline.stages" : "pipeline.blocks_per_rank");
  if (c->pipeline.stages_count || c->pipeline.blocks_count)
    return tsr_diag_error(
        diags, named, "the stages are set here, and by the graph's receive in %s:%d too",
        last->location.file, last->location.line);
  if (g->stage_marks_count != pipeline->stages * pipeline->chunks - 1)
    return tsr_diag_error(
        diags, last->location, "send and receive make %d stages of the graph, but %s",
        g->stage_marks_count + 1, needed_stages(pipeline).text);
  for (int i = 0; i < g->stage_marks_count; i++) {
    if (g->stage_marks[i].node >= g->nodes_count)
      return tsr_diag_error(
          diags, g->stage_marks[i].location, "no op is behind this receive: the stage is empty");
    ret->first[i] = g->nodes[g->stage_marks[i].node].name;
  }
  return true;
}

/* Whether a graph that only runs forward has tensors that its file splits over pp: no stage can own
 * one of them. */
static bool splits_tensors(const tsr_graph *g) {
  for (int i = 0; i < g->values_count && g->loss < 0; i++) {
    const tsr_value *v = &g->values[i];
    if (v->kind != TSR_VALUE_NODE && v->placement[TSR_PP].kind == TSR_SHARD) return true;
  }
  return false;
}

bool tsr_pipeline_split(
    const tsr_graph *g, const tsr_config *c, const tsr_pipeline *pipeline, tsr_stage_split *ret,
    tsr_diags *diags) {
  int stages = pipeline->stages * pipeline->chunks;
  *ret = (tsr_stage_split){.count = stages - 1, .location = schedule_place(c)};
  ret->first = tsr_arena_array(g->arena, const char *, stages);
  if (stages == 1) return true;
  if (g->stage_marks_count) return split_by_marks(g, c, pipeline, ret, diags);
  if (c->pipeline.stages_count) return split_by_name(c, pipeline, ret, diags);
  if (!c->pipeline.blocks_count && splits_tensors(g)) return ret->everywhere = true;
  piece *pieces = tsr_arena_array(g->arena, piece, g->nodes_count + 1);
  int *begin = tsr_arena_array(g->arena, int, stages);
  int count = find_pieces(g, c->pipeline.balance == TSR_BALANCE_MEMORY, pieces);
  if (stages > count) {
    tsr_diag_error(
        diags, ret->location, "%d stages are more than the model's %d block%s", stages, count,
        count == 1 ? "" : "s");
    tsr_diag_hint(diags, "pipeline.stages splits between any two nodes by name");
    return false;
  }
  if (c->pipeline.blocks_count) {
    if (!split_by_blocks(c, count, pipeline, begin, diags)) return false;
  } else {
    balance(pieces, count, stages, begin);
  }
  for (int i = 1; i < stages; i++) ret->first[i - 1] = g->nodes[pieces[begin[i]].first].name;
  return true;
}
