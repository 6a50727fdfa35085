// SPDX-License-Identifier: Apache-2.0
/* Embedding, rotary positions and losses. */
#include "cuda_check.h"

static integers tokens_new(int64_t R, int64_t V) {
  integers tokens((size_t)R);
  for (size_t r = 0; r < tokens.size(); r++) /* some often */
    tokens[r] = (int32_t)(check_random() % (uint64_t)(r % 3 ? V : V < 5 ? V : 5));
  return tokens;
}

static void check_embedding(tsr_cuda_type type, int64_t R, int64_t C, int64_t V) {
  int64_t v_begin = V / 3, v_end = V - V / 4;
  integers tokens = tokens_new(R, V);
  numbers table = rounded(type, random_numbers((v_end - v_begin) * C, 1)), want((size_t)(R * C));
  table[0] = -0.0f;
  cpu->embedding(want.data(), tokens.data(), table.data(), C, v_begin, v_end, 0, R);
  for (tsr_cuda_type from_type : {type, TSR_CUDA_F32}) {
    auto got = run_all("embedding", [&](call_arrays &c) {
      int32_t *in = c.in(tokens);
      void *from = c.in(from_type, table);
      tsr_cuda_embedding(NULL, type, c.out(type, R * C), in, from_type, from, R, C, v_begin, v_end);
    });
    check_same("embedding", got[0], want);
  }
  auto wide = run_all("embedding", [&](call_arrays &c) {
    int32_t *in = c.in(tokens);
    void *from = c.in(type, table);
    tsr_cuda_embedding(NULL, TSR_CUDA_F32, c.out(R * C), in, type, from, R, C, v_begin, v_end);
  });
  check_same("embedding", wide[0], want);
}

/* With the CPU's bits. */
static void check_embedding_backward(
    tsr_cuda_type type, int64_t R, int64_t C, int64_t V, int64_t units, int64_t inner, bool moved,
    tsr_tree_shape tree) {
  int64_t v_begin = V / 3, v_end = V, rows = v_end - v_begin;
  integers tokens = tokens_new(R, V), row_of((size_t)R);
  numbers dout = rounded(type, random_numbers(R * C, 1)), want((size_t)(rows * C));
  dout[0] = -0.0f;
  for (int64_t r = 0; r < R; r++) row_of[(size_t)r] = (int32_t)((r * 7 + 3) % R);
  const int32_t *order = moved ? row_of.data() : NULL;
  std::vector<char> scratch((size_t)cpu->embedding_scratch(R, v_begin, v_end, C, (int)units, 1));
  int64_t padding = v_end - 2;
  cpu->embedding_sort(scratch.data(), tokens.data(), R, v_begin, v_end, padding);
  cpu->embedding_backward(
      want.data(), NULL, dout.data(), order, scratch.data(), 0, R, C, v_begin, v_end, tree, units,
      inner, 0, rows);
  auto got = run_all("embedding_backward", [&](call_arrays &c) {
    int32_t *in = c.in(tokens), *places = moved ? c.in(row_of) : NULL;
    void *d = c.in(type, dout);
    void *parts = c.scratch(tsr_cuda_embedding_scratch(R, v_begin, v_end));
    tsr_cuda_embedding_backward(
        NULL, type, c.out(rows * C), in, d, places, parts, R, C, v_begin, v_end, padding, tree,
        units, inner);
  });
  check_same("embedding_backward", got[0], want);
}

static void check_rope(tsr_cuda_type type, const tsr_rope &of) {
  int64_t B = 2, T = of.T, n = B * T * of.H * of.D, late = 3;
  numbers x = rounded(type, random_numbers(n, 3)), table((size_t)((T + late) * of.rotary));
  numbers want((size_t)n), want_at((size_t)n);
  integers positions = {(int32_t)late, 0};
  tsr_rope_scaling none = {};
  cpu->rope_table(table.data(), T + late, of.rotary, 0, 10000, &none);
  cpu->rope(&of, want.data(), x.data(), table.data(), 0, B * T);
  cpu->rope(&of, want_at.data(), x.data(), &table[(size_t)(late * of.rotary)], 0, T);
  cpu->rope(&of, &want_at[(size_t)(n / 2)], &x[(size_t)(n / 2)], table.data(), 0, T);
  auto got = run_all("rope", [&](call_arrays &c) {
    void *in = c.in(type, x), *both = c.changed(type, x);
    float *turns = c.in(table);
    int32_t *at = c.in(positions);
    tsr_cuda_rope(NULL, type, c.out(type, n), in, turns, B, &of);
    tsr_cuda_rope(NULL, type, both, both, turns, B, &of);
    tsr_cuda_rope_cached(NULL, type, c.out(type, n), in, turns, at, T + late, B, &of);
  });
  check_same("rope in place", got[0], got[1]);
  check_near("rope", type, got[1], want);
  check_near("rope_cached", type, got[2], want_at);
}

