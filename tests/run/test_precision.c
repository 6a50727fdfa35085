// SPDX-License-Identifier: Apache-2.0
/* Half precision: the same bits on every mesh, values near those of f32, gradients that do not
 * depend on the loss scale, and steps that change nothing, on no rank, when gradients overflow. */
#include "harness.h"
#include "runtime/executable_internal.h"
#include "tests/check.h"
#include "tests/replicas.h"

enum { STEPS = 3, SAMPLES = 16, BATCH_UNITS = 8 };

typedef struct {
  const char *name, *inputs, *params, *calls; /* $B: samples of a microbatch */
} model;

/* Tables, norms, rotated heads by groups; what is split, gathered and split again; a sum that is
 * scaled while it is owed. */
static const model transformer = {
    "transformer", "tokens $B,8 tokens; targets $B,8 tokens",
    "wte 24,16 0; wpe 8,16; ln1 16; ln1b 16; wq 16,16 0; bq 16 0; wk 8,16 0; wv 8,16 0; qn 2\n"
    "wo 16,16 1; n2 16; up 64,16 0; down 16,32 1; downb 16; lnf 16; lnfb 16",
    "e: embedding(tokens, wte); x0: add(e, wpe); x1: dropout(x0, p: 0.1)\n"
    "h: layernorm(x1, ln1, ln1b); q: linear(h, wq, bq); k: linear(h, wk); v: linear(h, wv)\n"
    "q4: reshape(q, shape: [$B,8,8,2]); qn4: rmsnorm(q4, qn); q3: reshape(qn4, shape: [$B,8,16])\n"
    "qr: rope(q3, head_dim: 2); kr: rope(k, head_dim: 2)\n"
    "a: attention(qr, kr, v, head_dim: 2, dropout: 0.1); o: linear(a, wo)\n"
    "os: scale(o, factor: 0.5); x2: add(x1, os); h2: rmsnorm(x2, n2); u: linear(h2, up)\n"
    "s: split(u, sections: 2); g: swiglu(s.0, s.1); d: linear(g, down, downb); x3: add(x2, d)\n"
    "hf: layernorm(x3, lnf, lnfb); logits: linear(hf, wte)\n"
    "loss: cross_entropy(logits, targets, valid: 21)"};

/* Features, squared errors, and parameters that are worked on before they are used. */
static const model net = {
    "net", "x $B,7; y $B,3", "w1 12,7 0; b1 12 0; w2 9,12 1; b2 9; w3 3,9; b3 3; w4 9,9",
    "h: linear(x, w1, b1); r: relu(h); o: linear(r, w2); s: all_reduce(o, axis: tp); h2: add(s, "
    "b2)\n"
    "t: tanh(h2); w5: transpose(w4, dim0: 0, dim1: 1); w6: scale(w5, factor: 0.3); w7: tanh(w6)\n"
    "f: matmul(t, w4); g: linear(f, w7); gt: transpose(g, dim0: 0, dim1: 1)\n"
    "gs: slice(gt, dim: 0, begin: 0, end: 9); gb: transpose(gs, dim0: 0, dim1: 1)\n"
    "z: linear(gb, w3, b3); parts: mse(z, y); loss: all_reduce(parts, axis: dp)"};

/* Two mixtures of experts: tp shares those of one out and splits those of the other. */
static const model mixture = {
    "mixture", "tokens $B,8 tokens; targets $B,8 tokens",
    "wte 24,16 0; n1 16; r1 8,16; up 8,12,16 experts 0; down 8,16,12 experts 0; n2 16; r2 16,16\n"
    "in 16,8,16 experts 1; out 16,16,8 experts 2",
    "x: embedding(tokens, wte); h: rmsnorm(x, n1); s: router(h, r1); p: softmax(s)\n"
    "c: choose_experts(p, k: 2); w: expert_weights(p, c, normalize: 1); plan: expert_plan(c, up)\n"
    "e: permute_experts(h, plan); u: expert_linear(e, up, plan); g: gelu(u)\n"
    "d: expert_linear(g, down, plan); f: combine_experts(d, w, plan); x2: add(x, f)\n"
    "h2: rmsnorm(x2, n2); s2: router(h2, r2); c2: choose_experts(s2, k: 3)\n"
    "w2: expert_weights(s2, c2, softmax: 1); plan2: expert_plan(c2, in)\n"
    "e2: permute_experts(h2, plan2); u2: expert_linear(e2, in, plan2); g2: silu(u2)\n"
    "d2: expert_linear(g2, out, plan2); f2: combine_experts(d2, w2, plan2); x3: add(x2, f2)\n"
    "logits: linear(x3, wte); loss: cross_entropy(logits, targets, valid: 21)"};

