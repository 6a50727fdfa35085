// SPDX-License-Identifier: Apache-2.0
/* The linear layers of experts: a GEMM for each expert over the rows that it has, whose number only
 * the plan knows. They are done in rounds, as in matmul.c: a round packs one operand of the GEMMs
 * of a group of experts, as many as the scratch has room for, and then every range multiplies its
 * part of the other ones by it. So threads meet once a group, and not once an expert. The first
 * round, which is of the first group, also finds where the other ones begin. An element is one
 * chain whatever the number of rows, so rows need no filling. In FP8 a round before them
 * quantises. */
#include "device/cpu/expert_groups.h"
#include "device/cpu/fp8_operands.h"

/* Of small experts a round packs many. */
enum { ROUND_BYTES = 16 << 20, ROUND_BYTES_MIN = 1 << 20, RANGES = CPU_RANGES_MAX };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t ratio_up(int64_t count, int64_t each) { return (count + each - 1) / each; }
static int64_t whole_lines(int64_t bytes) { return ratio_up(bytes, 64) * 64; }
/* Lines that so much of K takes of what is packed. */
static int64_t lines_of(const tsr_task *t, int64_t K) {
  return t->fp8 ? K + ratio_up(K, TSR_FP8_BLOCK) : K;
}
static int scaled(const tsr_task *t) { return t->fp8 != NULL; }
static bool quantizes(const cpu_call *c) { return c->call.task->fp8 && !c->round; }
static int64_t starts_bytes(int64_t groups) {
  return whole_lines(groups * (int64_t)sizeof(cpu_expert_start));
}

/* How much of what is summed a round packs of so many lines. */
static int64_t depth_of(int64_t lines, int64_t summed) {
  int64_t depth = ROUND_BYTES / (4 * lines) / TSR_GEMM_DEPTH * TSR_GEMM_DEPTH;
  return least(depth < TSR_GEMM_DEPTH ? TSR_GEMM_DEPTH : depth, summed);
}

/* A range's items are its share of the group's strips. */
static int64_t items_of(const tsr_task *t, int64_t columns) {
  return t->experts->here * ratio_up(columns, TSR_GEMM_COLUMNS);
}

/* What of c (M, N) a part of the GEMM writes: its columns, or its rows. */
static void
add_span(const cpu_call *c, const tsr_gemm *g, float *to, const float *from, cpu_span part) {
  if (g->by_rows) c->k->add(to, to, from, part.begin * g->N, part.end * g->N);
  else
    for (int64_t row = 0; row < g->M; row++)
      c->k->add(to, to, from, row * g->N + part.begin, row * g->N + part.end);
}

static void fill_span(const cpu_call *c, const tsr_gemm *g, cpu_span part) {
  if (g->by_rows) c->k->fill(g->c, 0, part.begin * g->N, part.end * g->N);
  else
    for (int64_t row = 0; row < g->M; row++)
      c->k->fill(g->c, 0, row * g->N + part.begin, row * g->N + part.end);
}

/* ---- y (R, N) = x (R, K) w[e] (N, K)^T; its gradient dx (R, K) = dy (R, N) w[e] is the same with
 * the weight's other dimension. The units of tp split what is summed. The rows are packed ---- */

enum { PLAN = 2 };

static bool is_dx(const tsr_task *t) { return t->op == TSR_OP_EXPERT_LINEAR_DX; }

typedef struct {
  int64_t N, K, parts; /* parts: leaves over tp, each a sum over K */
  int64_t room, depth, pieces, groups;
} linear_shape;

