// SPDX-License-Identifier: Apache-2.0
/* What the tests of attention inside documents share. */
#ifndef TSR_TESTS_CUDA_DOCUMENT_CASE_H
#define TSR_TESTS_CUDA_DOCUMENT_CASE_H
#include "attention_case.h"

/* Documents of random lengths, some of one token. */
static inline integers random_positions(const tsr_attention &a) {
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
static inline numbers rows_of(const numbers &x, const tsr_attention &a, int64_t first, int64_t n) {
  int64_t width = (int64_t)x.size() / (a.B * a.T);
  return part(x, ((a.B - 1) * a.T + first) * width, n * width);
}

/* Of statistics (B, H, T, 2) too. */
static inline numbers stats_of(const numbers &x, const tsr_attention &a, int64_t first, int64_t n) {
  numbers y;
  for (int64_t h = 0; h < a.H; h++) {
    numbers line = part(x, (((a.B - 1) * a.H + h) * a.T + first) * 2, n * 2);
    y.insert(y.end(), line.begin(), line.end());
  }
  return y;
}

static inline results
results_of(const results &r, const tsr_attention &a, int64_t first, int64_t n) {
  return {
      {rows_of(r.of[0], a, first, n), stats_of(r.of[1], a, first, n), rows_of(r.of[2], a, first, n),
       rows_of(r.of[3], a, first, n), rows_of(r.of[4], a, first, n)}};
}

/* A document of the last sequence. */
static inline void
check_alone(const attention_case &c, const results &r, int64_t first, int64_t n) {
  attention_case one = {
      c.type,
      c.a,
      rows_of(c.q, c.a, first, n),
      rows_of(c.k, c.a, first, n),
      rows_of(c.v, c.a, first, n),
      rows_of(c.dout, c.a, first, n),
      {},
      {},
      c.wgmma};
  one.a.B = 1;
  one.a.T = n;
  check_bits(one, run_whole(one), results_of(r, c.a, first, n), "alone");
}

/* Of a sequence, the rows of a rank. */
static inline void check_part(const attention_case &c, const results &r, tsr_attention_rows own) {
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

/* Near the CPU's; and documents, and the rows of ranks, have the bits that they have alone. */
static inline void check_documents(tsr_cuda_type type, const tsr_attention &a, bool wgmma = false) {
  attention_case c = case_new(type, a);
  c.wgmma = wgmma;
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

#endif