static const tsr_optimizer adamw = HARNESS_ADAMW(0.25);
static const tsr_optimizer sgd = {
    .kind = TSR_RULE_SGD, .momentum = 0.9, .nesterov = true, .clip_max_norm = 1};

typedef struct {
  const model *model;
  tsr_dtype precision;
  tsr_optimizer optimizer;
  float loss_scale;
} recipe;

static tsr_graph *build(tsr_arena *arena, const recipe *r, harness_options *o) {
  const model *m = r->model;
  o->batch_units = BATCH_UNITS;
  o->tp_units = 4;
  o->expert_units = BATCH_UNITS;
  o->vocabulary = 21;
  o->optimizer = &r->optimizer;
  o->precision = r->precision;
  o->loss_scale = r->loss_scale;
  int64_t batch = SAMPLES / o->microbatches;
  tsr_graph *g =
      tsr_graph_new(arena, m->name, (tsr_units){BATCH_UNITS, o->sequence_units, o->tp_units});
  harness_inputs(g, harness_sized(arena, m->inputs, batch, 0));
  harness_params(g, harness_sized(arena, m->params, batch, 0));
  harness_calls(g, harness_sized(arena, m->calls, batch, 0));
  g->loss = harness_find(g, "loss");
  tsr_graph_output(g, "loss", g->loss);
  return g;
}

/* ---- what has which type ---- */

static bool is_partial(const tsr_value *v) {
  for (int a = 0; a < TSR_AXES; a++)
    if (v->placement[a].kind == TSR_PARTIAL) return true;
  return v->units > 0;
}

/* Sums that are owed, gradients of parameters, losses and updates are f32; what moves elements
 * keeps their type; and half precision is there at all. */
static void check_types(const harness *h) {
  const tsr_graph *g = h->placed;
  int halves = 0;
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    unsigned facts = tsr_op_facts(n->op);
    for (int o = 0; o < n->outputs_count; o++) {
      const tsr_value *v = &g->values[n->outputs[o]];
      bool half = tsr_dtype_is_half(v->dtype);
      halves += half;
      bool wide = facts & (TSR_FACT_GRADIENT | TSR_FACT_WIDE) || is_partial(v) ||
                  (n->section == TSR_UPDATE && n->op != TSR_OP_ALL_GATHER) ||
                  (facts & TSR_FACT_STATISTICS && o > 0);
      CHECK_AT(!half || !wide, "%s: '%s' is in half precision", g->name, v->name);
      if (facts & TSR_FACT_KEEPS_DTYPE)
        CHECK_AT(
            v->dtype == g->values[n->inputs[0]].dtype, "%s: '%s' changes its type", g->name,
            v->name);
    }
    bool experts = tsr_routed_is_weights(g->values[n->inputs[0]].routed); /* for their norm, too */
    if (n->op == TSR_OP_ALL_GATHER && tsr_node_axis(n) == TSR_DP && h->options.zero < 3 && !experts)
      CHECK_AT(n->section == TSR_PROLOGUE, "'%s' is not gathered once a step", n->name);
    if (n->op == TSR_OP_ADAMW || n->op == TSR_OP_SGD)
      CHECK(g->values[n->inputs[0]].param >= 0 && g->values[n->inputs[1]].dtype == TSR_F32);
  }
  CHECK_AT((halves > 0) == (h->options.precision != TSR_F32), "%d values in half", halves);
}

/* ---- equal bits ---- */

/* Per step loss, norm and factor; then all weights. */
typedef harness_trace trace;

static trace train(tsr_arena *arena, const recipe *r, harness_options o) {
  harness h = harness_open(arena, build(arena, r, &o), &o);
  check_types(&h);
  trace t = {0};
  int64_t n;
  for (int step = 0; step < STEPS; step++) {
    harness_step(&h, step);
    float *loss = harness_read(arena, &h, "loss", &n);
    CHECK(n == 1 && isfinite(*loss) && *loss > 0);
    harness_keep(arena, &t, loss, n);
    float *clip = harness_read(arena, &h, "clip", &n);
    CHECK(n == 3 && isfinite(clip[0]) && clip[0] > 0 && clip[2] == 1);
    if (r->loss_scale > 0) clip[1] *= r->loss_scale; /* which it takes off again */
    harness_keep(arena, &t, clip, 2);
  }
  harness_keep_weights(arena, &h, &t);
  CHECK(!differing_replicas(arena, h.executable));
  harness_close(&h);
  return t;
}

