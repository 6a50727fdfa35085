// SPDX-License-Identifier: Apache-2.0
/* The emulated mbarriers, copies and GEMMs of a warpgroup (tma.h, wgmma.h) compute what the PTX ISA
 * says of right kernels, and stop wrong ones. */
#include "kernels/cuda/wgmma.cuh"
#include "stopped.h"
#include <cmath>

/* What a kernel does wrong. */
enum mistake {
  RIGHT,
  NO_FENCE,        /* before the first GEMM */
  NO_SECOND_FENCE, /* behind a change of the sums */
  CHANGES_SUMS,    /* that a GEMM has */
  CHANGES_WEIGHTS, /* that a GEMM reads */
  NO_COMMIT,
  NO_WAIT,
  WAITS_FOR_LESS,
  SHORT_COUNT, /* of bytes */
  LONG_COUNT,
  WRONG_PARITY, /* of a phase that has not ended */
  TWO_ARRIVALS,
  NOT_INITIALIZED,
  NO_PROXY_FENCE,
  NO_BLOCK_BARRIER,
  UNALIGNED_TILE,
  UNALIGNED_ATOM,
  NO_SWIZZLE,
  OUTSIDE,
  THREADS_WRITE, /* into a tile */
  WARPS_DIFFER,
  OVERWRITES_BARRIER,
  NOT_WAITED_COPY,
  NO_MAP,
  TOO_MANY_REGISTERS,
  MISTAKES
};

enum { N = 128, K = 64, PIECE = 64 * TMA_ROW_BYTES, ROWS = 60 };
enum { TILES_BYTES = 5 * PIECE, SHARED_BYTES = 1024 + TILES_BYTES + 16 };

struct async_maps {
  tensor_map a, b, values;
};

/* scores (64, N) = a (64, K) . b (N, K)^T; out (64, N) = scores (64, 64) . values (64, N). */
static __global__ void gemms(mistake m, async_maps maps, float *scores, float *out) {
  TSR_SHARED(unsigned char, shared);
  uint32_t tiles = tma_shared(shared), barrier = tiles + TILES_BYTES, late = barrier + 8;
  float sums[16][4], more[16][4] = {{0}};
  uint32_t weights[4][4];
  if (threadIdx.x == 0) {
    if (m != NOT_INITIALIZED) mbarrier_init(barrier, 1);
    mbarrier_init(late, 1);
    if (m != NO_PROXY_FENCE) tma_fence();
  }
  if (m != NO_BLOCK_BARRIER) __syncthreads();
  if (m == TOO_MANY_REGISTERS) registers_take<256>(), registers_take<248>();
  if (threadIdx.x == 0) {
    const uint32_t bytes = 5 * PIECE, off = m == UNALIGNED_TILE ? 128 : 0;
    mbarrier_expect(
        barrier, m == SHORT_COUNT  ? bytes - 128
                 : m == LONG_COUNT ? bytes + 128
                                   : bytes);
    if (m == TWO_ARRIVALS) mbarrier_arrive(barrier);
    tma_load(tiles + off, &maps.a, barrier, 0, 1, 2, 1);
    tma_load(tiles + PIECE, &maps.b, barrier, 0, 0, 0, 0);
    tma_load(tiles + 3 * PIECE, &maps.values, barrier, 0, 0, 0, 0);
    async_maps none = {};
    tma_load(tiles + 4 * PIECE, m == NO_MAP ? &none.a : &maps.values, barrier, 64, 0, 0, 0);
    if (m == NOT_WAITED_COPY) mbarrier_expect(late, 1), tma_load(tiles, &maps.a, late, 0, 1, 2, 1);
    if (m == OVERWRITES_BARRIER) memset(shared + SHARED_BYTES - 16 - 128 - 256, 0, 400);
  }
  mbarrier_wait(barrier, m == WRONG_PARITY ? 1 : 0);
  if (m == WRONG_PARITY) mbarrier_wait(barrier, 1);
  if (m == THREADS_WRITE && threadIdx.x == 0) memset(shared + 2048, 0, 64);
  if (m == THREADS_WRITE) __syncthreads();
  uint32_t begin = m == OUTSIDE ? 1 << 17 : m == UNALIGNED_ATOM ? tiles + 128 : tiles;
  uint64_t a = wgmma_descriptor(begin, 0, 1024), b = wgmma_descriptor(tiles + PIECE, 0, 1024);
  if (m == NO_SWIZZLE) a &= ~(1ull << 62);
  if (m != NO_FENCE) wgmma_fence(sums);
  for (uint32_t k = 0; k < K / 16; k++) {
    uint64_t a_at = wgmma_descriptor_at(a, k * 32), b_at = wgmma_descriptor_at(b, k * 32);
    if (k == 0) wgmma_rows<TSR_CUDA_BF16, false>(sums, a_at, b_at);
    else if (m == WARPS_DIFFER && threadIdx.x < 32)
      wgmma_rows<TSR_CUDA_BF16, true>(sums, b_at, b_at);
    else wgmma_rows<TSR_CUDA_BF16, true>(sums, a_at, b_at);
  }
  if (m == CHANGES_SUMS) sums[3][2] = 0;
  if (m != NO_COMMIT) wgmma_commit();
  if (m == WAITS_FOR_LESS) wgmma_wait<1>(sums);
  if (m != NO_WAIT) wgmma_wait<0>(sums);
  for (int n = 0; n < 16; n++)
    for (int i = 0; i < 4; i++) {
      int row = (int)threadIdx.x / 32 * 16 + tensor_c_row(i);
      scores[row * N + n * 8 + tensor_c_column(i)] = sums[n][i];
    }
  for (int k = 0; k < 4; k++)
    tensor_a_of_sums<TSR_CUDA_BF16>(weights[k], sums[2 * k], sums[2 * k + 1]);
  wgmma_fence(more, weights);
  if (m == NO_SECOND_FENCE) more[0][0] = 1;
  uint64_t values = wgmma_descriptor(tiles + 3 * PIECE, PIECE, 1024);
  for (uint32_t k = 0; k < 4; k++)
    wgmma_columns<TSR_CUDA_BF16>(more, weights[k], wgmma_descriptor_at(values, k * 2048));
  if (m == CHANGES_WEIGHTS) weights[1][1] = 0x3F803F80;
  wgmma_commit();
  wgmma_wait<0>(more, weights);
  for (int n = 0; n < 16; n++)
    for (int i = 0; i < 4; i++) {
      int row = (int)threadIdx.x / 32 * 16 + tensor_c_row(i);
      out[row * N + n * 8 + tensor_c_column(i)] = more[n][i];
    }
}