/* ---- losses ---- */

typedef struct {
  int64_t R, V_local, v_begin, v_valid, units;
} loss_case;

static void check_loss_forward(const loss_case &l, const numbers &x, const integers &targets) {
  int64_t R = l.R, n = R * l.units;
  numbers stats((size_t)(n * 3)), loss((size_t)R), row((size_t)(R * 2));
  cpu->softmax_stats(
      stats.data(), x.data(), targets.data(), l.V_local, l.v_begin, l.v_valid, l.units, 0, R);
  cpu->softmax_loss(loss.data(), row.data(), stats.data(), targets.data(), l.units, 0, R);
  auto got = run_all("softmax_stats", [&](call_arrays &c) {
    float *logits = c.in(x), *out = c.out(n * 3);
    int32_t *t = c.in(targets);
    tsr_cuda_softmax_stats(NULL, out, logits, t, R, l.V_local, l.v_begin, l.v_valid, l.units);
  });
  for (int64_t i = 0; i < n * 3; i++) { /* maxima and targets are elements */
    double a = got[0][(size_t)i], b = stats[(size_t)i];
    bool same = a == b || (std::isnan(a) && std::isnan(b));
    CHECK_AT(
        i % 3 == 1 ? same || fabs(a - b) <= 1e-5 * b : same, "stats at %d: %.9g, not %.9g", (int)i,
        a, b);
  }
  auto after = run_all("softmax_loss", [&](call_arrays &c) {
    float *s = c.in(stats), *row_loss = c.out(R), *row_stats = c.out(R * 2);
    tsr_cuda_softmax_loss(NULL, row_loss, row_stats, s, c.in(targets), R, l.units);
  });
  check_near("softmax_loss", TSR_CUDA_F32, after[0], loss);
  check_near("row_stats", TSR_CUDA_F32, after[1], row);
}

static void check_loss_backward(const loss_case &l, const numbers &x, const integers &targets) {
  int64_t R = l.R, n = R * l.V_local;
  numbers row((size_t)(R * 2)), want((size_t)n), factor = {0.25f}, more = {3};
  for (int64_t r = 0; r < R; r++) row[(size_t)(2 * r)] = 9, row[(size_t)(2 * r + 1)] = 1.5f;
  cpu->softmax_loss_backward(
      want.data(), x.data(), row.data(), targets.data(), 0.75f, l.V_local, l.v_begin, l.v_valid, 0,
      R);
  auto got = run_all("softmax_loss_backward", [&](call_arrays &c) {
    float *logits = c.changed(x), *rows = c.in(row), *f = c.in(factor), *m = c.in(more);
    int32_t *t = c.in(targets);
    tsr_cuda_softmax_loss_backward(
        NULL, TSR_CUDA_F32, logits, logits, rows, t, f, m, R, l.V_local, l.v_begin, l.v_valid);
  });
  check_near("softmax_loss_backward", TSR_CUDA_F32, got[0], want);
  for (size_t i = 0; i < want.size(); i++)
    if (want[i] == 0) CHECK(got[0][i] == 0);
  for (tsr_cuda_type type : {TSR_CUDA_BF16, TSR_CUDA_F16}) {
    auto half = run_all("softmax_loss_backward", [&](call_arrays &c) {
      float *logits = c.in(x), *rows = c.in(row), *f = c.in(factor), *m = c.in(more);
      tsr_cuda_softmax_loss_backward(
          NULL, type, c.out(type, n), logits, rows, c.in(targets), f, m, R, l.V_local, l.v_begin,
          l.v_valid);
    });
    check_same("softmax_loss_backward", half[0], rounded(type, got[0]));
  }
}

