// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/gemm_rounds.h"
#include "device/cpu/fp8_operands.h"

enum { ROUND_BYTES = 4 << 20 };

static int64_t pieces_of(const cpu_gemm_plan *p) { return (p->K + p->depth - 1) / p->depth; }

/* The smaller operand is packed for all. */
cpu_gemm_plan cpu_gemm_plan_made(const tsr_task *t, cpu_gemm_plan p) {
  p.scaled = t->fp8 != NULL;
  p.by_rows = p.N <= p.M;
  int64_t line = (p.by_rows ? p.N : p.M) * 4, depth = ROUND_BYTES / line;
  depth = depth / TSR_GEMM_DEPTH * TSR_GEMM_DEPTH;
  if (depth < TSR_GEMM_DEPTH) depth = TSR_GEMM_DEPTH;
  p.depth = depth < p.K ? depth : p.K;
  return p;
}

/* Both operands are split into strips, which are what kernels take whole. */
static int64_t strip_of(bool rows) { return rows ? TSR_GEMM_ROWS : TSR_GEMM_COLUMNS; }
static int64_t strips_in(int64_t count, bool rows) {
  return (count + strip_of(rows) - 1) / strip_of(rows);
}
static int64_t strips_end(int64_t strip, int64_t count, bool rows) {
  return strip * strip_of(rows) < count ? strip * strip_of(rows) : count;
}

int64_t cpu_gemm_plan_strips(const cpu_gemm_plan *p) {
  return strips_in(p->by_rows ? p->M : p->N, p->by_rows);
}

int64_t cpu_gemm_stack_bytes(const tsr_task *t) {
  return (tsr_task_stack_bytes(t, tsr_task_block_elements(t)) + 63) / 64 * 64;
}

int64_t cpu_gemm_packed_bytes(const tsr_kernels *k, const cpu_gemm_plan *p) {
  tsr_gemm whole = {.M = p->M, .N = p->N, .K = p->depth, .by_rows = p->by_rows};
  whole.scaled = p->scaled;
  return k->gemm_bytes(&whole);
}

int64_t cpu_gemm_plan_scratch(const tsr_kernels *k, const tsr_task *t, const cpu_gemm_plan *p) {
  return cpu_gemm_stack_bytes(t) + cpu_fp8_bytes(t) + cpu_gemm_packed_bytes(k, p);
}

int cpu_gemm_plan_rounds(const cpu_gemm_plan *p) {
  return (int)(p->leaves * p->each * pieces_of(p)) + p->scaled;
}

/* Whether this round quantises, and multiplies nothing yet. */
static bool quantizes(const cpu_call *c, const cpu_gemm_plan *p) { return p->scaled && !c->round; }

static cpu_gemm_place place_of(const cpu_call *c, const cpu_gemm_plan *p) {
  int round = c->round - p->scaled;
  int64_t pieces = pieces_of(p), in_leaf = p->each * pieces,
          leaves = tsr_reduction_leaves(&c->call.task->sum), leaf = round / in_leaf;
  return (cpu_gemm_place){leaf / leaves, leaf % leaves, round % in_leaf / pieces, round % pieces};
}

float *cpu_stack_entry(const cpu_call *c, int64_t block, int i) {
  int64_t elements = tsr_task_block_elements(c->call.task);
  float *stack = cpu_scratch(c);
  return i ? stack + (i - 1) * elements : cpu_out(c, 0) + block * elements;
}

char *cpu_gemm_fp8_at(const cpu_call *c) {
  return (char *)cpu_scratch(c) + cpu_gemm_stack_bytes(c->call.task);
}

void *cpu_gemm_packed_at(const cpu_call *c) {
  return cpu_gemm_fp8_at(c) + cpu_fp8_bytes(c->call.task);
}

static void skip(tsr_matrix *m, int64_t elements) { m->first += elements; }

/* Takes the round's piece out of the whole. */
static bool split_piece(const cpu_gemm_plan *p, cpu_gemm_place at, tsr_gemm *gemm) {
  int64_t k = at.piece * p->depth, left = gemm->K - k;
  if (left <= 0) return false;
  skip(&gemm->a, k * gemm->a.cs);
  skip(&gemm->b, k * gemm->b.rs);
  if (gemm->scaled) {
    gemm->a.scales.data += k / TSR_FP8_BLOCK * gemm->a.scales.k_stride;
    gemm->b.scales.data += k / TSR_FP8_BLOCK * gemm->b.scales.k_stride;
  }
  gemm->K = left < p->depth ? left : p->depth;
  gemm->adds = at.gemm || at.piece;
  if (gemm->K < left) gemm->bias = NULL, gemm->c_bf16 = NULL; /* a later piece completes the sum */
  return true;
}