static linear_shape linear_shape_of(const tsr_task *t) {
  linear_shape s = {.parts = tsr_reduction_leaves(&t->sum)};
  s.N = tsr_tensor_last(&t->outputs[0]);
  s.K = tsr_tensor_last(&t->inputs[0]) / s.parts;
  const tsr_expert_rows *r = t->experts;
  int64_t all = r->tokens * least(r->choices, r->here) + r->here * (TSR_GEMM_ROWS - 1),
          lines = least(all, most(s.N, ROUND_BYTES_MIN / (4 * s.K)));
  s.room = ratio_up(lines, TSR_GEMM_ROWS) * TSR_GEMM_ROWS;
  s.depth = depth_of(lines, s.K);
  s.pieces = ratio_up(s.K, s.depth);
  s.groups =
      cpu_expert_groups_max(t->inputs[PLAN].shape[0], t->experts->here, s.room, TSR_GEMM_ROWS);
  return s;
}

static int64_t linear_stack_bytes(const tsr_task *t) {
  return whole_lines(tsr_task_stack_bytes(t, tsr_tensor_elements(&t->outputs[0])));
}

static int64_t
linear_scratch(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, int threads) {
  (void)p, (void)threads;
  linear_shape s = linear_shape_of(t);
  tsr_gemm g = {.M = s.room, .N = s.N, .K = s.depth, .scaled = t->fp8};
  return linear_stack_bytes(t) + starts_bytes(s.groups) + cpu_fp8_bytes(t) + k->gemm_bytes(&g);
}

static int linear_rounds(const tsr_task *t) {
  linear_shape s = linear_shape_of(t);
  return (int)(s.groups * s.parts * s.pieces) + scaled(t);
}
static int64_t linear_items(const tsr_task *t) {
  return items_of(t, tsr_tensor_last(&t->outputs[0]));
}

/* Entry i of the stack of sums; entry 0 is the output. */
static float *linear_entry(const cpu_call *c, int i) {
  int64_t elements = tsr_tensor_elements(&c->call.task->outputs[0]);
  return i ? (float *)cpu_scratch(c) + (i - 1) * elements : cpu_out(c, 0);
}

static cpu_expert_start *linear_starts(const cpu_call *c) {
  char *all = (char *)cpu_scratch(c) + linear_stack_bytes(c->call.task);
  return (cpu_expert_start *)(void *)all;
}

/* A round: one piece of K of one leaf, for one group. */
typedef struct {
  const cpu_call *c;
  linear_shape s;
  cpu_expert_rows list;
  int64_t part, piece;
  cpu_expert_cursor group;
} linear_round;

static void linear_round_begin(const cpu_call *c, linear_round *ret) {
  linear_shape s = linear_shape_of(c->call.task);
  int round = quantizes(c) ? 0 : c->round - scaled(c->call.task);
  *ret = (linear_round){.c = c, .s = s, .piece = round % s.pieces};
  ret->part = round / s.pieces / s.groups;
  ret->list = cpu_expert_rows_of(c, PLAN, 0, c->call.task->experts->tokens);
  ret->list.room = s.room;
  ret->list.strip = TSR_GEMM_ROWS;
  ret->group = cpu_expert_group(&ret->list, linear_starts(c), round / s.pieces % s.groups);
}

static char *linear_fp8(const linear_round *r) {
  return (char *)linear_starts(r->c) + starts_bytes(r->s.groups);
}

/* From element `first` on; of rows (…, wide), or of a weight that is summed over rows. */
static tsr_matrix
linear_operand(const linear_round *r, int i, int64_t first, int64_t rs, int64_t cs) {
  if (r->c->call.task->fp8) return cpu_fp8_matrix(r->c, linear_fp8(r), i, first, rs, cs);
  return cpu_matrix(r->c, i, first, rs, cs);
}

