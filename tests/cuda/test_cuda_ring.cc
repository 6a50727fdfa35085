// SPDX-License-Identifier: Apache-2.0
/* Attention over units of a sequence against the CPU's attention over the whole of it, and bit for
 * bit the same whichever members hold the units, in which layout, and in which order blocks,
 * threads and fetches come. With one unit it has the bits of attention itself. Then the rows by
 * units that the gradient of a table is added in. Members take turns here; half precision goes by
 * the tensor cores where heads are a multiple of 8 wide. */
#include "attention_case.h"
#include <algorithm>
extern "C" {
#include "base/sequence_layout.h"
#include "kernels/ring_attention_merge.h"
}

enum { SUMS = 3, MEMBERS_MAX = 8 };

/* a.T is the whole length. */
struct ring_case {
  attention_case of;
  int64_t units;
};

/* ---- what a member holds ---- */

struct member {
  tsr_attention_ring r;
  float *acc[SUMS], *stats, *rows;
  void *scratch[SUMS], *q, *k, *v, *dout, *out, *dq, *dk, *dv, *dsinks;
};

static int64_t position_of(const tsr_attention_ring &r, int64_t t) {
  tsr_ring map = {r.units, r.members, 0, r.zigzag, false};
  int64_t rows = r.length / r.units;
  return tsr_ring_unit(&map, r.coord, t / rows) * rows + t % rows;
}

/* A member's part (outer, T, inner) of (outer, length, inner). */
static numbers
split(const tsr_attention_ring &r, const numbers &whole, int64_t outer, int64_t inner) {
  numbers part;
  for (int64_t o = 0; o < outer; o++)
    for (int64_t t = 0; t < r.a.T; t++) {
      const float *from = &whole[(size_t)((o * r.length + position_of(r, t)) * inner)];
      part.insert(part.end(), from, from + inner);
    }
  return part;
}

static void
put(const tsr_attention_ring &r, numbers *whole, const numbers &part, int64_t outer,
    int64_t inner) {
  whole->resize((size_t)(outer * r.length * inner));
  for (int64_t o = 0; o < outer; o++)
    for (int64_t t = 0; t < r.a.T; t++)
      std::copy_n(
          &part[(size_t)((o * r.a.T + t) * inner)], inner,
          &(*whole)[(size_t)((o * r.length + position_of(r, t)) * inner)]);
}

static member member_new(call_arrays *arrays, const attention_case &c, tsr_attention_ring r) {
  const tsr_attention &a = r.a;
  int64_t rows = a.B * a.T, q = a.H * a.D, k = a.G * a.D, Dv = tsr_attention_value_size(&a);
  int64_t out = a.H * Dv, v = a.G * Dv;
  member m = {};
  m.r = r;
  for (int i = 0; i < SUMS; i++) {
    tsr_attention_sum sum = (tsr_attention_sum)i;
    m.acc[i] = (float *)arrays->scratch(tsr_cuda_attention_ring_acc(&r, sum));
    m.scratch[i] = arrays->scratch(tsr_cuda_attention_ring_scratch(&r, sum));
    /* what the graph's accumulators have room for (device/cuda_ring.c) */
    CHECK(tsr_cuda_attention_ring_acc(&r, sum) <= cpu->attention_ring_acc(&r, sum));
  }
  m.q = arrays->in(c.type, split(r, c.q, a.B, q)),
  m.dout = arrays->in(c.type, split(r, c.dout, a.B, out));
  m.k = arrays->in(c.type, split(r, c.k, a.B, k)), m.v = arrays->in(c.type, split(r, c.v, a.B, v));
  m.out = arrays->out(c.type, rows * out), m.dq = arrays->out(c.type, rows * q);
  m.dk = arrays->out(c.type, rows * k), m.dv = arrays->out(c.type, rows * v);
  m.dsinks = arrays->out(c.type, a.sinks ? rows * a.H : 0);
  m.stats = arrays->out(rows * a.H * 2), m.rows = arrays->out(rows * a.H * 3);
  return m;
}

