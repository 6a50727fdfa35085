// SPDX-License-Identifier: Apache-2.0
#include "runtime/replica_check.h"
#include "base/tensor_hash.h"
#include "comm/peers.h"
#include "runtime/executable_internal.h"
#include "runtime/part_holders.h"
#include <stdlib.h>
#include <string.h>

/* A rank's copy of a part that other ranks hold, too. `factor`: those of all holders of the part
 * add up to zero, so that the hashes times the factors do just if the hashes are equal. */
typedef struct {
  int value, rank;
  uint64_t factor;
} copy;

struct tsr_replica_check {
  tsr_executable *executable;
  copy *copies; /* here */
  int copies_count;
  uint64_t *hashes; /* of these */
  uint64_t *sums;   /* the same of those that the device hashes, in its memory; and its numbers */
  uint64_t *read;
  bool compares;
};

/* ---- whose hash counts how often ---- */

/* Odd, so that a product with it loses no bit. */
static uint64_t own_factor(int rank) { return tsr_hash_mix((uint64_t)rank) | 1; }

/* The first holder's is minus the sum of the others'. */
static void find_factors(const tsr_part_holders *h, uint64_t *ret_factors) {
  memset(ret_factors, 0, sizeof *ret_factors * (size_t)h->ranks);
  for (int r = 0; r < h->ranks; r++) {
    if (h->first[r] < 0 || h->first[r] == r) continue;
    ret_factors[r] = own_factor(r);
    ret_factors[h->first[r]] -= own_factor(r);
  }
}

static void find_copies(tsr_arena *arena, tsr_replica_check *c) {
  const tsr_executable *b = c->executable;
  const tsr_graph *g = b->programs->graph;
  tsr_arena *scratch = tsr_arena_new();
  tsr_part_holders h = tsr_part_holders_new(scratch, b);
  uint64_t *factors = tsr_arena_array(scratch, uint64_t, h.ranks);
  int capacity = 0;
  for (int v = 0; v < g->values_count; v++) {
    if (g->values[v].kind != TSR_VALUE_PARAM && g->values[v].kind != TSR_VALUE_STATE) continue;
    tsr_part_holders_find(&h, b, v, false);
    find_factors(&h, factors);
    for (int r = 0; r < h.ranks; r++) {
      if (!factors[r] || !tsr_executable_is_here(b, r)) continue;
      tsr_arena_grow(arena, (void **)&c->copies, sizeof(copy), c->copies_count, &capacity);
      c->copies[c->copies_count++] = (copy){v, r, factors[r]};
    }
  }
  tsr_arena_free(scratch);
}

static int64_t sums_bytes(const tsr_replica_check *c) {
  return (int64_t)sizeof *c->sums * c->copies_count;
}

bool tsr_replica_check_open(
    tsr_arena *arena, tsr_executable *b, tsr_replica_check **ret, tsr_diags *diags) {
  tsr_replica_check *c = *ret = tsr_arena_alloc(arena, sizeof *c);
  *c = (tsr_replica_check){.executable = b};
  find_copies(arena, c);
  c->compares = tsr_executable_agree(b, c->copies_count > 0);
  char *sums = NULL;
  bool ok = tsr_process_allocate(b->process, sums_bytes(c), "hashes of replicas", &sums, diags);
  c->sums = (uint64_t *)(void *)sums;
  c->hashes = tsr_arena_array(arena, uint64_t, c->copies_count + 1);
  c->read = tsr_arena_array(arena, uint64_t, c->copies_count + 1);
  return ok;
}

bool tsr_replica_check_compares(const tsr_replica_check *c) { return c->compares; }

/* ---- whether they are equal ---- */

static uint64_t weighed(const tsr_replica_check *c, int i) {
  return c->copies[i].factor * tsr_hash_mix(c->hashes[i]);
}

bool tsr_replica_check_run(tsr_replica_check *c) {
  const tsr_device *d = c->executable->process->device;
  uint64_t sum = 0;
  memset(c->hashes, 0, (size_t)sums_bytes(c));
  tsr_device_write(d, c->sums, c->hashes, sums_bytes(c));
  for (int i = 0; i < c->copies_count; i++)
    tsr_executable_hash_stored(
        c->executable, c->copies[i].value, c->copies[i].rank, &c->sums[i], &c->hashes[i]);
  tsr_device_read(d, c->read, c->sums, sums_bytes(c));
  for (int i = 0; i < c->copies_count; i++) c->hashes[i] += c->read[i];
  for (int i = 0; i < c->copies_count; i++) sum += weighed(c, i);
  return !tsr_executable_agree_sum(c->executable, sum);
}

