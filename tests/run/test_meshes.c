// SPDX-License-Identifier: Apache-2.0
/* The contract on bits: the same recipe gives the same bits of every weight, of the loss and of the
 * gradient norm after every step, on any mesh, number of threads and accumulation that the recipe
 * allows, with fused tasks or one task for each op. */
#include "harness.h"
#include "tests/check.h"
#include "tests/replicas.h"
#include <stdlib.h>

enum { STEPS = 3 };

typedef struct {
  const char *name, *inputs, *params, *calls; /* $B: samples of a microbatch; $T: positions */
} model;

/* Megatron's placements: columns then rows, the vocabulary split, head and embedding tied. */
static const model gpt2 = {
    "gpt2", "tokens $B,$T tokens; targets $B,$T tokens",
    "wte 24,16 0; wpe $T,16; ln1 16; ln1b 16; wq 16,16 0; wk 16,16 0; wv 16,16 0; bq 16 0; bk 16 "
    "0; bv 16 0\n"
    "wo 16,16 1; bo 16; ln2 16; ln2b 16; up 32,16 0; upb 32 0; down 16,32 1; downb 16; lnf 16; "
    "lnfb 16",
    "e: embedding(tokens, wte); x0: add(e, wpe); x1: dropout(x0, p: 0.1)\n"
    "h: layernorm(x1, ln1, ln1b); q: linear(h, wq, bq); k: linear(h, wk, bk); v: linear(h, wv, "
    "bv)\n"
    "a: attention(q, k, v, head_dim: 4, dropout: 0.1)\n"
    "o: linear(a, wo, bo); od: dropout(o, p: 0.1); x2: add(x1, od)\n"
    "h2: layernorm(x2, ln2, ln2b); u: linear(h2, up, upb); ug: gelu(u); ud: dropout(ug, p: 0.2)\n"
    "d: linear(ud, down, downb); dd: dropout(d, p: 0.1); x3: add(x2, dd)\n"
    "hf: layernorm(x3, lnf, lnfb); logits: linear(hf, wte)\n"
    "loss: cross_entropy(logits, targets, valid: 21)"};

/* Grouped heads, rotary positions, norms of q and k by head, no biases, head and embedding apart.
 */
static const model llama = {
    "llama", "tokens $B,$T tokens; targets $B,$T tokens",
    "wte 24,20 1; n1 20; wq 32,20 0; wk 16,20 0; wv 16,20 0; qn 4; kn 4; s 8 0; wo 20,32 1; n2 20; "
    "gate "
    "28,20 0\n"
    "up 28,20 0; down 20,28 1; nf 20; head 24,20 0",
    "x0: embedding(tokens, wte); h: rmsnorm(x0, n1); q: linear(h, wq); k: linear(h, wk); v: "
    "linear(h, wv)\n"
    "q4: reshape(q, shape: [$B,$T,8,4]); k4: reshape(k, shape: [$B,$T,4,4])\n"
    "qn4: rmsnorm(q4, qn); kn4: rmsnorm(k4, kn)\n"
    "q3: reshape(qn4, shape: [$B,$T,32]); k3: reshape(kn4, shape: [$B,$T,16])\n"
    "qr: rope(q3, head_dim: 4); kr: rope(k3, head_dim: 4)\n"
    "a: attention(qr, kr, v, s, head_dim: 4, window: 3)\n"
    "o: linear(a, wo); x1: add(x0, o); h2: rmsnorm(x1, n2); g: linear(h2, gate); u: linear(h2, "
    "up)\n"
    "s: swiglu(g, u); d: linear(s, down); x2: add(x1, d); hf: rmsnorm(x2, nf)\n"
    "logits: linear(hf, head); loss: cross_entropy(logits, targets, valid: 23)"};

/* Latent attention: queries and keys through narrow layers, a part of each key that all heads share
 * and that alone has positions, values with heads of another width. */
