/* Generation with a cache on the emulated device: no op of it runs on the host, its steps are
 * recorded and begun again with other positions, logits are the CPU's to rounding, and their bits
 * are the same on every mesh. Where nothing is a product they are the same for chunks of any size;
 * a product has other bits for another number of tokens (emulated/product.c). */
#include "schedule/verify.h"
#include "tests/check.h"
#include "tests/run/harness.h"
#include <stdlib.h>

enum { B = 2, T = 11, STAGES_MAX = 2, PROGRAMS = 2 };

typedef struct {
  const char *name, *params, *calls;
} model;

/* A table of positions that is cut out of a longer one, biases, head and embedding tied. */
static const model gpt2 = {
    "gpt2",
    "wte 24,16 0; wpe 20,16; ln1 16; ln1b 16; wq 16,16 0; wk 16,16 0; wv 16,16 0; bq 16 0\n"
    "bk 16 0; bv 16 0; wo 16,16 1; bo 16; ln2 16; ln2b 16; up 32,16 0; upb 32 0; down 16,32 1\n"
    "downb 16; lnf 16; lnfb 16",
    "e: embedding(tokens, wte); pos: slice(wpe, dim: 0, begin: 2, end: 13); x1: add(e, pos)\n"
    "h: layernorm(x1, ln1, ln1b); q: linear(h, wq, bq); k: linear(h, wk, bk)\n"
    "v: linear(h, wv, bv); a: attention(q, k, v, head_dim: 4); o: linear(a, wo, bo)\n"
    "x2: add(x1, o); h2: layernorm(x2, ln2, ln2b); u: linear(h2, up, upb); ug: gelu(u)\n"
    "d: linear(ug, down, downb); x3: add(x2, d); hf: layernorm(x3, lnf, lnfb)\n"
    "logits: linear(hf, wte)"};

/* Grouped heads, rotary positions, two layers of attention. */
static const model llama = {
    "llama",
    "wte 24,20 1; n1 20; wq 32,20 0; wk 16,20 0; wv 16,20 0; wo 20,32 1; n2 20; gate 28,20 0\n"
    "up 28,20 0; down 20,28 1; wq2 32,20 0; wk2 16,20 0; wv2 16,20 0; wo2 20,32 1; nf 20\n"
    "head 24,20 0",
    "x0: embedding(tokens, wte); h: rmsnorm(x0, n1); q: linear(h, wq); k: linear(h, wk)\n"
    "v: linear(h, wv); qr: rope(q, head_dim: 4); kr: rope(k, head_dim: 4)\n"
    "a: attention(qr, kr, v, head_dim: 4); o: linear(a, wo); x1: add(x0, o)\n"
    "h2: rmsnorm(x1, n2); g: linear(h2, gate); u: linear(h2, up); s: swiglu(g, u)\n"
    "d: linear(s, down); x2: add(x1, d); q2: linear(x2, wq2); k2: linear(x2, wk2)\n"
    "v2: linear(x2, wv2); qr2: rope(q2, head_dim: 4); kr2: rope(k2, head_dim: 4)\n"
    "a2: attention(qr2, kr2, v2, head_dim: 4); o2: linear(a2, wo2); x3: add(x2, o2)\n"
    "hf: rmsnorm(x3, nf); logits: linear(hf, head)"};

/* Every op of a cache, and no product. */
static const model rows = {
    "rows", "wte 24,48 0; wpe 20,48; n1 48; n2 32",
    "e: embedding(tokens, wte); pos: slice(wpe, dim: 0, begin: 2, end: 13); x: add(e, pos)\n"
    "h: rmsnorm(x, n1); q: slice(h, dim: 2, begin: 0, end: 32)\n"
    "k: slice(h, dim: 2, begin: 32, end: 40); v: slice(h, dim: 2, begin: 40, end: 48)\n"
    "qr: rope(q, head_dim: 4); kr: rope(k, head_dim: 4); a: attention(qr, kr, v, head_dim: 4)\n"
    "y: add(a, q); z: rmsnorm(y, n2); a2: attention(z, k, v, head_dim: 4); logits: add(z, a2)"};

typedef struct {
  int pp, dp, cp, tp;
} mesh;

static const mesh alone = {1, 1, 1, 1};

