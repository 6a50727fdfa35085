// SPDX-License-Identifier: Apache-2.0
/* Generation with a cache: numbers in device memory select the rows. A row is so many elements of
 * as many bytes as its length and the addresses allow, which threads take in the order in which
 * they lie. */
#include "kernels/cuda/copy_walk.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"
#include <assert.h>

enum row_choice { CHOICE_KEEP, CHOICE_LOOK_UP, CHOICE_LAST };

/* `rows` rows of new tokens, `each` of a sequence; `length` rows of the table, whose positions
 * begin at row `first`. */
struct row_walk {
  int64_t rows, each, length, first;
  const int32_t *positions, *counts;
  int64_t elements; /* of a row */
  tsr_cuda_pages pages;
};

/* From row `from` to row `to`, where there is something to move. */
struct row_move {
  int64_t from, to;
  bool real;
};

template <row_choice CHOICE>
static __device__ inline row_move row_move_at(const row_walk &w, int64_t row) {
  int64_t b = row / w.each, i = row % w.each;
  if (CHOICE == CHOICE_KEEP) {
    int64_t at = w.positions[b] + i, page = w.pages.page;
    if (i >= w.counts[b] || at >= page * w.pages.each) return {row, 0, false};
    return {row, w.pages.of[b * w.pages.each + at / page] * page + at % page, true};
  }
  if (CHOICE == CHOICE_LOOK_UP) {
    int64_t at = w.first + w.positions[b] + i;
    return {at < w.length ? at : w.length - 1, row, true};
  }
  int64_t count = w.counts[row];
  return {row * w.length + (count > 0 ? count - 1 : 0), row, true};
}

template <typename E, row_choice CHOICE>
static __global__ void rows_move(E *out, const E *x, row_walk w) {
  int64_t n = w.rows * w.elements;
  for (int64_t item = map_thread(); item < n; item += map_threads()) {
    int64_t element = item % w.elements;
    row_move move = row_move_at<CHOICE>(w, item / w.elements);
    if (move.real) out[move.to * w.elements + element] = x[move.from * w.elements + element];
  }
}

template <typename E, row_choice CHOICE>
static void rows_launch(tsr_cuda_stream s, void *out, const void *x, int64_t bytes, row_walk w) {
  w.elements = bytes / (int64_t)sizeof(E);
  int64_t n = w.rows * w.elements;
  if (n <= 0) return;
  TSR_LAUNCH((rows_move<E, CHOICE>), launch_map(n), s, (E *)out, (const E *)x, w);
}

/* Rows of `bytes`. */
template <row_choice CHOICE>
static void rows_go(tsr_cuda_stream s, void *out, const void *x, int64_t bytes, const row_walk &w) {
  switch (copy_row_element(out, x, bytes)) {
  case 2:
    rows_launch<uint16_t, CHOICE>(s, out, x, bytes, w);
    return;
  case 4:
    rows_launch<uint32_t, CHOICE>(s, out, x, bytes, w);
    return;
  case 8:
    rows_launch<uint2, CHOICE>(s, out, x, bytes, w);
    return;
  case 16:
    rows_launch<uint4, CHOICE>(s, out, x, bytes, w);
    return;
  }
  assert(!"elements of 2 or 4 bytes");
}

extern "C" void tsr_cuda_kv_cache_append(
    tsr_cuda_stream s, void *out, const void *x, const int32_t *positions, const int32_t *counts,
    const tsr_cuda_pages *pages, int64_t bytes, int64_t B, int64_t C) {
  rows_go<CHOICE_KEEP>(s, out, x, bytes, {B * C, C, 0, 0, positions, counts, 0, *pages});
}

extern "C" void tsr_cuda_gather_rows(
    tsr_cuda_stream s, void *out, const void *table, const int32_t *positions, int64_t bytes,
    int64_t B, int64_t C, int64_t rows, int64_t first) {
  rows_go<CHOICE_LOOK_UP>(s, out, table, bytes, {B * C, C, rows, first, positions, NULL, 0, {}});
}

extern "C" void tsr_cuda_slice_last(
    tsr_cuda_stream s, void *out, const void *x, const int32_t *counts, int64_t bytes, int64_t B,
    int64_t C) {
  rows_go<CHOICE_LAST>(s, out, x, bytes, {B, 1, C, 0, NULL, counts, 0, {}});
}