static const model mla = {
    "mla", "tokens $B,$T tokens; targets $B,$T tokens",
    "wte 24,20 1; n1 20; qa 10,20; qn 10; qb 48,10 0; kva 9,20; kn 5; kvb 28,5 0; wo 20,12 1\n"
    "n2 20; gate 28,20 0; up 28,20 0; down 20,28 1; nf 20; head 24,20 0",
    "x0: embedding(tokens, wte); h: rmsnorm(x0, n1); a0: linear(h, qa); a1: rmsnorm(a0, qn)\n"
    "q: linear(a1, qb); qr: rope(q, head_dim: 12, rotary_dim: 4, offset: 8, interleaved: 1)\n"
    "kv: linear(h, kva); latent: slice(kv, dim: 2, begin: 0, end: 5)\n"
    "shared: slice(kv, dim: 2, begin: 5, end: 9); kr: rope(shared, head_dim: 4, interleaved: 1)\n"
    "kr4: expand_heads(kr, heads: 4); kr44: reshape(kr4, shape: [$B,$T,4,4])\n"
    "ln: rmsnorm(latent, kn); wide: linear(ln, kvb); wide4: reshape(wide, shape: [$B,$T,4,7])\n"
    "k4: slice(wide4, dim: 3, begin: 0, end: 4); v4: slice(wide4, dim: 3, begin: 4, end: 7)\n"
    "kk: concat(k4, k4, kr44); k: reshape(kk, shape: [$B,$T,48]); v: reshape(v4, shape: "
    "[$B,$T,12])\n"
    "a: attention(qr, k, v, head_dim: 12, v_head_dim: 3, scale: 0.3, dropout: 0.1)\n"
    "o: linear(a, wo); x1: add(x0, o); h2: rmsnorm(x1, n2); g: linear(h2, gate); u: linear(h2, "
    "up)\n"
    "s: swiglu(g, u); d: linear(s, down); x2: add(x1, d); hf: rmsnorm(x2, nf)\n"
    "logits: linear(hf, head); loss: cross_entropy(logits, targets, valid: 23)"};

/* A net for features: batch units without a vocabulary, a weight that nothing splits, one that is
 * used twice in different ways, and a reduction that the file wrote itself. */
static const model mlp = {
    "mlp", "x $B,7; y $B,3", "w1 12,7 0; b1 12 0; w2 9,12 1; b2 9; w3 3,9; b3 3; w4 9,9",
    "h: linear(x, w1, b1); r: relu(h); h2: linear(r, w2, b2); t: tanh(h2)\n"
    "w5: transpose(w4, dim0: 0, dim1: 1); w6: scale(w5, factor: 0.3); f: linear(t, w4); g: "
    "linear(f, w6)\n"
    "z: linear(g, w3, b3); parts: mse(z, y); loss: all_reduce(parts, axis: dp)"};

/* Attention and two mixtures of experts: one whose experts tp shares out, chosen by a softmax, and
 * one whose experts tp splits, chosen by groups and weighted by a softmax over the chosen; some have
 * no token. */
static const model mixture = {
    "mixture", "tokens $B,$T tokens; targets $B,$T tokens",
    "wte 24,16 0; n1 16; wq 16,16 0; wk 16,16 0; wv 16,16 0; wo 16,16 1; n2 16; r1 8,16\n"
    "gate 8,12,16 experts 0; up 8,12,16 experts 0; down 8,16,12 experts 0; n3 16; r2 16,16\n"
    "in 16,8,16 experts 1; out 16,16,8 experts 2; nf 16; bg 8,12 experts 0; bu 8,12 experts 0\n"
    "bd 8,16 experts 0; bi 16,8 experts 1; bo 16,16 experts",
    "x0: embedding(tokens, wte); h: rmsnorm(x0, n1); q: linear(h, wq); k: linear(h, wk)\n"
    "v: linear(h, wv); a: attention(q, k, v, head_dim: 4); o: linear(a, wo); x1: add(x0, o)\n"
    "h2: rmsnorm(x1, n2); s: router(h2, r1); p: softmax(s); c: choose_experts(p, k: 2)\n"
    "w: expert_weights(p, c, normalize: 1); plan: expert_plan(c, gate)\n"
    "e: permute_experts(h2, plan); g: expert_linear(e, gate, plan, bg)\n"
    "u: expert_linear(e, up, plan, bu); m: clamped_swiglu(g, u, limit: 0.8)\n"
    "d: expert_linear(m, down, plan, bd); f: combine_experts(d, w, plan)\n"
    "fd: dropout(f, p: 0.1); x2: add(x1, fd); h3: rmsnorm(x2, n3); s2: router(h3, r2)\n"
    "c2: choose_experts(s2, k: 3, groups: 4, kept_groups: 2)\n"
    "w2: expert_weights(s2, c2, softmax: 1); plan2: expert_plan(c2, in)\n"
    "e2: permute_experts(h3, plan2); i2: expert_linear(e2, in, plan2, bi); g2: gelu(i2)\n"
    "d2: expert_linear(g2, out, plan2, bo); f2: combine_experts(d2, w2, plan2); x3: add(x2, f2)\n"
    "hf: rmsnorm(x3, nf); logits: linear(hf, wte)\n"
    "loss: cross_entropy(logits, targets, valid: 21)"};

