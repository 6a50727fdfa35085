// SPDX-License-Identifier: Apache-2.0
/* Generation with a cache: logits of new tokens behind kept ones have the bits of the whole window,
 * on every mesh, for chunks of any size, in every precision; what cannot be kept is refused by
 * name. */
#include "cache_case.h"
#include "tests/check.h"

enum { B = 4, T = 16 };

/* A table of positions that is a slice of a longer one, biases, head and embedding tied. */
static const cache_model gpt2 = {
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
static const cache_model llama = {
    "llama",
    "wte 24,20 1; n1 20; wq 32,20 0; wk 16,20 0; wv 16,20 0; wo 20,32 1; n2 20; gate 28,20 0\n"
    "up 28,20 0; down 20,28 1; wq2 32,20 0; wk2 16,20 0; wv2 16,20 0; s2 8 0; wo2 20,32 1; nf 20; "
    "head "
    "24,20 "
    "0",
    "x0: embedding(tokens, wte); h: rmsnorm(x0, n1); q: linear(h, wq); k: linear(h, wk)\n"
    "v: linear(h, wv); qr: rope(q, head_dim: 4); kr: rope(k, head_dim: 4)\n"
    "a: attention(qr, kr, v, head_dim: 4); o: linear(a, wo); x1: add(x0, o)\n"
    "h2: rmsnorm(x1, n2, zero_centered: 1)\n"
    "gs: scale(gate, factor: 0.5); g: linear(h2, gs); u: linear(h2, up); s: swiglu(g, u); d: "
    "linear(s, down); x2: add(x1, d)\n"
    "q2: linear(x2, wq2); k2: linear(x2, wk2); v2: linear(x2, wv2); qr2: rope(q2, head_dim: 4)\n"
    "kr2: rope(k2, head_dim: 4); a2: attention(qr2, kr2, v2, s2, head_dim: 4, window: 3, soft_cap: "
    "0.5); o2: "
    "linear(a2, wo2)\n"
    "x3: add(x2, o2); hf: rmsnorm(x3, nf); z: linear(hf, head); f: scale(z, factor: 0.5)\n"
    "t: tanh(f); logits: scale(t, factor: 2)"};

/* Norms of every query and key head, so that positions go through reshapes; a factor of each
 * position. */
static const cache_model qwen = {
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

/* Latent attention: a part of each key that all heads share and that alone has positions. */
static const cache_model mla = {
    "mla",
    "wte 24,20 1; n1 20; wq 32,20 0; kva 9,20; kn 5; kvb 28,5 0; wo 20,12 1; nf 20; head 24,20 0",
    "x0: embedding(tokens, wte); h: rmsnorm(x0, n1); q: linear(h, wq)\n"
    "qr: rope(q, head_dim: 8, rotary_dim: 4, offset: 4, interleaved: 1)\n"
    "kv: linear(h, kva); latent: slice(kv, dim: 2, begin: 0, end: 5)\n"
    "shared: slice(kv, dim: 2, begin: 5, end: 9); kr: rope(shared, head_dim: 4, interleaved: 1)\n"
    "kr4: expand_heads(kr, heads: 4); kr44: reshape(kr4, shape: [$B,$T,4,4])\n"
    "ln: rmsnorm(latent, kn); wide: linear(ln, kvb); wide4: reshape(wide, shape: [$B,$T,4,7])\n"
    "k4: slice(wide4, dim: 3, begin: 0, end: 4); v4: slice(wide4, dim: 3, begin: 4, end: 7)\n"
    "kk: concat(k4, kr44); k: reshape(kk, shape: [$B,$T,32]); v: reshape(v4, shape: [$B,$T,12])\n"
    "a: attention(qr, k, v, head_dim: 8, v_head_dim: 3, scale: 0.3)\n"
    "o: linear(a, wo); x1: add(x0, o); hf: rmsnorm(x1, nf); logits: linear(hf, head)"};

/* Mixtures of experts: one whose experts are shared out, one whose experts tp splits, of which some
 * have no token and every token has several. */
static const cache_model moe = {
    "moe",
    "wte 24,16 0; n1 16; wq 16,16 0; wk 16,16 0; wv 16,16 0; wo 16,16 1; n2 16; r 16,16\n"
    "gate 16,12,16 experts 0; up 16,12,16 experts 0; down 16,16,12 experts 0; nf 16\n"
    "wq2 16,16 0; wk2 16,16 0; wv2 16,16 0; wo2 16,16 1; n4 16; r2 8,16; bias 8\n"
    "up2 8,12,16 experts 1; down2 8,16,12 experts 2; head 24,16 0",
    "x0: embedding(tokens, wte); h: rmsnorm(x0, n1); q: linear(h, wq); k: linear(h, wk)\n"
    "v: linear(h, wv); qr: rope(q, head_dim: 4); kr: rope(k, head_dim: 4)\n"
    "a: attention(qr, kr, v, head_dim: 4); o: linear(a, wo); x1: add(x0, o); h2: rmsnorm(x1, n2)\n"
    "z: router(h2, r); p: softmax(z); c: choose_experts(p, k: 3)\n"
    "pw: expert_weights(p, c, normalize: 1); plan: expert_plan(c, gate, capacity: 0.5)\n"
    "rows: permute_experts(h2, plan); g: expert_linear(rows, gate, plan)\n"
    "u: expert_linear(rows, up, plan); s: swiglu(g, u); d: expert_linear(s, down, plan)\n"
    "f: combine_experts(d, pw, plan); x2: add(x1, f); h3: rmsnorm(x2, nf); q2: linear(h3, wq2)\n"
    "k2: linear(h3, wk2); v2: linear(h3, wv2); a2: attention(q2, k2, v2, head_dim: 4)\n"
    "o2: linear(a2, wo2); x3: add(x2, o2); h4: rmsnorm(x3, n4); z2: router(h4, r2)\n"
    "p2: sigmoid(z2); c2: choose_experts(p2, bias, k: 2, groups: 4, kept_groups: 2)\n"
    "pw2: expert_weights(p2, c2); plan2: expert_plan(c2, pw2, up2)\n"
    "rows2: permute_experts(h4, plan2)\n"
    "u2: expert_linear(rows2, up2, plan2); ug2: gelu(u2); d2: expert_linear(ug2, down2, plan2)\n"
    "f2: combine_experts(d2, pw2, plan2); x4: add(x3, f2); logits: linear(x4, head)"};

static void check_case(const cache_case *c, const cache_logits *whole) {
  tsr_arena *arena = tsr_arena_new();
  cache_logits got = cache_case_run(arena, c);
  for (int64_t token = 0; token < B * T; token++) {
    const char *other = cache_case_other(arena, c, &got, whole, token);
    CHECK_AT(!other, "%s", other);
  }
  tsr_arena_free(arena);
}

typedef struct {
  const cache_mesh *meshes;
  int count;
} mesh_list;

static void check_model(const cache_model *m, tsr_dtype dtype, const mesh_list *over) {
  static const int64_t chunks[] = {1, 3, T};
  tsr_arena *arena = tsr_arena_new();
  cache_case c = {.model = m, .B = B, .T = T, .mesh = {1, 1, 1, 1, 1}, .dtype = dtype};
  cache_logits whole = cache_case_run(arena, &c);
  for (int i = 0; i < over->count; i++)
    for (size_t k = 0; k < sizeof chunks / sizeof *chunks; k++) {
      c.mesh = over->meshes[i];
      c.chunk = chunks[k];
      c.last_only = ((size_t)i + k) % 2;
      c.seed = 0;
      check_case(&c, &whole);
      c.seed = (uint64_t)i * 100 + k + 1;
      c.last_only = !c.last_only;
      check_case(&c, &whole);
    }
  tsr_arena_free(arena);
}

/* A soft cap of the logits costs no product of other tokens than the last. */
static void test_capped_logits(void) {
  tsr_arena *arena = tsr_arena_new();
  cache_model m = {
      "capped", "wte 24,8; w 24,8",
      "x: embedding(tokens, wte); z: linear(x, w); t: tanh(z); logits: scale(t, factor: 2)"};
  tsr_graph *g = cache_case_graph(arena, &(cache_case){.model = &m, .B = B, .T = T}), *out = NULL;
  const char *why = "";
  int products = 0;
  tsr_cache_shape shape = {.new_tokens = 3, .last_only = true, .page = TSR_CACHE_PAGE_STEP};
  CHECK(tsr_pass_cache(g, &shape, &out, &why));
  for (int i = 0; out && i < out->nodes_count; i++) {
    const tsr_node *n = &out->nodes[i];
    if (n->op != TSR_OP_LINEAR && n->op != TSR_OP_TANH && n->op != TSR_OP_SCALE) continue;
    CHECK_INT(out->values[n->outputs[0]].shape[1], 1);
    products++;
  }
  CHECK_INT(products, 3);
  tsr_arena_free(arena);
}

/* ---- what cannot be kept ---- */

static void check_refusal(const char *params, const char *calls, const char *want) {
  tsr_arena *arena = tsr_arena_new();
  cache_model m = {"refused", params, calls};
  tsr_graph *g = cache_case_graph(arena, &(cache_case){.model = &m, .B = B, .T = T}), *out = NULL;
  const char *why = "";
  tsr_cache_shape shape = {.new_tokens = 1, .last_only = true, .page = TSR_CACHE_PAGE_STEP};
  CHECK(!tsr_pass_cache(g, &shape, &out, &why));
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

static const cache_mesh dense_meshes[] = {{1, 1, 1, 1, 1}, {1, 2, 1, 1, 2}, {1, 1, 1, 2, 3},
                                          {2, 1, 1, 1, 1}, {1, 1, 2, 1, 2}, {1, 2, 1, 2, 1},
                                          {2, 2, 1, 2, 2}, {1, 4, 1, 4, 1}, {4, 1, 2, 1, 1}};
static const cache_mesh expert_meshes[] = {{1, 1, 1, 1, 1},          {1, 1, 1, 1, 2, .ep = 2},
                                           {1, 1, 1, 2, 2, .ep = 2}, {2, 1, 1, 1, 1, .ep = 4},
                                           {1, 2, 1, 1, 2, .ep = 2}, {1, 1, 2, 2, 1},
                                           {2, 2, 1, 2, 2}};
static const mesh_list dense = {dense_meshes, sizeof dense_meshes / sizeof *dense_meshes},
                       experts = {expert_meshes, sizeof expert_meshes / sizeof *expert_meshes};

int main(void) {
  const cache_model *const models[] = {&gpt2, &llama, &qwen, &mla, &moe};
  for (int i = 0; i < 5; i++)
    for (tsr_dtype d = TSR_F32; d <= TSR_F16; d++)
      if (d != TSR_I32) check_model(models[i], d, models[i] == &moe ? &experts : &dense);
  test_capped_logits();
  test_refusals();
  return check_done("cache");
}
