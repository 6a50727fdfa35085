// SPDX-License-Identifier: Apache-2.0
/* The gradients' norm: sums of squares of the rectangles of many gradients with the CPU's bits, the
 * sums side by side, and the factor that clips. */
#include "cuda_check.h"

/* A gradient (indices, parts * share, inner), or with tp_first (parts * share, indices, inner). The
 * pieces are of the indices, of which this rank has those from `first` on, of `whole`; whole 0: all
 * is piece 0. */
struct gradient {
  int64_t indices, parts, share, inner, pieces, units, whole, first;
  bool tp_first;
  numbers x;
};

static gradient gradient_new(
    int64_t indices, int64_t parts, int64_t share, int64_t inner, int64_t pieces, int64_t units,
    int64_t whole, int64_t first, bool tp_first) {
  gradient g = {indices, parts, share, inner, pieces, units, whole, first, tp_first, {}};
  g.x = random_numbers(indices * parts * share * inner, 1);
  return g;
}

/* Of the elements that belong to a piece and a part, found one by one. */
static numbers squares_of(const gradient &g) {
  numbers want;
  for (int64_t u = 0; u < g.units; u++)
    for (int64_t k = 0; k < g.pieces; k++) {
      int64_t begin = k * g.whole / g.pieces, end = (k + 1) * g.whole / g.pieces;
      bool inside = begin >= g.first && end <= g.first + g.indices;
      numbers own;
      for (int64_t i = 0; i < (int64_t)g.x.size(); i++) {
        int64_t row = i / g.inner, in_part = g.parts * g.share;
        int64_t index = g.tp_first ? row % g.indices : row / in_part;
        int64_t part = (g.tp_first ? row / g.indices : row % in_part) / g.share;
        bool in_piece = g.whole ? inside && g.first + index >= begin && g.first + index < end : !k;
        if (in_piece && part == u) own.push_back(g.x[(size_t)i]);
      }
      int64_t n = (int64_t)own.size();
      want.push_back(n ? (float)cpu->sum_squares(own.data(), 1, n, n) : 0);
    }
  return want;
}

static tsr_norm_grid grid_of(const gradient &g) {
  tsr_norm_grid grid = {};
  grid.units = (int)g.units, grid.pieces = (int)g.pieces, grid.parts = (int)g.parts;
  grid.whole = g.whole, grid.first = g.first, grid.here = g.indices;
  if (!g.whole) { /* in one piece, whose first dimension tp splits */
    grid.rows = 1;
    grid.cols = grid.stride = grid.part_step = g.share * g.inner * g.indices;
  } else if (g.tp_first) {
    grid.index_step = grid.cols = g.inner;
    grid.stride = g.indices * g.inner;
    grid.rows = g.share;
    grid.part_step = g.share * grid.stride;
  } else {
    grid.rows_of_indices = true;
    grid.rows = 1;
    grid.part_step = grid.cols = g.share * g.inner;
    grid.index_step = grid.stride = g.parts * grid.cols;
  }
  return grid;
}

static void check_squares(const std::vector<gradient> &all) {
  auto got = run_all("squares", [&](call_arrays &c) {
    std::vector<tsr_cuda_gradient> list;
    int64_t bytes = 0;
    for (const gradient &g : all) {
      float *x = c.in(g.x), *out = c.out(g.units * g.pieces);
      list.push_back({x, out, grid_of(g)});
      bytes += tsr_cuda_gradient_scratch(&list.back().grid);
    }
    tsr_cuda_gradient_squares(NULL, list.data(), (int)list.size(), c.scratch(bytes));
  });
  CHECK_INT(got.size(), all.size());
  for (size_t i = 0; i < all.size(); i++) check_same("squares", got[i], squares_of(all[i]));
}

