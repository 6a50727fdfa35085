/* Generation with a cache: logits of new tokens behind kept ones have the bits of the whole window,
 * on every mesh, for chunks of any size, in every precision; what cannot be kept is refused by
 * name. */
#include "harness.h"
#include "schedule/verify.h"
#include "tests/check.h"
#include <stdlib.h>

enum { B = 4, T = 16, V = 24, STAGES_MAX = 4, PROGRAMS = 2 };

typedef struct {
  const char *name, *params, *calls;
} model;

/* A table of positions that is cut out of a longer one, biases, head and embedding tied. */
static const model gpt2 = {
    "gpt2",
    "wte 24,16 0; wpe 20,16; ln1 16; ln1b 16; wq 16,16 0; wk 16,16 0; wv 16,16 0; bq 16 0; bk 16 "
    "0\n"
    "bv 16 0; wo 16,16 1; bo 16; ln2 16; ln2b 16; up 32,16 0; upb 32 0; down 16,32 1; downb 16\n"
    "wq2 16,16 0; wk2 16,16 0; wv2 16,16 0; wo2 16,16 1; lnf 16; lnfb 16",
    "e: embedding(tokens, wte); pos: slice(wpe, dim: 0, begin: 2, end: 18); x1: add(e, pos)\n"
    "h: layernorm(x1, ln1, ln1b); q: linear(h, wq, bq); k: linear(h, wk, bk); v: linear(h, wv, "
    "bv)\n"
    "a: attention(q, k, v, head_dim: 4); o: linear(a, wo, bo); x2: add(x1, o)\n"
    "h2: layernorm(x2, ln2, ln2b); u: linear(h2, up, upb); ug: gelu(u); d: linear(ug, down, "
    "downb)\n"
    "x3: add(x2, d); q2: linear(x3, wq2); k2: linear(x3, wk2); v2: linear(x3, wv2)\n"
    "a2: attention(q2, k2, v2, head_dim: 4); o2: linear(a2, wo2); x4: add(x3, o2)\n"
    "hf: layernorm(x4, lnf, lnfb); logits: linear(hf, wte)"};

/* Grouped heads, rotary positions, a weight that is made of a parameter. */
static const model llama = {
    "llama",
    "wte 24,20 1; n1 20; wq 32,20 0; wk 16,20 0; wv 16,20 0; wo 20,32 1; n2 20; gate 28,20 0\n"
    "up 28,20 0; down 20,28 1; wq2 32,20 0; wk2 16,20 0; wv2 16,20 0; wo2 20,32 1; nf 20; head "
    "24,20 "
    "0",
    "x0: embedding(tokens, wte); h: rmsnorm(x0, n1); q: linear(h, wq); k: linear(h, wk)\n"
    "v: linear(h, wv); qr: rope(q, head_dim: 4); kr: rope(k, head_dim: 4)\n"
    "a: attention(qr, kr, v, head_dim: 4); o: linear(a, wo); x1: add(x0, o); h2: rmsnorm(x1, n2)\n"
    "gs: scale(gate, factor: 0.5); g: linear(h2, gs); u: linear(h2, up); s: swiglu(g, u); d: "
    "linear(s, down); x2: add(x1, d)\n"
    "q2: linear(x2, wq2); k2: linear(x2, wk2); v2: linear(x2, wv2); qr2: rope(q2, head_dim: 4)\n"
    "kr2: rope(k2, head_dim: 4); a2: attention(qr2, kr2, v2, head_dim: 4); o2: linear(a2, wo2)\n"
    "x3: add(x2, o2); hf: rmsnorm(x3, nf); logits: linear(hf, head)"};

/* Norms of every query and key head, so that positions go through reshapes; a factor of each
 * position. */
