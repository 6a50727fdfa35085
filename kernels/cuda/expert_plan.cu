// SPDX-License-Identifier: Apache-2.0
/* The plan of a rank's rows of experts: its slots sorted by (expert, slot), of which a capacity
 * keeps some. The sort counts: a block has a chunk of slots, finds how many of each expert are in
 * it, and, after a prefix sum over (expert, chunk), where each one goes. No addition depends on
 * timing. */
#include "kernels/cuda/expert_scan.cuh"
#include "kernels/cuda/expert_shape.h"
#include <assert.h>

/* Scratch (tsr_cuda_expert_plan_scratch). `starts`: where the slots of each expert and chunk begin
 * in the order by expert; with a capacity also `sorted`, the slots in that order, `begins`, where
 * those of each expert and batch unit begin in it, `rows`, where the kept ones of these begin in
 * the plan, and which are kept. */
typedef struct {
  int32_t *starts, *sorted, *begins, *rows, *kept;
} plan_work;

typedef struct {
  int64_t first, count, slots, chunks; /* slots: of all tokens */
  int64_t units, unit_slots, capacity; /* 0: there is none */
  int64_t R;
} plan_sizes;

static plan_work plan_parts(void *scratch, const plan_sizes &p) {
  int32_t *starts = (int32_t *)scratch, *sorted = starts + p.count * p.chunks + 1;
  int32_t *begins = sorted + p.slots, *rows = begins + p.count * p.units + 1;
  return {starts, sorted, begins, rows, rows + p.count * p.units + 1};
}

static __global__ void plan_clear(int32_t *plan, plan_work w, plan_sizes p) {
  int64_t words = 2 * p.R, counts = p.count * p.chunks;
  for (int64_t i = map_thread(); i < words + counts; i += map_threads())
    if (i < words) plan[i] = -1;
    else w.starts[i - words] = 0;
}

/* The expert of the thread's slot, of the rank's, or -1; and how many slots of the chunk are of the
 * same one, before it and behind it. */
typedef struct {
  int32_t expert, before, behind;
} slot_place;

static __device__ inline slot_place place_of(const int32_t *experts, const plan_sizes &p) {
  __shared__ int32_t of_chunk[EXPERT_CHUNK];
  int64_t slot = map_thread();
  int32_t expert = slot < p.slots ? experts[slot] - (int32_t)p.first : -1;
  slot_place at = {expert >= 0 && expert < p.count ? expert : -1, 0, 0};
  of_chunk[threadIdx.x] = at.expert;
  __syncthreads();
  for (int i = 0; i < EXPERT_CHUNK; i++) {
    at.before += i < (int)threadIdx.x && of_chunk[i] == at.expert;
    at.behind += i > (int)threadIdx.x && of_chunk[i] == at.expert;
  }
  return at;
}

/* The last slot of each expert in a chunk has their number. */
static __global__ void plan_count(const int32_t *experts, plan_work w, plan_sizes p) {
  slot_place at = place_of(experts, p);
  if (at.expert >= 0 && !at.behind) w.starts[at.expert * p.chunks + blockIdx.x] = at.before + 1;
}

static __global__ void plan_scan(int32_t *x, int64_t n) { prefix_sums(x, n); }

/* Without a capacity the sorted slots are the plan. */
static __global__ void plan_sort(int32_t *plan, const int32_t *experts, plan_work w, plan_sizes p) {
  slot_place at = place_of(experts, p);
  if (at.expert < 0) return;
  int64_t row = w.starts[at.expert * p.chunks + blockIdx.x] + at.before;
  if (p.capacity) {
    w.sorted[row] = (int32_t)map_thread();
    return;
  }
  plan[2 * row] = (int32_t)map_thread();
  plan[2 * row + 1] = (int32_t)p.first + at.expert;
}

/* ---- capacity ---- */