static void build(tsr_graph *g, const model *m, int64_t batch, int64_t sequence) {
  harness_inputs(g, harness_sized(g->arena, m->inputs, batch, sequence));
  harness_params(g, harness_sized(g->arena, m->params, batch, sequence));
  harness_calls(g, harness_sized(g->arena, m->calls, batch, sequence));
}

typedef struct {
  const char *name;
  const model *model;
  int64_t samples, sequence, batch_units, sequence_units;
  tsr_optimizer optimizer;
  int64_t expert_units;
  tsr_dtype precision;
} recipe;

/* What must be equal: per step loss, norm and scale, then all weights. */
typedef harness_trace trace;

static trace train(tsr_arena *arena, const recipe *r, harness_options o) {
  o.batch_units = r->batch_units;
  o.tp_units = 4;
  o.sequence_units = r->sequence_units;
  o.expert_units = r->expert_units;
  o.precision = r->precision;
  o.optimizer = &r->optimizer;
  o.vocabulary = 21;
  tsr_graph *g =
      tsr_graph_new(arena, r->name, (tsr_units){o.batch_units, o.sequence_units, o.tp_units});
  build(g, r->model, r->samples / o.microbatches, r->sequence);
  g->loss = harness_find(g, "loss");
  tsr_graph_output(g, "loss", g->loss);
  harness h = harness_open(arena, g, &o);
  trace t = {0};
  int64_t n;
  for (int step = 0; step < STEPS; step++) {
    harness_step(&h, step);
    float *loss = harness_read(arena, &h, "loss", &n);
    CHECK(n == 1 && isfinite(*loss) && *loss > 0);
    harness_keep(arena, &t, loss, n);
    float *clip = harness_read(arena, &h, "clip", &n);
    CHECK(n == 3 && isfinite(clip[0]) && clip[0] > 0 && clip[2] == 1);
    harness_keep(arena, &t, clip, 2);
  }
  harness_keep_weights(arena, &h, &t);
  const char *differs = differing_replicas(arena, h.executable);
  CHECK_AT(!differs, "%s: replicas of '%s' differ", r->name, differs);
  harness_close(&h);
  return t;
}

/* What differs first, in words. */
static const char *
first_difference(tsr_arena *arena, const recipe *r, const trace *a, const trace *b) {
  int64_t i = 0;
  while (i < a->count && !memcmp(a->data + i, b->data + i, sizeof *a->data)) i++;
  if (i < 3 * STEPS)
    return tsr_arena_printf(
        arena, "step %d's %s: %.9g and %.9g", (int)i / 3,
        i % 3 == 0   ? "loss"
        : i % 3 == 1 ? "norm"
                     : "scale",
        (double)a->data[i], (double)b->data[i]);
  tsr_graph *g = tsr_graph_new(arena, r->name, (tsr_units){1, 1, 4});
  build(g, r->model, r->samples, r->sequence);
  int64_t at = 3 * STEPS;
  for (int p = 0; p < g->params_count; p++) {
    int64_t n = 1;
    for (int d = 0; d < g->params[p].ndim; d++) n *= g->params[p].shape[d];
    if (i < at + n)
      return tsr_arena_printf(
          arena, "'%s' at %lld: %.9g and %.9g", g->params[p].name, (long long)(i - at),
          (double)a->data[i], (double)b->data[i]);
    at += n;
  }
  return "nothing";
}