static uint16_t half_of_int(int x) { return (uint16_t)(__float_as_uint((float)x) >> 16); }

/* Small whole numbers, whose sums are exact: a (2 samples, ROWS, 2 heads, K), of which the kernel
 * reads head 1 of sample 1 from row 2 on, b (N, K), values (64, N). */
struct operands {
  std::vector<int> a, b, values;
  std::vector<uint16_t> a_halves, b_halves, values_halves;
};

static std::vector<uint16_t> halves_of(const std::vector<int> &x) {
  std::vector<uint16_t> y;
  for (int i : x) y.push_back(half_of_int(i));
  return y;
}

static operands operands_new() {
  operands o;
  for (int i = 0; i < 2 * ROWS * 2 * K; i++) o.a.push_back(i * 7 % 5 - 2);
  for (int i = 0; i < N * K; i++) o.b.push_back(i * 11 % 3 - 1);
  for (int i = 0; i < 64 * N; i++) o.values.push_back(i * 13 % 7 - 3);
  o.a_halves = halves_of(o.a), o.b_halves = halves_of(o.b), o.values_halves = halves_of(o.values);
  return o;
}

static async_maps maps_of(const operands &o) {
  async_maps maps;
  const int64_t row = K * 2;
  bool ok = tensor_map_encode(
      &maps.a, {o.a_halves.data(), K, 2, ROWS, 2, row, 2 * row, ROWS * 2 * row, 64});
  ok &= tensor_map_encode(&maps.b, {o.b_halves.data(), K, 1, N, 1, row, row, N * row, N});
  ok &= tensor_map_encode(
      &maps.values, {o.values_halves.data(), N, 1, 64, 1, N * 2, N * 2, 64 * N * 2, 64});
  CHECK(ok);
  return maps;
}

static const tsr_launch_shape shape = {{1, 1, 1}, {128, 1, 1}, SHARED_BYTES};

