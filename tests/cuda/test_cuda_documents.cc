// SPDX-License-Identifier: Apache-2.0
/* The GPU's attention inside documents: near the CPU's; of each document the bits that it has alone;
 * and of rows that a rank computes the bits that they have among all. Blocks, threads and fetches
 * come in opposite orders. */
#include "attention_case.h"

/* Documents of random lengths, some of one token. */
static integers random_positions(const tsr_attention &a) {
  integers positions;
  for (int64_t b = 0; b < a.B; b++)
    for (int64_t t = 0, left = 0, at = 0; t < a.T; t++, left--, at++) {
      if (!left)
        left = check_random() % 3 ? 1 + (int64_t)(check_random() % (uint64_t)a.T) : 1, at = 0;
      positions.push_back((int32_t)at);
    }
  return positions;
}

/* The rows [first, first + n) of the last sequence of x (B, T, width). */
static numbers rows_of(const numbers &x, const tsr_attention &a, int64_t first, int64_t n) {
  int64_t width = (int64_t)x.size() / (a.B * a.T);
  return part(x, ((a.B - 1) * a.T + first) * width, n * width);
}

/* Of statistics (B, H, T, 2) too. */
static numbers stats_of(const numbers &x, const tsr_attention &a, int64_t first, int64_t n) {
  numbers y;
  for (int64_t h = 0; h < a.H; h++) {
    numbers line = part(x, (((a.B - 1) * a.H + h) * a.T + first) * 2, n * 2);
    y.insert(y.end(), line.begin(), line.end());
  }
  return y;
}

static results results_of(const results &r, const tsr_attention &a, int64_t first, int64_t n) {
  return {
      {rows_of(r.of[0], a, first, n), stats_of(r.of[1], a, first, n), rows_of(r.of[2], a, first, n),
       rows_of(r.of[3], a, first, n), rows_of(r.of[4], a, first, n)}};
}

/* A document of the last sequence. */
static void check_alone(const attention_case &c, const results &r, int64_t first, int64_t n) {
  attention_case one = {
      c.type,
      c.a,
      rows_of(c.q, c.a, first, n),
      rows_of(c.k, c.a, first, n),
      rows_of(c.v, c.a, first, n),
      rows_of(c.dout, c.a, first, n),
      {},
      {}};
  one.a.B = 1;
  one.a.T = n;
  check_bits(one, run_whole(one), results_of(r, c.a, first, n), "alone");
}

/* Of a sequence, the rows of a rank. */
static void check_part(const attention_case &c, const results &r, tsr_attention_rows own) {
  numbers q;
  results want;
  for (int run = 0; run < own.runs; run++) {
    numbers rows = rows_of(c.q, c.a, own.first[run], own.each);
    q.insert(q.end(), rows.begin(), rows.end());
  }
  results got = run_whole(c, own, q, r);
  for (int run = 0; run < own.runs; run++) {
    tsr_attention a = c.a;
    results all = results_of(r, a, own.first[run], own.each);
    a.T = own.runs * own.each;
    check_bits(c, results_of(got, a, run * own.each, own.each), all, "a rank's rows");
  }
}

static void check_documents(tsr_cuda_type type, const tsr_attention &a) {
  attention_case c = case_new(type, a);
  c.positions = random_positions(a);
  order(false);
  results r = run_whole(c);
  check_reference(c, r);
  order(true);
  const int32_t *positions = &c.positions[(size_t)((a.B - 1) * a.T)];
  for (int64_t first = 0, end; first < a.T && a.dropout == 0; first = end) {
    for (end = first + 1; end < a.T && positions[end];) end++;
    if (first % 3 == 0 || end - first > 20) check_alone(c, r, first, end - first);
  }
  if (a.B > 1) return;
  int64_t each = a.T / 4;
  check_part(c, r, {1, each * 2, {each * 2}});
  check_part(c, r, {2, each, {each, 2 * each}});
}

int main() {
  static const struct {
    int64_t B, T, H, G, D;
    bool causal;
    float dropout;
    int64_t window;
    float soft_cap = 0;
  } list[] = {{1, 40, 2, 1, 16, true, 0, 0},       {2, 150, 2, 2, 64, true, 0, 0},
              {1, 132, 1, 1, 80, false, 0, 0},     {1, 200, 2, 1, 32, true, 0.1f, 0},
              {1, 160, 1, 1, 128, true, 0, 33},    {1, 96, 2, 1, 40, true, 0, 70},
              {1, 70, 2, 1, 16, true, 0, 0, 1.5f}, {1, 72, 2, 1, 256, true, 0, 9, 1.5f}};
  for (const auto &s : list) {
    tsr_attention a =
        attention_of(s.B, s.T, s.H, s.G, s.D, s.causal, s.dropout, s.window, s.soft_cap);
    for (int again = 0; again < 2; again++) {
      check_documents(TSR_CUDA_F32, a);
      check_documents(TSR_CUDA_BF16, a);
    }
  }
  return check_done("cuda.documents");
}