/* ---- what differs ---- */

/* The hash of each rank's part of a value that differs. */
static uint64_t *gather(tsr_arena *arena, const tsr_replica_check *c, const tsr_part_holders *h) {
  uint64_t *hash = tsr_arena_array(arena, uint64_t, h->ranks);
  for (int i = 0; i < c->copies_count; i++)
    if (c->copies[i].value == h->value) hash[c->copies[i].rank] = c->hashes[i];
  tsr_executable_agree_sums(
      c->executable, hash, tsr_arena_array(arena, uint64_t, h->ranks), h->ranks);
  return hash;
}

/* Of the holders of a part, how many have that hash. */
static int count_like(const tsr_part_holders *h, const uint64_t *hash, int first, uint64_t like) {
  int count = 0;
  for (int r = first; r < h->ranks; r++) count += h->first[r] == first && hash[r] == like;
  return count;
}

/* Of the part that `first` is the first to hold. */
static tsr_replica_difference
compare(tsr_arena *arena, const tsr_part_holders *h, const uint64_t *hash, int first) {
  tsr_replica_difference d = {.value = h->value};
  uint64_t right = 0;
  for (int r = first; r < h->ranks; r++) d.holders += h->first[r] == first;
  for (int r = first; r < h->ranks && !d.has_majority; r++) {
    right = hash[r];
    d.has_majority = h->first[r] == first && 2 * count_like(h, hash, first, right) > d.holders;
  }
  d.ranks = tsr_arena_array(arena, int, d.holders);
  for (int r = first; r < h->ranks; r++)
    if (h->first[r] == first && !(d.has_majority && hash[r] == right)) d.ranks[d.count++] = r;
  return d;
}

static void add_value(
    tsr_arena *arena, const tsr_replica_check *c, tsr_part_holders *h, int value,
    tsr_replica_report *report) {
  tsr_part_holders_find(h, c->executable, value, false);
  const uint64_t *hash = gather(arena, c, h);
  for (int first = 0; first < h->ranks && report->count < TSR_REPLICA_DIFFERENCES; first++) {
    if (h->first[first] != first) continue;
    tsr_replica_difference d = compare(arena, h, hash, first);
    if (d.count) report->differences[report->count++] = d;
  }
}

tsr_replica_report tsr_replica_check_find(tsr_arena *arena, const tsr_replica_check *c) {
  int values = c->executable->programs->graph->values_count;
  uint64_t *sums = tsr_arena_array(arena, uint64_t, values);
  tsr_part_holders h = tsr_part_holders_new(arena, c->executable);
  tsr_replica_report report = {0};
  for (int i = 0; i < c->copies_count; i++) sums[c->copies[i].value] += weighed(c, i);
  tsr_executable_agree_sums(c->executable, sums, tsr_arena_array(arena, uint64_t, values), values);
  for (int v = 0; v < values; v++) {
    if (!sums[v]) continue;
    report.values++;
    if (report.count < TSR_REPLICA_DIFFERENCES) add_value(arena, c, &h, v, &report);
  }
  return report;
}

/* ---- names ---- */

const char *tsr_executable_rank_text(tsr_arena *arena, const tsr_executable *b, int rank) {
  const tsr_rank_map *map = tsr_executable_rank_map(b);
  const tsr_device *d = b->process->device;
  int process = tsr_rank_map_process(map, rank);
  char device[TSR_HOST_BYTES] = "";
  snprintf(
      device, sizeof device, "%s%s%s", d->name, d->location ? " at " : "",
      d->location ? d->location : "");
  if (tsr_executable_is_alone(b)) {
    tsr_peer self;
    tsr_peer_self(&self);
    return tsr_arena_printf(arena, "rank %d (on %s, %s)", rank, self.host, device);
  }
  tsr_executable_broadcast(b, process, device, sizeof device);
  return tsr_arena_printf(
      arena, "rank %d (process %d on %s, %s)", rank, process,
      map->transport->table->host(map->transport->state, process), device);
}
