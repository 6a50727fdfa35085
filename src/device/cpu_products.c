/* Matrix products and lookups. Sums that the recipe splits are made of units, each by products of
 * fixed shape, added in the tree's order. */
#include "device/cpu_ops.h"

static tsr_matrix rows_of(const float *data, int64_t cols) { return (tsr_matrix){data, cols, 1}; }
static tsr_matrix turned(const float *data, int64_t cols) { return (tsr_matrix){data, 1, cols}; }

/* ---- products in rounds. Each round packs a piece of one operand for all, and then every range
 * multiplies its strips of the other one by it. A sum that the recipe splits is made of units, and
 * each of those of one product or several ---- */

/* What a task's products have in common: c (M, N) of units * each products over up to K. */
typedef struct {
  int64_t M, N, K, each, units;
  bool by_rows;
  int64_t depth; /* of a round: so much of K that what is packed stays in the last cache */
} plan;

enum { ROUND_BYTES = 16 << 20 };

static int64_t pieces_of(const plan *p) { return (p->K + p->depth - 1) / p->depth; }

/* The smaller operand is packed for all. */
static plan plan_made(plan p) {
  p.by_rows = p.N <= p.M;
  int64_t line = (p.by_rows ? p.N : p.M) * 4, depth = ROUND_BYTES / line;
  depth = depth / TSR_PRODUCT_DEPTH * TSR_PRODUCT_DEPTH;
  if (depth < TSR_PRODUCT_DEPTH) depth = TSR_PRODUCT_DEPTH;
  p.depth = depth < p.K ? depth : p.K;
  return p;
}

/* Both operands are cut into strips, which are what kernels take whole. */
static int64_t strip_of(bool rows) { return rows ? TSR_PRODUCT_ROWS : TSR_PRODUCT_COLUMNS; }
static int64_t strips_in(int64_t count, bool rows) {
  return (count + strip_of(rows) - 1) / strip_of(rows);
}
static int64_t strips_end(int64_t strip, int64_t count, bool rows) {
  return strip * strip_of(rows) < count ? strip * strip_of(rows) : count;
}

static int64_t strips_of(const plan *p) { return strips_in(p->by_rows ? p->M : p->N, p->by_rows); }

static int64_t stack_bytes(const tsr_task *t) {
  int64_t bytes = cpu_stack_bytes(t->units, tsr_tensor_elements(&t->outputs[0]));
  return (bytes + 63) / 64 * 64;
}

static int64_t plan_scratch(const tsr_kernels *k, const tsr_task *t, const plan *p) {
  tsr_product whole = {.M = p->M, .N = p->N, .K = p->depth, .by_rows = p->by_rows};
  return stack_bytes(t) + k->product_bytes(&whole);
}

static int rounds_of(const plan *p) { return (int)(p->units * p->each * pieces_of(p)); }

/* Where a round stands. */
typedef struct {
  int64_t unit, product, piece; /* the product's number in its unit, the piece's in the product */
} place;

static place place_of(const plan *p, int round) {
  int64_t pieces = pieces_of(p), in_unit = p->each * pieces;
  return (place){round / in_unit, round % in_unit / pieces, round % pieces};
}

/* Entry i of the stack of units' sums; entry 0 is the result. */
static float *entry(const cpu_call *c, int i) {
  float *stack = cpu_scratch(c);
  return i ? stack + (i - 1) * tsr_tensor_elements(&c->task->outputs[0]) : cpu_out(c, 0);
}

/* Entries in use when a unit is begun. */
static int entries_before(int64_t units, int64_t unit) {
  int top = 0;
  for (int64_t u = 0; u < unit; u++) top += 1 - tsr_tree_merges(units, u);
  return top;
}

static void *packed_at(const cpu_call *c) { return (char *)cpu_scratch(c) + stack_bytes(c->task); }

/* The product of a place, whole in K; false when there is none (runs of a unit, pairs). */
typedef bool make_product(const cpu_call *c, const plan *p, place at, tsr_product *ret_product);