static void compare(const recipe *r, const trace *want, harness_options o) {
  tsr_arena *arena = tsr_arena_new();
  trace got = train(arena, r, o);
  int64_t i = 0;
  while (i < want->count && i < got.count &&
         !memcmp(got.data + i, want->data + i, sizeof *got.data))
    i++;
  CHECK_AT(
      got.count == want->count && i == want->count,
      "%s %s, store %d, dp %d tp %d cp %d%s pp %d %s, zero %d%s, %d threads, %d microbatches%s: "
      "number %lld is %.9g, not %.9g",
      r->model->name, tsr_dtype_name(r->precision), r->optimizer.store, o.dp, o.tp, o.cp,
      o.zigzag ? " zigzag" : "", o.pp, o.pp > 1 ? tsr_pipeline_name(o.pipeline) : "", o.zero,
      o.zero_owners ? " with owners" : "", o.threads, (int)o.microbatches,
      o.sequence_parallel ? ", sequence parallel" : "", (long long)i,
      (double)got.data[i < got.count ? i : 0], (double)want->data[i < want->count ? i : 0]);
  tsr_arena_free(arena);
}

static const harness_options alone = {.dp = 1, .tp = 1, .threads = 1, .microbatches = 1};

static void run_meshes(const recipe *r) {
  static const harness_options meshes[] = {
      {.dp = 1, .tp = 1, .threads = 3, .microbatches = 1},
      {.dp = 1, .tp = 1, .threads = 2, .microbatches = 4},
      {.dp = 2, .tp = 1, .threads = 1, .microbatches = 2},
      {.dp = 4, .tp = 1, .threads = 2, .microbatches = 1},
      {.dp = 1, .tp = 2, .threads = 3, .microbatches = 2},
      {.dp = 1, .tp = 4, .threads = 1, .microbatches = 1},
      {.dp = 2, .tp = 4, .threads = 2, .microbatches = 1},
      {.pp = 2, .dp = 1, .tp = 1, .threads = 1, .microbatches = 2, .pipeline = TSR_PIPELINE_GPIPE},
      {.pp = 4, .dp = 1, .tp = 2, .threads = 2, .microbatches = 4, .pipeline = TSR_PIPELINE_1F1B},
      {.pp = 2, .dp = 2, .tp = 2, .threads = 1, .microbatches = 4, .pipeline = TSR_PIPELINE_ZB_H1},
      {.pp = 2, .dp = 1, .tp = 1, .threads = 1, .microbatches = 4, .pipeline = TSR_PIPELINE_ZB_V},
      {.dp = 1, .ep = 4, .tp = 1, .threads = 2, .microbatches = 2},
      {.dp = 2, .ep = 2, .tp = 2, .threads = 1, .microbatches = 1},
  };
  tsr_arena *arena = tsr_arena_new();
  trace want = train(arena, r, alone);
  CHECK(want.data[3 * (STEPS - 1)] < want.data[0]); /* it learns */
  for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
    harness_options o = meshes[i];
    o.chunks = o.pipeline == TSR_PIPELINE_ZB_V && o.pp ? 2 : 1;
    compare(r, &want, o);
    o.recompute = (tsr_recomputing){.kind = TSR_RECOMPUTE_BLOCKS, .every = 1};
    if (i % 3 == 1) compare(r, &want, o);
  }
  tsr_arena_free(arena);
}

/* Parameters and their working copies sharded over dp, or over groups of it. */
static void run_sharded(const recipe *r) {
  tsr_arena *arena = tsr_arena_new();
  trace want = train(arena, r, alone);
  for (int zero = 1; zero <= 3; zero++) {
    harness_options o = {.dp = 2, .tp = 2, .threads = 2, .microbatches = 2, .zero = zero};
    compare(r, &want, o);
    o = (harness_options){.dp = 4, .tp = 1, .threads = 1, .microbatches = 1, .zero = zero};
    compare(r, &want, o);
    o.zero_owners = true;
    compare(r, &want, o);
    o.zero_groups = 2;
    o.overlap = true;
    compare(r, &want, o);
    o.zero_owners = false;
    compare(r, &want, o);
    o = (harness_options){.pp = 2, .dp = 2, .tp = 1, .threads = 1, .microbatches = 4};
    o.zero = zero;
    o.recompute = (tsr_recomputing){.kind = TSR_RECOMPUTE_BLOCKS, .every = 1};
    compare(r, &want, o);
  }
  tsr_arena_free(arena);
}