static void check_losses(loss_case l) {
  numbers x = random_numbers(l.R * l.V_local, 9);
  integers targets((size_t)l.R);
  for (int64_t r = 0; r < l.R; r++)
    targets[(size_t)r] = r == 1 ? -100 : (int32_t)(check_random() % (uint64_t)l.v_valid);
  if (l.V_local > 8) {
    for (int i = 3; i < 9; i++)
      x[(size_t)i] = -INFINITY; /* a whole pack, which a thread begins with */
    x[(size_t)l.V_local + 3] = 60;
  }
  check_loss_forward(l, x, targets);
  check_loss_backward(l, x, targets);
  if (l.R < 5) return;
  for (int64_t i = 0; i < l.V_local; i++) x[(size_t)i] = -INFINITY; /* nothing to say */
  x[(size_t)l.V_local] = NAN;
  x[(size_t)(2 * l.V_local)] = INFINITY;
  check_loss_forward(l, x, targets);
}

static void check_squared_error(int64_t R, int64_t C) {
  numbers x = random_numbers(R * C, 2), y = random_numbers(R * C, 2), more = {3};
  numbers loss((size_t)R), dx((size_t)(R * C)), times((size_t)(R * C));
  cpu->squared_error(loss.data(), x.data(), y.data(), C, 0, R);
  cpu->squared_error_backward(dx.data(), x.data(), y.data(), 0.5f, 0, R * C);
  cpu->squared_error_backward(times.data(), x.data(), y.data(), 1.5f, 0, R * C);
  auto got = run_all("squared_error", [&](call_arrays &c) {
    float *a = c.in(x), *b = c.in(y), *m = c.in(more);
    tsr_cuda_squared_error(NULL, c.out(R), a, b, R, C);
    tsr_cuda_squared_error_backward(NULL, c.out(R * C), a, b, 0.5f, NULL, R * C);
    tsr_cuda_squared_error_backward(NULL, c.out(R * C), a, b, 0.5f, m, R * C);
  });
  check_near("squared_error", TSR_CUDA_F32, got[0], loss);
  check_same("squared_error_backward", got[1], dx);
  check_near("squared_error_backward", TSR_CUDA_F32, got[2], times);
}

static void test_embedding(tsr_cuda_type type) {
  check_embedding(type, 1, 1, 1);
  check_embedding(type, 37, 7, 20);
  check_embedding(type, 20, 264, 50);
  const int64_t units[] = {1, 2, 3, 4, 5, 6, 8, 12};
  for (tsr_tree_shape tree : {TSR_TREE_BINARY, TSR_TREE_FLAT}) {
    for (int64_t u : units) {
      check_embedding_backward(type, u, 3, 4, u, 1, false, tree);
      check_embedding_backward(type, 10 * u, 17, 30, u, u, true, tree);
      check_embedding_backward(type, 24 * u, 33, 11, 4 * u, 4, false, tree);
    }
    check_embedding_backward(type, 300, 1, 2000, 2, 1, true, tree);
    check_embedding_backward(type, 300, 130, 3, 12, 4, true, tree);
  }
}

static void test_rope(tsr_cuda_type type) {
  static const struct {
    int64_t T, H, D, rotary, offset;
  } list[] = {{1, 1, 2, 2, 0}, {7, 3, 6, 6, 0},   {5, 2, 64, 64, 0},    {3, 1, 70, 70, 0},
              {5, 3, 7, 4, 3}, {6, 2, 80, 32, 0}, {4, 2, 192, 64, 128}, {3, 2, 40, 16, 9}};
  for (const auto &r : list)
    for (int way = 0; way < 4; way++)
      check_rope(type, {r.T, r.H, r.D, r.rotary, r.offset, way % 2 > 0, way > 1 ? 1.0f : -1.0f});
}

int main(void) {
  for (tsr_cuda_type type : types) {
    test_embedding(type);
    test_rope(type);
  }
  check_losses({1, 1, 0, 1, 1});
  check_losses({3, 31, 0, 31, 1});
  check_losses({5, 33, 33, 60, 3});
  check_losses({5, 1000, 0, 1000, 5});
  check_losses({5, 1024, 1024, 1900, 8});
  check_losses({4, 257, 0, 200, 1});
  check_losses({2, 512, 512, 512, 4}); /* padding alone */
  check_losses({2, 20004, 0, 20000, 6});
  for (int64_t C : odd_sizes) check_squared_error(3, C);
  return check_done("cuda.tokens");
}
