// SPDX-License-Identifier: Apache-2.0
/* What messages take on a machine. */
#include "plan/machine.h"
#include <assert.h>
#include <math.h>

/* ---- groups in device numbers ---- */

/* A group whose members are spread along several parts of the device's number: its members are all
 * sums of one multiple of each run's stride. */
typedef struct {
  int64_t members, stride;
} run;
typedef struct {
  run runs[TSR_MACHINE_PARTS_MAX];
  int count;
  int64_t devices; /* of the whole mesh */
} numbered;

static int64_t largest(int64_t a, int64_t b) { return a > b ? a : b; }

/* Of a group that does not follow the parts (a mesh_shape that splits through them), the ranks
 * themselves are the numbers. */
static numbered number_group(const tsr_machine *m, tsr_machine_group group) {
  int64_t end = group.members * group.stride;
  numbered n = {.runs = {{group.members, group.stride}}, .count = 1};
  n.devices = largest(group.ranks, end);
  int count = 0;
  for (int i = 0; i < m->parts_count; i++) {
    const tsr_machine_part *part = &m->parts[i];
    int64_t from = largest(part->stride, group.stride), to = part->stride * part->size;
    n.devices = largest(n.devices, part->size * part->step);
    if (to > end) to = end;
    if (to <= from) continue;
    if (from % part->stride || to % from)
      return (numbered){{{group.members, group.stride}}, 1, n.devices};
    n.runs[count++] = (run){to / from, part->step * (from / part->stride)};
  }
  if (count) n.count = count;
  return n;
}

/* A level joins all groups when the mesh ends inside its first block, or when blocks hold whole
 * runs; otherwise some run lies across two blocks. */
static bool joins(const tsr_machine_link *link, const numbered *n) {
  if (!link->devices || n->devices <= link->devices) return true;
  for (int i = 0; i < n->count; i++)
    if (link->devices % (n->runs[i].members * n->runs[i].stride)) return false;
  return true;
}

bool tsr_machine_level(const tsr_machine *m, tsr_machine_group group, int *ret_level) {
  assert(group.members >= 1 && group.stride >= 1);
  numbered n = number_group(m, group);
  for (int l = 0; l < m->links_count; l++) {
    if (!joins(&m->links[l], &n)) continue;
    *ret_level = l;
    return true;
  }
  return false;
}

/* How many members of every group lie in each block of a level that does not join them; 0 when not
 * equally many. */
static int64_t members_inside(const tsr_machine_link *link, const numbered *n) {
  int64_t product = 1;
  for (int i = 0; i < n->count; i++) {
    const run *r = &n->runs[i];
    int64_t inside = link->devices / r->stride;
    if (link->devices % (r->stride * r->members) == 0) inside = r->members;
    if (!inside) continue;
    if (link->devices % r->stride || r->members % inside) return 0;
    product *= inside;
  }
  return product;
}

/* ---- collectives ---- */

/* A group over the levels: before and after are c_(l-1) and c_l of the header. */
typedef struct {
  double members;
  int count; /* of levels, up to the one that joins it */
  struct {
    double before, after, bandwidth, latency;
  } level[TSR_MACHINE_LINKS_MAX];
} spread;

static bool spread_group(const tsr_machine *m, tsr_machine_group group, spread *ret_spread) {
  int joining;
  if (!tsr_machine_level(m, group, &joining)) return false;
  numbered n = number_group(m, group);
  *ret_spread = (spread){.members = (double)group.members, .count = joining + 1};
  int64_t covered = 1;
  double bandwidth = INFINITY, latency = 0;
  for (int l = 0; l <= joining; l++) {
    const tsr_machine_link *link = &m->links[l];
    int64_t inside = l == joining ? group.members : members_inside(link, &n);
    bandwidth = fmin(bandwidth, link->bandwidth * link->efficiency);
    latency = fmax(latency, link->latency);
    ret_spread->level[l].before = (double)covered;
    if (inside > covered) covered = inside;
    ret_spread->level[l].after = (double)covered;
    ret_spread->level[l].bandwidth = bandwidth;
    ret_spread->level[l].latency = latency;
  }
  return true;
}

/* A reduce_scatter, or an all_gather, of `whole` bytes. */
static double ring_seconds(const spread *s, double whole) {
  double seconds = 0;
  for (int l = 0; l < s->count; l++) {
    double before = s->level[l].before, after = s->level[l].after;
    double part = (after - before) / (before * after); /* 1 / before - 1 / after, rounded less */
    seconds += whole * part / s->level[l].bandwidth + s->members * part * s->level[l].latency;
  }
  return seconds;
}

