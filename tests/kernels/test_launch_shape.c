// SPDX-License-Identifier: Apache-2.0
/* The launch geometry of the GPU's kernels: blocks have something for every element, none is
 * without an element, and no launch is larger than a GPU takes. */
#include "kernels/cuda/attention_shape.h"
#include "tests/check.h"

enum { SHARED_MAX = 227 << 10 }; /* of sm_90; sm_80 has 163 KiB */

static const int64_t sizes[] = {
    1,
    2,
    3,
    31,
    32,
    33,
    63,
    64,
    65,
    255,
    256,
    257,
    1000,
    4096,
    4097,
    50257,
    1 << 20,
    (1 << 24) + 1,
    INT64_C(1) << 31};
enum { SIZES = sizeof sizes / sizeof *sizes };

static int64_t threads_of(const tsr_launch_shape *s) {
  return (int64_t)s->block[0] * s->block[1] * s->block[2];
}

static void check_limits(const tsr_launch_shape *s, const char *what, int64_t n) {
  int64_t threads = threads_of(s);
  CHECK_AT(
      threads > 0 && threads <= 1024 && threads % 32 == 0, "%s of %lld: %lld threads", what,
      (long long)n, (long long)threads);
  CHECK_AT(
      s->grid[0] > 0 && s->grid[0] <= INT32_MAX && s->grid[1] == 1 && s->grid[2] == 1,
      "%s of %lld: a grid of %u, %u, %u", what, (long long)n, s->grid[0], s->grid[1], s->grid[2]);
  CHECK_AT(s->shared_bytes >= 0 && s->shared_bytes <= SHARED_MAX, "%s: shared memory", what);
}

/* A block has `in_block` of n items; with fewer blocks the kernel strides by all threads. */
static void
check_covers(tsr_launch_shape s, const char *what, int64_t n, int64_t in_block, int64_t most) {
  int64_t blocks = s.grid[0];
  check_limits(&s, what, n);
  CHECK_AT(
      blocks * in_block >= n || blocks == most, "%s of %lld: %lld blocks", what, (long long)n,
      (long long)blocks);
  CHECK_AT((blocks - 1) * in_block < n, "%s of %lld: an empty block", what, (long long)n);
}

static void test_maps(int64_t n) {
  enum { T = TSR_MAP_THREADS, MOST = TSR_MAP_BLOCKS };
  check_covers(launch_map(n), "a map", n, T, MOST);
  check_covers(launch_elements(n, TSR_CUDA_F32), "f32", n, T * 4, MOST);
  check_covers(launch_elements(n, TSR_CUDA_BF16), "bf16", n, T * 8, MOST);
  check_covers(launch_cast(n), "a cast", n, T * LAUNCH_CAST_WIDTH, MOST);
  check_covers(launch_dropout(n), "dropout", n, T * LAUNCH_DROPOUT_WIDTH, MOST);
  check_covers(launch_updates(launch_update_blocks(n)), "an update", n, 32 * T, 0);
}

static void test_rows(int64_t R, int64_t C) {
  if (R > INT32_MAX) return; /* a block a row: such tensors have no kernel */
  tsr_launch_shape rows = launch_rows(R, C), tokens = launch_tokens(R, C);
  check_covers(rows, "rows", R, 1, 0);
  check_covers(
      launch_norm_rows(R, C), "rows of a norm", R, C > LAUNCH_WARP_ROW ? 1 : LAUNCH_WARP_ROWS, 0);
  check_covers(tokens, "tokens", R, 1, 0);
  CHECK_AT(
      threads_of(&rows) == TSR_WARP || threads_of(&rows) * 4 < C, "%lld threads for a row of %lld",
      (long long)threads_of(&rows), (long long)C);
}

static void test_sums(int64_t R, int64_t C) {
  tsr_launch_shape tree = launch_add_runs(R, C);
  if (launch_runs(R) * launch_column_tiles(C, TSR_CUDA_F32) > INT32_MAX) return;
  check_covers(
      launch_sum_runs(R, C, TSR_CUDA_F32), "runs",
      launch_runs(R) * launch_column_tiles(C, TSR_CUDA_F32), 1, 0);
  CHECK(launch_runs(R) * TSR_CUDA_ROWS >= R);
  CHECK(launch_column_tiles(C, TSR_CUDA_BF16) * LAUNCH_TILE_THREADS * 8 >= C);
  check_covers(tree, "the tree over runs", C, TSR_WARP, 0);
}

static void test_one_number(int64_t n) {
  check_covers(launch_sum_elements(n), "a sum", n, (int64_t)LAUNCH_SUM_WARPS * TSR_SUM_BLOCK, 0);
  tsr_launch_shape tree = launch_add_blocks(n), scan = launch_scan(), clip = launch_clip();
  check_limits(&tree, "the tree over blocks", n);
  check_limits(&scan, "the scan", n);
  check_limits(&clip, "the norm", n);
}

static void check_pass(const attention_tile *t, int64_t T, int64_t D, int64_t lines) {
  tsr_launch_shape s = launch_attention(t, T, lines);
  check_limits(&s, "attention", T);
  CHECK(t->width >= D);
  CHECK_INT(s.grid[0] % lines, 0);
  CHECK((int64_t)s.grid[0] / lines * t->own >= T);
  CHECK(((int64_t)s.grid[0] / lines - 1) * t->own < T);
}

static void test_attention(int64_t T, int64_t D, int64_t Dv) {
  const tsr_attention a = {.D = D, .Dv = Dv};
  for (int pass = TSR_ATTENTION_OUT; pass <= TSR_ATTENTION_DKV; pass++) {
    attention_tile simt = simt_tile((tsr_attention_sum)pass, simt_width(&a));
    check_pass(&simt, T, D, 12);
    attention_tile tensor = tensor_tile((tsr_attention_sum)pass, tensor_width(&a));
    if (attention_tensor_can(TSR_CUDA_BF16, &a, NULL, 0)) check_pass(&tensor, T, D, 12);
  }
  check_covers(launch_attention_rows(T * 12), "rows of attention", T * 12, 32, 0);
}

static void test_cached(int64_t heads) {
  const tsr_attention a = {.B = 2, .T = 3, .H = heads * 2, .G = 2, .D = 64};
  tsr_launch_shape s = launch_attention_cached(&a);
  check_limits(&s, "attention to a cache", heads);
  CHECK((int64_t)s.grid[0] * cached_heads_of(&a) >= a.B * a.T * a.H);
}

int main(void) {
  for (int i = 0; i < SIZES; i++) {
    test_maps(sizes[i]);
    test_one_number(sizes[i]);
    for (int j = 0; j < SIZES; j++) test_rows(sizes[i], sizes[j]), test_sums(sizes[i], sizes[j]);
    if (sizes[i] <= 1 << 20)
      for (int64_t D = 1; D <= TSR_CUDA_HEAD_MAX; D++)
        test_attention(sizes[i], D, 0), test_attention(sizes[i], D, (D + 1) / 2);
  }
  for (int64_t heads = 1; heads <= 16; heads++) test_cached(heads);
  CHECK_INT(launch_weights_max(false), TSR_CUDA_WEIGHTS);
  CHECK(launch_weights_max(true) > 0);
  return check_done("kernels.launch_shape");
}
