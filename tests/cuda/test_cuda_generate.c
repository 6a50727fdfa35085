// SPDX-License-Identifier: Apache-2.0
/* Generation with a cache on the emulated device: no op of it runs on the host, its steps are
 * recorded and begun again with other positions, logits are the CPU's to rounding, and their bits
 * are the same on every mesh. Where nothing is a product they are the same for chunks of any size;
 * a product has other bits for another number of tokens (emulated/product.c). */
#include "tests/check.h"
#include "tests/cuda/emulated/device.h"
#include "tests/run/cache_case.h"
#include <stdlib.h>

enum { B = 2, T = 11 };

/* A table of positions that is a slice of a longer one, biases, head and embedding tied. */
static const cache_model gpt2 = {
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

/* Grouped heads, rotary positions, two layers of attention, one with sinks. */
static const cache_model llama = {
    "llama",
    "wte 24,20 1; n1 20; wq 32,20 0; wk 16,20 0; wv 16,20 0; wo 20,32 1; n2 20; gate 28,20 0\n"
    "up 28,20 0; down 20,28 1; wq2 32,20 0; wk2 16,20 0; wv2 16,20 0; s2 8 0; wo2 20,32 1; nf 20\n"
    "head 24,20 0",
    "x0: embedding(tokens, wte); h: rmsnorm(x0, n1); q: linear(h, wq); k: linear(h, wk)\n"
    "v: linear(h, wv); qr: rope(q, head_dim: 4); kr: rope(k, head_dim: 4)\n"
    "a: attention(qr, kr, v, head_dim: 4); o: linear(a, wo); x1: add(x0, o)\n"
    "h2: rmsnorm(x1, n2, zero_centered: 1); g: linear(h2, gate); u: linear(h2, up); s: swiglu(g, "
    "u)\n"
    "d: linear(s, down); x2: add(x1, d); q2: linear(x2, wq2); k2: linear(x2, wk2)\n"
    "v2: linear(x2, wv2); qr2: rope(q2, head_dim: 4); kr2: rope(k2, head_dim: 4)\n"
    "a2: attention(qr2, kr2, v2, s2, head_dim: 4, window: 3, soft_cap: 0.5)\n"
    "o2: linear(a2, wo2); x3: add(x2, o2); hf: rmsnorm(x3, nf); logits: linear(hf, head)"};

/* Every op of a cache, and no product. */
static const cache_model rows = {
    "rows", "wte 24,48 0; wpe 20,48; n1 48; n2 32",
    "e: embedding(tokens, wte); pos: slice(wpe, dim: 0, begin: 2, end: 13); x: add(e, pos)\n"
    "h: rmsnorm(x, n1); q: slice(h, dim: 2, begin: 0, end: 32)\n"
    "k: slice(h, dim: 2, begin: 32, end: 40); v: slice(h, dim: 2, begin: 40, end: 48)\n"
    "qr: rope(q, head_dim: 4); kr: rope(k, head_dim: 4); a: attention(qr, kr, v, head_dim: 4)\n"
    "y: add(a, q); z: rmsnorm(y, n2); a2: attention(z, k, v, head_dim: 4); logits: add(z, a2)"};

static const cache_mesh alone = {1, 1, 1, 1, 1};

static cache_case case_of(const cache_model *m, tsr_dtype dtype, int64_t chunk) {
  return (cache_case){
      .model = m,
      .B = B,
      .T = T,
      .unit_samples = true,
      .mesh = alone,
      .dtype = dtype,
      .device = harness_device,
      .look = test_device_check_tasks,
      .chunk = chunk};
}

/* Of f32 each within 1e-5 of the largest, of halves all of them within 1e-2 of the norm. Those of
 * each sequence's last token must be there; others where more than the last ones are asked for. */
static void check_near(tsr_arena *arena, const cache_case *c, cache_logits got, cache_logits want) {
  double most = 0, apart = 0, norm = 0, norm_apart = 0;
  for (int64_t i = 0; i < B * T * want.width; i++) {
    int64_t token = i / want.width;
    if (!got.there[token] && c->last_only && token % T != T - 1) continue;
    double x = want.data[i], d = fabs(got.data[i] - x);
    if (!got.there[token] || isnan(d)) d = INFINITY;
    if (d > apart) apart = d;
    if (fabs(x) > most) most = fabs(x);
    norm += x * x;
    norm_apart += d * d;
  }
  bool ok = c->dtype ? norm_apart <= 1e-4 * norm : apart <= 1e-5 * most;
  CHECK_AT(
      ok && most > 0 && most < INFINITY, "%s: %.3g apart, of %.3g; by norm %.3g",
      cache_case_text(arena, c), apart, most, sqrt(norm_apart / norm));
}

static void check_same(tsr_arena *arena, const cache_case *c, cache_logits want) {
  cache_logits got = cache_case_run(arena, c);
  for (int64_t token = 0; token < B * T; token++) {
    const char *other = cache_case_other(arena, c, &got, &want, token);
    CHECK_AT(!other, "%s", other);
  }
}

static const int64_t chunks[] = {1, 3, 8};
enum { CHUNKS = sizeof chunks / sizeof *chunks };

static cache_logits on_cpu(tsr_arena *arena, const cache_model *m, tsr_dtype dtype) {
  cache_case whole = case_of(m, dtype, 0);
  whole.device = NULL;
  whole.look = NULL;
  return cache_case_run(arena, &whole);
}

/* One rank beside the CPU, other meshes beside one rank. */
static void check_model(const cache_model *m, tsr_dtype dtype) {
  static const cache_mesh meshes[] = {
      {1, 2, 1, 1, 1}, {1, 1, 1, 2, 1}, {1, 2, 1, 2, 1}, {2, 1, 2, 1, 1}};
  enum { MESHES = sizeof meshes / sizeof *meshes };
  tsr_arena *arena = tsr_arena_new();
  cache_logits want = on_cpu(arena, m, dtype);
  for (int k = 0; k < CHUNKS; k++) {
    if (dtype && chunks[k] != 3) continue;
    cache_case one = case_of(m, dtype, chunks[k]);
    one.last_only = k % 2;
    one.seed = k == 1 ? 7 : 0;
    cache_logits got = cache_case_run(arena, &one);
    check_near(arena, &one, got, want);
    for (int i = 0; i < MESHES; i++) {
      cache_case other = one;
      other.mesh = meshes[i];
      check_same(arena, &other, got);
    }
  }
  tsr_arena_free(arena);
}

/* Without products: whatever the chunks. */
static void check_chunks(void) {
  tsr_arena *arena = tsr_arena_new();
  cache_case c = case_of(&rows, TSR_F32, 1);
  cache_logits want = cache_case_run(arena, &c);
  check_near(arena, &c, want, on_cpu(arena, &rows, TSR_F32));
  for (int k = 0; k < CHUNKS; k++)
    for (uint64_t seed = 0; seed < 3; seed++)
      for (int last_only = 0; last_only < 2; last_only++) {
        c.chunk = chunks[k];
        c.seed = seed;
        c.last_only = last_only;
        c.mesh.dp = seed == 1 ? 2 : 1;
        c.mesh.tp = seed == 2 ? 2 : 1;
        check_same(arena, &c, want);
      }
  tsr_arena_free(arena);
}

/* Steps that are begun again, and steps that are begun task by task. */
static void check_recorded(void) {
  tsr_arena *arena = tsr_arena_new();
  cache_case c = case_of(&llama, TSR_F32, 3);
  c.seed = 5;
  cache_logits recorded = cache_case_run(arena, &c);
  setenv("TESSERA_CUDA_GRAPHS", "0", 1);
  check_same(arena, &c, recorded);
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