static tsr_gemm linear_gemm(const linear_round *r, const cpu_expert_segment *rows) {
  const cpu_call *c = r->c;
  const tsr_task *t = c->call.task;
  int64_t wide = tsr_tensor_last(&t->inputs[0]), /* of x, all leaves */
      k = r->part * r->s.K + r->piece * r->s.depth, N = r->s.N;
  int64_t w = rows->expert * N * wide;
  tsr_gemm g = {.M = rows->count, .N = N, .c_stride = N, .scaled = t->fp8};
  g.K = least(r->s.K - r->piece * r->s.depth, r->s.depth);
  g.a = linear_operand(r, 0, rows->first * wide + k, wide, 1);
  g.b = is_dx(t) ? linear_operand(r, 1, w + k * N, N, 1) : linear_operand(r, 1, w + k, 1, wide);
  g.c = linear_entry(c, tsr_reduction_entries(&t->sum, r->part)) + rows->first * N;
  g.adds = r->piece > 0;
  return g;
}

static float *linear_packed(const linear_round *r, const cpu_expert_segment *rows, int64_t K) {
  char *all = linear_fp8(r) + cpu_fp8_bytes(r->c->call.task);
  return (float *)(void *)all + rows->before * lines_of(r->c->call.task, K);
}

/* Of few rows reading w is all the work: the weight is not packed for them. */
enum { FEW_ROWS = 16 };
static bool is_skinny(const linear_round *r, const cpu_expert_segment *rows) {
  const tsr_task *t = r->c->call.task;
  return rows->count <= FEW_ROWS && r->s.pieces == 1 && !is_dx(t) && !t->fp8;
}

/* Rows behind the last stay 0. The table is complete when the first round runs. */
static void linear_before(const cpu_call *c, int part, int parts) {
  linear_round r;
  linear_round_begin(c, &r);
  if (!c->round && !part) {
    int64_t used = cpu_expert_rows_used(&r.list) * r.s.N;
    c->k->fill(cpu_out(c, 0), 0, used, tsr_tensor_elements(&c->call.task->outputs[0]));
    cpu_expert_find_groups(&r.list, r.s.groups, linear_starts(c));
  }
  if (quantizes(c)) {
    cpu_fp8_quantize(c, linear_fp8(&r), part, parts);
    return;
  }
  cpu_expert_share mine =
      cpu_expert_share_of(r.group, cpu_expert_pack_length, part, part + 1, parts);
  for (cpu_expert_segment rows; cpu_expert_next(&r.group, &rows);) {
    cpu_span pack = cpu_expert_next_span(&mine, cpu_expert_pack_length(&rows), rows.count, true);
    tsr_gemm g = linear_gemm(&r, &rows);
    if (pack.begin < pack.end && !is_skinny(&r, &rows))
      c->k->gemm_pack(&g, linear_packed(&r, &rows, g.K), pack.begin, pack.end);
  }
}

/* After the last piece of a leaf: adds what the tree has complete. */
static void linear_add_complete(const linear_round *r, const tsr_gemm *g, cpu_span columns) {
  const tsr_reduction *sum = &r->c->call.task->sum;
  int64_t first = g->c - linear_entry(r->c, tsr_reduction_entries(sum, r->part));
  tsr_tree_stack tree = {.entries = tsr_reduction_entries(sum, r->part)};
  tsr_tree_push(&tree, tsr_reduction_merges(sum, r->part));
  for (int low; tsr_tree_merge(&tree, &low);)
    add_span(
        r->c, g, linear_entry(r->c, low) + first, linear_entry(r->c, low + 1) + first, columns);
}

static void linear_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  if (quantizes(c)) return;
  linear_round r;
  linear_round_begin(c, &r);
  cpu_expert_share mine =
      cpu_expert_share_of(r.group, cpu_expert_run_length, begin, end, linear_items(c->call.task));
  for (cpu_expert_segment rows; cpu_expert_next(&r.group, &rows);) {
    cpu_span columns = cpu_expert_next_span(&mine, cpu_expert_run_length(&rows), r.s.N, false);
    if (!rows.count || columns.begin == columns.end) continue;
    tsr_gemm g = linear_gemm(&r, &rows);
    if (is_skinny(&r, &rows)) {
      tsr_skinny_gemm few = {g.M, g.K, g.a.rs, g.N, NULL, g.b};
      few.x_bf16 = g.a.bf16;
      c->k->skinny_gemm(&few, g.c, tsr_matrix_begin(&g.a), columns.begin, columns.end);
    } else {
      c->k->gemm(&g, linear_packed(&r, &rows, g.K), columns.begin, columns.end);
    }
    if (r.piece == r.s.pieces - 1) linear_add_complete(&r, &g, columns);
  }
}