static void compare(const recipe *r, const trace *want, harness_options o) {
  tsr_arena *arena = tsr_arena_new();
  trace got = train(arena, r, o);
  CHECK_INT(got.count, want->count);
  bool same = got.count == want->count &&
              !memcmp(got.data, want->data, sizeof *got.data * (size_t)got.count);
  CHECK_AT(
      same, "%s, dp %d tp %d cp %d%s pp %d %s, zero %d%s, %d threads, %d microbatches%s: %s",
      r->name, o.dp, o.tp, o.cp, o.zigzag ? " zigzag" : "", o.pp,
      o.pp ? tsr_pipeline_name(o.pipeline) : "", o.zero, o.zero_owners ? " with owners" : "",
      o.threads, (int)o.microbatches, o.sequence_parallel ? ", sequence parallel" : "",
      first_difference(arena, r, want, &got));
  tsr_arena_free(arena);
}

static void run_mesh(const recipe *r, const trace *want, harness_options o) {
  if (r->batch_units % (o.dp * o.microbatches)) return;
  for (o.threads = 1; o.threads <= 3; o.threads++) compare(r, want, o);
  o.threads = 1;
  o.sequence_parallel = true;
  if (r->sequence_units && o.tp > 1) compare(r, want, o);
}

/* On one rank, one task for each op. */
static void run_separate(const recipe *r, const trace *want) {
  harness_target.fuses = 1u << TSR_FUSED_NONE;
  compare(r, want, (harness_options){.dp = 1, .tp = 1, .threads = 1, .microbatches = 1});
  harness_target.fuses = 0;
}

static void run_recipe(const recipe *r, const int (*meshes)[2], const int *microbatches) {
  tsr_arena *arena = tsr_arena_new();
  trace want =
      train(arena, r, (harness_options){.dp = 1, .tp = 1, .threads = 1, .microbatches = 1});
  CHECK(want.data[3 * (STEPS - 1)] < want.data[0]); /* it learns */
  run_separate(r, &want);
  for (int i = 0; meshes[i][0]; i++)
    for (int k = 0; microbatches[k]; k++)
      run_mesh(
          r, &want,
          (harness_options){
              .dp = meshes[i][0], .tp = meshes[i][1], .microbatches = microbatches[k]});
  tsr_arena_free(arena);
}

/* The backward pass may compute blocks again, alone, over ranks and through stages. */
static void run_recomputed(const recipe *r) {
  static const int meshes[][3] = {{1, 1, 1}, {1, 2, 2}, {2, 1, 1}, {2, 2, 1}};
  static const tsr_recomputing hows[] = {
      {.kind = TSR_RECOMPUTE_BLOCKS, .every = 1},
      {.kind = TSR_RECOMPUTE_BLOCKS, .every = 2},
      {.kind = TSR_RECOMPUTE_ATTENTION},
      {.kind = TSR_RECOMPUTE_MAPS},
      {.kind = TSR_RECOMPUTE_MAPS, .keeps_norms = true}};
  tsr_arena *arena = tsr_arena_new();
  trace want =
      train(arena, r, (harness_options){.dp = 1, .tp = 1, .threads = 1, .microbatches = 1});
  for (size_t i = 0; i < sizeof hows / sizeof *hows; i++)
    for (size_t k = 0; k < sizeof meshes / sizeof *meshes; k++)
      for (int n = 0; n < HARNESS_ORDERS; n++) { /* stages begin inside blocks, too */
        harness_options o = {.pp = meshes[k][0], .dp = meshes[k][1], .tp = meshes[k][2]};
        if (o.pp == 1 && harness_orders[n].kind != TSR_PIPELINE_1F1B) continue;
        o.threads = 1;
        o.microbatches = 4;
        o.pipeline = harness_orders[n].kind;
        o.chunks = o.pp == 1 ? 1 : harness_orders[n].chunks;
        o.recompute = hows[i];
        compare(r, &want, o);
      }
  tsr_arena_free(arena);
}