static void launch(mistake m, const async_maps &maps, float *scores, float *out) {
  TSR_ALLOW_SHARED(gemms, SHARED_BYTES);
  TSR_LAUNCH(gemms, shape, 0, m, maps, scores, out);
}

static void order(bool opposite) {
  emulator::backwards = opposite;
  emulator::fetches_late = !opposite;
}

/* Element (i, k) of what the kernel reads of a: 0 behind the last row. */
static int a_at(const operands &o, int i, int k) {
  int row = 2 + i;
  return row < ROWS ? o.a[(size_t)(((ROWS + row) * 2 + 1) * K + k)] : 0;
}

static void test_gemms(void) {
  operands o = operands_new();
  async_maps maps = maps_of(o);
  for (int opposite = 0; opposite < 2; opposite++) {
    std::vector<float> scores(64 * N, NAN), out(64 * N, NAN);
    order(opposite);
    launch(RIGHT, maps, scores.data(), out.data());
    for (int i = 0; i < 64; i++)
      for (int n = 0; n < N; n++) {
        int score = 0, sum = 0;
        for (int k = 0; k < K; k++) score += a_at(o, i, k) * o.b[(size_t)(n * K + k)];
        CHECK_NEAR(scores[(size_t)(i * N + n)], score, 0);
        for (int k = 0; k < 64; k++)
          sum += (int)scores[(size_t)(i * N + k)] * o.values[(size_t)(k * N + n)];
        CHECK_NEAR(out[(size_t)(i * N + n)], sum, 0);
      }
  }
}

static void test_maps(void) {
  tensor_map map;
  alignas(16) static uint16_t x[256];
  const tma_tensor good = {x, 64, 1, 2, 1, 128, 128, 256, 2};
  CHECK(tensor_map_encode(&map, good));
  tma_tensor bad[4] = {good, good, good, good};
  bad[0].at = x + 4;
  bad[1].row = 136;
  bad[2].box_rows = 257;
  bad[3].rows = 0;
  for (const tma_tensor &b : bad) CHECK(!tensor_map_encode(&map, b));
}

/* What the emulator says of each; "": it depends on the order. */
static void test_mistakes(void) {
  static const char *const said[MISTAKES] = {
      [RIGHT] = "",
      [NO_FENCE] = "an array that is not fenced",
      [NO_SECOND_FENCE] = "an array that is not fenced",
      [CHANGES_SUMS] = "changed an array that a GEMM has",
      [CHANGES_WEIGHTS] = "changed registers that a GEMM reads",
      [NO_COMMIT] = "waits for less than an array's GEMMs",
      [NO_WAIT] = "no wait named an array",
      [WAITS_FOR_LESS] = "waits for less than an array's GEMMs",
      [SHORT_COUNT] = "waits for ever",
      [LONG_COUNT] = "waits for ever",
      [WRONG_PARITY] = "",
      [TWO_ARRIVALS] = "more arrivals than an mbarrier's count",
      [NOT_INITIALIZED] = "no mbarrier there",
      [NO_PROXY_FENCE] = "an mbarrier that is not fenced",
      [NO_BLOCK_BARRIER] = "",
      [UNALIGNED_TILE] = "a tile that is not aligned",
      [UNALIGNED_ATOM] = "an atom that is not aligned",
      [NO_SWIZZLE] = "another swizzle than 128 bytes",
      [OUTSIDE] = "an address outside its shared memory",
      [THREADS_WRITE] = "memory that threads wrote without a fence",
      [WARPS_DIFFER] = "a warpgroup that parts its ways",
      [OVERWRITES_BARRIER] = "overwrote an mbarrier",
      [NOT_WAITED_COPY] = "left a phase",
      [NO_MAP] = "no tensor map there",
      [TOO_MANY_REGISTERS] = "changes registers that way",
  };
  static const operands o = operands_new();
  static const async_maps maps = maps_of(o);
  static std::vector<float> scores(64 * N), out(64 * N);
  for (int opposite = 0; opposite < 2; opposite++)
    for (int m = RIGHT + 1; m < MISTAKES; m++) {
      static mistake of;
      of = (mistake)m;
      order(opposite);
      std::string got = stopped([] { launch(of, maps, scores.data(), out.data()); });
      if (*said[m]) check_stopped(got, said[m]);
      else CHECK(got != "it went on");
    }
}

int main(void) {
  test_gemms();
  test_maps();
  test_mistakes();
  return check_done("cuda.async");
}
