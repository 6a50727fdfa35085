/* The GPU's attention against the CPU's: forward and backward, in f32 and, by the tensor cores'
 * fragments, in halves. Every call is made twice, by the emulator with blocks, threads and fetches
 * in opposite orders, which must change no bit; nor must what is beside a sequence and a group of
 * heads. */
#include "cuda_check.h"

struct attention_case {
  tsr_cuda_type type;
  tsr_attention a;
  numbers q, k, v, dout;
};

struct results {
  numbers out, stats, dq, dk, dv;
};

static std::string text(const char *name, const attention_case &c) {
  char s[128];
  snprintf(
      s, sizeof s, "%s of B %d T %d H %d G %d D %d causal %d dropout %g", name, (int)c.a.B,
      (int)c.a.T, (int)c.a.H, (int)c.a.G, (int)c.a.D, c.a.causal, (double)c.a.dropout);
  return s;
}

static results run(const attention_case &c) {
  call_arrays arrays;
  arrays.shift = 0;
  const uint64_t *key = c.a.dropout != 0 ? arrays.key(c.a.key) : NULL;
  int64_t q = (int64_t)c.q.size(), k = (int64_t)c.k.size(), rows = c.a.B * c.a.H * c.a.T;
  void *qs = arrays.in(c.type, c.q), *ks = arrays.in(c.type, c.k), *vs = arrays.in(c.type, c.v);
  void *dout = arrays.in(c.type, c.dout), *out = arrays.out(c.type, q);
  void *dq = arrays.out(c.type, q), *dk = arrays.out(c.type, k), *dv = arrays.out(c.type, k);
  float *stats = arrays.out(rows * 2);
  void *scratch = arrays.scratch(tsr_cuda_attention_scratch(&c.a));
  tsr_attention a = c.a;
  a.key = 0; /* the one in device memory counts */
  tsr_cuda_attention(NULL, c.type, &a, key, out, stats, qs, ks, vs);
  tsr_cuda_attention_backward(
      NULL, c.type, &a, key, dq, dk, dv, dout, qs, ks, vs, out, stats, scratch);
  finish_work();
  for (const array &x : arrays.all)
    CHECK_AT(array_intact(&x), "%s: wrote where it may not", text("attention", c).c_str());
  return {
      numbers_get(c.type, out, q), numbers_get(TSR_CUDA_F32, stats, rows * 2),
      numbers_get(c.type, dq, q), numbers_get(c.type, dk, k), numbers_get(c.type, dv, k)};
}

static void check_reference(const attention_case &c, const results &got) {
  const tsr_attention *a = &c.a;
  numbers out(got.out.size()), stats(got.stats.size()), dq = out, dk(got.dk.size()), dv = dk;
  std::vector<char> scratch((size_t)cpu->attention_scratch(a));
  cpu->attention(
      a, out.data(), stats.data(), c.q.data(), c.k.data(), c.v.data(), scratch.data(), 0,
      a->B * a->H);
  cpu->attention_backward(
      a, dq.data(), dk.data(), dv.data(), c.dout.data(), c.q.data(), c.k.data(), c.v.data(),
      out.data(), stats.data(), scratch.data(), 0, a->B * a->G);
  check_near(text("stats", c).c_str(), TSR_CUDA_F32, got.stats, stats);
  check_near(text("out", c).c_str(), c.type, got.out, out);
  check_near(text("dv", c).c_str(), c.type, got.dv, dv);
  if (a->T == 1) return; /* one key: dq and dk are nothing but rounding */
  check_near(text("dq", c).c_str(), c.type, got.dq, dq);
  check_near(text("dk", c).c_str(), c.type, got.dk, dk);
}

static void check_bits(const attention_case &c, const results &got, const results &want) {
  check_same(text("out", c).c_str(), got.out, want.out);
  check_same(text("stats", c).c_str(), got.stats, want.stats);
  check_same(text("dq", c).c_str(), got.dq, want.dq);
  check_same(text("dk", c).c_str(), got.dk, want.dk);
  check_same(text("dv", c).c_str(), got.dv, want.dv);
}

/* Of x (B,T,heads,D) the last `count` heads of the last sequence. */
static numbers last_heads(const numbers &x, const tsr_attention &a, int64_t heads, int64_t count) {
  numbers y;
  for (int64_t t = 0; t < a.T; t++) {
    int64_t end = ((a.B - 1) * a.T + t + 1) * heads * a.D;
    y.insert(y.end(), x.begin() + end - count * a.D, x.begin() + end);
  }
  return y;
}