static void test_squares(void) {
  const gradient one = gradient_new(1, 1, 1, 1, 1, 1, 0, 0, true);
  const gradient whole = gradient_new(1, 1, 300, 131, 1, 1, 0, 0, true);
  const gradient parts = gradient_new(1, 2, 3, 7, 4, 3, 0, 0, true);
  const gradient pieces = gradient_new(30, 1, 1, 700, 4, 1, 30, 0, false);
  const gradient middle = gradient_new(10, 1, 1, 97, 6, 2, 30, 10, false);
  const gradient tp = gradient_new(12, 4, 3, 5, 3, 4, 12, 0, false);
  const gradient tp_first = gradient_new(40, 2, 33, 1, 8, 2, 80, 40, true);
  const gradient large = gradient_new(16, 2, 5, 901, 2, 2, 16, 0, true);
  for (const gradient &g : {one, whole, parts, pieces, middle, tp, tp_first, large})
    check_squares({g});
  std::vector<gradient> all;
  for (int i = 0; i < TSR_CUDA_GRADIENTS; i++)
    all.push_back(i == 5 ? whole : i == 9 ? large : i % 3 ? tp : middle);
  check_squares(all);
}

/* Columns of different heights, one that does not count, from the third of five columns on. */
static void check_join(int64_t units, int64_t rows, int count) {
  const int64_t n = count + 5;
  std::vector<numbers> columns;
  numbers want((size_t)(units * rows * n), 7);
  for (int i = 0; i < count; i++) {
    int64_t pieces = i % 4 == 3 ? 0 : 1 + i % rows;
    columns.push_back(random_numbers(units * pieces, 1));
    for (int64_t at = 0; at < units * rows; at++) {
      int64_t from = at / rows * pieces + at % rows;
      want[(size_t)(at * n + 2 + i)] = at % rows < pieces ? columns.back()[(size_t)from] : 0;
    }
  }
  auto got = run_all("join", [&](call_arrays &c) {
    std::vector<tsr_cuda_column> list;
    for (const numbers &x : columns) list.push_back({c.in(x), (int64_t)x.size() / units});
    float *out = c.changed(numbers((size_t)(units * rows * n), 7));
    tsr_cuda_join_columns(NULL, out + 2, list.data(), count, units, rows, n);
  });
  check_same("join", got[0], want);
}

/* PyTorch's clip_grad_norm_ in double. */
static void check_clip(int64_t pieces, int64_t n, float max_norm, const float *loss_scale) {
  numbers stats = random_numbers(pieces * n, 1);
  double sum = 0, scale = loss_scale ? *loss_scale : 1;
  for (float &x : stats) x *= x, sum += x;
  if (loss_scale && *loss_scale == 4) stats[0] = sum = INFINITY;
  double norm = sqrt(sum) / scale, factor = max_norm > 0 ? max_norm / (norm + 1e-6) : 1;
  auto got = run_all("clip", [&](call_arrays &c) {
    float *in = c.in(stats), *by = loss_scale ? c.one(*loss_scale) : NULL;
    tsr_cuda_clip(NULL, c.out(3), in, pieces, n, max_norm, by);
  });
  CHECK(got[0][0] == (float)norm || fabs(got[0][0] - norm) < 1e-6 * norm);
  CHECK_NEAR(got[0][1], (factor < 1 ? factor : 1) / scale, 1e-6);
  CHECK(got[0][2] == (std::isfinite(norm) ? 1 : 0));
}

int main(void) {
  const float scale = 8, overflow = 4;
  test_squares();
  check_join(1, 1, 1);
  check_join(3, 5, 10);
  check_join(1, 2, TSR_CUDA_COLUMNS);
  for (int64_t pieces = 1; pieces <= 13; pieces += 3)
    for (int64_t n = 1; n <= 600; n = n * 3 + 1) {
      check_clip(pieces, n, 1, NULL);
      check_clip(pieces, n, 0, &scale);
      check_clip(pieces, n, 1, &overflow);
    }
  return check_done("cuda.gradient_norm");
}
