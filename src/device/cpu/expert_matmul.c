// SPDX-License-Identifier: Apache-2.0
/* The linear layers of experts: a GEMM for each expert over the rows that it has, whose number only
 * the plan knows. Each is done in rounds, as in matmul.c: a round packs a piece of one operand for
 * all, and then every range multiplies its part of the other one by it. An element is one chain
 * whatever the number of rows, so rows need no filling. */
#include "device/cpu/ops.h"
#include <string.h>

/* What the GEMMs of a task have in common. */
typedef struct {
  int64_t rows_max; /* of an expert */
  int64_t N, K;     /* of y (rows, N) = x (rows, K) w^T, or of dw (N, K) */
  int64_t depth;    /* of a round: so much of what is summed */
  int64_t pieces;   /* rounds of one GEMM */
  int64_t parts;    /* GEMMs of an expert: leaves over tp, or batch units */
} shape;

enum { ROUND_BYTES = 16 << 20 };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t ratio_up(int64_t count, int64_t each) { return (count + each - 1) / each; }

/* `line`: how long what is packed is in the other direction, `summed`: in that of the sum. */
static void set_rounds(shape *s, int64_t line, int64_t summed) {
  int64_t depth = ROUND_BYTES / (4 * line) / TSR_GEMM_DEPTH * TSR_GEMM_DEPTH;
  s->depth = least(depth < TSR_GEMM_DEPTH ? TSR_GEMM_DEPTH : depth, summed);
  s->pieces = ratio_up(summed, s->depth);
}

static int rounds_of(const tsr_task *t, const shape *s) {
  return (int)(t->experts->here * s->parts * s->pieces);
}

/* Where a round stands. */
typedef struct {
  int64_t expert, part, piece;
} place;

static place place_of(const cpu_call *c, const shape *s) {
  int64_t in_expert = s->parts * s->pieces, rest = c->round % in_expert;
  return (place){c->round / in_expert, rest / s->pieces, rest % s->pieces};
}

/* The first row of the plan whose (expert, slot) is not before this one. */
static int64_t first_row(const int32_t *plan, int64_t R, int64_t expert, int64_t slot) {
  int64_t low = 0, high = R;
  while (low < high) {
    int64_t middle = (low + high) / 2, of = plan[2 * middle + 1];
    bool before = of >= 0 && (of < expert || (of == expert && plan[2 * middle] < slot));
    if (before) low = middle + 1;
    else high = middle;
  }
  return low;
}

typedef struct {
  int64_t first, count;
} rows;

/* Those of a rank's expert that tokens [begin, end) chose. */
static rows rows_of(const cpu_call *c, int plan, int64_t expert, int64_t begin, int64_t end) {
  const int32_t *list = cpu_tokens(c, plan);
  int64_t R = c->call.task->inputs[plan].shape[0], k = c->call.task->experts->choices,
          e = tsr_task_first_expert(&c->call) + expert;
  rows r = {.first = first_row(list, R, e, begin * k)};
  r.count = first_row(list, R, e, end * k) - r.first;
  return r;
}

static int64_t used_rows(const cpu_call *c, int plan) {
  return first_row(
      cpu_tokens(c, plan), c->call.task->inputs[plan].shape[0], c->call.task->experts->experts, 0);
}

/* ---- parts of a GEMM ---- */

/* Items are strips of columns. Where rows are dealt out instead, a range has as large a share. */
static int64_t items_of(int64_t columns) { return ratio_up(columns, TSR_GEMM_COLUMNS); }

static int64_t strip_begin(int64_t index, int64_t of, int64_t count, int64_t strip) {
  int64_t strips = ratio_up(count, strip);
  return least(strips * index / of * strip, count);
}

/* Of what is dealt out, the range's share; of what is packed, a part's. */
static int64_t dealt(const tsr_gemm *g, int64_t index, int64_t of) {
  return g->by_rows ? strip_begin(index, of, g->M, TSR_GEMM_ROWS)
                    : strip_begin(index, of, g->N, TSR_GEMM_COLUMNS);
}
static int64_t packed(const tsr_gemm *g, int64_t index, int64_t of) {
  return g->by_rows ? strip_begin(index, of, g->N, TSR_GEMM_COLUMNS)
                    : strip_begin(index, of, g->M, TSR_GEMM_ROWS);
}