/* State, gradients and parameters sharded over dp, or over groups of it. */
static void run_sharded(const recipe *r) {
  static const int meshes[][3] = {{1, 2, 1}, {1, 4, 1}, {1, 2, 2}, {2, 2, 1}, {2, 2, 2}};
  tsr_arena *arena = tsr_arena_new();
  trace want =
      train(arena, r, (harness_options){.dp = 1, .tp = 1, .threads = 1, .microbatches = 1});
  for (int zero = 0; zero <= 3; zero++)
    for (size_t k = 0; k < sizeof meshes / sizeof *meshes; k++)
      for (int microbatches = 1; microbatches <= 4; microbatches *= 2) {
        if (r->batch_units % (meshes[k][1] * microbatches)) continue;
        harness_options o = {.pp = meshes[k][0], .dp = meshes[k][1], .tp = meshes[k][2]};
        o.threads = 1 + (int)k % 2;
        o.pipeline = microbatches == 4 ? TSR_PIPELINE_ZB_H1 : TSR_PIPELINE_1F1B;
        o.microbatches = microbatches;
        o.zero = zero;
        compare(r, &want, o);
        o.overlap = true;
        compare(r, &want, o);
        o.recompute = (tsr_recomputing){.kind = TSR_RECOMPUTE_BLOCKS, .every = 1};
        if (zero == 3) compare(r, &want, o);
        o.zero_groups = 2;
        if (o.dp == 4) compare(r, &want, o);
        o.zero_owners = zero > 0;
        if (o.dp == 4 && zero) compare(r, &want, o);
        o.zero_groups = 0;
        if (zero) compare(r, &want, o);
        o.overlap = false;
        o.recompute = (tsr_recomputing){.kind = TSR_KEEP_ALL};
        if (zero) compare(r, &want, o);
      }
  tsr_arena_free(arena);
}

/* Positions split over cp, in both layouts; the layout is part of the recipe. */
static void run_contexts(const recipe *r) {
  static const int meshes[][4] = {
      /* pp, dp, cp, tp */ {1, 1, 1, 1},
      {1, 1, 2, 1},
      {1, 2, 2, 1},
      {1, 1, 2, 2},
      {2, 1, 2, 1},
      {1, 2, 1, 2},
      {1, 1, 4, 1},
      {1, 2, 4, 1}};
  tsr_arena *arena = tsr_arena_new();
  for (int zigzag = 0; zigzag < (r->sequence_units < 4 ? 1 : 2); zigzag++) {
    harness_options one = {.dp = 1, .tp = 1, .threads = 1, .microbatches = 1, .zigzag = zigzag};
    trace want = train(arena, r, one);
    for (size_t k = 0; k < sizeof meshes / sizeof *meshes; k++) {
      harness_options o = {.pp = meshes[k][0], .dp = meshes[k][1], .cp = meshes[k][2]};
      if (o.dp > r->batch_units || o.cp * (1 + zigzag) > r->sequence_units) continue;
      o.tp = meshes[k][3];
      o.zigzag = zigzag;
      o.threads = 1 + (int)k % 2;
      o.pipeline = TSR_PIPELINE_1F1B;
      o.microbatches = r->batch_units / o.dp; /* one unit of the batch each */
      compare(r, &want, o);
      o.zero = 3;
      o.recompute = (tsr_recomputing){.kind = TSR_RECOMPUTE_BLOCKS, .every = 1};
      compare(r, &want, o);
      o.zero_owners = true;
      if (o.dp > 1) compare(r, &want, o);
      o.zero_owners = false;
      o.zero = 0;
      o.sequence_parallel = !zigzag && o.tp > 1 && r->sequence_units >= o.cp * o.tp;
      if (o.sequence_parallel) compare(r, &want, o);
    }
  }
  tsr_arena_free(arena);
}

/* Every order on pipelines of two and four stages, alone and with dp and tp. */
static void run_pipelines(const recipe *r) {
  static const int meshes[][3] = {{2, 1, 1}, {4, 1, 1}, {2, 2, 1}, {2, 1, 2}, {2, 2, 2}};
  tsr_arena *arena = tsr_arena_new();
  trace want =
      train(arena, r, (harness_options){.dp = 1, .tp = 1, .threads = 1, .microbatches = 1});
  for (size_t i = 0; i < HARNESS_ORDERS; i++)
    for (size_t k = 0; k < sizeof meshes / sizeof *meshes; k++) {
      harness_options o = {.dp = meshes[k][1], .tp = meshes[k][2], .threads = 1 + (int)(i + k) % 2};
      o.pp = meshes[k][0];
      o.pipeline = harness_orders[i].kind;
      o.chunks = harness_orders[i].chunks;
      o.microbatches = 4;
      compare(r, &want, o);
      if (o.pipeline == TSR_PIPELINE_INTERLEAVED) continue; /* takes whole rounds of microbatches */
      o.microbatches = 2;
      compare(r, &want, o);
    }
  tsr_arena_free(arena);
}

