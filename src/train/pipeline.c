#include "train/pipeline.h"
#include "plan/plan.h"
#include <string.h>

/* ---- the order ---- */

static tsr_place schedule_place(const tsr_config *c) {
  tsr_place place = tsr_config_place(c, "pipeline.schedule");
  if (!place.line) place = tsr_config_place(c, "schedule.pipeline");
  if (!place.line) place = tsr_config_place(c, "device_config.enable_pp");
  return place;
}

static void note_bubble(const tsr_config *c, const tsr_parallel *p, tsr_diags *diags) {
  int64_t stages = p->size[TSR_PP], m = p->microbatches;
  tsr_place place = tsr_config_place(c, "schedule.pipeline_microbatches");
  if (!place.line) place = schedule_place(c);
  double bubble = 100.0 * (double)(stages - 1) / (double)(m + stages - 1);
  if (m < stages)
    tsr_diag_warning(
        diags, place, "%lld microbatch%s for %lld stages: %.0f %% of the pipeline's time is idle",
        (long long)m, m == 1 ? "" : "es", (long long)stages, bubble);
  else if (m < 2 * stages)
    tsr_diag_note(
        diags, place,
        "%lld microbatches for %lld stages: a bubble of %.0f %%; twice the stages or more make it "
        "small",
        (long long)m, (long long)stages, bubble);
}

static int chunks_of(const tsr_config *c, tsr_order_kind kind) {
  if (c->pipeline.virtual_stages) return (int)c->pipeline.virtual_stages;
  return kind == TSR_ORDER_INTERLEAVED || kind == TSR_ORDER_ZB_V ? 2 : 1;
}

bool tsr_pipeline_order(
    tsr_arena *arena, const tsr_config *c, const tsr_parallel *p, const tsr_order **ret_order,
    tsr_diags *diags) {
  int stages = p->size[TSR_PP], microbatches = (int)p->microbatches;
  tsr_place place = schedule_place(c);
  if (stages == 1) {
    *ret_order = tsr_order_make(arena, TSR_ORDER_1F1B, 1, 1, microbatches);
    return true;
  }
  note_bubble(c, p, diags);
  if (c->pipeline.schedule_file) {
    tsr_order *order;
    bool ok = tsr_order_read(
        arena, c->pipeline.schedule_file, place, stages, microbatches, &order, diags);
    *ret_order = order;
    return ok;
  }
  tsr_order_kind kind = tsr_order_find(c->pipeline.schedule);
  int chunks = chunks_of(c, kind);
  if (!tsr_order_possible(kind, stages, chunks, microbatches, place, diags)) return false;
  *ret_order = tsr_order_make(arena, kind, stages, chunks, microbatches);
  return true;
}

/* ---- the cut ---- */

/* What cannot be cut: a block, with what stands before the first or behind the last one. */
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

/* Fills the stages up to the bound, but leaves every later stage at least one piece. */
static void balance(const piece *pieces, int count, int stages, int *ret_begin) {
  double bound = least_bound(pieces, count, stages) * (1 + 1e-12), sum = 0;
  int stage = 0;
  for (int i = 0; i < count; i++) {
    bool must = count - i <= stages - 1 - stage && i > ret_begin[stage];
    if (i && (sum + pieces[i].cost > bound || must)) ret_begin[++stage] = i, sum = 0;
    sum += pieces[i].cost;
  }
}

static bool
cut_by_blocks(const tsr_config *c, int blocks, int stages, int *ret_begin, tsr_diags *diags) {
  const tsr_config_pipeline *p = &c->pipeline;
  tsr_place place = p->blocks_place;
  int sum = 0;
  if (p->blocks_count != stages)
    return tsr_diag_error(
        diags, place, "blocks_per_rank has %d entries, but there are %d stages", p->blocks_count,
        stages);
  for (int i = 0; i < stages; i++) {
    ret_begin[i] = sum;
    sum += (int)p->blocks_per_rank[i];
  }
  if (sum == blocks) return true;
  tsr_diag_error(diags, place, "Number of blocks must match number of blocks per rank.");
  tsr_diag_hint(diags, "the model has %d blocks, blocks_per_rank adds up to %d", blocks, sum);
  return false;
}

static bool cut_by_name(const tsr_config *c, int stages, tsr_cut *ret, tsr_diags *diags) {
  const tsr_config_pipeline *p = &c->pipeline;
  ret->place = tsr_config_place(c, "pipeline.stages");
  if (p->stages_count != stages)
    return tsr_diag_error(
        diags, ret->place, "%d pipeline stages are named, but the mesh has %d%s", p->stages_count,
        stages, stages > p->stages_count ? "" : " (virtual stages count)");
  for (int i = 1; i < stages; i++) ret->first[i - 1] = p->stages[i].begin;
  return true;
}

bool tsr_pipeline_cut(
    const tsr_graph *g, const tsr_config *c, const tsr_order *order, tsr_cut *ret,
    tsr_diags *diags) {
  int stages = order->stages * order->chunks;
  *ret = (tsr_cut){.count = stages - 1, .place = schedule_place(c)};
  ret->first = tsr_arena_array(g->arena, const char *, stages);
  if (stages == 1) return true;
  if (c->pipeline.stages_count) return cut_by_name(c, stages, ret, diags);
  piece *pieces = tsr_arena_array(g->arena, piece, g->nodes_count + 1);
  int *begin = tsr_arena_array(g->arena, int, stages);
  int count = find_pieces(g, c->pipeline.balance == TSR_BALANCE_MEMORY, pieces);
  if (stages > count) {
    tsr_diag_error(
        diags, ret->place, "%d stages are more than the model's %d block%s", stages, count,
        count == 1 ? "" : "s");
    tsr_diag_hint(diags, "pipeline.stages cuts between any two nodes by name");
    return false;
  }
  if (c->pipeline.blocks_count) {
    if (!cut_by_blocks(c, count, stages, begin, diags)) return false;
  } else {
    balance(pieces, count, stages, begin);
  }
  for (int i = 1; i < stages; i++) ret->first[i - 1] = g->nodes[pieces[begin[i]].first].name;
  return true;
}
