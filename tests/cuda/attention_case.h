// SPDX-License-Identifier: Apache-2.0
/* What the tests of attention on the GPU share: a call's inputs and results, what the CPU's kernels
 * make of the same, and what stays when the last group of heads is alone. */
#ifndef TSR_TESTS_CUDA_ATTENTION_CASE_H
#define TSR_TESTS_CUDA_ATTENTION_CASE_H
#include "cuda_check.h"

struct attention_case {
  tsr_cuda_type type;
  tsr_attention a;
  numbers q, k, v, dout;
  integers positions; /* (B, T) of documents; empty: none */
  numbers sinks;      /* (H); empty: none */
  bool wgmma = false; /* by the kernels with wgmma */
};

enum { RESULTS = 6 };
static const char *const result_names[RESULTS] = {"out", "stats", "dq", "dk", "dv", "dsinks"};

struct results {
  numbers of[RESULTS]; /* stats are f32 */
};

static inline tsr_attention attention_of(
    int64_t B, int64_t T, int64_t H, int64_t G, int64_t D, bool causal, float dropout,
    int64_t window = 0, float soft_cap = 0) {
  tsr_attention a = {};
  a.B = B, a.T = T, a.H = H, a.G = G, a.D = D;
  a.scale = 1 / sqrtf((float)D);
  a.causal = causal;
  a.window = window;
  a.soft_cap = soft_cap;
  a.dropout = dropout;
  a.key = check_random();
  a.batch_offset = 3, a.head_offset = 2, a.heads_global = H + 5;
  a.head_gap = H % 2 ? 0 : 3;
  return a;
}

/* The same with heads of values that have another width. */
static inline tsr_attention with_values(tsr_attention a, int64_t Dv) {
  a.Dv = Dv;
  return a;
}

static inline attention_case case_new(tsr_cuda_type type, const tsr_attention &a) {
  int64_t n = a.B * a.T * a.D, of_values = a.B * a.T * tsr_attention_value_size(&a);
  attention_case c = {type, a, {}, {}, {}, {}, {}, {}, false};
  c.q = rounded(type, random_numbers(n * a.H, 2));
  c.k = rounded(type, random_numbers(n * a.G, 2));
  c.v = rounded(type, random_numbers(of_values * a.G, 1));
  c.dout = rounded(type, random_numbers(of_values * a.H, 1));
  return c;
}

/* For messages: a result of a case. */
static inline std::string case_text(const attention_case &c, int result) {
  char s[128];
  snprintf(
      s, sizeof s,
      "%s of B %d T %d H %d G %d D %d Dv %d causal %d window %d dropout %g soft cap %g",
      result_names[result], (int)c.a.B, (int)c.a.T, (int)c.a.H, (int)c.a.G, (int)c.a.D, (int)c.a.Dv,
      c.a.causal, (int)c.a.window, (double)c.a.dropout, (double)c.a.soft_cap);
  return s;
}

/* Forward and backward, by the kernels for a whole sequence, or for the rows of `own`, which are in
 * own_q; out and stats are those of all rows then. */
static inline results run_whole(
    const attention_case &c, tsr_attention_rows own = {}, const numbers &own_q = {},
    const results &all = {}) {
  call_arrays arrays;
  arrays.shift = 0;
  const uint64_t *key = c.a.dropout != 0 ? arrays.key(c.a.key) : NULL;
  bool is_part = own.runs > 0;
  int64_t of_rows = is_part ? own.runs * own.each : c.a.T, Dv = tsr_attention_value_size(&c.a);
  int64_t heads = c.a.B * of_rows * c.a.H, groups = c.a.B * of_rows * c.a.G;
  int64_t q = heads * c.a.D, k = groups * c.a.D, rows = heads;
  void *qs = arrays.in(c.type, c.q), *ks = arrays.in(c.type, c.k), *vs = arrays.in(c.type, c.v);
  void *dout = arrays.in(c.type, c.dout), *out = arrays.out(c.type, heads * Dv);
  void *dq = arrays.out(c.type, q), *dk = arrays.out(c.type, k),
       *dv = arrays.out(c.type, groups * Dv);
  float *stats = arrays.out(rows * 2);
  void *scratch = arrays.scratch(tsr_cuda_attention_scratch(&c.a));
  void *own_qs = is_part ? arrays.in(c.type, own_q) : qs;
  const void *outs = is_part ? arrays.in(c.type, all.of[0]) : out;
  const float *all_stats = is_part ? arrays.in(all.of[1]) : stats;
  tsr_attention a = c.a;
  a.key = 0; /* the one in device memory counts */
  a.positions = c.positions.empty() ? NULL : arrays.in(c.positions);
  a.sinks = c.sinks.empty() ? NULL : arrays.in(c.sinks);
  a.rows = own;
  int64_t sink_rows = a.sinks && !is_part ? rows : 0;
  void *dsinks = arrays.out(c.type, sink_rows);
  if (c.wgmma) tsr_cuda_attention_wgmma(NULL, c.type, &a, out, stats, own_qs, ks, vs);
  else tsr_cuda_attention(NULL, c.type, &a, key, out, stats, own_qs, ks, vs);
  if (c.wgmma)
    tsr_cuda_attention_wgmma_backward(
        NULL, c.type, &a, dq, dk, dv, dout, qs, ks, vs, outs, all_stats, scratch);
  else
    tsr_cuda_attention_backward(
        NULL, c.type, &a, key, dq, dk, dv, dout, qs, ks, vs, outs, all_stats, scratch);
  if (sink_rows) tsr_cuda_attention_sinks_backward(NULL, c.type, &a, dsinks, dout, out, stats);
  finish_work();
  for (const array &x : arrays.all)
    CHECK_AT(array_intact(&x), "%s: wrote where it may not", case_text(c, 0).c_str());
  return {
      {numbers_get(c.type, out, heads * Dv), numbers_get(TSR_CUDA_F32, stats, rows * 2),
       numbers_get(c.type, dq, q), numbers_get(c.type, dk, k), numbers_get(c.type, dv, groups * Dv),
       numbers_get(c.type, dsinks, sink_rows)}};
}