/* Takes the round's piece out of the whole. */
static bool cut_piece(const plan *p, place at, tsr_product *product) {
  int64_t k = at.piece * p->depth, left = product->K - k;
  if (left <= 0) return false;
  product->a.data += k * product->a.cs;
  product->b.data += k * product->b.rs;
  product->K = left < p->depth ? left : p->depth;
  product->adds = at.product || at.piece;
  return true;
}

static bool
round_product(const cpu_call *c, make_product *make, const plan *p, tsr_product *ret_product) {
  place at = place_of(p, c->round);
  *ret_product = (tsr_product){.M = p->M, .N = p->N, .c_stride = p->N, .by_rows = p->by_rows};
  ret_product->c = entry(c, entries_before(p->units, at.unit));
  return make(c, p, at, ret_product) && cut_piece(p, at, ret_product);
}

static void pack_round(const cpu_call *c, make_product *make, const plan *p, int part, int parts) {
  tsr_product product;
  if (!round_product(c, make, p, &product)) return;
  bool rows = !p->by_rows;
  int64_t all = rows ? p->M : p->N, strips = strips_in(all, rows);
  int64_t begin = strips * part / parts, end = strips * (part + 1) / parts;
  if (begin == end) return;
  c->k->product_pack(
      &product, packed_at(c), strips_end(begin, all, rows), strips_end(end, all, rows));
}

/* Rows, or columns, [begin, end) of c. */
static void add_entries(const cpu_call *c, const plan *p, int low, int64_t begin, int64_t end) {
  float *to = entry(c, low), *from = entry(c, low + 1);
  if (p->by_rows) {
    c->k->add(to, to, from, begin * p->N, end * p->N);
    return;
  }
  for (int64_t row = 0; row < p->M; row++)
    c->k->add(to, to, from, row * p->N + begin, row * p->N + end);
}

/* The last round of a unit adds what the tree has complete. */
static void
run_round(const cpu_call *c, make_product *make, const plan *p, int64_t begin, int64_t end) {
  tsr_product product;
  int64_t all = p->by_rows ? p->M : p->N, from = strips_end(begin, all, p->by_rows),
          to = strips_end(end, all, p->by_rows);
  if (round_product(c, make, p, &product)) c->k->product(&product, packed_at(c), from, to);
  place at = place_of(p, c->round);
  if (at.product < p->each - 1 || at.piece < pieces_of(p) - 1) return;
  int top = entries_before(p->units, at.unit) + 1;
  for (int merges = tsr_tree_merges(p->units, at.unit); merges; merges--, top--)
    add_entries(c, p, top - 2, from, to);
}

/* The functions of an op that is made of rounds; `make` is a make_product, and `planned`
 * gives a task's plan. */
#define ROUNDS_OF(name, planned, make)                                                             \
  static int name##_rounds(const tsr_task *t) {                                                    \
    plan p = planned(t);                                                                           \
    return rounds_of(&p);                                                                          \
  }                                                                                                \
  static int64_t name##_items(const tsr_task *t) {                                                 \
    plan p = planned(t);                                                                           \
    return strips_of(&p);                                                                          \
  }                                                                                                \
  static int64_t name##_scratch(                                                                   \
      const tsr_kernels *k, const tsr_program *program, const tsr_task *t, int threads) {          \
    (void)program, (void)threads;                                                                  \
    plan p = planned(t);                                                                           \
    return plan_scratch(k, t, &p);                                                                 \
  }                                                                                                \
  static void name##_before(const cpu_call *c, int part, int parts) {                              \
    plan p = planned(c->task);                                                                     \
    pack_round(c, make, &p, part, parts);                                                          \
  }                                                                                                \
  static void name##_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {              \
    (void)thread;                                                                                  \
    plan p = planned(c->task);                                                                     \
    run_round(c, make, &p, begin, end);                                                            \
  }

/* Who is done first goes on with what others have not begun. */
enum { RANGES = TSR_CPU_RANGES_MAX };

/* ---- y (R, N) = x (R, K) w (N, K)^T, K split into units ---- */