static const model qwen = {
    "qwen",
    "wte 24,20 1; wpe 16,20; n1 20; wq 32,20 0; wk 16,20 0; wv 16,20 0; qn 4; kn 4; wo 20,32 1; nf "
    "20; head "
    "24,20 0",
    "e: embedding(tokens, wte); x0: mul(e, wpe); h: rmsnorm(x0, n1); q: linear(h, wq); k: "
    "linear(h, wk)\n"
    "v: linear(h, wv); q4: reshape(q, shape: [$B,$T,8,4]); k4: reshape(k, shape: [$B,$T,4,4])\n"
    "qn4: rmsnorm(q4, qn); kn4: rmsnorm(k4, kn); q3: reshape(qn4, shape: [$B,$T,32])\n"
    "k3: reshape(kn4, shape: [$B,$T,16]); qr: rope(q3, head_dim: 4); kr: rope(k3, head_dim: 4)\n"
    "a: attention(qr, kr, v, head_dim: 4, scale: 0.4); o: linear(a, wo); x1: add(x0, o)\n"
    "hf: rmsnorm(x1, nf); logits: linear(hf, head)"};

static tsr_graph *build(tsr_arena *arena, const char *params, const char *calls) {
  tsr_graph *g = tsr_graph_new(arena, "test", (tsr_units){.batch = 4, .tp = 4});
  harness_inputs(g, harness_sized(arena, "tokens $B,$T tokens", B, T));
  harness_params(g, params);
  harness_calls(g, harness_sized(arena, calls, B, T));
  tsr_graph_output(g, "logits", harness_find(g, "logits"));
  return g;
}

/* ---- programs on a mesh ---- */

typedef struct {
  int pp, dp, cp, tp, threads;
} mesh;

typedef struct {
  const tsr_parallel *parallel;
  tsr_cpu_context cpu;
  tsr_graph *placed[PROGRAMS];
  tsr_programs programs[PROGRAMS];
  tsr_bound *bound[PROGRAMS];
  tsr_worker *worker;
} session;

static void die(tsr_diags *diags) {
  tsr_diags_print(diags, stderr);
  abort();
}

static tsr_graph *cached(tsr_graph *g, int64_t new_tokens, bool last_only) {
  const char *why = NULL;
  tsr_graph *out = NULL;
  CHECK_AT(tsr_pass_cache(g, new_tokens, last_only, &out, &why), "%s", why ? why : "refused");
  return out;
}

/* new_tokens 0: the whole window. */
static void
compile(session *s, int index, tsr_graph *g, int64_t new_tokens, bool last_only, tsr_dtype dtype) {
  tsr_arena *arena = g->arena;
  tsr_diags *diags = tsr_diags_new(arena);
  const int *size = s->parallel->size;
  tsr_cut cut = {
      .count = size[TSR_PP] - 1, .first = tsr_arena_array(arena, const char *, STAGES_MAX)};
  for (int i = 1; i < size[TSR_PP]; i++)
    cut.first[i - 1] = g->nodes[g->nodes_count * i / size[TSR_PP]].name;
  if (!tsr_pass_stages(g, &cut, diags)) die(diags);
  if (new_tokens) g = cached(g, new_tokens, last_only);
  if (dtype) g = tsr_pass_precision(g, (tsr_narrowing){dtype, TSR_STORE_F32});
  tsr_placing placing = {.units = {1, 1, 1, 1, 1}, .sequence_units = 1};
  memcpy(placing.size, size, sizeof placing.size);
  if (new_tokens) placing.size[TSR_CP] = 1;
  placing.units[TSR_TP] = 4;
  if (!tsr_pass_placement(g, &placing, &s->placed[index], diags)) die(diags);
  tsr_lowering l = {.microbatches = 1, .batch_units = 1, .sequence_units = 1};
  for (int a = 0; a < TSR_AXES; a++) l.size[a] = size[a];
  l.tp_units = 4 / size[TSR_TP];
  const tsr_order *order = tsr_order_make(arena, TSR_ORDER_FORWARD, size[TSR_PP], 1, 1);
  s->programs[index] = tsr_programs_make(s->placed[index], &l, order, tsr_cpu_scratch, &s->cpu);
  tsr_verify_mesh over = {.ranks = s->parallel->ranks};
  for (int a = 0; a < TSR_AXES; a++) {
    over.size[a] = size[a];
    over.stride[a] = s->parallel->stride[a];
  }
  if (!tsr_programs_verify(arena, &s->programs[index], &over, diags)) die(diags);
}