static inline void check_reference(const attention_case &c, const results &got) {
  tsr_attention of = c.a;
  const tsr_attention *a = &of;
  of.positions = c.positions.empty() ? NULL : c.positions.data();
  of.sinks = c.sinks.empty() ? NULL : c.sinks.data();
  results want;
  for (int i = 0; i < RESULTS; i++) want.of[i].resize(got.of[i].size());
  float *out = want.of[0].data(), *stats = want.of[1].data();
  std::vector<char> scratch((size_t)cpu->attention_scratch(a));
  cpu->attention(a, out, stats, c.q.data(), c.k.data(), c.v.data(), scratch.data(), 0, a->B * a->H);
  cpu->attention_backward(
      a, want.of[2].data(), want.of[3].data(), want.of[4].data(), c.dout.data(), c.q.data(),
      c.k.data(), c.v.data(), out, stats, scratch.data(), 0, a->B * a->G);
  if (!got.of[5].empty())
    cpu->attention_sinks_backward(a, want.of[5].data(), c.dout.data(), out, stats, 0, a->B * a->T);
  for (int i = 0; i < RESULTS; i++) {
    bool one_key = a->T == 1 || a->window == 1;
    if (one_key && (i == 2 || i == 3)) continue; /* nothing but rounding */
    tsr_cuda_type type = i == 1 ? TSR_CUDA_F32 : c.type;
    check_near(case_text(c, i).c_str(), type, got.of[i], want.of[i]);
  }
}

static inline void check_bits(
    const attention_case &c, const results &got, const results &want, const std::string &what) {
  for (int i = 0; i < RESULTS; i++)
    check_same((case_text(c, i) + ", " + what).c_str(), got.of[i], want.of[i]);
}

/* Of x (B, T, heads, D) the last `count` heads of the last sequence. */
static inline numbers
last_heads(const numbers &x, const tsr_attention &a, int64_t heads, int64_t count, int64_t D) {
  numbers y;
  for (int64_t t = 0; t < a.T; t++) {
    int64_t end = ((a.B - 1) * a.T + t + 1) * heads * D;
    y.insert(y.end(), x.begin() + end - count * D, x.begin() + end);
  }
  return y;
}

/* The last group of heads of the last sequence, alone. */
static inline attention_case last_group(const attention_case &c) {
  const tsr_attention &a = c.a;
  int64_t heads = a.H / a.G, Dv = tsr_attention_value_size(&a);
  attention_case one = {
      c.type,
      a,
      last_heads(c.q, a, a.H, heads, a.D),
      last_heads(c.k, a, a.G, 1, a.D),
      last_heads(c.v, a, a.G, 1, Dv),
      last_heads(c.dout, a, a.H, heads, Dv),
      {},
      {},
      c.wgmma};
  if (!c.sinks.empty()) one.sinks.assign(c.sinks.end() - heads, c.sinks.end());
  one.a.B = one.a.G = 1;
  one.a.H = heads;
  one.a.batch_offset += a.B - 1;
  one.a.head_offset += a.H - heads;
  if (heads < a.H) one.a.head_offset += a.head_gap, one.a.head_gap = 0;
  return one;
}

static inline results last_group_of(const attention_case &c, const results &whole) {
  const tsr_attention &a = c.a;
  int64_t heads = a.H / a.G, stats = heads * a.T * 2, Dv = tsr_attention_value_size(&a);
  numbers dsinks = whole.of[5];
  if (!dsinks.empty()) dsinks = last_heads(dsinks, a, a.H, heads, 1);
  return {
      {last_heads(whole.of[0], a, a.H, heads, Dv),
       part(whole.of[1], (int64_t)whole.of[1].size() - stats, stats),
       last_heads(whole.of[2], a, a.H, heads, a.D), last_heads(whole.of[3], a, a.G, 1, a.D),
       last_heads(whole.of[4], a, a.G, 1, Dv), dsinks}};
}

/* In which blocks, threads and fetches come. */
static inline void order(bool opposite) {
  run_backwards(opposite);
#if defined(TSR_EMULATED)
  emulator::fetches_late = !opposite;
#endif
}

/* Near the CPU's. The call is made twice, by the emulator with blocks, threads and fetches in
 * opposite orders, which must change no bit; nor must what is beside a sequence and a group of
 * heads. */
static inline void check_call(
    tsr_cuda_type type, const tsr_attention &a, const numbers &sinks = {}, bool wgmma = false) {
  attention_case c = case_new(type, a);
  c.wgmma = wgmma;
  c.sinks = sinks;
  attention_case one = last_group(c);
  order(false);
  results r = run_whole(c);
  check_reference(c, r);
  order(true);
  if (a.B * a.G > 1) check_bits(one, run_whole(one), last_group_of(c, r), "alone");
  else check_bits(c, run_whole(c), r, "again");
}

#endif