static const member &keys_of(const member *all, const member &m) {
  return all[(m.r.coord - m.r.step + m.r.members) % m.r.members];
}

static void member_forward(tsr_cuda_type type, member *m, const member *all, const uint64_t *key) {
  for (m->r.step = 0; m->r.step < m->r.members; m->r.step++) {
    const member &from = keys_of(all, *m);
    tsr_cuda_attention_ring(NULL, type, &m->r, key, m->acc[0], m->q, from.k, from.v, m->scratch[0]);
  }
  tsr_cuda_attention_ring_finish(NULL, type, &m->r, m->out, m->stats, m->acc[0]);
  tsr_cuda_attention_ring_rows(NULL, type, &m->r, m->rows, m->dout, m->out, m->stats);
}

static void member_backward(tsr_cuda_type type, member *m, const member *all, const uint64_t *key) {
  for (m->r.step = 0; m->r.step < m->r.members; m->r.step++) {
    const member &keys = keys_of(all, *m), &queries = all[(m->r.coord + m->r.step) % m->r.members];
    tsr_cuda_attention_ring_dq(
        NULL, type, &m->r, key, m->acc[1], m->dout, m->q, keys.k, keys.v, m->rows, m->scratch[1]);
    tsr_cuda_attention_ring_dkv(
        NULL, type, &m->r, key, m->acc[2], queries.dout, queries.q, queries.rows, m->k, m->v,
        m->scratch[2]);
  }
  if (m->r.a.sinks)
    tsr_cuda_attention_sinks_backward(NULL, type, &m->r.a, m->dsinks, m->dout, m->out, m->stats);
  tsr_cuda_attention_ring_dq_finish(NULL, type, &m->r, m->dq, m->acc[1]);
  tsr_cuda_attention_ring_dkv_finish(NULL, type, &m->r, m->dk, m->dv, m->acc[2]);
}

static void member_gather(tsr_cuda_type type, const member &m, results *all) {
  const tsr_attention &a = m.r.a;
  int64_t rows = a.B * a.T, q = a.H * a.D, k = a.G * a.D, Dv = tsr_attention_value_size(&a);
  int64_t out = a.H * Dv, v = a.G * Dv;
  put(m.r, &all->of[0], numbers_get(type, m.out, rows * out), a.B, out);
  put(m.r, &all->of[1], numbers_get(TSR_CUDA_F32, m.stats, rows * a.H * 2), a.B * a.H, 2);
  put(m.r, &all->of[2], numbers_get(type, m.dq, rows * q), a.B, q);
  put(m.r, &all->of[3], numbers_get(type, m.dk, rows * k), a.B, k);
  put(m.r, &all->of[4], numbers_get(type, m.dv, rows * v), a.B, v);
  if (a.sinks) put(m.r, &all->of[5], numbers_get(type, m.dsinks, rows * a.H), a.B, a.H);
}

static results run(const ring_case &c, int members, bool zigzag) {
  const attention_case &of = c.of;
  call_arrays arrays;
  member m[MEMBERS_MAX];
  results all;
  arrays.shift = 0;
  uint64_t *key = of.a.dropout != 0 ? arrays.key(of.a.key) : NULL;
  const float *sinks = of.sinks.empty() ? NULL : arrays.in(of.sinks);
  for (int i = 0; i < members; i++) {
    tsr_attention_ring r = {of.a, of.a.T, c.units, members, i, 0, zigzag};
    r.a.T = of.a.T / members;
    r.a.sinks = sinks;
    r.a.key = 0; /* the one in device memory counts */
    m[i] = member_new(&arrays, of, r);
  }
  for (int i = 0; i < members; i++) member_forward(of.type, &m[i], m, key);
  for (int i = 0; i < members; i++) member_backward(of.type, &m[i], m, key);
  finish_work();
  for (const array &a : arrays.all)
    CHECK_AT(
        array_intact(&a), "units %d, members %d: wrote where it may not", (int)c.units, members);
  for (int i = 0; i < members; i++) member_gather(of.type, m[i], &all);
  return all;
}