static plan linear_plan(const tsr_task *t) {
  return plan_made((plan){
      cpu_rows(&t->outputs[0]), cpu_last(&t->outputs[0]), cpu_last(&t->inputs[0]) / t->units, 1,
      t->units});
}

static bool linear_product(const cpu_call *c, const plan *p, place at, tsr_product *ret) {
  int64_t K = cpu_last(&c->task->inputs[0]);
  ret->a = rows_of(cpu_in(c, 0) + at.unit * p->K, K);
  ret->b = turned(cpu_in(c, 1) + at.unit * p->K, K);
  ret->K = p->K;
  return true;
}

ROUNDS_OF(many_rows, linear_plan, linear_product)

/* Of few rows threads take columns: reading w is all the work. */
enum { FEW_ROWS = 16 };
static bool has_few_rows(const tsr_task *t) { return cpu_rows(&t->outputs[0]) <= FEW_ROWS; }

static void few_rows_unit(const cpu_call *c, int64_t unit, int64_t begin, int64_t end) {
  plan p = linear_plan(c->task);
  p.by_rows = false;
  int64_t K = cpu_last(&c->task->inputs[0]);
  tsr_few_rows few = {p.M, p.K, K, K, p.N};
  int top = entries_before(p.units, unit) + 1;
  c->k->few_rows(
      &few, entry(c, top - 1), cpu_in(c, 0) + unit * p.K, cpu_in(c, 1) + unit * p.K, begin, end);
  for (int merges = tsr_tree_merges(p.units, unit); merges; merges--, top--)
    add_entries(c, &p, top - 2, begin, end);
}

static int linear_rounds(const tsr_task *t) { return has_few_rows(t) ? 1 : many_rows_rounds(t); }

static int64_t linear_items(const tsr_task *t) {
  return has_few_rows(t) ? cpu_last(&t->outputs[0]) : many_rows_items(t);
}

static void linear_before(const cpu_call *c, int part, int parts) {
  if (!has_few_rows(c->task)) many_rows_before(c, part, parts);
}

static void linear_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  if (!has_few_rows(c->task)) many_rows_run(c, begin, end, thread);
  else
    for (int64_t unit = 0; unit < c->task->units; unit++) few_rows_unit(c, unit, begin, end);
}

const tsr_cpu_op cpu_linear = {
    .items = linear_items,
    .scratch = many_rows_scratch,
    .rounds = linear_rounds,
    .before = linear_before,
    .run = linear_run,
    .ranges = RANGES};

/* ---- dx (R, K) = sum over pairs of dy (R, N) w (N, K), N split into units ---- */

static plan linear_dx_plan(const tsr_task *t) {
  int64_t most = 0;
  for (int i = 0; i < t->inputs_count; i += 2)
    if (cpu_last(&t->inputs[i]) > most) most = cpu_last(&t->inputs[i]);
  return plan_made((plan){
      cpu_rows(&t->outputs[0]), cpu_last(&t->outputs[0]), most / t->units, t->inputs_count / 2,
      t->units});
}

static bool linear_dx_product(const cpu_call *c, const plan *p, place at, tsr_product *ret) {
  int i = 2 * (int)at.product;
  int64_t N = cpu_last(&c->task->inputs[i]);
  ret->K = N / p->units;
  ret->a = rows_of(cpu_in(c, i) + at.unit * ret->K, N);
  ret->b = rows_of(cpu_in(c, i + 1) + at.unit * ret->K * p->N, p->N);
  return true;
}

ROUNDS_OF(linear_dx, linear_dx_plan, linear_dx_product)

const tsr_cpu_op cpu_linear_dx = {
    .items = linear_dx_items,
    .scratch = linear_dx_scratch,
    .rounds = linear_dx_rounds,
    .before = linear_dx_before,
    .run = linear_dx_run,
    .ranges = RANGES};

/* ---- dw (N, K) = dy (R, N)^T x (R, K), R split into units ---- */

/* A unit is one run of rows, or where the recipe cuts the sequence one of each sample
 * (cpu_rows_of_unit). */