typedef struct {
  const model *model;
  mesh mesh;
  tsr_dtype dtype;
  int64_t chunk;  /* 0: the whole window, without a cache */
  bool last_only; /* logits of a run's last tokens alone */
  uint64_t seed;  /* 0: every sequence takes as much as it can */
} plan;

/* ---- programs ---- */

typedef struct {
  const plan *plan;
  tsr_arena *arena;
  tsr_parallel parallel;
  tsr_cpu_context cpu;
  const tsr_device *device;
  tsr_graph *placed[PROGRAMS];
  tsr_programs programs[PROGRAMS];
  tsr_bound *bound[PROGRAMS];
  tsr_worker *worker;
} session;

static void die(tsr_diags *diags) {
  tsr_diags_print(diags, stderr);
  abort();
}

static tsr_graph *build(const session *s, int64_t new_tokens, tsr_diags *diags) {
  const plan *p = s->plan;
  tsr_graph *g = tsr_graph_new(s->arena, p->model->name, (tsr_units){.batch = B, .tp = 4}), *cached;
  const char *why;
  harness_inputs(g, harness_sized(s->arena, "tokens $B,$T tokens", B, T));
  harness_params(g, p->model->params);
  harness_calls(g, p->model->calls);
  tsr_graph_output(g, "logits", harness_find(g, "logits"));
  int stages = s->parallel.size[TSR_PP];
  tsr_cut cut = {.count = stages - 1, .first = tsr_arena_array(s->arena, const char *, STAGES_MAX)};
  for (int i = 1; i < stages; i++) cut.first[i - 1] = g->nodes[g->nodes_count * i / stages].name;
  if (!tsr_pass_stages(g, &cut, diags)) die(diags);
  if (new_tokens) {
    CHECK(tsr_pass_cache(g, new_tokens, p->last_only, &cached, &why));
    g = cached;
  }
  return p->dtype ? tsr_pass_precision(g, (tsr_narrowing){p->dtype, TSR_STORE_F32}) : g;
}

/* Nothing is left to the host. */
static void check_ops(const session *s, const tsr_graph *g) {
  for (int i = 0; s->device && i < g->nodes_count; i++) {
    tsr_op op = g->nodes[i].op;
    bool moves = tsr_op_is_collective(op) || op == TSR_OP_RECEIVE;
    CHECK_AT(
        moves || s->device->has(s->device->state, op), "%s '%s' is not the device's",
        tsr_op_name(op), g->nodes[i].name);
  }
}

/* A sample is a unit of the batch: products have the same shapes on every mesh. */
static void compile(session *s, int index, int64_t new_tokens) {
  tsr_diags *diags = tsr_diags_new(s->arena);
  const int *size = s->parallel.size;
  tsr_graph *g = build(s, new_tokens, diags);
  tsr_placing placing = {.units = {1, 1, 1, 1, 1}, .sequence_units = 1};
  memcpy(placing.size, size, sizeof placing.size);
  placing.size[TSR_CP] = 1;
  placing.units[TSR_DP] = B;
  placing.units[TSR_TP] = 4;
  if (!tsr_pass_placement(g, &placing, &s->placed[index], diags)) die(diags);
  check_ops(s, s->placed[index]);
  tsr_lowering l = {.microbatches = 1, .sequence_units = 1};
  for (int a = 0; a < TSR_AXES; a++) l.size[a] = size[a];
  l.batch_units = B / size[TSR_DP];
  l.tp_units = 4 / size[TSR_TP];
  const tsr_order *order = tsr_order_make(s->arena, TSR_ORDER_FORWARD, size[TSR_PP], 1, 1);
  s->programs[index] = tsr_programs_make(
      s->placed[index], &l, order, s->device ? harness_scratch : tsr_cpu_scratch, &s->cpu);
  tsr_verify_mesh over = {.ranks = s->parallel.ranks};
  for (int a = 0; a < TSR_AXES; a++) {
    over.size[a] = size[a];
    over.stride[a] = s->parallel.stride[a];
  }
  if (!tsr_programs_verify(s->arena, &s->programs[index], &over, diags)) die(diags);
}