/* ---- what it is compared with ---- */

static void check_case(
    tsr_cuda_type type, int64_t B, int64_t H, int64_t G, int64_t D, int64_t rows, int64_t units,
    bool causal, float dropout, int members_max, int64_t window = 0, float soft_cap = 0,
    const numbers &sinks = {}, int64_t Dv = 0) {
  tsr_attention a =
      with_values(attention_of(B, rows * units, H, G, D, causal, dropout, window, soft_cap), Dv);
  ring_case c = {case_new(type, a), units};
  c.of.sinks = sinks;
  const std::string text = std::to_string(units) + " units, ";
  order(false);
  results one = run(c, 1, false);
  check_reference(c.of, one);
  order(true);
  if (units == 1) check_bits(c.of, run_whole(c.of), one, "by attention itself");
  ring_case alone = {last_group(c.of), units};
  if (B * G > 1) check_bits(c.of, run(alone, 1, false), last_group_of(c.of, one), text + "alone");
  for (int members = 2; members <= members_max; members++)
    for (int zigzag = 0; zigzag < 2; zigzag++) {
      if (units % (members * (zigzag + 1))) continue;
      order((members + zigzag) % 2);
      const char *layout = zigzag ? " members, zigzag" : " members, contiguous";
      check_bits(c.of, run(c, members, zigzag), one, text + std::to_string(members) + layout);
    }
  order(false);
}

static void test_attention(void) {
  const tsr_cuda_type f32 = TSR_CUDA_F32, bf16 = TSR_CUDA_BF16, f16 = TSR_CUDA_F16;
  /*               B  H  G  D  rows units causal dropout members */
  check_case(f32, 1, 2, 1, 5, 5, 8, true, 0, 4);
  check_case(f32, 2, 2, 2, 16, 7, 4, true, 0.2f, 4);
  check_case(f32, 1, 1, 1, 16, 3, 6, false, 0.1f, 3);
  check_case(f32, 1, 3, 1, 64, 67, 2, true, 0.1f, 2);
  check_case(f32, 1, 1, 1, 80, 33, 3, true, 0, 3);
  check_case(f32, 1, 1, 1, 130, 9, 2, false, 0, 2);
  check_case(f32, 1, 2, 1, 20, 70, 1, true, 0.1f, 1);
  check_case(bf16, 1, 2, 1, 64, 9, 4, true, 0.1f, 4);
  check_case(bf16, 1, 1, 1, 128, 65, 2, true, 0, 2);
  check_case(bf16, 2, 1, 1, 80, 20, 3, false, 0.1f, 3);
  check_case(bf16, 1, 3, 1, 96, 70, 1, true, 0.1f, 1);
  check_case(bf16, 1, 2, 1, 36, 11, 4, true, 0.1f, 2);
  check_case(f16, 1, 2, 2, 40, 6, 8, true, 0, 4);
  check_case(f32, 1, 2, 1, 5, 5, 8, true, 0, 4, 1);
  check_case(f32, 1, 2, 1, 5, 5, 8, true, 0.1f, 4, 6);
  check_case(f32, 1, 1, 1, 16, 67, 4, true, 0, 2, 80);
  check_case(bf16, 1, 2, 1, 64, 9, 4, true, 0.1f, 4, 12);
  check_case(bf16, 1, 1, 1, 128, 65, 4, true, 0, 2, 60);
  check_case(f32, 1, 2, 1, 16, 9, 4, true, 0.1f, 4, 0, 1.5f);
  check_case(bf16, 1, 2, 1, 64, 9, 4, true, 0, 2, 12, 1.5f);
  const numbers sinks = {0.3f, 95, -120, 1.7f};
  check_case(f32, 1, 4, 2, 16, 9, 4, true, 0.1f, 2, 0, 0, sinks);
  check_case(bf16, 1, 4, 2, 64, 9, 2, true, 0, 2, 12, 0, sinks);
  check_case(f32, 1, 4, 1, 16, 30, 1, true, 0, 1, 0, 0, sinks);
  check_case(f32, 1, 4, 2, 24, 9, 4, true, 0.1f, 2, 0, 0, sinks, 16);
  check_case(f32, 1, 1, 1, 5, 7, 2, false, 0, 2, 0, 0, {}, 9);
  check_case(bf16, 1, 2, 2, 192, 20, 4, true, 0, 2, 0, 0, {}, 128);
  check_case(bf16, 1, 2, 1, 24, 9, 2, true, 0.1f, 2, 12, 0, {}, 16);
  check_case(bf16, 1, 2, 1, 256, 9, 4, true, 0.1f, 4, 12, 1.5f);
  check_case(bf16, 1, 1, 1, 256, 66, 2, true, 0, 2);
  check_case(bf16, 2, 2, 1, 256, 20, 1, true, 0, 1, 0, 1.5f, {3, 1});
  check_case(f16, 1, 2, 2, 160, 6, 3, false, 0, 3);
#if !defined(TSR_EMULATED) /* which would take minutes: several launches of lines */
  check_case(f32, 64, 40, 20, 16, 32, 4, true, 0.1f, 4);
  check_case(bf16, 64, 40, 20, 64, 32, 4, true, 0.1f, 4);
#endif
}