static double direct_seconds(const spread *s, double bytes) {
  double seconds = 0;
  for (int l = 0; l < s->count; l++) {
    double peers = s->level[l].after - s->level[l].before;
    seconds += peers * (bytes / s->members / s->level[l].bandwidth + s->level[l].latency);
  }
  return seconds;
}

/* From one to the next to the last. */
static double chain_seconds(const spread *s, double bytes) {
  return bytes / s->level[s->count - 1].bandwidth + ring_seconds(s, 0);
}

/* From the root to all, or from all to it. */
static double tree_seconds(const spread *s, double bytes) {
  double seconds = bytes / s->level[s->count - 1].bandwidth;
  for (int l = 0; l < s->count; l++)
    seconds += ceil(log2(s->level[l].after / s->level[l].before)) * s->level[l].latency;
  return seconds;
}

static double spread_seconds(const spread *s, tsr_machine_collective kind, double bytes) {
  switch (kind) {
  case TSR_MACHINE_ALL_REDUCE:
    return 2 * fmin(ring_seconds(s, bytes), tree_seconds(s, bytes));
  case TSR_MACHINE_ALL_REDUCE_DIRECTLY:
    return 2 * direct_seconds(s, bytes);
  case TSR_MACHINE_ALL_REDUCE_RING:
    return 2 * chain_seconds(s, bytes);
  case TSR_MACHINE_ALL_GATHER:
    return ring_seconds(s, bytes * s->members);
  case TSR_MACHINE_REDUCE_SCATTER:
    return ring_seconds(s, bytes);
  case TSR_MACHINE_ALL_TO_ALL:
    return direct_seconds(s, bytes);
  case TSR_MACHINE_REDUCE:
    return direct_seconds(s, bytes * s->members);
  case TSR_MACHINE_SEND:
    return bytes / s->level[s->count - 1].bandwidth + s->level[s->count - 1].latency;
  case TSR_MACHINE_BROADCAST:
    break;
  }
  return tree_seconds(s, bytes);
}

double tsr_machine_collective_seconds(
    const tsr_machine *m, tsr_machine_collective kind, double bytes, tsr_machine_group group,
    const char **ret_path) {
  const char *unused;
  if (!ret_path) ret_path = &unused;
  *ret_path = "";
  if (group.members == 1) return 0;
  spread s;
  if (!spread_group(m, group, &s)) return INFINITY;
  *ret_path = m->links[s.count - 1].name;
  return spread_seconds(&s, kind, bytes);
}

/* direct_seconds without the time. */
static void add_direct_bytes(const spread *s, double whole, double *bytes) {
  for (int l = 0; l < s->count; l++)
    bytes[l] += (s->level[l].after - s->level[l].before) * whole / s->members;
}

/* ring_seconds without the time. */
static void add_ring_bytes(const spread *s, double whole, double *bytes) {
  for (int l = 0; l < s->count; l++) {
    double before = s->level[l].before, after = s->level[l].after;
    bytes[l] += whole * (after - before) / (before * after);
  }
}

void tsr_machine_collective_bytes(
    const tsr_machine *m, tsr_machine_collective kind, double bytes, tsr_machine_group group,
    double ret_bytes[TSR_MACHINE_LINKS_MAX]) {
  spread s;
  for (int l = 0; l < TSR_MACHINE_LINKS_MAX; l++) ret_bytes[l] = 0;
  if (group.members == 1 || !spread_group(m, group, &s)) return;
  switch (kind) {
  case TSR_MACHINE_ALL_REDUCE:
  case TSR_MACHINE_ALL_REDUCE_RING:
    add_ring_bytes(&s, 2 * bytes, ret_bytes);
    return;
  case TSR_MACHINE_ALL_GATHER:
    add_ring_bytes(&s, bytes * s.members, ret_bytes);
    return;
  case TSR_MACHINE_REDUCE_SCATTER:
    add_ring_bytes(&s, bytes, ret_bytes);
    return;
  case TSR_MACHINE_ALL_REDUCE_DIRECTLY:
    add_direct_bytes(&s, 2 * bytes, ret_bytes);
    return;
  case TSR_MACHINE_ALL_TO_ALL:
    add_direct_bytes(&s, bytes, ret_bytes);
    return;
  case TSR_MACHINE_SEND:
  case TSR_MACHINE_BROADCAST:
  case TSR_MACHINE_REDUCE:
    break;
  }
  ret_bytes[s.count - 1] = bytes;
}