/* Every way of spreading a mixture of experts, or any model, over ep and other axes. */
static int run_spread(const recipe *r, const trace *want, harness_options o) {
  int64_t leaves = r->expert_units ? r->expert_units : r->batch_units, compared = 0;
  for (o.microbatches = 1; o.microbatches <= 4; o.microbatches *= 2)
    for (o.zero = 0; o.zero <= 3; o.zero++) {
      int64_t parts = o.dp * (o.zero >= 2 && o.dp > 1 ? o.microbatches : 1);
      if (r->batch_units % (o.dp * o.ep * o.microbatches) || leaves % parts) continue;
      if (o.dp == 1 && o.zero) continue;
      o.threads = 1 + (o.zero + (int)o.microbatches) % 2;
      o.pipeline = o.microbatches == 4 ? TSR_PIPELINE_ZB_H1 : TSR_PIPELINE_1F1B;
      o.recompute = (tsr_recomputing){.kind = TSR_KEEP_ALL};
      compare(r, want, o);
      o.recompute = (tsr_recomputing){.kind = TSR_RECOMPUTE_BLOCKS, .every = 1};
      o.overlap = o.zero == 1;
      o.zero_owners = o.zero > 1;
      compare(r, want, o);
      o.zero_owners = o.overlap = false;
      compared += 2;
    }
  return (int)compared;
}

static void run_experts(const recipe *r) {
  static const int meshes[][5] = {
      /* pp, dp, ep, cp, tp */ {1, 1, 1, 1, 1},
      {1, 1, 2, 1, 1},
      {1, 1, 4, 1, 1},
      {1, 1, 8, 1, 1},
      {1, 1, 1, 1, 2},
      {1, 1, 1, 1, 4},
      {1, 1, 2, 1, 2},
      {1, 2, 1, 1, 1},
      {1, 2, 2, 1, 1},
      {1, 2, 2, 1, 2},
      {1, 4, 2, 1, 1},
      {1, 8, 1, 1, 1},
      {1, 1, 1, 2, 1},
      {1, 1, 2, 2, 1},
      {1, 1, 2, 2, 2},
      {1, 2, 2, 2, 1},
      {1, 1, 1, 4, 1},
      {2, 1, 1, 1, 1},
      {2, 1, 2, 1, 1},
      {2, 2, 2, 1, 1},
      {2, 1, 2, 2, 1},
      {2, 1, 2, 1, 2}};
  tsr_arena *arena = tsr_arena_new();
  for (int zigzag = 0; zigzag < (r->sequence_units >= 4 ? 2 : 1); zigzag++) {
    harness_options one = {.dp = 1, .tp = 1, .threads = 1, .microbatches = 1, .zigzag = zigzag};
    trace want = train(arena, r, one);
    int compared = 0;
    for (size_t k = 0; k < sizeof meshes / sizeof *meshes; k++) {
      harness_options o = {.pp = meshes[k][0], .dp = meshes[k][1], .ep = meshes[k][2]};
      o.cp = meshes[k][3];
      o.tp = meshes[k][4];
      o.zigzag = zigzag;
      if (o.cp > 1 && o.cp * (1 + zigzag) > r->sequence_units) continue;
      compared += run_spread(r, &want, o);
      o.sequence_parallel = !zigzag && o.tp > 1 && r->sequence_units >= o.cp * o.tp;
      if (o.sequence_parallel) compared += run_spread(r, &want, o);
    }
    CHECK_AT(compared > 60, "%s: only %d meshes", r->name, compared);
  }
  tsr_arena_free(arena);
}

