// SPDX-License-Identifier: Apache-2.0
#include "runtime/weight_hash.h"
#include "base/tensor_hash.h"
#include "runtime/executable_internal.h"
#include <string.h>

struct tsr_weight_hashes {
  tsr_update_hashes of;      /* its sums have room for one more */
  tsr_update_hashes on_host; /* of updates that the host runs for a device: other sums */
  uint64_t *first;           /* per parameter, on the host: what its sum has before a step */
  uint64_t *read;            /* room on the host for the sums */
  bool *updated;             /* per parameter: some task of a step updates it */
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

/* Adds the hash of a part to one of the numbers: the device's, or the host's where the device does
 * not have it (state in a file) or cannot hash it (NF4). */
static void add_hash(
    const tsr_executable *b, int value, int rank, tsr_hash_part *part, uint64_t *on_device,
    uint64_t *on_host) {
  const tsr_device *d = tsr_executable_home(b, value), *host = b->process->host;
  tsr_device_view view;
  if (d != host && !tsr_dtype_is_quantized(part->dtype)) {
    d->hash(d->state, part, on_device);
    return;
  }
  part->data = tsr_executable_view(b, value, rank, 0, TSR_VIEW_READ, &view);
  host->hash(host->state, part, on_host);
  tsr_device_view_close(&view);
}

void tsr_executable_hash_stored(
    const tsr_executable *b, int value, int rank, uint64_t *on_device, uint64_t *on_host) {
  tsr_hash_part part = part_of(b, value, rank);
  part.padding = (tsr_padding){0, part.part.global[0], 1};
  add_hash(b, value, rank, &part, on_device, on_host);
}

/* Of the parts that are counted here. */
static uint64_t hash_here(const tsr_executable *b, int value) {
  const tsr_device *d = b->process->device;
  uint64_t *sum = b->hashes->of.sums + b->programs->graph->params_count;
  uint64_t on_device = 0, on_host = 0;
  tsr_device_write(d, sum, &on_device, sizeof *sum);
  for (int r = 0; r < b->process->options.parallel->ranks; r++) {
    if (!is_counted(b, value, r)) continue;
    tsr_hash_part part = part_of(b, value, r);
    add_hash(b, value, r, &part, sum, &on_host);
  }
  tsr_device_read(d, &on_device, sum, sizeof *sum);
  return on_device + on_host;
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
  for (int p = 0; p < g->params_count; p++)
    for (int r = 0; r < ranks; r++)
      counted[r * g->params_count + p] = is_counted(b, b->param_values[p], r);
  h->of = (tsr_update_hashes){(uint64_t *)(void *)sums, counted, g->params_count};
  h->on_host = h->of;
  h->on_host.sums = tsr_arena_array(arena, uint64_t, g->params_count + 1);
  h->updated = tsr_arena_array(arena, bool, g->params_count + 1);
  h->first = tsr_arena_array(arena, uint64_t, g->params_count + 1);
  h->read = tsr_arena_array(arena, uint64_t, g->params_count + 1);
  b->hashes = h;
  find_updates(b);
  tsr_executable_rehash(b);
  return true;
}

static int64_t sums_bytes(const tsr_executable *b) {
  return (int64_t)sizeof *b->hashes->of.sums * b->programs->graph->params_count;
}

void tsr_executable_rehash(tsr_executable *b) {
  struct tsr_weight_hashes *h = b->hashes;
  for (int p = 0; p < b->programs->graph->params_count; p++) {
    h->read[p] = hash_here(b, b->param_values[p]);
    h->first[p] = h->updated[p] ? 0 : h->read[p];
  }
  memset(h->on_host.sums, 0, (size_t)sums_bytes(b));
  tsr_device_write(b->process->device, h->of.sums, h->read, sums_bytes(b));
}

void tsr_executable_begin_hashes(tsr_executable *b) {
  if (!b->hashes) return;
  memset(b->hashes->on_host.sums, 0, (size_t)sums_bytes(b));
  tsr_device_write(b->process->device, b->hashes->of.sums, b->hashes->first, sums_bytes(b));
}

const tsr_update_hashes *
tsr_executable_update_hashes(const tsr_executable *b, const tsr_task *task) {
  bool updates = tsr_op_facts(task->op) & TSR_FACT_UPDATE;
  if (!b->hashes || !updates) return NULL;
  return task->on_host ? &b->hashes->on_host : &b->hashes->of;
}

uint64_t tsr_executable_hash_value(tsr_executable *b, int value) {
  return tsr_executable_agree_sum(b, hash_here(b, value));
}

uint64_t tsr_executable_weight_hash(tsr_executable *b) {
  const tsr_graph *g = b->programs->graph;
  uint64_t sum = 0;
  tsr_device_read(b->process->device, b->hashes->read, b->hashes->of.sums, sums_bytes(b));
  for (int p = 0; p < g->params_count; p++)
    sum += tsr_hash_named(g->params[p].name, b->hashes->read[p] + b->hashes->on_host.sums[p]);
  return tsr_executable_agree_sum(b, sum);
}