static session start(tsr_arena *arena, mesh m) {
  tsr_parallel *parallel = tsr_arena_alloc(arena, sizeof *parallel);
  *parallel = harness_parallel(m.pp, m.dp, m.cp, m.tp);
  return (session){.parallel = parallel, .cpu = {tsr_kernels_get(NULL), m.threads}};
}

static void open_worker(session *s, tsr_arena *arena, int programs) {
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_worker_options o = {.parallel = s->parallel, .kernels = s->cpu.k, .threads = s->cpu.threads};
  o.seed = HARNESS_SEED;
  if (!tsr_worker_open(arena, &o, s->programs, programs, &s->worker, s->bound, diags)) die(diags);
}

/* ---- runs ---- */

typedef struct {
  int64_t positions[B], counts[B], width;
} run;

static int32_t token_at(int64_t sample, int64_t position) {
  return (int32_t)((sample * 31 + position * 17 + position * position * 5) % V);
}

static void fill(void *context, const char *input, int64_t sample, void *row) {
  const run *r = context;
  int32_t *to = row;
  if (!strcmp(input, TSR_CACHE_POSITIONS)) *to = (int32_t)r->positions[sample];
  else if (!strcmp(input, TSR_CACHE_COUNTS)) *to = (int32_t)r->counts[sample];
  else
    for (int64_t i = 0; i < r->width; i++)
      to[i] = i < r->counts[sample] ? token_at(sample, r->positions[sample] + i) : 0;
}

static float *read_logits(tsr_arena *arena, const session *s, int index) {
  int value = tsr_graph_find_output(s->placed[index], "logits");
  float *out = tsr_arena_array(arena, float, tsr_value_elements(&s->placed[index]->values[value]));
  tsr_bound_read(s->bound[index], value, out);
  return out;
}

/* (B, T, V), on one rank without a cache */
static float *whole_logits(tsr_arena *arena, const model *m, tsr_dtype dtype) {
  session s = start(arena, (mesh){1, 1, 1, 1, 1});
  compile(&s, 0, build(arena, m->params, m->calls), 0, false, dtype);
  open_worker(&s, arena, 1);
  run r = {.width = T};
  for (int b = 0; b < B; b++) r.counts[b] = T;
  tsr_bound_run(s.bound[0], 0, fill, &r);
  float *out = read_logits(arena, &s, 0);
  tsr_worker_close(s.worker);
  return out;
}

typedef struct {
  const model *model;
  mesh mesh;
  tsr_dtype dtype;
  int64_t chunk;
  bool last_only;
  uint64_t seed; /* 0: every sequence takes as much as it can */
} plan;

static void check_rows(const plan *p, const run *r, const float *got, const float *want) {
  int64_t rows = p->last_only ? 1 : r->width;
  for (int64_t b = 0; b < B; b++)
    for (int64_t i = 0; i < r->counts[b]; i++) {
      int64_t at = p->last_only ? 0 : i;
      if (p->last_only && i + 1 < r->counts[b]) continue;
      const float *x = got + (b * rows + at) * V, *y = want + (b * T + r->positions[b] + i) * V;
      int v = 0;
      while (v < V && !memcmp(&x[v], &y[v], sizeof *x)) v++;
      CHECK_AT(
          v == V,
          "%s, pp %d dp %d cp %d tp %d, %s, chunk %d: sequence %d position %d: %.9g, want %.9g",
          p->model->name, p->mesh.pp, p->mesh.dp, p->mesh.cp, p->mesh.tp, tsr_dtype_name(p->dtype),
          (int)p->chunk, (int)b, (int)(r->positions[b] + i), (double)x[v % V], (double)y[v % V]);
    }
}

/* Until all sequences are whole: chunks by the first program, single tokens by the second, as
 * chance has it; sequences of one batch stand at different positions. */