/* Chunks by the first program, single tokens by the second. */
static void session_open(session *s, tsr_arena *arena, const plan *p, const tsr_device *device) {
  *s = (session){.plan = p, .arena = arena, .cpu = {tsr_kernels_get(NULL), 1}, .device = device};
  tsr_diags *diags = tsr_diags_new(arena);
  s->parallel = harness_parallel(p->mesh.pp, p->mesh.dp, p->mesh.cp, p->mesh.tp);
  int programs = p->chunk ? PROGRAMS : 1;
  for (int i = 0; i < programs; i++) compile(s, i, i ? 1 : p->chunk);
  tsr_worker_options o = {.parallel = &s->parallel, .kernels = s->cpu.k, .threads = 1};
  o.seed = HARNESS_SEED;
  o.device = device;
  if (!tsr_worker_open(arena, &o, s->programs, programs, &s->worker, s->bound, diags)) die(diags);
}

/* ---- runs ---- */

typedef struct {
  int64_t positions[B], counts[B], width;
} run;

static int32_t token_at(int64_t sample, int64_t position) {
  return (int32_t)((sample * 31 + position * 17 + position * position * 5) % 24);
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

/* (B, T, width); NaNs where none were asked for. */
typedef struct {
  float *data;
  int64_t width;
} logits;

static void keep_logits(const session *s, int index, const run *r, logits *all) {
  int value = tsr_graph_find_output(s->placed[index], "logits");
  const tsr_value *v = &s->placed[index]->values[value];
  float *got = tsr_arena_array(s->arena, float, tsr_value_elements(v));
  tsr_bound_read(s->bound[index], value, got);
  int64_t width = v->shape[2];
  if (!all->data) {
    int64_t n = B * T * width;
    *all = (logits){tsr_arena_array(s->arena, float, n), width};
    for (int64_t i = 0; i < n; i++) all->data[i] = NAN;
  }
  for (int64_t b = 0; b < B; b++) {
    int64_t rows_here = r->counts[b] ? v->shape[1] : 0, first = r->positions[b];
    if (rows_here > r->counts[b]) rows_here = r->counts[b];
    if (s->plan->last_only) first += r->counts[b] - rows_here;
    memcpy(
        all->data + (b * T + first) * width, got + b * v->shape[1] * width,
        sizeof *got * (size_t)(rows_here * width));
  }
}

/* Until all sequences are whole; with a seed the programs take turns as chance has it, and
 * sequences of one batch stand at different positions. */
static logits generate(tsr_arena *arena, const plan *p, const tsr_device *device) {
  session s;
  session_open(&s, arena, p, device);
  logits all = {NULL, 0};
  run r = {.width = 0};
  uint64_t chance = p->seed;
  for (int64_t done = 0; done < B * T;) {
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    int which = p->seed && chance >> 62 == 0;
    r.width = which ? 1 : p->chunk ? p->chunk : T;
    for (int b = 0; b < B; b++) {
      int64_t left = T - r.positions[b], most = left < r.width ? left : r.width;
      r.counts[b] = p->seed ? (int64_t)(chance >> (33 + 5 * b) & 31) % (most + 1) : most;
    }
    tsr_bound_run(s.bound[which], 0, fill, &r);
    keep_logits(&s, which, &r, &all);
    for (int b = 0; b < B; b++) {
      r.positions[b] += r.counts[b];
      done += r.counts[b];
    }
  }
  tsr_worker_close(s.worker);
  return all;
}

/* ---- what is compared ---- */

static const char *plan_text(tsr_arena *arena, const plan *p) {
  return tsr_arena_printf(
      arena, "%s, pp %d dp %d cp %d tp %d, %s, chunk %d, seed %d%s", p->model->name, p->mesh.pp,
      p->mesh.dp, p->mesh.cp, p->mesh.tp, tsr_dtype_name(p->dtype), (int)p->chunk, (int)p->seed,
      p->last_only ? ", last ones" : "");
}

/* Of f32 each within 1e-5 of the largest, of halves all of them within 1e-2 of the norm. Those of
 * each sequence's last token must be there; others where more than the last ones are asked for. */
static void check_near(tsr_arena *arena, const plan *p, logits got, logits want) {
  double most = 0, apart = 0, norm = 0, norm_apart = 0;
  for (int64_t i = 0; i < B * T * want.width; i++) {
    bool last = i / want.width % T == T - 1;
    bool none = isnan(got.data[i]);
    if (none && p->last_only && !last) continue;
    double x = want.data[i], d = none ? INFINITY : fabs(got.data[i] - x);
    if (d > apart) apart = d;
    if (fabs(x) > most) most = fabs(x);
    norm += x * x;
    norm_apart += d * d;
  }
  bool ok = p->dtype ? norm_apart <= 1e-4 * norm : apart <= 1e-5 * most;
  CHECK_AT(
      ok && most > 0, "%s: %.3g apart, of %.3g; by norm %.3g", plan_text(arena, p), apart, most,
      sqrt(norm_apart / norm));
}

/* The bits of both, where both are there. */
static void check_same(tsr_arena *arena, const plan *p, logits got, logits want) {
  int64_t compared = 0, n = B * T * want.width, at = 0;
  for (; at < n; at++) {
    if (isnan(got.data[at]) || isnan(want.data[at])) continue;
    if (memcmp(&got.data[at], &want.data[at], sizeof *got.data)) break;
    compared++;
  }
  CHECK_AT(
      at == n && compared >= B * want.width, "%s: sequence %d position %d: %.9g, not %.9g",
      plan_text(arena, p), (int)(at / want.width / T), (int)(at / want.width % T), got.data[at % n],
      want.data[at % n]);
}

static const int64_t chunks[] = {1, 3, 8};
enum { CHUNKS = sizeof chunks / sizeof *chunks };

static logits on_cpu(tsr_arena *arena, const model *m, tsr_dtype dtype) {
  plan whole = {.model = m, .mesh = alone, .dtype = dtype};
  return generate(arena, &whole, NULL);
}

/* One rank beside the CPU, other meshes beside one rank. */
static void check_model(const model *m, tsr_dtype dtype) {
  static const mesh meshes[] = {{1, 2, 1, 1}, {1, 1, 1, 2}, {1, 2, 1, 2}, {2, 1, 2, 1}};
  enum { MESHES = sizeof meshes / sizeof *meshes };
  tsr_arena *arena = tsr_arena_new();
  logits want = on_cpu(arena, m, dtype);
  for (int k = 0; k < CHUNKS; k++) {
    if (dtype && chunks[k] != 3) continue;
    plan one = {.model = m, .mesh = alone, .dtype = dtype, .chunk = chunks[k]};
    one.last_only = k % 2;
    one.seed = k == 1 ? 7 : 0;
    logits got = generate(arena, &one, harness_device);
    check_near(arena, &one, got, want);
    for (int i = 0; i < MESHES; i++) {
      plan other = one;
      other.mesh = meshes[i];
      check_same(arena, &other, generate(arena, &other, harness_device), got);
    }
  }
  tsr_arena_free(arena);
}

/* Without products: whatever the chunks. */
static void check_chunks(void) {
  tsr_arena *arena = tsr_arena_new();
  plan p = {.model = &rows, .mesh = alone, .chunk = 1};
  logits want = generate(arena, &p, harness_device);
  check_near(arena, &p, want, on_cpu(arena, &rows, TSR_F32));
  for (int k = 0; k < CHUNKS; k++)
    for (uint64_t seed = 0; seed < 3; seed++)
      for (int last_only = 0; last_only < 2; last_only++) {
        p.chunk = chunks[k];
        p.seed = seed;
        p.last_only = last_only;
        p.mesh.dp = seed == 1 ? 2 : 1;
        p.mesh.tp = seed == 2 ? 2 : 1;
        check_same(arena, &p, generate(arena, &p, harness_device), want);
      }
  tsr_arena_free(arena);
}

/* Steps that are begun again, and steps that are begun task by task. */
static void check_recorded(void) {
  tsr_arena *arena = tsr_arena_new();
  plan p = {.model = &llama, .mesh = alone, .chunk = 3, .seed = 5};
  logits recorded = generate(arena, &p, harness_device);
  setenv("TESSERA_CUDA_GRAPHS", "0", 1);
  check_same(arena, &p, generate(arena, &p, harness_device), recorded);
  unsetenv("TESSERA_CUDA_GRAPHS");
  tsr_arena_free(arena);
}

int main(void) {
  check_chunks();
  check_recorded();
  for (tsr_dtype d = TSR_F32; d <= TSR_F16; d++) {
    if (d == TSR_I32) continue;
    check_model(&gpt2, d);
    check_model(&llama, d);
  }
  return check_done("cuda.generate");
}