/* More turns than a launch has. */
static void test_many_units(void) { check_case(TSR_CUDA_F32, 1, 1, 1, 4, 1, 24, true, 0, 2); }

/* ---- rows by units ---- */

static void
check_rows(int64_t batch_units, int64_t samples, int64_t positions, int64_t pieces, bool zigzag) {
  int64_t R = batch_units * samples * positions, run = positions / pieces;
  integers tokens((size_t)R), rows, by_units;
  for (int32_t &token : tokens) token = (int32_t)(check_random() % 1000);
  for (int64_t b = 0; b < batch_units; b++)
    for (int64_t leaf = 0; leaf < pieces; leaf++)
      for (int64_t s = 0; s < samples; s++)
        for (int64_t t = 0; t < run; t++) {
          int64_t position = tsr_sequence_unit(zigzag, pieces, leaf) * run + t;
          rows.push_back((int32_t)((b * samples + s) * positions + position));
          by_units.push_back(tokens[(size_t)rows.back()]);
        }
  call_arrays arrays;
  arrays.shift = 1;
  int32_t *in = arrays.in(tokens), *got = (int32_t *)arrays.out(R), *of = (int32_t *)arrays.out(R);
  tsr_cuda_leaves leaves = {};
  leaves.ndim = 2;
  leaves.size[0] = batch_units * samples, leaves.size[1] = positions;
  leaves.batch[0] = batch_units, leaves.batch[1] = 1;
  leaves.positions[0] = 1, leaves.positions[1] = pieces;
  leaves.rows = R;
  leaves.leaves = batch_units * pieces;
  leaves.sequence = pieces;
  leaves.zigzag = zigzag;
  tsr_cuda_rows_by_leaves(NULL, got, of, in, &leaves);
  finish_work();
  CHECK(!memcmp(got, by_units.data(), (size_t)R * 4));
  CHECK(!memcmp(of, rows.data(), (size_t)R * 4));
  for (const array &a : arrays.all) CHECK(array_intact(&a));
}

int main(void) {
  for (int zigzag = 0; zigzag < 2; zigzag++) {
    check_rows(1, 1, 8, 4, zigzag);
    check_rows(2, 3, 12, 2, zigzag);
    check_rows(3, 2, 40, 8, zigzag);
    check_rows(5, 31, 6, 2, zigzag);
  }
  test_attention();
  test_many_units();
  return check_done("cuda.ring");
}