static void pack_part(const cpu_call *c, const tsr_gemm *g, float *to, int part, int parts) {
  int64_t begin = packed(g, part, parts), end = packed(g, part + 1, parts);
  if (begin < end) c->k->gemm_pack(g, to, begin, end);
}

/* The share of a range in c (M, N): rows or columns [begin, end). */
static void add_share(
    const cpu_call *c, const tsr_gemm *g, float *to, const float *from, int64_t begin,
    int64_t end) {
  if (g->by_rows) c->k->add(to, to, from, begin * g->N, end * g->N);
  else
    for (int64_t row = 0; row < g->M; row++)
      c->k->add(to, to, from, row * g->N + begin, row * g->N + end);
}

static void fill_share(const cpu_call *c, const tsr_gemm *g, int64_t begin, int64_t end) {
  if (g->by_rows) c->k->fill(g->c, 0, begin * g->N, end * g->N);
  else
    for (int64_t row = 0; row < g->M; row++)
      c->k->fill(g->c, 0, row * g->N + begin, row * g->N + end);
}

/* ---- y (R, N) = x (R, K) w[e] (N, K)^T; its gradient dx (R, K) = dy (R, N) w[e] is the same with
 * the weight's other dimension. The units of tp split what is summed ---- */

enum { PLAN = 2 };

static bool is_dx(const tsr_task *t) { return t->op == TSR_OP_EXPERT_LINEAR_DX; }

static shape linear_shape(const tsr_task *t) {
  shape s = {.rows_max = t->experts->tokens, .parts = tsr_reduction_leaves(&t->sum)};
  s.N = tsr_tensor_last(&t->outputs[0]);
  s.K = tsr_tensor_last(&t->inputs[0]) / s.parts;
  set_rounds(&s, least(s.rows_max, s.N), s.K);
  return s;
}

static int64_t linear_stack_bytes(const tsr_task *t) {
  return ratio_up(tsr_task_stack_bytes(t, tsr_tensor_elements(&t->outputs[0])), 64) * 64;
}

static int64_t
linear_scratch(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, int threads) {
  (void)p, (void)threads;
  shape s = linear_shape(t);
  tsr_gemm few = {.M = least(s.rows_max, s.N), .N = s.N, .K = s.depth},
           many = {.M = s.rows_max, .N = s.N, .K = s.depth, .by_rows = true};
  int64_t bytes = k->gemm_bytes(&few), other = s.rows_max >= s.N ? k->gemm_bytes(&many) : 0;
  return linear_stack_bytes(t) + (bytes > other ? bytes : other);
}

static int linear_rounds(const tsr_task *t) {
  shape s = linear_shape(t);
  return rounds_of(t, &s);
}
static int64_t linear_items(const tsr_task *t) { return items_of(tsr_tensor_last(&t->outputs[0])); }

/* Entry i of the stack of sums; entry 0 is the output. */
static float *linear_entry(const cpu_call *c, int i) {
  int64_t elements = tsr_tensor_elements(&c->call.task->outputs[0]);
  return i ? (float *)cpu_scratch(c) + (i - 1) * elements : cpu_out(c, 0);
}
static float *linear_packed(const cpu_call *c) {
  return (float *)(void *)((char *)cpu_scratch(c) + linear_stack_bytes(c->call.task));
}

/* The round's GEMM; false where the expert has no rows. */
static bool linear_gemm(const cpu_call *c, const shape *s, place at, tsr_gemm *ret) {
  const tsr_task *t = c->call.task;
  rows r = rows_of(c, PLAN, at.expert, 0, t->experts->tokens);
  int64_t wide = tsr_tensor_last(&t->inputs[0]), /* of x, all leaves */
      k = at.part * s->K + at.piece * s->depth;
  const float *w = cpu_in(c, 1) + at.expert * s->N * wide;
  *ret = (tsr_gemm){.M = r.count, .N = s->N, .c_stride = s->N, .by_rows = s->N <= r.count};
  ret->K = least(s->K - at.piece * s->depth, s->depth);
  ret->a = (tsr_matrix){cpu_in(c, 0) + r.first * wide + k, wide, 1};
  ret->b = is_dx(t) ? (tsr_matrix){w + k * s->N, s->N, 1} : (tsr_matrix){w + k, 1, wide};
  ret->c = linear_entry(c, tsr_reduction_entries(&t->sum, at.part)) + r.first * s->N;
  ret->adds = at.piece > 0;
  return r.count > 0;
}