static void run_sequences(const recipe *r) {
  tsr_arena *arena = tsr_arena_new();
  harness_options o = alone;
  o.sequence_units = 4;
  trace want = train(arena, r, o);
  for (int tp = 2; tp <= 4; tp += 2)
    for (int parallel = 0; parallel < 2; parallel++) {
      o.dp = 4 / tp;
      o.tp = tp;
      o.sequence_parallel = parallel;
      compare(r, &want, o);
    }
  tsr_arena_free(arena);
}

/* Positions split over cp, in both layouts. */
static void run_contexts(const recipe *r) {
  tsr_arena *arena = tsr_arena_new();
  for (int zigzag = 0; zigzag < 2; zigzag++) {
    harness_options o = alone;
    o.sequence_units = 4;
    o.zigzag = zigzag;
    trace want = train(arena, r, o);
    o.cp = 2;
    o.threads = 2;
    o.microbatches = BATCH_UNITS; /* one unit of the batch each */
    compare(r, &want, o);
    o.dp = o.tp = 2;
    o.microbatches = BATCH_UNITS / 2;
    o.zero = zigzag ? 3 : 0;
    compare(r, &want, o);
    o.dp = o.tp = 1;
    o.zero = 0;
    o.microbatches = BATCH_UNITS;
    o.pp = 2;
    o.pipeline = TSR_PIPELINE_1F1B;
    o.recompute = (tsr_recomputing){.kind = TSR_RECOMPUTE_BLOCKS, .every = 1};
    compare(r, &want, o);
  }
  tsr_arena_free(arena);
}

/* ---- near f32 ---- */

static void run_near(const recipe *r, double relative) {
  tsr_arena *arena = tsr_arena_new();
  recipe wide = *r;
  wide.precision = TSR_F32;
  wide.loss_scale = 0;
  wide.optimizer.store = TSR_STORE_F32;
  trace want = train(arena, &wide, alone), got = train(arena, r, alone);
  int64_t differ = 0;
  for (int64_t i = 0; i < 3 * STEPS; i++) {
    double executable = relative * fabs((double)want.data[i]);
    CHECK_AT(
        fabs((double)got.data[i] - (double)want.data[i]) <= executable,
        "%s %s, store %d: number %d is %.9g, in f32 %.9g", r->model->name,
        tsr_dtype_name(r->precision), r->optimizer.store, (int)i, (double)got.data[i],
        (double)want.data[i]);
  }
  for (int64_t i = 0; i < want.count; i++) differ += got.data[i] != want.data[i];
  CHECK(differ > want.count / 2); /* it was not computed in f32 */
  tsr_arena_free(arena);
}

/* ---- the loss scale ---- */

/* Where no gradient lies in half precision, a power of two changes no bit of any number. */
static void test_scale_is_exact(void) {
  static const model shallow[] = {
      {"shallow", "x $B,7; y $B,3", "w 3,7; b 3", "z: linear(x, w, b); loss: mse(z, y)"},
      {"counts", "x $B,7; targets $B tokens", "w 24,7 0; b 24 0",
       "z: linear(x, w, b); loss: cross_entropy(z, targets)"}};
  for (size_t m = 0; m < sizeof shallow / sizeof *shallow; m++) {
    tsr_arena *arena = tsr_arena_new();
    recipe r = {&shallow[m], TSR_F16, adamw, 1};
    trace want = train(arena, &r, alone);
    for (int exponent = 1; exponent <= 40; exponent += 13) {
      r.loss_scale = ldexpf(1, exponent);
      compare(&r, &want, (harness_options){.dp = 2, .tp = 1, .threads = 1, .microbatches = 2});
    }
    tsr_arena_free(arena);
  }
}

/* Else only what is too small for fp16 depends on it. */
static void test_scale_is_near(void) {
  tsr_arena *arena = tsr_arena_new();
  recipe r = {&transformer, TSR_F16, adamw, 1024};
  trace want = train(arena, &r, alone);
  r.loss_scale = 8192;
  trace got = train(arena, &r, alone);
  for (int64_t i = 0; i < 3 * STEPS; i++)
    CHECK_NEAR((double)got.data[i], (double)want.data[i], 1e-3);
  tsr_arena_free(arena);
}

/* ---- overflow ---- */

