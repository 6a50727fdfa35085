/* What work and messages take on a machine. */
#include "plan/machine.h"
#include "graph/graph.h"
#include <assert.h>
#include <math.h>
#include <string.h>

const char *tsr_machine_dtype_name(int dtype) {
  static const char *const names[TSR_MACHINE_DTYPES] = {"f32", "tf32", "bf16", "fp16"};
  return names[dtype];
}

/* ---- work ---- */

typedef enum { BOUND_PRODUCTS, BOUND_ATTENTION, BOUND_MEMORY } bound;

/* By the cost rule of the op's row. */
enum {
  bound_linear = BOUND_PRODUCTS,
  bound_matmul = BOUND_PRODUCTS,
  bound_attention = BOUND_ATTENTION,
  bound_attention_dx = BOUND_ATTENTION,
  bound_ring_attention = BOUND_ATTENTION,
  bound_ring_dq = BOUND_ATTENTION,
  bound_ring_dkv = BOUND_ATTENTION,
  bound_attention_cached = BOUND_MEMORY, /* of few tokens: the cache is read */
  bound_elementwise = BOUND_MEMORY,
  bound_bytes = BOUND_MEMORY,
  bound_collective = BOUND_MEMORY,
};
static const unsigned char bounds[] = {
#define OP(id, name, min, max, outputs, attrs, facts, infer, gradient, place, lower, cost)         \
  bound_##cost,
#include "graph/ops.def"
#undef OP
};

static bound find_bound(const char *op_name) {
  for (int op = 0; op < TSR_OPS; op++)
    if (!strcmp(tsr_op_name(op), op_name)) return bounds[op];
  return BOUND_MEMORY;
}

static const tsr_machine_rate *find_rate(const tsr_machine *m, const char *op_name, int dtype) {
  const tsr_machine_rate *found = NULL;
  for (int i = 0; i < m->rates_count; i++) {
    const tsr_machine_rate *r = &m->rates[i];
    if (strcmp(r->op, op_name)) continue;
    if (r->dtype == dtype) return r;
    if (r->dtype == TSR_MACHINE_EVERY_DTYPE) found = r;
  }
  return found;
}

void tsr_machine_set_rate(tsr_arena *arena, tsr_machine *m, const tsr_machine_rate *rate) {
  for (int i = 0; i < m->rates_count; i++)
    if (m->rates[i].dtype == rate->dtype && !strcmp(m->rates[i].op, rate->op)) {
      m->rates[i] = *rate;
      return;
    }
  tsr_arena_grow(arena, (void **)&m->rates, sizeof *m->rates, m->rates_count, &m->rates_capacity);
  m->rates[m->rates_count++] = *rate;
}

double tsr_machine_peak(const tsr_machine *m, tsr_machine_dtype dtype) {
  return m->flops[dtype] ? m->flops[dtype] : m->flops[TSR_MACHINE_F32];
}

static double
measured_seconds(const tsr_machine *m, const tsr_machine_rate *rate, tsr_machine_work work) {
  double seconds = rate->overhead >= 0 ? rate->overhead : m->overhead;
  if (rate->flops) seconds += work.flops / rate->flops;
  if (rate->bytes) seconds += work.bytes / rate->bytes;
  return seconds + work.calls * rate->call;
}

double tsr_machine_task_seconds(
    const tsr_machine *m, const char *op_name, tsr_machine_dtype dtype, tsr_machine_work work) {
  const tsr_machine_rate *rate = find_rate(m, op_name, dtype);
  if (rate) return measured_seconds(m, rate, work);
  double peak = tsr_machine_peak(m, dtype);
  bound b = find_bound(op_name);
  double flops_rate = b == BOUND_PRODUCTS    ? peak * m->efficiency_products
                      : b == BOUND_ATTENTION ? peak * m->efficiency_attention
                                             : m->flops[TSR_MACHINE_F32];
  double bytes_rate = m->memory_bandwidth * m->efficiency_memory;
  return fmax(work.flops / flops_rate, work.bytes / bytes_rate) + m->overhead;
}

/* ---- links ---- */

/* A level joins all groups when the mesh ends inside its first block, or when blocks hold whole
 * runs; otherwise some run lies across two blocks. */
bool tsr_machine_level(const tsr_machine *m, tsr_machine_group group, int *ret_level) {
  assert(group.members >= 1 && group.stride >= 1);
  int64_t run = group.members * group.stride;
  int64_t ranks = group.ranks > run ? group.ranks : run;
  for (int l = 0; l < m->links_count; l++) {
    int64_t devices = m->links[l].devices;
    if (devices && ranks > devices && devices % run) continue;
    *ret_level = l;
    return true;
  }
  return false;
}

/* How many members of every group lie in each block of a level that does not join them; 0 when not
 * equally many. */
static int64_t members_inside(const tsr_machine_link *link, tsr_machine_group group) {
  if (group.stride >= link->devices) return 1;
  int64_t inside = link->devices / group.stride;
  return link->devices % group.stride || group.members % inside ? 0 : inside;
}

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
  *ret_spread = (spread){.members = (double)group.members, .count = joining + 1};
  int64_t covered = 1;
  double bandwidth = INFINITY, latency = 0;
  for (int l = 0; l <= joining; l++) {
    const tsr_machine_link *link = &m->links[l];
    int64_t inside = l == joining ? group.members : members_inside(link, group);
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
  case TSR_MACHINE_ALL_GATHER:
    return ring_seconds(s, bytes * s->members);
  case TSR_MACHINE_REDUCE_SCATTER:
    return ring_seconds(s, bytes);
  case TSR_MACHINE_ALL_TO_ALL:
    return direct_seconds(s, bytes);
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
    add_ring_bytes(&s, 2 * bytes, ret_bytes);
    return;
  case TSR_MACHINE_ALL_GATHER:
    add_ring_bytes(&s, bytes * s.members, ret_bytes);
    return;
  case TSR_MACHINE_REDUCE_SCATTER:
    add_ring_bytes(&s, bytes, ret_bytes);
    return;
  case TSR_MACHINE_ALL_TO_ALL:
    for (int l = 0; l < s.count; l++)
      ret_bytes[l] = (s.level[l].after - s.level[l].before) * bytes / s.members;
    return;
  case TSR_MACHINE_SEND:
  case TSR_MACHINE_BROADCAST:
    break;
  }
  ret_bytes[s.count - 1] = bytes;
}