/* Rows behind the last stay 0. */
static void linear_before(const cpu_call *c, int part, int parts) {
  shape s = linear_shape(c->call.task);
  tsr_gemm g;
  if (!c->round && !part)
    c->k->fill(
        cpu_out(c, 0), 0, used_rows(c, PLAN) * s.N, tsr_tensor_elements(&c->call.task->outputs[0]));
  if (linear_gemm(c, &s, place_of(c, &s), &g)) pack_part(c, &g, linear_packed(c), part, parts);
}

static void linear_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const tsr_reduction *sum = &c->call.task->sum;
  shape s = linear_shape(c->call.task);
  place at = place_of(c, &s);
  tsr_gemm g;
  if (!linear_gemm(c, &s, at, &g)) return;
  int64_t items = linear_items(c->call.task), from = dealt(&g, begin, items),
          to = dealt(&g, end, items),
          first = g.c - linear_entry(c, tsr_reduction_entries(sum, at.part));
  c->k->gemm(&g, linear_packed(c), from, to);
  if (at.piece < s.pieces - 1) return;
  tsr_tree_stack tree = {.entries = tsr_reduction_entries(sum, at.part)};
  tsr_tree_push(&tree, tsr_reduction_merges(sum, at.part));
  for (int low; tsr_tree_merge(&tree, &low);)
    add_share(c, &g, linear_entry(c, low) + first, linear_entry(c, low + 1) + first, from, to);
}

enum { RANGES = CPU_RANGES_MAX };

const cpu_op cpu_expert_linear = {
    .items = linear_items,
    .scratch = linear_scratch,
    .rounds = linear_rounds,
    .before = linear_before,
    .run = linear_run,
    .ranges = RANGES};

/* ---- dw[e] (N, K) = dy^T (N, rows) x (rows, K), over the rows of each batch unit in turn
 * (schedule/expert_rows.h). The gradient of biases has no x: it is that of a weight (N, 1) whose
 * rows are 1. ---- */

static bool is_of_bias(const tsr_task *t) { return t->inputs_count == 3; }
static int64_t dw_columns(const tsr_task *t) {
  return is_of_bias(t) ? 1 : tsr_tensor_last(&t->inputs[1]);
}
static const float ones[] = {1};

static shape dw_shape(const tsr_task *t) {
  shape s = {.rows_max = t->experts->unit_tokens};
  s.parts = t->experts->tokens / t->experts->unit_tokens;
  s.N = tsr_tensor_last(&t->inputs[0]);
  s.K = dw_columns(t);
  set_rounds(&s, least(s.N, s.K), s.rows_max);
  return s;
}

/* Entries of the stack of leaves that are in the scratch: those behind the output, unless it has
 * room for them. */
static int64_t dw_stack_bytes(const cpu_call *c, const tsr_task *t, tsr_tree_shape tree) {
  (void)c;
  if (t->experts->accumulates) return 0;
  int64_t bytes =
      (tsr_tree_of_depth(tree, t->experts->leaves) - 1) * tsr_tensor_bytes(&t->outputs[0]);
  return ratio_up(bytes, 64) * 64;
}

static int64_t
dw_scratch(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, int threads) {
  (void)threads;
  shape s = dw_shape(t);
  tsr_gemm g = {.M = s.N, .N = s.K, .K = s.depth, .by_rows = s.K <= s.N};
  return dw_stack_bytes(NULL, t, p->lowering.tree) + k->gemm_bytes(&g);
}

static int dw_rounds(const tsr_task *t) {
  shape s = dw_shape(t);
  return rounds_of(t, &s);
}
static int64_t dw_items(const tsr_task *t) { return items_of(dw_columns(t)); }