/* Rows are in f32, as the GEMM of few of them takes them. */
static bool linear_half_input(const tsr_task *t, int input) { return (void)t, input == 1; }

const cpu_op cpu_expert_linear = {
    .items = linear_items,
    .scratch = linear_scratch,
    .rounds = linear_rounds,
    .before = linear_before,
    .run = linear_run,
    .ranges = RANGES,
    .takes_half_input = linear_half_input};

/* ---- dw[e] (N, K) = dy^T (N, rows) x (rows, K), over the rows of each batch unit in turn
 * (schedule/expert_rows.h). The gradient of biases has no x: it is that of a weight (N, 1) whose
 * rows are 1. ---- */

static bool is_of_bias(const tsr_task *t) { return t->inputs_count == 3; }
static int64_t dw_columns(const tsr_task *t) {
  return is_of_bias(t) ? 1 : tsr_tensor_last(&t->inputs[1]);
}
static const float ones[] = {1};

typedef struct {
  int64_t N, K, units, depth, groups;
  int64_t strip; /* what the rows of an expert are rounded up to */
  bool by_rows;  /* the smaller operand is packed */
} dw_shape;

static dw_shape dw_shape_of(const tsr_task *t) {
  const tsr_expert_rows *r = t->experts;
  dw_shape s = {.N = tsr_tensor_last(&t->inputs[0]), .K = dw_columns(t)};
  s.units = r->tokens / r->unit_tokens;
  s.by_rows = s.K <= s.N;
  s.strip = t->fp8 ? TSR_FP8_BLOCK : 1;
  s.depth = ratio_up(depth_of(least(s.N, s.K), r->unit_tokens), s.strip) * s.strip;
  s.groups =
      cpu_expert_groups_max(r->unit_tokens * least(r->choices, r->here), r->here, s.depth, s.strip);
  return s;
}

/* Entries of the stack of leaves that are in the scratch: those behind the output, unless it has
 * room for them. */
static int64_t dw_stack_bytes(const tsr_task *t, tsr_tree_shape tree) {
  if (t->experts->accumulates) return 0;
  int64_t bytes =
      (tsr_tree_of_depth(tree, t->experts->leaves) - 1) * tsr_tensor_bytes(&t->outputs[0]);
  return whole_lines(bytes);
}

static int64_t
dw_scratch(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, int threads) {
  (void)threads;
  dw_shape s = dw_shape_of(t);
  tsr_gemm g = {.M = s.N, .N = s.K, .K = s.depth, .by_rows = s.by_rows, .scaled = t->fp8};
  return dw_stack_bytes(t, p->lowering.tree) + starts_bytes(s.units * s.groups) + cpu_fp8_bytes(t) +
         k->gemm_bytes(&g);
}

static int dw_rounds(const tsr_task *t) {
  dw_shape s = dw_shape_of(t);
  return (int)(s.units * s.groups) + scaled(t);
}
static int64_t dw_items(const tsr_task *t) { return items_of(t, dw_columns(t)); }

static float *dw_entry(const cpu_call *c, int i) {
  int64_t elements = tsr_tensor_elements(&c->call.task->outputs[0]),
          each = (elements + 15) / 16 * 16;
  if (c->call.task->experts->accumulates) return cpu_out(c, 0) + i * each;
  return i ? (float *)cpu_scratch(c) + (i - 1) * elements : cpu_out(c, 0);
}

static cpu_expert_start *dw_starts(const cpu_call *c) {
  char *all = (char *)cpu_scratch(c) + dw_stack_bytes(c->call.task, c->call.program->lowering.tree);
  return (cpu_expert_start *)(void *)all;
}