/* Every byte of parameters and state, of all ranks. */
static tsr_text copy_memory(const harness *h) {
  tsr_text all = {0};
  for (int rank = 0; rank < h->parallel.ranks; rank++)
    for (int s = TSR_SEGMENT_PARAM; s <= TSR_SEGMENT_STATE; s++) {
      int64_t bytes = tsr_executable_program(h->executable, rank)->bytes[s];
      if (bytes) tsr_text_add_bytes(&all, h->executable->ranks[rank].base[s], (size_t)bytes);
    }
  return all;
}

/* Whether it is as it was in *before, which becomes what it is. */
static bool is_as_before(const harness *h, tsr_text *before) {
  tsr_text now = copy_memory(h);
  bool same = now.length == before->length && !memcmp(now.data, before->data, now.length);
  tsr_text_free(before);
  *before = now;
  return same;
}

/* What every rank decided in the last step; -1: not all the same. */
static int read_decision(const harness *h) {
  int clip = tsr_graph_find_output(h->placed, "clip"), all = -2;
  for (int rank = 0; rank < h->parallel.ranks; rank++) {
    const float *numbers = tsr_executable_address(h->executable, clip, rank, 0);
    int one = numbers[2] != 0;
    all = all == -2 || all == one ? one : -1;
  }
  return all;
}

/* Every power of two up to where all overflows: at the first of them that is too large only a few
 * gradients on a few ranks overflow. Then no byte of any rank changes; after it training goes on.
 */
static void run_overflow(const recipe *r, harness_options o) {
  tsr_arena *arena = tsr_arena_new();
  harness h = harness_open(arena, build(arena, r, &o), &o);
  tsr_text before = copy_memory(&h);
  int skipped = 0, done = 0;
  for (int exponent = 0; exponent < 100; exponent += 3) {
    h.options.loss_scale = ldexpf(1, exponent);
    harness_step(&h, exponent);
    int decision = read_decision(&h);
    bool same = is_as_before(&h, &before);
    CHECK_AT(decision >= 0, "2^%d, zero %d: ranks disagree", exponent, o.zero);
    CHECK_AT(same == (decision == 0), "2^%d, zero %d: decided %d", exponent, o.zero, decision);
    CHECK_AT(decision == 0 || skipped == 0, "2^%d is not too much", exponent);
    skipped += decision == 0;
    done += decision == 1;
  }
  CHECK(skipped > 5 && done > 2);
  h.options.loss_scale = 256;
  harness_step(&h, 200);
  CHECK(read_decision(&h) == 1 && !is_as_before(&h, &before));
  tsr_text_free(&before);
  harness_close(&h);
  tsr_arena_free(arena);
}

static void test_overflow(void) {
  recipe r = {&transformer, TSR_F16, adamw, 1};
  run_overflow(&r, alone);
  harness_options o = {.pp = 2, .dp = 2, .tp = 2, .threads = 2, .microbatches = 2};
  o.pipeline = TSR_PIPELINE_1F1B;
  for (o.zero = 0; o.zero <= 3; o.zero++) run_overflow(&r, o);
  o.zero_owners = true;
  for (o.zero = 1; o.zero <= 3; o.zero++) run_overflow(&r, o);
  r = (recipe){&net, TSR_F16, sgd, 1};
  o = (harness_options){.dp = 2, .tp = 2, .threads = 1, .microbatches = 1};
  run_overflow(&r, o);
}

/* ---- parameters in bf16 alone ---- */

/* Updates of a fraction of what bf16 can tell apart are lost by rounding to nearest, and are not
 * here: the weights go where f32's go. */
static void test_stores_move(tsr_param_store store) {
  tsr_arena *arena = tsr_arena_new();
  tsr_optimizer slow = sgd;
  slow.momentum = 0;
  slow.nesterov = false;
  slow.clip_max_norm = 0.02; /* times the harness's rate: a step of 2e-4 over all weights */
  recipe wide = {&net, TSR_F32, slow, 0}, r = {&net, TSR_BF16, slow, 0};
  r.optimizer.store = store;
  harness_options ow = alone, oh = alone;
  harness hw = harness_open(arena, build(arena, &wide, &ow), &ow);
  harness hh = harness_open(arena, build(arena, &r, &oh), &oh);
  trace first = {0}, want = {0}, got = {0};
  harness_keep_weights(arena, &hh, &first);
  CHECK(hh.placed->values[tsr_executable_param(hh.executable, 0)].dtype == TSR_BF16);
  for (int p = 0; p < hh.graph->params_count; p++) { /* the same beginning */
    int64_t n;
    float *w = harness_read_param(arena, &hh, p, &n);
    tsr_executable_write(hw.executable, tsr_executable_param(hw.executable, p), w);
  }
  for (int step = 0; step < 200; step++) {
    harness_step(&hw, step);
    harness_step(&hh, step);
  }
  harness_keep_weights(arena, &hw, &want);
  harness_keep_weights(arena, &hh, &got);
  double along = 0, length = 0;
  for (int64_t i = 0; i < want.count; i++) {
    double goes = (double)(want.data[i] - first.data[i]);
    along += goes * (double)(got.data[i] - first.data[i]);
    length += goes * goes;
  }
  CHECK_AT(
      along > 0.7 * length && along < 1.3 * length, "store %d: moved %.3g of the way", store,
      along / length);
  harness_close(&hw);
  harness_close(&hh);
  tsr_arena_free(arena);
}