static bool
round_gemm(const cpu_call *c, cpu_make_gemm *make, const cpu_gemm_plan *p, tsr_gemm *ret_gemm) {
  cpu_gemm_place at = place_of(c, p);
  *ret_gemm = (tsr_gemm){.M = p->M, .N = p->N, .c_stride = p->N, .by_rows = p->by_rows};
  ret_gemm->scaled = p->scaled;
  ret_gemm->c = cpu_stack_entry(c, at.block, tsr_reduction_entries(&c->call.task->sum, at.leaf));
  if (c->stores_half && at.gemm == p->each - 1)
    ret_gemm->c_bf16 = tsr_operand_address(&c->call, &c->call.task->outputs[0]);
  return make(c, p, at, ret_gemm) && split_piece(p, at, ret_gemm);
}

bool cpu_gemms_store_bf16(const cpu_call *c, cpu_make_gemm *make, const cpu_gemm_plan *p) {
  const tsr_task *t = c->call.task;
  bool stores = t->outputs[0].dtype == TSR_BF16 && p->leaves == 1 && !p->scaled;
  for (int64_t i = 0; stores && i < p->each; i++) {
    tsr_gemm gemm = {.M = p->M, .N = p->N};
    stores = make(c, p, (cpu_gemm_place){.gemm = i}, &gemm) && c->k->gemm_traits(&gemm).stores_bf16;
  }
  return stores;
}

void cpu_pack_gemm_round(
    const cpu_call *c, cpu_make_gemm *make, const cpu_gemm_plan *p, int part, int parts) {
  tsr_gemm gemm;
  if (quantizes(c, p)) cpu_fp8_quantize(c, cpu_gemm_fp8_at(c), part, parts);
  if (quantizes(c, p) || !round_gemm(c, make, p, &gemm)) return;
  bool rows = !p->by_rows;
  int64_t all = rows ? p->M : p->N, strips = strips_in(all, rows);
  int64_t begin = strips * part / parts, end = strips * (part + 1) / parts;
  if (begin == end) return;
  c->k->gemm_pack(
      &gemm, cpu_gemm_packed_at(c), strips_end(begin, all, rows), strips_end(end, all, rows));
}

/* Rows, or columns, [begin, end) of c: `from` is added, unless it is NULL, and the sum rounded. */
static void add_entries(
    const cpu_call *c, const cpu_gemm_plan *p, float *to, const float *from, int64_t begin,
    int64_t end) {
  int64_t rows = p->by_rows ? 1 : p->M, first = p->by_rows ? begin * p->N : begin,
          last = p->by_rows ? end * p->N : end;
  for (int64_t row = 0; row < rows; row++) {
    int64_t at = row * p->N;
    if (from) c->k->add(to, to, from, at + first, at + last);
    cpu_round_sum(c, to, at + first, at + last);
  }
}

void cpu_add_complete(
    const cpu_call *c, const cpu_gemm_plan *p, cpu_gemm_place at, int64_t begin, int64_t end) {
  const tsr_reduction *sum = &c->call.task->sum;
  tsr_tree_stack tree = {.entries = tsr_reduction_entries(sum, at.leaf)};
  int leaf = tsr_tree_push(&tree, tsr_reduction_merges(sum, at.leaf));
  if (sum->rounds != TSR_F32)
    add_entries(c, p, cpu_stack_entry(c, at.block, leaf), NULL, begin, end);
  for (int low; tsr_tree_merge(&tree, &low);) {
    float *to = cpu_stack_entry(c, at.block, low), *from = cpu_stack_entry(c, at.block, low + 1);
    add_entries(c, p, to, from, begin, end);
  }
}

/* Where a range that begins at this strip begins: at a tile of the level. */
static int64_t range_begin(const cpu_call *c, const tsr_gemm *gemm, int64_t strip, int64_t strips) {
  if (!gemm->by_rows) return strips_end(strip, gemm->N, false);
  int64_t tile = c->k->gemm_traits(gemm).tile_rows, row = strips_end(strip, gemm->M, true);
  if (strip == strips) return gemm->M;
  row = (row + tile / 2) / tile * tile;
  return row < gemm->M ? row : gemm->M;
}

void cpu_run_gemm_round(
    const cpu_call *c, cpu_make_gemm *make, const cpu_gemm_plan *p, int64_t begin, int64_t end) {
  tsr_gemm gemm;
  if (quantizes(c, p)) return;
  bool exists = round_gemm(c, make, p, &gemm);
  int64_t strips = cpu_gemm_plan_strips(p), from = range_begin(c, &gemm, begin, strips),
          to = range_begin(c, &gemm, end, strips);
  if (exists) c->k->gemm(&gemm, cpu_gemm_packed_at(c), from, to);
  cpu_gemm_place at = place_of(c, p);
  if (at.gemm == p->each - 1 && at.piece == pieces_of(p) - 1) cpu_add_complete(c, p, at, from, to);
}
