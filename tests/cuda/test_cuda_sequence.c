/* Training on the emulated device where the recipe cuts sequences into units: the same losses,
 * norms and weights as on the CPU, to rounding, and the same bits wherever the units are: on cp's
 * ranks in both layouts, between tp's where they take positions, or on one. No op runs on the host.
 */
#include "tests/check.h"
#include "tests/run/harness.h"
#include <string.h>

enum { STEPS = 2, TP_UNITS = 2 };

/* What sums over positions are made of: a table's gradient, biases and norms, products, attention
 * of grouped heads, and dropout in two dimensions that are cut. */
static const char inputs[] = "tokens $B,$T tokens; targets $B,$T tokens",
                  params[] =
                      "wte 24,16 0; wpe $T,16; n1 16; b1 16; wq 32,16 0; bq 32 0; wk 16,16 0\n"
                      "wv 16,16 0; wo 16,32 1; bo 16; n2 16",
                  calls[] =
                      "e: embedding(tokens, wte); x0: add(e, wpe); x1: dropout(x0, p: 0.1)\n"
                      "h: layernorm(x1, n1, b1); q: linear(h, wq, bq); k: linear(h, wk)\n"
                      "v: linear(h, wv); qr: rope(q, head_dim: 8); kr: rope(k, head_dim: 8)\n"
                      "a: attention(qr, kr, v, head_dim: 8, dropout: 0.1); o: linear(a, wo, bo)\n"
                      "x2: add(x1, o); y: rmsnorm(x2, n2); logits: linear(y, wte)\n"
                      "loss: cross_entropy(logits, targets, valid: 21)";

static const tsr_optimizer adamw = {
    .kind = TSR_RULE_ADAMW,
    .beta1 = 0.9,
    .beta2 = 0.999,
    .eps = 1e-8,
    .weight_decay = 0.1,
    .clip_max_norm = 1};

typedef struct {
  int64_t length, units, batch_units; /* of a sample each */
  bool zigzag;
  tsr_dtype precision;
} recipe;

static void check_ops(const tsr_graph *g) {
  const tsr_device *d = harness_device;
  for (int i = 0; d && i < g->nodes_count; i++) {
    tsr_op op = g->nodes[i].op;
    CHECK_AT(
        tsr_op_is_collective(op) || d->has(d->state, op), "%s '%s' is not the device's",
        tsr_op_name(op), g->nodes[i].name);
  }
}

static harness_trace train(tsr_arena *arena, const recipe *r, harness_options o) {
  o.threads = 1;
  o.batch_units = r->batch_units;
  o.tp_units = TP_UNITS;
  o.sequence_units = r->units;
  o.zigzag = r->zigzag;
  o.precision = r->precision;
  o.optimizer = &adamw;
  o.vocabulary = 21;
  tsr_graph *g = tsr_graph_new(arena, "sequence", (tsr_units){r->batch_units, r->units, TP_UNITS});
  int64_t batch = r->batch_units / o.microbatches;
  harness_inputs(g, harness_sized(arena, inputs, batch, r->length));
  harness_params(g, harness_sized(arena, params, batch, r->length));
  harness_calls(g, calls);
  g->loss = harness_find(g, "loss");
  tsr_graph_output(g, "loss", g->loss);
  harness h = harness_open(arena, g, &o);
  check_ops(h.placed);
  harness_trace t = {0};
  int64_t n;
  for (int step = 0; step < STEPS; step++) {
    harness_step(&h, step);
    harness_keep(arena, &t, harness_read(arena, &h, "loss", &n), 1);
    harness_keep(arena, &t, harness_read(arena, &h, "clip", &n), 2);
  }
  harness_keep_weights(arena, &h, &t);
  harness_close(&h);
  return t;
}

static const harness_options alone = {.dp = 1, .tp = 1, .microbatches = 1};

static void check_near(tsr_arena *arena, const recipe *r, const harness_trace *got) {
  const tsr_device *device = harness_device;
  tsr_scratch_rule *scratch = harness_scratch;
  harness_device = NULL;
  harness_scratch = tsr_cpu_scratch;
  harness_trace want = train(arena, r, alone);
  harness_device = device;
  harness_scratch = scratch;
  double worst = 0, largest = 0;
  CHECK_INT(got->count, want.count);
  for (int64_t i = 0; i < want.count; i++) {
    double apart = fabs((double)got->data[i] - want.data[i]), size = fabs((double)want.data[i]);
    if (!(apart <= worst)) worst = apart;
    if (size > largest) largest = size;
  }
  CHECK_AT(
      worst <= (r->precision == TSR_F32 ? 1e-5 : 1e-2) * largest,
      "%s, %lld units: wrong by %.3g of %.3g", tsr_dtype_name(r->precision), (long long)r->units,
      worst, largest);
}

static void
check_mesh(tsr_arena *arena, const recipe *r, const harness_trace *want, harness_options o) {
  harness_trace got = train(arena, r, o);
  int64_t at = 0;
  CHECK_INT(got.count, want->count);
  while (at < want->count && !memcmp(&got.data[at], &want->data[at], sizeof *got.data)) at++;
  CHECK_AT(
      at == want->count, "%lld units, dp %d cp %d%s tp %d%s: number %lld is %.9g, not %.9g",
      (long long)r->units, o.dp, o.cp, r->zigzag ? " zigzag" : "", o.tp,
      o.sequence_parallel ? ", sequence parallel" : "", (long long)at, (double)got.data[at],
      (double)want->data[at]);
}

/* A rank's microbatch is one unit of the batch where there is cp. */
static void check(const recipe *r, const harness_options *meshes, size_t count) {
  tsr_arena *arena = tsr_arena_new();
  harness_trace want = train(arena, r, alone);
  if (!r->zigzag) check_near(arena, r, &want);
  for (size_t i = 0; i < count; i++) check_mesh(arena, r, &want, meshes[i]);
  tsr_arena_free(arena);
}

#define MESHES(list) list, sizeof list / sizeof *list

int main(void) {
  static const harness_options contiguous[] = {
      {.dp = 1, .cp = 2, .tp = 1, .microbatches = 2},
      {.dp = 2, .cp = 2, .tp = 2, .microbatches = 1},
      {.dp = 1, .cp = 1, .tp = 2, .microbatches = 1, .sequence_parallel = true},
      {.dp = 1, .cp = 2, .tp = 2, .microbatches = 2, .sequence_parallel = true},
      {.dp = 1,
       .cp = 2,
       .tp = 1,
       .microbatches = 2,
       .recompute = {.kind = TSR_RECOMPUTE_BLOCKS, .every = 1}}};
  static const harness_options zigzag[] = {
      {.dp = 1, .cp = 2, .tp = 1, .microbatches = 2},
      {.dp = 1, .cp = 2, .tp = 2, .microbatches = 2}};
  static const harness_options four[] = {{.dp = 1, .cp = 4, .tp = 1, .microbatches = 4}};
  check(&(recipe){12, 4, 2, false}, MESHES(contiguous));
  check(&(recipe){12, 4, 2, true}, MESHES(zigzag));
  check(&(recipe){12, 4, 4, false}, MESHES(four));
  static const harness_options half[] = {{.dp = 1, .cp = 2, .tp = 2, .microbatches = 2}};
  check(&(recipe){12, 4, 2, false, TSR_BF16}, MESHES(half));
  return check_done("cuda.sequence");
}
