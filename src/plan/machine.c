// SPDX-License-Identifier: Apache-2.0
/* What work takes on a machine. */
#include "plan/machine.h"
#include "graph/graph.h"
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
  bound_expert_linear = BOUND_PRODUCTS,
  bound_attention = BOUND_ATTENTION,
  bound_attention_dx = BOUND_ATTENTION,
  bound_ring_attention = BOUND_ATTENTION,
  bound_ring_dq = BOUND_ATTENTION,
  bound_ring_dkv = BOUND_ATTENTION,
  bound_attention_cached = BOUND_MEMORY, /* of few tokens: the cache is read */
  bound_adapted_squares = BOUND_MEMORY,
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
  for (int op = 0; op < TSR_OPS; op++) {
    const char *name = tsr_op_name(op);
    if (*name == *op_name && !strcmp(name, op_name)) return bounds[op];
  }
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

double tsr_machine_host_rate(const tsr_machine *m) {
  const double pcie = 32e9;
  return (m->host_bandwidth ? m->host_bandwidth : pcie) * m->efficiency_memory;
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