int main(void) {
  static const int meshes[][2] = {{1, 1}, {2, 1}, {4, 1}, {1, 2}, {1, 4}, {2, 2}, {4, 2}, {0, 0}};
  static const int accumulations[] = {1, 2, 4, 0}, odd_accumulations[] = {1, 2, 12, 0},
                   thirds[] = {3, 0};
  static const int odd_meshes[][2] = {{1, 1}, {2, 2}, {4, 1}, {0, 0}},
                   four[][2] = {{4, 1}, {4, 2}, {0, 0}};
  tsr_optimizer adamw = HARNESS_ADAMW(0.25);
  tsr_optimizer amsgrad = adamw, adam = adamw,
                sgd = {
                    .kind = TSR_RULE_SGD, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01};
  amsgrad.amsgrad = true;
  adam.coupled = true;
  sgd.clip_max_norm = 1;
  run_recipe(&(recipe){"gpt2", &gpt2, 16, 6, 8, 0, adamw}, meshes, accumulations);
  run_recipe(&(recipe){"llama", &llama, 16, 5, 8, 0, amsgrad}, meshes, accumulations);
  run_recipe(&(recipe){"mlp", &mlp, 16, 1, 8, 0, sgd}, meshes, accumulations);
  run_recipe(&(recipe){"mlp with Adam", &mlp, 16, 1, 8, 0, adam}, meshes, accumulations);
  run_recipe(&(recipe){"gpt2 by sequence", &gpt2, 16, 8, 8, 4, adamw}, meshes, accumulations);
  run_recipe(&(recipe){"llama by sequence", &llama, 16, 12, 8, 4, adamw}, meshes, accumulations);
  run_recipe(&(recipe){"mla", &mla, 16, 5, 8, 0, adamw}, meshes, accumulations);
  run_recipe(&(recipe){"mla by sequence", &mla, 16, 8, 8, 4, adamw}, meshes, accumulations);
  run_pipelines(&(recipe){"gpt2", &gpt2, 16, 6, 8, 0, adamw});
  run_pipelines(&(recipe){"mla by sequence", &mla, 16, 8, 8, 4, adamw});
  run_pipelines(&(recipe){"llama by sequence", &llama, 16, 12, 8, 4, amsgrad});
  run_pipelines(&(recipe){"mlp", &mlp, 16, 1, 8, 0, sgd});
  run_recomputed(&(recipe){"gpt2", &gpt2, 16, 6, 8, 0, adamw});
  run_recomputed(&(recipe){"llama by sequence", &llama, 16, 12, 8, 4, amsgrad});
  run_sharded(&(recipe){"gpt2", &gpt2, 16, 6, 8, 0, adamw});
  run_sharded(&(recipe){"llama by sequence", &llama, 16, 12, 8, 4, amsgrad});
  run_sharded(&(recipe){"mlp", &mlp, 16, 1, 8, 0, sgd});
  run_contexts(&(recipe){"gpt2", &gpt2, 16, 8, 8, 4, adamw});
  run_recomputed(&(recipe){"mla", &mla, 16, 8, 8, 4, adamw});
  run_contexts(&(recipe){"mla", &mla, 16, 16, 8, 8, adamw});
  run_contexts(&(recipe){"llama", &llama, 16, 16, 8, 8, adamw});
  run_contexts(&(recipe){"gpt2, one unit a rank", &gpt2, 16, 8, 4, 2, adamw});
  run_contexts(&(recipe){"gpt2, more members than batch units", &gpt2, 4, 16, 1, 8, adamw});
  run_experts(&(recipe){"a mixture, a leaf a unit", &mixture, 16, 6, 8, 0, adamw, 8});
  run_experts(&(recipe){"a mixture in 2 leaves", &mixture, 16, 6, 8, 0, adamw, 2});
  run_experts(&(recipe){"a mixture in bf16", &mixture, 16, 6, 8, 0, adamw, 2, TSR_BF16});
  run_experts(&(recipe){"a mixture in one leaf", &mixture, 16, 8, 8, 4, adamw, 1});
  run_experts(&(recipe){"a mixture by sequence", &mixture, 16, 8, 8, 4, amsgrad, 4});
  run_experts(&(recipe){"gpt2 over ep", &gpt2, 16, 6, 8, 0, adamw});
  run_experts(&(recipe){"llama by sequence over ep", &llama, 16, 12, 8, 4, amsgrad});
  run_experts(&(recipe){"mlp over ep", &mlp, 16, 1, 8, 0, sgd});
  recipe odd = {"gpt2 in 12 units", &gpt2, 12, 6, 12, 0, adamw};
  run_recipe(&odd, odd_meshes, odd_accumulations);
  run_recipe(&odd, four, thirds);
  return check_done("meshes");
}
