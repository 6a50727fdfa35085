// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/part_hash.h"
#include "device/cpu/ops.h"
#include "graph/element_runs.h"
#include <stdatomic.h>

/* A range of a part that one job hashes. */
enum { JOB_ELEMENTS = 1 << 18 };

/* Elements of a run, as f32. */
static uint64_t hash_run(const tsr_kernels *k, const tsr_hash_part *p, const tsr_element_run *run) {
  enum { PIECE = 1024 };
  float numbers[PIECE];
  uint64_t sum = 0;
  bool as_stored = p->dtype == TSR_F32 || p->dtype == TSR_I32; /* 4 bytes, as they are */
  if (as_stored) return k->hash((const float *)p->data + run->at, run->whole, run->count);
  tsr_quantized x = {p->data, p->quantized, TSR_ELEMENT_F32};
  for (int64_t done = 0, take; done < run->count; done += take) {
    int64_t at = run->at + done;
    take = run->count - done < PIECE ? run->count - done : PIECE;
    if (tsr_dtype_is_quantized(p->dtype)) k->quantized_to_f32(numbers, &x, at, take);
    else
      cpu_cast_from_half(
          k, p->dtype, numbers, (const char *)p->data + at * tsr_dtype_bytes(p->dtype), 0, take);
    sum += k->hash(numbers, run->whole + done, take);
  }
  return sum;
}

uint64_t
tsr_cpu_hash_range(const tsr_kernels *k, const tsr_hash_part *p, int64_t begin, int64_t end) {
  uint64_t sum = 0;
  for (tsr_element_run run = {0}; tsr_element_run_next(&p->part, &p->padding, begin, end, &run);)
    sum += hash_run(k, p, &run);
  return sum;
}

typedef struct {
  const tsr_kernels *k;
  const tsr_hash_part *part;
  _Atomic uint64_t sum;
} hash_loop;

static void hash_job(void *context, int job) {
  hash_loop *h = context;
  int64_t begin = h->part->begin + (int64_t)job * JOB_ELEMENTS, left = h->part->end - begin;
  int64_t end = begin + (left < JOB_ELEMENTS ? left : JOB_ELEMENTS);
  atomic_fetch_add(&h->sum, tsr_cpu_hash_range(h->k, h->part, begin, end));
}

uint64_t tsr_cpu_hash_part(const tsr_kernels *k, tsr_pool *pool, const tsr_hash_part *part) {
  hash_loop h = {.k = k, .part = part};
  tsr_pool_run(
      pool, hash_job, &h, (int)((part->end - part->begin + JOB_ELEMENTS - 1) / JOB_ELEMENTS));
  return h.sum;
}

cpu_update_hash cpu_update_hash_of(const cpu_call *c) {
  const tsr_tensor *w = &c->call.task->inputs[0];
  const tsr_update_hashes *h = c->hashes;
  int param = tsr_operand_value(&c->call, w)->param;
  if (!h || !h->counted[c->call.rank->rank * h->params + param]) return (cpu_update_hash){0};
  tsr_hash_part part = {
      .data = cpu_in(c, 0),
      .dtype = w->dtype,
      .part = tsr_operand_slice(&c->call, w),
      .padding = *tsr_operand_padding(&c->call, w)};
  return (cpu_update_hash){&h->sums[param], part};
}

void cpu_update_hash_add(const cpu_call *c, const cpu_update_hash *h, int64_t begin, int64_t end) {
  if (h->sum)
    __atomic_fetch_add(h->sum, tsr_cpu_hash_range(c->k, &h->part, begin, end), __ATOMIC_RELAXED);
}

void cpu_update_hash_all(const cpu_call *c) {
  cpu_update_hash hash = cpu_update_hash_of(c);
  cpu_update_hash_add(c, &hash, 0, tsr_tensor_elements(&c->call.task->inputs[0]));
}
