/* The GPU's attention against the CPU's: forward, backward and with a cache, in f32 and, by the tensor
 * cores' fragments, in halves. Every call is made twice, by the emulator with blocks,
 * threads and fetches in opposite orders, which must change no bit; nor must what is beside a
 * sequence and a group of heads. */
#include "tests/check.h"
extern "C" {
#include "kernels/kernels.h"
}
#include "hardware.h"
#include "kernels/cuda/kernels.h"
#include <vector>

static const tsr_kernels *const cpu = tsr_kernels_get("x86-64");

static uint64_t state = 88172645463325252u;

static uint64_t random_word() { /* xorshift */
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}

typedef std::vector<float> floats;

static void number_put(tsr_cuda_type type, void *to, int64_t i, float x) {
  if (type == TSR_CUDA_F32) ((float *)to)[i] = x;
  else if (type == TSR_CUDA_BF16) cpu->f32_to_bf16((uint16_t *)to + i, &x, 0, 1);
  else cpu->f32_to_fp16((uint16_t *)to + i, &x, 0, 1);
}

static float number_get(tsr_cuda_type type, const void *from, int64_t i) {
  float x;
  if (type == TSR_CUDA_F32) return ((const float *)from)[i];
  if (type == TSR_CUDA_BF16) cpu->bf16_to_f32(&x, (const uint16_t *)from + i, 0, 1);
  else cpu->fp16_to_f32(&x, (const uint16_t *)from + i, 0, 1);
  return x;
}

/* In [-size, size), rounded to the type. */
static float rounded(tsr_cuda_type type, float x) {
  uint32_t word;
  number_put(type, &word, 0, x);
  return number_get(type, &word, 0);
}

static floats random_floats(tsr_cuda_type type, int64_t n, float size) {
  floats x((size_t)n);
  for (float &y : x) y = rounded(type, (float)((double)(random_word() >> 40) * 0x1p-23 - 1) * size);
  return x;
}

/* n elements of a type, aligned to 16 bytes, with a guard on either side; NaNs at first. */
enum { GUARD = 64 };
struct array {
  tsr_cuda_type type;
  int64_t n, bytes;
  device_vector<unsigned char> memory;

  explicit array(tsr_cuda_type type, int64_t n)
      : type(type), n(n), bytes(n * (type == TSR_CUDA_F32 ? 4 : 2)),
        memory((size_t)bytes + 2 * GUARD + 16, 0xFF) {}
  array(tsr_cuda_type type, const floats &x) : array(type, (int64_t)x.size()) {
    for (int64_t i = 0; i < n; i++) number_put(type, data(), i, x[(size_t)i]);
  }
  void *data() { return memory.data() + GUARD + (16 - (uintptr_t)memory.data() % 16) % 16; }
  float at(int64_t i) { return number_get(type, data(), i); }
  bool intact() {
    const unsigned char *first = (unsigned char *)data();
    for (int i = 0; i < GUARD - 16; i++)
      if (first[-1 - i] != 0xFF || first[bytes + i] != 0xFF) return false;
    return true;
  }
};

static const char *type_name(tsr_cuda_type type) {
  static const char *const names[] = {"f32", "bf16", "f16"};
  return names[type];
}

struct call {
  tsr_cuda_type type;
  tsr_attention a;
  floats q, k, v, dout;
};

/* What a call gives; stats are f32. */
struct result {
  array out, stats, dq, dk, dv;
  explicit result(const call &c)
      : out(c.type, c.a.B * c.a.T * c.a.H * c.a.D), stats(TSR_CUDA_F32, c.a.B * c.a.H * c.a.T * 2),
        dq(c.type, out.n), dk(c.type, c.a.B * c.a.T * c.a.G * c.a.D), dv(c.type, dk.n) {}
};

static result run(const call &c) {
  array q(c.type, c.q), k(c.type, c.k), v(c.type, c.v), dout(c.type, c.dout);
  array scratch(TSR_CUDA_F32, tsr_cuda_attention_scratch(&c.a) / 4);
  result r(c);
  device_vector<uint64_t> key(1, c.a.key);
  const uint64_t *at = c.a.dropout != 0 ? key.data() : NULL;
  tsr_attention a = c.a;
  a.key = 0; /* the one in device memory counts */
  tsr_cuda_attention(
      NULL, c.type, &a, at, r.out.data(), (float *)r.stats.data(), q.data(), k.data(), v.data());
  tsr_cuda_attention_backward(
      NULL, c.type, &a, at, r.dq.data(), r.dk.data(), r.dv.data(), dout.data(), q.data(), k.data(),
      v.data(), r.out.data(), (const float *)r.stats.data(), scratch.data());
  finish_work();
  CHECK(r.out.intact() && r.stats.intact() && r.dq.intact() && r.dk.intact() && r.dv.intact());
  CHECK(scratch.intact());
  return r;
}