static plan linear_dw_plan(const tsr_task *t) {
  int64_t pieces = t->sequence_units ? t->sequence_units : 1,
          runs = t->sequence_units ? t->inputs[0].shape[0] * pieces / t->units : 1;
  return plan_made((plan){
      cpu_last(&t->inputs[0]), cpu_last(&t->inputs[1]), cpu_rows(&t->inputs[0]) / (t->units * runs),
      runs, t->units});
}

static bool linear_dw_product(const cpu_call *c, const plan *p, place at, tsr_product *ret) {
  cpu_run_of_rows run;
  if (!cpu_rows_of_unit(c, cpu_rows(&c->task->inputs[0]), at.unit, at.product, &run)) return false;
  ret->K = run.rows;
  ret->a = turned(cpu_in(c, 0) + run.first * p->M, p->M);
  ret->b = rows_of(cpu_in(c, 1) + run.first * p->N, p->N);
  return true;
}

ROUNDS_OF(linear_dw, linear_dw_plan, linear_dw_product)

const tsr_cpu_op cpu_linear_dw = {
    .items = linear_dw_items,
    .scratch = linear_dw_scratch,
    .rounds = linear_dw_rounds,
    .before = linear_dw_before,
    .run = linear_dw_run,
    .ranges = RANGES};

/* ---- c (…, M, N) = A (…, M, K) B (…, K, N), either turned; K split into units. Items are rows of
 * all matrices; each range packs what it needs of B for itself ---- */

typedef struct {
  int64_t begin, end;
  void *packed;
} range;

static tsr_product matmul_product(const cpu_call *c, int64_t matrix, int64_t first) {
  const tsr_tensor *a = &c->task->inputs[0], *b = &c->task->inputs[1], *o = &c->task->outputs[0];
  bool ta = cpu_attr(c, 0) != 0, tb = cpu_attr(c, 1) != 0;
  int n = o->ndim;
  int64_t M = o->shape[n - 2], N = o->shape[n - 1], K = a->shape[ta ? n - 2 : n - 1];
  int64_t a_cols = a->shape[n - 1], b_cols = b->shape[n - 1];
  const float *pa = cpu_in(c, 0) + matrix * M * K, *pb = cpu_in(c, 1) + matrix * K * N;
  return (tsr_product){
      .M = M - first,
      .N = N,
      .K = K / c->task->units,
      .a = ta ? turned(pa + first, a_cols) : rows_of(pa + first * a_cols, a_cols),
      .b = tb ? turned(pb, b_cols) : rows_of(pb, b_cols),
      .c_stride = N,
      .by_rows = true};
}

static void matmul_unit(const cpu_call *c, void *context, int64_t unit, float *into) {
  const range *r = context;
  const tsr_tensor *o = &c->task->outputs[0];
  int64_t M = o->shape[o->ndim - 2], N = cpu_last(o);
  for (int64_t row = r->begin; row < r->end;) {
    tsr_product p = matmul_product(c, row / M, row % M);
    if (r->end - row < p.M) p.M = r->end - row;
    p.a.data += unit * p.K * p.a.cs;
    p.b.data += unit * p.K * p.b.rs;
    p.c = into + row * N;
    c->k->product_pack(&p, r->packed, 0, N);
    c->k->product(&p, r->packed, 0, p.M);
    row += p.M;
  }
}

static int64_t matmul_bytes(const tsr_kernels *k, const tsr_task *t) {
  const tsr_tensor *a = &t->inputs[0];
  int64_t N = cpu_last(&t->outputs[0]), M = t->outputs[0].shape[t->outputs[0].ndim - 2];
  /* K is what a row or a column of A has beside M */
  int64_t K = a->shape[a->ndim - 1] * a->shape[a->ndim - 2] / M / t->units;
  tsr_product p = {.M = M, .N = N, .K = K, .by_rows = true};
  return (k->product_bytes(&p) + 63) / 64 * 64;
}

static int64_t
matmul_scratch(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, int threads) {
  (void)p;
  return stack_bytes(t) + threads * matmul_bytes(k, t);
}