static int leaf_entry(const cpu_call *c, int64_t leaf) {
  return tsr_tree_of_entries(c->call.program->lowering.tree, c->call.task->experts->leaves, leaf);
}

/* A round: the rows of one batch unit, for one group. */
typedef struct {
  const cpu_call *c;
  dw_shape s;
  cpu_expert_rows list;
  int64_t unit;      /* of the microbatch */
  int64_t leaf;      /* of the sum, which the batch unit is in; */
  bool begins, ends; /* it is the leaf's first or last */
  cpu_expert_cursor group;
} dw_round;

/* The rows of a batch unit of the microbatch. */
static cpu_expert_rows dw_rows_of(const cpu_call *c, int64_t depth, int64_t strip, int64_t unit) {
  int64_t tokens = c->call.task->experts->unit_tokens;
  int plan = is_of_bias(c->call.task) ? 1 : PLAN;
  cpu_expert_rows list = cpu_expert_rows_of(c, plan, unit * tokens, (unit + 1) * tokens);
  list.room = depth;
  list.strip = strip;
  return list;
}

static void dw_round_begin(const cpu_call *c, dw_round *ret) {
  const tsr_expert_rows *r = c->call.task->experts;
  dw_shape s = dw_shape_of(c->call.task);
  int round = quantizes(c) ? 0 : c->round - scaled(c->call.task);
  int64_t local = round / s.groups,
          unit = local + (r->accumulates ? c->call.at.microbatch * s.units : 0);
  *ret = (dw_round){.c = c, .s = s, .unit = local, .leaf = unit / r->leaf_units};
  ret->begins = unit % r->leaf_units == 0;
  ret->ends = unit % r->leaf_units == r->leaf_units - 1;
  ret->list = dw_rows_of(c, s.depth, s.strip, local);
  ret->group = cpu_expert_group(&ret->list, dw_starts(c) + local * s.groups, round % s.groups);
}

static char *dw_fp8(const dw_round *r) {
  return (char *)dw_starts(r->c) + starts_bytes(r->s.units * r->s.groups);
}

static cpu_fp8_run dw_run_of(const dw_round *r, int64_t unit, const cpu_expert_segment *rows) {
  return (cpu_fp8_run){rows->first - rows->done, rows->count, rows->expert * r->s.units + unit};
}

static void dw_quantize(const dw_round *r, int part, int parts) {
  for (int64_t unit = 0; unit < r->s.units; unit++) {
    cpu_expert_rows all = dw_rows_of(r->c, INT64_MAX / 2, 1, unit);
    cpu_expert_cursor at = {.rows = &all};
    for (cpu_expert_segment rows; cpu_expert_next(&at, &rows);) {
      cpu_fp8_run run = dw_run_of(r, unit, &rows);
      cpu_fp8_quantize_run(r->c, dw_fp8(r), &run, part, parts);
    }
  }
}

/* Without rows K is 0. */
static tsr_gemm dw_gemm(const dw_round *r, const cpu_expert_segment *rows) {
  tsr_gemm g = {.M = r->s.N, .N = r->s.K, .K = rows->count, .c_stride = r->s.K};
  g.by_rows = r->s.by_rows;
  g.scaled = r->c->call.task->fp8;
  g.c = dw_entry(r->c, leaf_entry(r->c, r->leaf)) + rows->expert * r->s.N * r->s.K;
  g.adds = !r->begins || !rows->begins;
  if (g.scaled) {
    cpu_fp8_run run = dw_run_of(r, r->unit, rows);
    g.a = cpu_fp8_run_matrix(r->c, dw_fp8(r), 0, &run, rows->done, 1, r->s.N);
    g.b = cpu_fp8_run_matrix(r->c, dw_fp8(r), 1, &run, rows->done, r->s.K, 1);
    return g;
  }
  g.a = cpu_matrix(r->c, 0, rows->first * r->s.N, 1, r->s.N);
  g.b = (tsr_matrix){.data = ones, .cs = 1};
  if (!is_of_bias(r->c->call.task)) g.b = cpu_matrix(r->c, 1, rows->first * r->s.K, r->s.K, 1);
  return g;
}