static void check_plan(plan p, const float *want) {
  tsr_arena *arena = tsr_arena_new();
  session s = start(arena, p.mesh);
  int64_t widths[PROGRAMS] = {p.chunk, 1}, done = 0;
  for (int i = 0; i < PROGRAMS; i++)
    compile(&s, i, build(arena, p.model->params, p.model->calls), widths[i], p.last_only, p.dtype);
  open_worker(&s, arena, PROGRAMS);
  run r = {.width = 0};
  uint64_t chance = p.seed;
  while (done < B * T) {
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    int which = p.seed && chance >> 60 & 1;
    r.width = widths[which];
    for (int b = 0; b < B; b++) {
      int64_t left = T - r.positions[b], most = left < r.width ? left : r.width;
      r.counts[b] = p.seed ? (int64_t)(chance >> (33 + 5 * b) & 31) % (most + 1) : most;
    }
    tsr_bound_run(s.bound[which], 0, fill, &r);
    check_rows(&p, &r, read_logits(arena, &s, which), want);
    for (int b = 0; b < B; b++) {
      r.positions[b] += r.counts[b];
      done += r.counts[b];
    }
  }
  tsr_worker_close(s.worker);
  tsr_arena_free(arena);
}

static void check_model(const model *m, tsr_dtype dtype) {
  static const mesh meshes[] = {{1, 1, 1, 1, 1}, {1, 2, 1, 1, 2}, {1, 1, 1, 2, 3},
                                {2, 1, 1, 1, 1}, {1, 1, 2, 1, 2}, {1, 2, 1, 2, 1},
                                {2, 2, 1, 2, 2}, {1, 4, 1, 4, 1}, {4, 1, 2, 1, 1}};
  static const int64_t chunks[] = {1, 3, T};
  tsr_arena *arena = tsr_arena_new();
  const float *want = whole_logits(arena, m, dtype);
  for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
    for (size_t k = 0; k < sizeof chunks / sizeof *chunks; k++) {
      plan p = {.model = m, .mesh = meshes[i], .dtype = dtype, .chunk = chunks[k]};
      p.last_only = (i + k) % 2;
      check_plan(p, want);
      p.seed = i * 100 + k + 1;
      p.last_only = !p.last_only;
      check_plan(p, want);
    }
  tsr_arena_free(arena);
}

/* ---- what cannot be kept ---- */

static void check_refusal(const char *params, const char *calls, const char *want) {
  tsr_arena *arena = tsr_arena_new();
  tsr_graph *g = build(arena, params, calls), *out = NULL;
  const char *why = "";
  CHECK(!tsr_pass_cache(g, 1, true, &out, &why));
  CHECK_STR(why, want);
  tsr_arena_free(arena);
}

static void test_refusals(void) {
  check_refusal(
      "wte 24,8; w 24,8",
      "x: embedding(tokens, wte); s: slice(x, dim: 1, begin: 0, end: 4); logits: linear(s, w)",
      "slice 's' takes 'x' of other positions");
  check_refusal(
      "wte 24,8; w 24,8",
      "x: embedding(tokens, wte); t: transpose(x, dim0: 1, dim1: 2); p: softmax(t)\n"
      "y: transpose(p, dim0: 1, dim1: 2); logits: linear(y, w)",
      "softmax 'p' takes 't' of other positions");
  check_refusal(
      "wte 24,8; w 24,8",
      "x: embedding(tokens, wte); s: matmul(x, x, transpose_b: 1); y: matmul(s, x)\n"
      "logits: linear(y, w)",
      "matmul 's' takes 'x' of other positions");
  check_refusal(
      "wte 24,8; w 24,8",
      "x: embedding(tokens, wte); a: attention(x, x, x, head_dim: 4, causal: 0); logits: linear(a, "
      "w)",
      "attention 'a' is not causal");
  check_refusal(
      "wte 24,8; w 24,8", "x: embedding(tokens, wte); d: dropout(x, p: 0.5); logits: linear(d, w)",
      "dropout 'd' draws random numbers");
  check_refusal(
      "wte 24,8; w 24,8",
      "x: embedding(tokens, wte); f: reshape(x, shape: [64,8]); logits: linear(f, w)",
      "reshape 'f' takes 'x' of other positions");
}

int main(void) {
  const model *const models[] = {&gpt2, &llama, &qwen};
  for (int i = 0; i < 3; i++)
    for (tsr_dtype d = TSR_F32; d <= TSR_F16; d++)
      if (d != TSR_I32) check_model(models[i], d);
  test_refusals();
  return check_done("cache");
}