/* A whole tensor goes in and comes out on every placement, rounded to nearest. */
static void test_read_write(void) {
  tsr_arena *arena = tsr_arena_new();
  recipe r = {&transformer, TSR_BF16, adamw, 0};
  r.optimizer.store = TSR_STORE_KAHAN;
  harness_options o = {.dp = 2, .tp = 2, .threads = 1, .microbatches = 1, .zero = 3};
  harness h = harness_open(arena, build(arena, &r, &o), &o);
  for (int p = 0; p < h.graph->params_count; p++) {
    int64_t n;
    harness_read_param(arena, &h, p, &n);
    float *in = tsr_arena_array(arena, float, n);
    for (int64_t i = 0; i < n; i++) in[i] = (float)i + 1.00390625f; /* 1 + 2^-8: a tie */
    tsr_executable_write(h.executable, tsr_executable_param(h.executable, p), in);
    float *out = harness_read_param(arena, &h, p, &n);
    CHECK(out[0] == 1);
    for (int64_t i = 1; i < n; i++) CHECK(fabsf(out[i] - in[i]) <= in[i] / 256);
  }
  CHECK(!differing_replicas(arena, h.executable));
  harness_close(&h);
  tsr_arena_free(arena);
}

int main(void) {
  recipe bf16 = {&transformer, TSR_BF16, adamw, 0}, fp16 = {&transformer, TSR_F16, adamw, 1024};
  recipe net_bf16 = {&net, TSR_BF16, sgd, 0}, net_fp16 = {&net, TSR_F16, sgd, 1e4f};
  recipe mixture_bf16 = {&mixture, TSR_BF16, adamw, 0},
         mixture_fp16 = {&mixture, TSR_F16, sgd, 1e3f};
  recipe chance = bf16, kahan = bf16, net_chance = net_bf16;
  chance.optimizer.store = net_chance.optimizer.store = TSR_STORE_STOCHASTIC;
  kahan.optimizer.store = TSR_STORE_KAHAN;
  fp16.optimizer.amsgrad = kahan.optimizer.amsgrad = true;
  enum { MESHES = 1, SHARDED = 2, SEQUENCES = 4, CONTEXTS = 8 };
  const struct {
    const recipe *recipe;
    int on;
    double near;
  } all[] = {
      {&bf16, MESHES | SHARDED | SEQUENCES | CONTEXTS, 0.02},
      {&fp16, MESHES | SHARDED | SEQUENCES | CONTEXTS, 0.005},
      {&chance, SHARDED | CONTEXTS, 0.04}, /* the beginning is rounded, too */
      {&kahan, MESHES | SHARDED, 0.04},
      {&mixture_bf16, MESHES | SHARDED | SEQUENCES | CONTEXTS, 0.05},
      {&mixture_fp16, MESHES | SHARDED | CONTEXTS, 0.01},
      {&net_bf16, MESHES | SHARDED, 0.02},
      {&net_fp16, MESHES, 0.005},
      {&net_chance, MESHES | SHARDED, 0.04}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    const recipe *r = all[i].recipe;
    if (all[i].on & MESHES) run_meshes(r);
    if (all[i].on & SHARDED) run_sharded(r);
    if (all[i].on & SEQUENCES) run_sequences(r);
    if (all[i].on & CONTEXTS) run_contexts(r);
    run_near(r, all[i].near);
  }
  test_scale_is_exact();
  test_scale_is_near();
  test_overflow();
  test_stores_move(TSR_STORE_STOCHASTIC);
  test_stores_move(TSR_STORE_KAHAN);
  test_read_write();
  return check_done("precision");
}