static void matmul_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  int64_t N = cpu_last(&c->task->outputs[0]), all = tsr_tensor_elements(&c->task->outputs[0]);
  range r = {begin, end, (char *)packed_at(c) + thread * matmul_bytes(c->k, c->task)};
  cpu_add_units(
      c, c->task->units, cpu_out(c, 0), cpu_scratch(c), all, begin * N, end * N, matmul_unit, &r);
}

const tsr_cpu_op cpu_matmul = {
    .items = cpu_items_rows, .scratch = matmul_scratch, .run = matmul_run};

/* ---- embedding ---- */

static void embedding_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  (void)thread;
  const tsr_tensor *table = &c->task->inputs[1];
  int64_t first = cpu_offset(c, table, 0);
  bool half = tsr_dtype_is_half(table->dtype) || tsr_dtype_is_half(c->task->outputs[0].dtype);
  if (half) cpu_embedding_half(c, first, first + table->shape[0], begin, end);
  else
    c->k->embedding(
        cpu_out(c, 0), cpu_tokens(c, 0), cpu_in(c, 1), table->shape[1], first,
        first + table->shape[0], begin, end);
}

const tsr_cpu_op cpu_embedding = {
    .items = cpu_items_rows, .run = embedding_run, .takes_half = true};

static int64_t
embedding_dw_scratch(const tsr_kernels *k, const tsr_program *p, const tsr_task *t, int threads) {
  (void)p;
  const tsr_tensor *table = &t->outputs[0];
  int64_t rows = tsr_tensor_elements(&t->inputs[0]),
          bytes =
              k->embedding_scratch(rows, 0, table->shape[0], table->shape[1], t->units, threads);
  return t->sequence_units > 1 ? bytes + 2 * 4 * rows : bytes;
}

/* Where units are pieces of samples: the tokens unit by unit, and which row each one is of. */
static int32_t *unit_rows(const cpu_call *c, int32_t **ret_tokens) {
  int64_t rows = tsr_tensor_elements(&c->task->inputs[0]);
  char *end = cpu_task_scratch(c) + c->task->scratch_bytes;
  *ret_tokens = (int32_t *)(void *)end - 2 * rows;
  return c->task->sequence_units > 1 ? *ret_tokens + rows : NULL;
}

static void sort_by_units(const cpu_call *c, int32_t *tokens, int32_t *row) {
  int64_t rows = tsr_tensor_elements(&c->task->inputs[0]), n = 0;
  cpu_run_of_rows run;
  for (int64_t u = 0; u < c->task->units; u++)
    for (int64_t k = 0; cpu_rows_of_unit(c, rows, u, k, &run); k++)
      for (int64_t i = 0; i < run.rows; i++) row[n++] = (int32_t)(run.first + i);
  for (int64_t i = 0; i < rows; i++) tokens[i] = cpu_tokens(c, 0)[row[i]];
}

static void embedding_dw_before(const cpu_call *c, int part, int parts) {
  (void)parts;
  if (part) return;
  const tsr_tensor *table = &c->task->outputs[0];
  int64_t first = cpu_offset(c, table, 0);
  int32_t *tokens, *row = unit_rows(c, &tokens);
  if (row) sort_by_units(c, tokens, row);
  c->k->embedding_sort(
      cpu_scratch(c), row ? tokens : cpu_tokens(c, 0), tsr_tensor_elements(&c->task->inputs[0]),
      first, first + table->shape[0]);
}

static void embedding_dw_run(const cpu_call *c, int64_t begin, int64_t end, int thread) {
  const tsr_tensor *table = &c->task->outputs[0];
  int64_t first = cpu_offset(c, table, 0);
  int32_t *tokens;
  c->k->embedding_backward(
      cpu_out(c, 0), cpu_in(c, 1), unit_rows(c, &tokens), cpu_scratch(c), thread,
      tsr_tensor_elements(&c->task->inputs[0]), table->shape[1], first, first + table->shape[0],
      c->task->units, begin, end);
}

const tsr_cpu_op cpu_embedding_dw = {
    .items = cpu_items_rows,
    .scratch = embedding_dw_scratch,
    .before = embedding_dw_before,
    .run = embedding_dw_run};