static float *dw_entry(const cpu_call *c, int i) {
  int64_t elements = tsr_tensor_elements(&c->call.task->outputs[0]),
          each = (elements + 15) / 16 * 16;
  if (c->call.task->experts->accumulates) return cpu_out(c, 0) + i * each;
  return i ? (float *)cpu_scratch(c) + (i - 1) * elements : cpu_out(c, 0);
}
static float *dw_packed(const cpu_call *c) {
  int64_t stack = dw_stack_bytes(c, c->call.task, c->call.program->lowering.tree);
  return (float *)(void *)((char *)cpu_scratch(c) + stack);
}

/* A batch unit of the sum: its leaf, and whether it is the first or the last one of that. */
typedef struct {
  int64_t leaf;
  bool begins, ends;
} unit_place;

static unit_place unit_of(const cpu_call *c, int64_t units, int64_t part) {
  const tsr_expert_rows *r = c->call.task->experts;
  int64_t unit = part + (r->accumulates ? c->call.at.microbatch * units : 0);
  return (unit_place){
      unit / r->leaf_units, unit % r->leaf_units == 0, unit % r->leaf_units == r->leaf_units - 1};
}

static int leaf_entry(const cpu_call *c, int64_t leaf) {
  return tsr_tree_of_entries(c->call.program->lowering.tree, c->call.task->experts->leaves, leaf);
}

/* The round's GEMM; without rows K is 0. */
static tsr_gemm dw_gemm(const cpu_call *c, const shape *s, place at, unit_place unit) {
  const tsr_expert_rows *r = c->call.task->experts;
  int64_t begin = at.part * r->unit_tokens;
  int plan = is_of_bias(c->call.task) ? 1 : PLAN;
  rows of = rows_of(c, plan, at.expert, begin, begin + r->unit_tokens);
  int64_t skip = least(at.piece * s->depth, of.count);
  tsr_gemm g = {.M = s->N, .N = s->K, .c_stride = s->K, .by_rows = s->K <= s->N};
  g.K = least(of.count - skip, s->depth);
  g.a = (tsr_matrix){cpu_in(c, 0) + (of.first + skip) * s->N, 1, s->N};
  g.b = (tsr_matrix){ones, 0, 1};
  if (plan == PLAN) g.b = (tsr_matrix){cpu_in(c, 1) + (of.first + skip) * s->K, s->K, 1};
  g.c = dw_entry(c, leaf_entry(c, unit.leaf)) + at.expert * s->N * s->K;
  g.adds = !unit.begins || at.piece > 0;
  return g;
}

static void dw_before(const cpu_call *c, int part, int parts) {
  shape s = dw_shape(c->call.task);
  place at = place_of(c, &s);
  tsr_gemm g = dw_gemm(c, &s, at, unit_of(c, s.parts, at.part));
  if (g.K > 0) pack_part(c, &g, dw_packed(c), part, parts);
}

static void dw_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  shape s = dw_shape(c->call.task);
  place at = place_of(c, &s);
  unit_place unit = unit_of(c, s.parts, at.part);
  tsr_gemm g = dw_gemm(c, &s, at, unit);
  int64_t items = dw_items(c->call.task), from = dealt(&g, begin, items),
          to = dealt(&g, end, items), first = at.expert * s.N * s.K;
  if (g.K > 0) c->k->gemm(&g, dw_packed(c), from, to);
  else if (!g.adds) fill_share(c, &g, from, to); /* a leaf that begins without rows */
  if (!unit.ends || at.piece < s.pieces - 1) return;
  tsr_tree_shape order = c->call.program->lowering.tree;
  tsr_tree_stack tree = {.entries = leaf_entry(c, unit.leaf)};
  tsr_tree_push(&tree, tsr_tree_of_merges(order, c->call.task->experts->leaves, unit.leaf));
  for (int low; tsr_tree_merge(&tree, &low);)
    add_share(c, &g, dw_entry(c, low) + first, dw_entry(c, low + 1) + first, from, to);
}

const cpu_op cpu_expert_linear_dw = {
    .items = dw_items,
    .scratch = dw_scratch,
    .rounds = dw_rounds,
    .before = dw_before,
    .run = dw_run,
    .ranges = RANGES};