/* The last group of heads of the last sequence, alone. */
static void check_alone(const attention_case &c, const results &whole) {
  const tsr_attention &a = c.a;
  int64_t heads = a.H / a.G, stats = heads * a.T * 2;
  attention_case one = {
      c.type,
      a,
      last_heads(c.q, a, a.H, heads),
      last_heads(c.k, a, a.G, 1),
      last_heads(c.v, a, a.G, 1),
      last_heads(c.dout, a, a.H, heads)};
  one.a.B = one.a.G = 1;
  one.a.H = heads;
  one.a.batch_offset += a.B - 1;
  one.a.head_offset += a.H - heads;
  results want = {
      last_heads(whole.out, a, a.H, heads),
      part(whole.stats, (int64_t)whole.stats.size() - stats, stats),
      last_heads(whole.dq, a, a.H, heads), last_heads(whole.dk, a, a.G, 1),
      last_heads(whole.dv, a, a.G, 1)};
  check_bits(one, run(one), want);
}

static void order(bool opposite) {
  run_backwards(opposite);
#if defined(TSR_EMULATED)
  emulator::fetches_late = !opposite;
#endif
}

static void check_call(tsr_cuda_type type, const tsr_attention &a) {
  int64_t n = a.B * a.T * a.D;
  attention_case c = {type, a, {}, {}, {}, {}};
  c.q = rounded(type, random_numbers(n * a.H, 2));
  c.k = rounded(type, random_numbers(n * a.G, 2));
  c.v = rounded(type, random_numbers(n * a.G, 1));
  c.dout = rounded(type, random_numbers(n * a.H, 1));
  order(false);
  results r = run(c);
  check_reference(c, r);
  order(true);
  if (a.B * a.G > 1) check_alone(c, r);
  else check_bits(c, run(c), r);
}

static tsr_attention
attention_of(int64_t B, int64_t T, int64_t H, int64_t G, int64_t D, bool causal, float dropout) {
  tsr_attention a = {};
  a.B = B, a.T = T, a.H = H, a.G = G, a.D = D;
  a.scale = 1 / sqrtf((float)D);
  a.causal = causal;
  a.dropout = dropout;
  a.key = check_random();
  a.batch_offset = 3, a.head_offset = 2, a.heads_global = H + 5;
  return a;
}

static void test_f32(void) {
  static const int64_t lengths[] = {1, 5, 64, 65, 130}, widths[] = {16, 64, 80, 128};
  for (int64_t T : lengths)
    for (int64_t D : widths)
      for (int way = 0; way < 4; way++) {
        int64_t G = way == 1 && T < 100 ? 2 : 1, H = way % 2 ? 3 * G : 1;
        tsr_attention a =
            attention_of(G == 1 && T < 100 ? 2 : 1, T, H, G, D, way != 2, way > 1 ? 0.1f : 0);
        check_call(TSR_CUDA_F32, a);
      }
  check_call(TSR_CUDA_F32, attention_of(2, 70, 2, 1, 3, true, 0.1f));
  check_call(TSR_CUDA_F32, attention_of(1, 70, 1, 1, 130, false, 0));
  check_call(TSR_CUDA_F32, attention_of(1, 67, 2, 1, 256, true, 0.1f));
}

static void test_halves(void) {
  static const struct {
    int64_t B, T, H, G, D;
    bool causal;
    float dropout;
  } list[] = {{2, 1, 1, 1, 64, true, 0},        {1, 5, 3, 1, 128, true, 0.1f},
              {2, 64, 1, 1, 16, true, 0},       {1, 65, 6, 2, 64, true, 0},
              {1, 65, 1, 1, 80, false, 0.1f},   {1, 130, 1, 1, 64, false, 0},
              {1, 130, 3, 1, 128, true, 0},     {2, 130, 1, 1, 96, true, 0.1f},
              {1, 130, 1, 1, 128, false, 0.1f}, {1, 200, 1, 1, 40, true, 0.1f},
              {1, 70, 2, 1, 36, true, 0.1f},    {1, 40, 1, 1, 160, false, 0}};
  int n = 0;
  for (const auto &s : list) {
    tsr_attention a = attention_of(s.B, s.T, s.H, s.G, s.D, s.causal, s.dropout);
    check_call(TSR_CUDA_BF16, a);
    if (n++ % 3 == 0) check_call(TSR_CUDA_F16, a);
  }
}

int main() {
  test_f32();
  test_halves();
  return check_done("cuda.attention");
}
