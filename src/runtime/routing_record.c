// SPDX-License-Identifier: Apache-2.0
/* The choices of experts of a step, for whoever records them: every process writes those of its
 * ranks where their samples and positions are in the whole step. */
#include "runtime/executable_internal.h"
#include <stdlib.h>
#include <string.h>

struct tsr_routing_record {
  int count;
  tsr_routing_layer *layers;
  int *layer_of;     /* per node; -1: it is none */
  int32_t **choices; /* per layer: (tokens, k) of a step; -1: another process has them */
};

int64_t tsr_executable_microbatches(const tsr_executable *b) {
  return b->programs->pipeline->microbatches;
}

/* Numbers of a layer in a step. */
static int64_t size_of(const tsr_executable *b, const tsr_routing_layer *l) {
  return l->tokens * l->k * tsr_executable_microbatches(b);
}

static void forget(tsr_executable *b) {
  struct tsr_routing_record *r = b->routing;
  for (int i = 0; i < r->count; i++)
    memset(r->choices[i], 0xff, sizeof(int32_t) * (size_t)size_of(b, &r->layers[i]));
}

void tsr_executable_record_routing(tsr_arena *arena, tsr_executable *b) {
  const tsr_graph *g = b->programs->graph;
  struct tsr_routing_record *r = tsr_arena_alloc(arena, sizeof *r);
  r->count = tsr_graph_routing(g, &r->layers);
  r->layer_of = tsr_arena_array(arena, int, g->nodes_count + 1);
  r->choices = tsr_arena_array(arena, int32_t *, r->count + 1);
  for (int i = 0; i < g->nodes_count; i++) r->layer_of[i] = -1;
  for (int i = 0; i < r->count; i++) {
    r->layer_of[r->layers[i].node] = i;
    r->choices[i] = tsr_arena_array(arena, int32_t, size_of(b, &r->layers[i]));
  }
  b->routing = r;
  forget(b);
}

/* The token of the step that a row of a rank's part is of. Samples are along dimension 0. */
static int64_t token_of(
    const tsr_executable *b, const tsr_launch *launch, const tsr_tensor_slice *slice, int value,
    int rank, int64_t row) {
  const tsr_lowering *l = &launch->call.program->lowering;
  int64_t index[TSR_SLICE_DIMS_MAX] = {0};
  for (int d = slice->ndim - 2; d >= 0; d--) {
    index[d] = row % slice->shape[d];
    row /= slice->shape[d];
  }
  const tsr_value *v = &launch->call.program->graph->values[value];
  int64_t first =
      tsr_sample_offset(l, v, 0, slice->offset[0], slice->shape[0], launch->call.at.microbatch);
  int64_t at = first + index[0];
  for (int d = 1; d < slice->ndim - 1; d++)
    at = at * slice->global[d] + tsr_executable_position(b, slice, value, rank, d, index[d]);
  return at;
}

void tsr_executable_keep_routing(tsr_executable *b, const tsr_launch *launch) {
  const tsr_task *t = launch->call.task;
  int layer = b->routing->layer_of[t->node], value = t->outputs[0].value;
  if (layer < 0) return;
  int64_t k = b->routing->layers[layer].k, rows = tsr_tensor_rows(&t->outputs[0]);
  for (int i = 0; i < launch->ranks_count; i++) {
    int rank = launch->ranks[i];
    tsr_tensor_slice slice = tsr_executable_slice(b, value, rank);
    tsr_device_view view;
    const char *part =
        tsr_executable_view(b, value, rank, launch->call.at.microbatch, TSR_VIEW_READ, &view);
    for (int64_t row = 0; row < rows; row++)
      memcpy(
          b->routing->choices[layer] + token_of(b, launch, &slice, value, rank, row) * k,
          part + row * k * (int64_t)sizeof(int32_t), sizeof(int32_t) * (size_t)k);
    tsr_device_view_close(&view);
  }
}

/* What the first process lacks, from another one. */
static void receive(tsr_executable *b, int from, int layer, int32_t *room) {
  int64_t size = size_of(b, &b->routing->layers[layer]);
  tsr_executable_receive(b, from, room, size * (int64_t)sizeof *room);
  for (int64_t i = 0; i < size; i++)
    if (room[i] >= 0) b->routing->choices[layer][i] = room[i];
}

int tsr_executable_take_routing(
    tsr_executable *b, const tsr_routing_layer **ret_layers, const int32_t *const **ret_choices) {
  const tsr_rank_map *h = tsr_executable_rank_map(b);
  struct tsr_routing_record *r = b->routing;
  *ret_layers = r->layers;
  *ret_choices = (const int32_t *const *)r->choices;
  for (int i = 0; i < r->count && !tsr_executable_is_alone(b); i++) {
    int64_t bytes = size_of(b, &r->layers[i]) * (int64_t)sizeof(int32_t);
    int32_t *room = h->process ? NULL : tsr_wait_memory(b, bytes);
    if (h->process) tsr_executable_send(b, 0, r->choices[i], bytes);
    for (int w = 1; room && w < h->processes; w++) receive(b, w, i, room);
    free(room);
  }
  return r->count;
}
