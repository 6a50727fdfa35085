// SPDX-License-Identifier: Apache-2.0
#include "runtime/weight_hash.h"
#include "base/tensor_hash.h"
#include "runtime/executable_internal.h"
#include <string.h>

struct tsr_weight_hashes {
  tsr_update_hashes of; /* its sums have room for one more */
  bool *updated;        /* per parameter: some task of a step updates it */
};

static tsr_hash_part part_of(const tsr_executable *b, int value, int rank) {
  const tsr_graph *g = b->programs->graph;
  const tsr_tensor *t = &tsr_executable_program(b, rank)->tensors[value];
  tsr_hash_part p = {
      .data = tsr_executable_address(b, value, rank, 0),
      .dtype = t->dtype,
      .part = tsr_executable_slice(b, value, rank),
      .padding = g->params[g->values[value].param].padding,
      .end = tsr_tensor_elements(t)};
  if (tsr_dtype_is_quantized(t->dtype)) p.quantized = tsr_tensor_quantized_layout(t);
  return p;
}

/* Whether a rank is here, and the first one that holds its part of the value. */
static bool is_counted(const tsr_executable *b, int value, int rank) {
  return tsr_executable_has(b, value, rank) && tsr_executable_first_holder(b, value, rank) == rank;
}

/* Where a value is hashed while the device is idle, so that the host may read its memory: NF4 and
 * what is in a file on the host. */
static const tsr_device *hasher_of(const tsr_executable *b, int value) {
  const tsr_value *v = &b->programs->graph->values[value];
  bool in_file = v->kind == TSR_VALUE_STATE && b->process->options.state_folder;
  return tsr_dtype_is_quantized(v->dtype) || in_file ? b->process->host : b->process->device;
}

void tsr_executable_hash_stored(const tsr_executable *b, int value, int rank, uint64_t *sum) {
  const tsr_device *d = hasher_of(b, value);
  tsr_hash_part part = part_of(b, value, rank);
  part.padding = (tsr_padding){0, part.part.global[0], 1};
  d->hash(d->state, &part, sum);
}

/* Of the parts that are counted here. */
static uint64_t hash_here(const tsr_executable *b, int value) {
  const tsr_device *d = hasher_of(b, value);
  uint64_t *sum = b->hashes->of.sums + b->programs->graph->params_count;
  *sum = 0;
  for (int r = 0; r < b->process->options.parallel->ranks; r++) {
    if (!is_counted(b, value, r)) continue;
    tsr_hash_part part = part_of(b, value, r);
    d->hash(d->state, &part, sum);
  }
  d->wait(d->state);
  return *sum;
}

static void find_updates(tsr_executable *b) {
  const tsr_graph *g = b->programs->graph;
  for (int i = 0; i < g->nodes_count; i++)
    if (tsr_op_facts(g->nodes[i].op) & TSR_FACT_UPDATE)
      b->hashes->updated[g->values[g->nodes[i].inputs[0]].param] = true;
}

bool tsr_executable_hash_updates(tsr_arena *arena, tsr_executable *b, tsr_diags *diags) {
  const tsr_graph *g = b->programs->graph;
  int ranks = b->process->options.parallel->ranks;
  char *sums;
  struct tsr_weight_hashes *h = tsr_arena_alloc(arena, sizeof *h);
  if (!tsr_process_allocate(
          b->process, (int64_t)sizeof *h->of.sums * (g->params_count + 1), "hashes", &sums, diags))
    return false;
  bool *counted = tsr_arena_array(arena, bool, ranks * g->params_count + 1);
  for (int r = 0; r < ranks; r++)
    for (int p = 0; p < g->params_count; p++)
      counted[r * g->params_count + p] = is_counted(b, b->param_values[p], r);
  h->of = (tsr_update_hashes){(uint64_t *)(void *)sums, counted, g->params_count};
  h->updated = tsr_arena_array(arena, bool, g->params_count + 1);
  b->hashes = h;
  find_updates(b);
  tsr_executable_rehash(b);
  return true;
}

void tsr_executable_rehash(tsr_executable *b) {
  for (int p = 0; p < b->programs->graph->params_count; p++)
    b->hashes->of.sums[p] = hash_here(b, b->param_values[p]);
}

void tsr_executable_begin_hashes(tsr_executable *b) {
  for (int p = 0; b->hashes && p < b->programs->graph->params_count; p++)
    if (b->hashes->updated[p]) b->hashes->of.sums[p] = 0;
}

const tsr_update_hashes *tsr_executable_update_hashes(const tsr_executable *b, tsr_op op) {
  bool updates = tsr_op_facts(op) & TSR_FACT_UPDATE;
  return b->hashes && updates ? &b->hashes->of : NULL;
}

uint64_t tsr_executable_hash_value(tsr_executable *b, int value) {
  return tsr_executable_agree_sum(b, hash_here(b, value));
}

uint64_t tsr_executable_weight_hash(tsr_executable *b) {
  const tsr_graph *g = b->programs->graph;
  uint64_t sum = 0;
  for (int p = 0; p < g->params_count; p++)
    sum += tsr_hash_named(g->params[p].name, b->hashes->of.sums[p]);
  return tsr_executable_agree_sum(b, sum);
}