static __global__ void plan_units(plan_work w, plan_sizes p) {
  int64_t all = p.count * p.units, slots = w.starts[p.count * p.chunks];
  for (int64_t i = map_thread(); i <= all; i += map_threads()) {
    if (i == all) {
      w.begins[i] = (int32_t)slots;
      continue;
    }
    int64_t expert = i / p.units, unit = i % p.units;
    int64_t from = w.starts[expert * p.chunks], to = w.starts[(expert + 1) * p.chunks];
    int64_t begin = lower_bound(w.sorted, from, to, unit * p.unit_slots);
    int64_t end = lower_bound(w.sorted, begin, to, (unit + 1) * p.unit_slots);
    w.begins[i] = (int32_t)begin;
    w.rows[i] = (int32_t)(end - begin < p.capacity ? end - begin : p.capacity);
  }
}

/* Whether slot a is kept rather than b. */
static __device__ inline bool is_kept_before(const float *priority, int32_t a, int32_t b) {
  if (!priority) return a < b;
  float x = priority[a] > -INFINITY ? priority[a] : -INFINITY,
        y = priority[b] > -INFINITY ? priority[b] : -INFINITY;
  return x > y || (x == y && a < b);
}

/* The expert and batch unit of entry i of `sorted`. */
static __device__ inline int64_t unit_of(const plan_work &w, const plan_sizes &p, int64_t i) {
  return lower_bound(w.begins, 0, p.count * p.units + 1, i + 1) - 1;
}

static __global__ void plan_keep(const float *priority, plan_work w, plan_sizes p) {
  int64_t slots = w.starts[p.count * p.chunks];
  for (int64_t i = map_thread(); i < slots; i += map_threads()) {
    int64_t unit = unit_of(w, p, i), before = 0;
    for (int64_t j = w.begins[unit]; j < w.begins[unit + 1] && before < p.capacity; j++)
      before += is_kept_before(priority, w.sorted[j], w.sorted[i]);
    w.kept[i] = before < p.capacity;
  }
}

static __global__ void plan_place(int32_t *plan, plan_work w, plan_sizes p) {
  int64_t slots = w.starts[p.count * p.chunks];
  for (int64_t i = map_thread(); i < slots; i += map_threads()) {
    if (!w.kept[i]) continue;
    int64_t unit = unit_of(w, p, i), row = w.rows[unit];
    for (int64_t j = w.begins[unit]; j < i; j++) row += w.kept[j];
    plan[2 * row] = w.sorted[i];
    plan[2 * row + 1] = (int32_t)(p.first + unit / p.units);
  }
}

extern "C" void tsr_cuda_expert_plan(
    tsr_cuda_stream s, const tsr_experts *e, const tsr_capacity *capacity, int32_t *plan,
    const int32_t *experts, const float *priority, int64_t S, int64_t R, void *scratch) {
  plan_sizes p = {};
  p.first = e->first, p.count = e->count, p.slots = S * e->k, p.R = R;
  p.chunks = launch_pieces(p.slots, EXPERT_CHUNK);
  p.capacity = capacity->slots;
  if (p.capacity) p.units = S / capacity->unit_tokens, p.unit_slots = capacity->unit_tokens * e->k;
  assert(R <= INT32_MAX && p.slots <= INT32_MAX);
  plan_work w = plan_parts(scratch, p);
  TSR_LAUNCH(plan_clear, launch_map(2 * R + p.count * p.chunks), s, plan, w, p);
  TSR_LAUNCH(plan_count, launch_expert_chunks(p.slots), s, experts, w, p);
  TSR_LAUNCH(plan_scan, launch_scan(), s, w.starts, p.count * p.chunks);
  TSR_LAUNCH(plan_sort, launch_expert_chunks(p.slots), s, plan, experts, w, p);
  if (!p.capacity) return;
  TSR_LAUNCH(plan_units, launch_map(p.count * p.units + 1), s, w, p);
  TSR_LAUNCH(plan_scan, launch_scan(), s, w.rows, p.count * p.units);
  TSR_LAUNCH(plan_keep, launch_map(p.slots), s, priority, w, p);
  TSR_LAUNCH(plan_place, launch_map(p.slots), s, plan, w, p);
}