/* The biggest difference as a part of the biggest element (f32), or of the norms (halves). */
static double difference(array &got, const floats &want) {
  double most = 0, biggest = 0, sum = 0, norm = 0;
  for (int64_t i = 0; i < got.n; i++) {
    double x = want[(size_t)i], d = fabs(got.at(i) - x);
    if (!(d < INFINITY)) return INFINITY;
    most = d > most ? d : most;
    biggest = fabs(x) > biggest ? fabs(x) : biggest;
    sum += d * d, norm += x * x;
  }
  if (biggest == 0) return most; /* dropout took all */
  return got.type == TSR_CUDA_F32 ? most / biggest : sqrt(sum / norm);
}

static void
check_near(array &got, const floats &want, double bound, const char *what, const call &c) {
  double d = difference(got, want);
  CHECK_AT(
      d <= bound, "%s (%s, B %d T %d H %d G %d D %d causal %d dropout %g) is wrong by %.3g", what,
      type_name(c.type), (int)c.a.B, (int)c.a.T, (int)c.a.H, (int)c.a.G, (int)c.a.D, c.a.causal,
      (double)c.a.dropout, d);
}

static void check_reference(const call &c, result *r) {
  const tsr_attention *a = &c.a;
  floats out((size_t)r->out.n), stats((size_t)r->stats.n), dq = out, dk((size_t)r->dk.n), dv = dk;
  std::vector<char> scratch((size_t)cpu->attention_scratch(a));
  cpu->attention(
      a, out.data(), stats.data(), c.q.data(), c.k.data(), c.v.data(), scratch.data(), 0,
      a->B * a->H);
  cpu->attention_backward(
      a, dq.data(), dk.data(), dv.data(), c.dout.data(), c.q.data(), c.k.data(), c.v.data(),
      out.data(), stats.data(), scratch.data(), 0, a->B * a->G);
  double bound = c.type == TSR_CUDA_F32 ? 1e-5 : 1e-2;
  check_near(r->stats, stats, 1e-5, "stats", c);
  check_near(r->out, out, bound, "out", c);
  check_near(r->dv, dv, bound, "dv", c);
  if (a->T == 1) return; /* one key: dq and dk are nothing but rounding */
  check_near(r->dq, dq, bound, "dq", c);
  check_near(r->dk, dk, bound, "dk", c);
}

/* Of x (B,T,H,D) the heads [h, h + heads) of sequence b. */
static floats
part(const floats &x, const tsr_attention &a, int64_t H, int64_t b, int64_t h, int64_t heads) {
  floats y;
  for (int64_t t = 0; t < a.T; t++)
    for (int64_t i = 0; i < heads * a.D; i++)
      y.push_back(x[(size_t)(((b * a.T + t) * H + h) * a.D + i)]);
  return y;
}

static bool same_part(
    array &whole, array &part, const tsr_attention &a, int64_t H, int64_t b, int64_t h,
    int64_t heads) {
  int64_t size = whole.bytes / whole.n * heads * a.D, line = whole.bytes / whole.n * H * a.D;
  for (int64_t t = 0; t < a.T; t++)
    if (memcmp(
            (char *)whole.data() + (b * a.T + t) * line + h * size / heads,
            (char *)part.data() + t * size, (size_t)size))
      return false;
  return true;
}

/* The last group of heads of the last sequence, alone. */
static void check_alone(const call &c, result *whole) {
  int64_t heads = c.a.H / c.a.G, b = c.a.B - 1, g = c.a.G - 1, h = g * heads;
  call one = {c.type, c.a, {}, {}, {}, {}};
  one.a.B = one.a.G = 1;
  one.a.H = heads;
  one.a.batch_offset += b;
  one.a.head_offset += h;
  one.q = part(c.q, c.a, c.a.H, b, h, heads);
  one.dout = part(c.dout, c.a, c.a.H, b, h, heads);
  one.k = part(c.k, c.a, c.a.G, b, g, 1);
  one.v = part(c.v, c.a, c.a.G, b, g, 1);
  result r = run(one);
  CHECK(same_part(whole->out, r.out, c.a, c.a.H, b, h, heads));
  CHECK(same_part(whole->dq, r.dq, c.a, c.a.H, b, h, heads));
  CHECK(same_part(whole->dk, r.dk, c.a, c.a.G, b, g, 1));
  CHECK(same_part(whole->dv, r.dv, c.a, c.a.G, b, g, 1));
  int64_t from = (b * c.a.H + h) * c.a.T * 8;
  CHECK(!memcmp((char *)whole->stats.data() + from, r.stats.data(), (size_t)r.stats.bytes));
}

static void order(bool opposite) {
  run_backwards(opposite);
#if defined(TSR_EMULATED)
  emulator::fetches_late = !opposite;
#endif
}