static float *dw_packed(const dw_round *r, const cpu_expert_segment *rows) {
  tsr_gemm before = {.M = r->s.N, .N = r->s.K, .K = rows->before, .by_rows = r->s.by_rows};
  before.scaled = r->c->call.task->fp8;
  char *all = dw_fp8(r) + cpu_fp8_bytes(r->c->call.task);
  return (float *)(void *)(all + r->c->k->gemm_bytes(&before));
}

static void dw_before(const cpu_call *c, int part, int parts) {
  dw_round r;
  dw_round_begin(c, &r);
  for (int64_t unit = 0; !c->round && !part && unit < r.s.units; unit++) {
    cpu_expert_rows list = dw_rows_of(c, r.s.depth, r.s.strip, unit);
    cpu_expert_find_groups(&list, r.s.groups, dw_starts(c) + unit * r.s.groups);
  }
  if (quantizes(c)) {
    dw_quantize(&r, part, parts);
    return;
  }
  cpu_expert_share mine =
      cpu_expert_share_of(r.group, cpu_expert_pack_length, part, part + 1, parts);
  for (cpu_expert_segment rows; cpu_expert_next(&r.group, &rows);) {
    tsr_gemm g = dw_gemm(&r, &rows);
    cpu_span pack = cpu_expert_next_span(
        &mine, cpu_expert_pack_length(&rows), g.by_rows ? g.N : g.M, !g.by_rows);
    if (pack.begin < pack.end) c->k->gemm_pack(&g, dw_packed(&r, &rows), pack.begin, pack.end);
  }
}

/* After the last rows of a leaf: adds what the tree has complete. */
static void dw_add_complete(const dw_round *r, const tsr_gemm *g, int64_t first, cpu_span part) {
  int64_t leaves = r->c->call.task->experts->leaves;
  tsr_tree_stack tree = {.entries = leaf_entry(r->c, r->leaf)};
  tsr_tree_push(&tree, tsr_tree_of_merges(r->c->call.program->lowering.tree, leaves, r->leaf));
  for (int low; tsr_tree_merge(&tree, &low);)
    add_span(r->c, g, dw_entry(r->c, low) + first, dw_entry(r->c, low + 1) + first, part);
}

static void dw_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  if (quantizes(c)) return;
  dw_round r;
  dw_round_begin(c, &r);
  cpu_expert_share mine =
      cpu_expert_share_of(r.group, cpu_expert_run_length, begin, end, dw_items(c->call.task));
  for (cpu_expert_segment rows; cpu_expert_next(&r.group, &rows);) {
    tsr_gemm g = dw_gemm(&r, &rows);
    cpu_span part =
        cpu_expert_next_span(&mine, cpu_expert_run_length(&rows), g.by_rows ? g.M : g.N, g.by_rows);
    if (part.begin == part.end) continue;
    if (g.K > 0) c->k->gemm(&g, dw_packed(&r, &rows), part.begin, part.end);
    else if (!g.adds) fill_span(c, &g, part); /* a leaf that begins without rows */
    if (r.ends && rows.ends) dw_add_complete(&r, &g, rows.expert * r.s.N * r.s.K, part);
  }
}

static bool dw_half_input(const tsr_task *t, int input) {
  return input == 0 || (input == 1 && !is_of_bias(t));
}

const cpu_op cpu_expert_linear_dw = {
    .items = dw_items,
    .scratch = dw_scratch,
    .rounds = dw_rounds,
    .before = dw_before,
    .run = dw_run,
    .ranges = RANGES,
    .takes_half_input = dw_half_input};