static void check_call(tsr_cuda_type type, tsr_attention a) {
  call c = {type, a, {}, {}, {}, {}};
  int64_t rows = a.B * a.T * a.D;
  c.q = random_floats(type, rows * a.H, 2);
  c.k = random_floats(type, rows * a.G, 2);
  c.v = random_floats(type, rows * a.G, 1);
  c.dout = random_floats(type, rows * a.H, 1);
  order(false);
  result r = run(c);
  check_reference(c, &r);
  order(true);
  if (a.B * a.G > 1) check_alone(c, &r);
  else {
    result other = run(c);
    CHECK(r.out.memory.size() == other.out.memory.size());
    CHECK(!memcmp(r.out.data(), other.out.data(), (size_t)r.out.bytes));
    CHECK(!memcmp(r.stats.data(), other.stats.data(), (size_t)r.stats.bytes));
    CHECK(!memcmp(r.dq.data(), other.dq.data(), (size_t)r.dq.bytes));
    CHECK(!memcmp(r.dk.data(), other.dk.data(), (size_t)r.dk.bytes));
    CHECK(!memcmp(r.dv.data(), other.dv.data(), (size_t)r.dv.bytes));
  }
}

static tsr_attention
attention_of(int64_t B, int64_t T, int64_t H, int64_t G, int64_t D, bool causal, float dropout) {
  tsr_attention a = {};
  a.B = B, a.T = T, a.H = H, a.G = G, a.D = D;
  a.scale = 1 / sqrtf((float)D);
  a.causal = causal;
  a.dropout = dropout;
  a.key = random_word();
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

/* ---- with a cache ---- */

struct cache {
  int64_t B, H, G, D, length;
  tsr_cuda_type type;
  floats q, k, v; /* (B,length,…) */
};

/* T new tokens of each sequence; out as it is in memory. */
static array run_cached(
    const cache &x, int64_t T, const int32_t *positions,
    const int32_t *counts, bool compare) {
  device_vector<int32_t> at(positions, positions + x.B), news(counts, counts + x.B);
  tsr_attention_cached c = {
      attention_of(x.B, T, x.H, x.G, x.D, true, 0), x.length, at.data(), news.data()};
  floats q((size_t)(x.B * T * x.H * x.D), NAN), k = x.k, v = x.v;
  int64_t width = x.H * x.D, cached = x.G * x.D;
  for (int64_t b = 0; b < x.B; b++) {
    for (int64_t i = 0; i < counts[b] * width; i++)
      q[(size_t)(b * T * width + i)] = x.q[(size_t)((b * x.length + positions[b]) * width + i)];
    for (int64_t i = (positions[b] + counts[b]) * cached; i < x.length * cached; i++)
      k[(size_t)(b * x.length * cached + i)] = v[(size_t)(b * x.length * cached + i)] = NAN;
  }
  array out(x.type, (int64_t)q.size()), qs(x.type, q), ks(x.type, k), vs(x.type, v);
  tsr_cuda_attention_cached(NULL, x.type, &c, out.data(), qs.data(), ks.data(), vs.data());
  finish_work();
  CHECK(out.intact());
  if (!compare) return out;
  floats want(q.size());
  std::vector<char> scratch((size_t)cpu->attention_cached_scratch(&c));
  cpu->attention_cached(
      &c, want.data(), q.data(), k.data(), v.data(), scratch.data(), 0, x.B * x.G);
  double d = difference(out, want);
  CHECK_AT(
      d <= (x.type == TSR_CUDA_F32 ? 1e-5 : 1e-2), "cached (%s, T %d D %d) is wrong by %.3g",
      type_name(x.type), (int)T, (int)x.D, d);
  return out;
}

static void check_cache(cache x) {
  int64_t width = x.H * x.D;
  x.q = random_floats(x.type, x.B * x.length * width, 2);
  x.k = random_floats(x.type, x.B * x.length * x.G * x.D, 2);
  x.v = random_floats(x.type, x.B * x.length * x.G * x.D, 1);
  for (int32_t T = 1; T <= 7; T += 3) {
    int32_t positions[4], counts[4];
    for (int64_t b = 0; b < x.B; b++) {
      positions[b] = (int32_t)(random_word() % (uint64_t)(x.length - T));
      counts[b] = b ? (int32_t)(random_word() % (uint64_t)(T + 1)) : T;
    }
    order(false);
    array whole = run_cached(x, T, positions, counts, true);
    order(true); /* the last of the first sequence's, as the only new one */
    int32_t alone[4] = {positions[0] + T - 1}, one[4] = {1};
    array last = run_cached(x, 1, alone, one, false);
    size_t size = (size_t)(whole.bytes / whole.n * width);
    CHECK(!memcmp((char *)whole.data() + (size_t)(T - 1) * size, last.data(), size));
  }
}

static void test_cached(void) {
  check_cache({2, 2, 1, 64, 700, TSR_CUDA_F32, {}, {}, {}});
  check_cache({1, 5, 1, 33, 150, TSR_CUDA_F32, {}, {}, {}});
  check_cache({2, 2, 2, 128, 1400, TSR_CUDA_BF16, {}, {}, {}});
  check_cache({1, 3, 1, 256, 90, TSR_CUDA_F16, {}, {}, {}});
}

int main() {
  test_cached();
  test_f32();
  test_halves();
  return check_done("cuda.attention");
}
