// SPDX-License-Identifier: Apache-2.0
/* The GEMMs of kernels/cuda/wgmma.cuh on the CPU, for tests: included behind emulator.h and before
 * a .cu file. A descriptor is read as the PTX ISA's "Matrix Descriptor Format" and "Canonical
 * Layouts" have it, element by element, independently of the code that is tested.
 *
 * A GEMM reads its matrices when it is waited for or, where `emulator::fetches_late` is set, when
 * it begins; its sums appear in its array when a wait names the array. Until then the array has
 * NaNs. What the hardware leaves undefined stops the program: an array that no fence named, or that
 * was changed since; one that is changed while a GEMM has it; a descriptor whose layout is not
 * swizzled by 128 bytes or not aligned; memory that threads wrote without a fence of the proxies;
 * warps of a warpgroup that make different calls; GEMMs that nobody waited for. */
#ifndef TSR_TESTS_CUDA_WGMMA_H
#define TSR_TESTS_CUDA_WGMMA_H
#include "tma.h"

namespace emulator {

/* A matrix of a descriptor; addresses and strides in bytes. */
struct matrix {
  uint32_t start, leading, stride;
  bool is_k_major;
};

inline matrix matrix_of(uint64_t descriptor, bool is_k_major, int line) {
  const uint64_t reserved = 3ull << 14 | 3ull << 30 | 7ull << 46 | 0x3FFull << 52;
  matrix m;
  m.start = (uint32_t)(descriptor & 0x3FFF) << 4;
  m.leading = (uint32_t)(descriptor >> 16 & 0x3FFF) << 4;
  m.stride = (uint32_t)(descriptor >> 32 & 0x3FFF) << 4;
  m.is_k_major = is_k_major;
  if (descriptor & reserved) fail("reserved bits of a descriptor", current, line);
  if (descriptor >> 62 != 1) fail("another swizzle than 128 bytes", current, line);
  /* the pattern's first row is at a multiple of 1024, or the base offset says where */
  if ((m.start >> 7 & 7) != (descriptor >> 49 & 7) || descriptor >> 49 & 7)
    fail("an atom that is not aligned", current, line);
  if (!is_k_major && m.start % 128) fail("columns that begin inside an atom", current, line);
  return m;
}

/* Element (i, k), where i counts rows of A or columns of B. */
inline uint16_t matrix_element(const matrix &m, int i, int k, int line) {
  uint32_t at;
  uint16_t half, other;
  if (m.is_k_major) {
    if (m.start % 128 + (uint32_t)k * 2 >= 128) fail("a row that leaves its atom", current, line);
    at = m.start + (uint32_t)(i % 8) * 128 + (uint32_t)(i / 8) * m.stride + (uint32_t)k * 2;
  } else
    at = m.start + (uint32_t)(i % 64) * 2 + (uint32_t)(i / 64) * m.leading +
         (uint32_t)(k % 8) * 128 + (uint32_t)(k / 8) * m.stride;
  size_t offset = shared_offset(swizzle_128(at), 2, line);
  memcpy(&half, proxy + offset, sizeof half);
  memcpy(&other, dynamic_shared + offset, sizeof other);
  if (half != other) fail("memory that threads wrote without a fence", current, line);
  return half;
}

/* A thread's part of a GEMM that goes on; `n` arrays of 4 sums. */
struct gemm {
  float (*d)[4];
  int n;
  bool adds, reads_registers;
  const uint32_t *a; /* reads_registers: of the thread, and what was there */
  uint32_t a_words[4];
  uint16_t a_rows[2][16]; /* reads_registers */
  matrix a_matrix, b;
  float (*value)(uint16_t half);
  long group; /* 0: none yet */
  int line;
};

struct call {
  uint64_t a, b;
  int n, line;
  bool operator!=(const call &o) const {
    return a != o.a || b != o.b || n != o.n || line != o.line;
  }
};

struct gemm_thread {
  std::vector<gemm> gemms;                              /* that go on, the oldest first */
  std::map<const void *, std::vector<uint32_t>> fenced; /* arrays, and what was in them */
  std::map<float (*)[4], std::vector<float>> sums;      /* of arrays that GEMMs have */
  long groups, over;
  size_t calls;
};
inline gemm_thread gemm_threads[THREADS_MAX];
inline std::vector<call> calls[THREADS_MAX / WARP / 4]; /* of a warpgroup */

inline gemm_thread *gemm_own() { return &gemm_threads[current]; }

/* Lane's sums of `g`: rows lane / 4 and lane / 4 + 8 of the warp, columns as m64nNk16 has them. */
inline void gemm_do(gemm_thread *t, const gemm &g) {
  std::vector<float> &sums = t->sums[g.d];
  int first = current / WARP % 4 * 16 + lane() / 4;
  float a[2][16], b[16];
  for (int r = 0; r < 2; r++)
    for (int k = 0; k < 16; k++)
      a[r][k] = g.value(
          g.reads_registers ? g.a_rows[r][k]
                            : matrix_element(g.a_matrix, first + 8 * r, k, g.line));
  for (int column = 0; column < 2 * g.n; column++) {
    int n = column / 2, of = n * 8 + lane() % 4 * 2 + column % 2;
    for (int k = 0; k < 16; k++) b[k] = g.value(matrix_element(g.b, of, k, g.line));
    for (int r = 0; r < 2; r++) {
      float *at = &sums[(size_t)(n * 4 + r * 2 + column % 2)];
      double sum = g.adds ? *at : 0;
      for (int k = 0; k < 16; k++) sum += (double)a[r][k] * b[k];
      *at = (float)sum;
    }
  }
}

inline void gemm_check_registers(const gemm &g) {
  if (g.reads_registers && memcmp(g.a, g.a_words, sizeof g.a_words))
    fail("changed registers that a GEMM reads", current, g.line);
}

inline void gemm_end(gemm_thread *t, const gemm &g) {
  gemm_check_registers(g);
  if (!fetches_late) gemm_do(t, g);
}

/* Bits of an array that a GEMM has. */
inline void array_check(const float (*d)[4], int n, int line) {
  for (int i = 0; i < 4 * n; i++)
    if (__float_as_uint(d[i / 4][i % 4]) != ~0u)
      fail("changed an array that a GEMM has", current, line);
}

inline bool is_fenced(const gemm_thread *t, const void *x, size_t bytes) {
  const char *at = (const char *)x;
  for (const auto &f : t->fenced) {
    const char *first = (const char *)f.first;
    if (at < first || at + bytes > first + f.second.size() * 4) continue;
    return !memcmp(at, (const char *)f.second.data() + (at - first), bytes);
  }
  return false;
}

/* The array becomes the GEMM's. */
inline void array_take(gemm_thread *t, float (*d)[4], int n, int line) {
  auto found = t->sums.find(d);
  if (found != t->sums.end()) {
    if (found->second.size() != (size_t)n * 4) fail("an array of another shape", current, line);
    return array_check(d, n, line);
  }
  if (!is_fenced(t, d, (size_t)n * 16)) fail("an array that is not fenced", current, line);
  t->sums[d] = std::vector<float>(&d[0][0], &d[0][0] + 4 * n);
  memset(d, 0xFF, (size_t)n * 16);
}

/* Warps of a warpgroup make the same calls. */
inline void check_call(gemm_thread *t, const call &c) {
  std::vector<call> &of = calls[current / WARP / 4];
  if (threads % (4 * WARP)) fail("a block without whole warpgroups", current, c.line);
  if (t->calls == of.size()) of.push_back(c);
  else if (of[t->calls] != c) fail("a warpgroup that parts its ways", current, c.line);
  t->calls++;
}

inline void gemm_begin(gemm g) {
  gemm_thread *t = gemm_own();
  array_take(t, g.d, g.n, g.line);
  if (g.reads_registers) {
    if (!is_fenced(t, g.a, sizeof g.a_words)) fail("an array that is not fenced", current, g.line);
    memcpy(g.a_words, g.a, sizeof g.a_words);
  }
  if (fetches_late) gemm_do(t, g);
  t->gemms.push_back(g);
}

/* Words of A that the lanes of a row have, as m64nNk16 lays them out. */
inline void registers_read(gemm *g, const uint32_t a[4], int line) {
  uint16_t rows[2][16];
  for (int i = 0; i < 4; i++) {
    const uint64_t *words = tell(a[i], ~0u, line);
    for (int of = 0; of < 4; of++)
      for (int half = 0; half < 2; half++)
        rows[i % 2][i / 2 * 8 + of * 2 + half] =
            (uint16_t)(words[lane() / 4 * 4 + of] >> 16 * half);
  }
  memcpy(g->a_rows, rows, sizeof rows);
}

inline void gemms_begin() {
  for (int t = 0; t < threads; t++) gemm_threads[t] = {};
  for (int w = 0; w < (threads + 127) / 128; w++) calls[w].clear();
}
inline bool gemms_pass() { return false; }
inline void gemms_end() {
  for (int t = 0; t < threads; t++) {
    if (!gemm_threads[t].gemms.empty())
      fail("nobody waited for a GEMM", t, gemm_threads[t].gemms[0].line);
    if (!gemm_threads[t].sums.empty()) fail("no wait named an array", t, 0);
    if (gemm_threads[t].calls != calls[t / 128].size())
      fail("a warpgroup that parts its ways", t, 0);
  }
}
inline const bool gemms_are_added = (units().push_back({gemms_begin, gemms_pass, gemms_end}), true);

template <typename T, int N> void array_fence(T (&x)[N][4]) {
  std::vector<uint32_t> words(4 * N);
  if (gemm_own()->sums.count((float(*)[4])x)) fail("fences what a GEMM has", current, 0);
  memcpy(words.data(), x, sizeof x);
  gemm_own()->fenced[x] = words;
}

/* The thread has the array again. */
template <typename T, int N> void array_give(T (&x)[N][4]) {
  gemm_thread *t = gemm_own();
  for (const gemm &g : t->gemms)
    if (g.d == (float(*)[4])x ||
        (g.reads_registers && g.a >= (const uint32_t *)x && g.a < (const uint32_t *)(x + N)))
      fail("waits for less than an array's GEMMs", current, g.line);
  auto found = t->sums.find((float(*)[4])x);
  if (found == t->sums.end()) return;
  array_check((const float(*)[4])x, N, 0);
  memcpy(x, found->second.data(), sizeof x);
  t->sums.erase(found);
  t->fenced.erase(x);
}

} // namespace emulator

/* ---- wgmma.cuh ---- */

template <typename... ARRAYS> void wgmma_fence(ARRAYS &...arrays) {
  __syncwarp(~0u, 0);
  (emulator::array_fence(arrays), ...);
}

inline void wgmma_commit(int line = __builtin_LINE()) {
  emulator::gemm_thread *t = emulator::gemm_own();
  __syncwarp(~0u, line);
  t->groups++;
  for (emulator::gemm &g : t->gemms)
    if (!g.group) g.group = t->groups;
}

template <int PENDING, typename... ARRAYS> void wgmma_wait(ARRAYS &...arrays) {
  using namespace emulator;
  gemm_thread *t = gemm_own();
  __syncwarp(~0u, 0);
  while (!t->gemms.empty() && t->gemms[0].group && t->gemms[0].group <= t->groups - PENDING) {
    gemm_end(t, t->gemms[0]);
    t->gemms.erase(t->gemms.begin());
  }
  (array_give(arrays), ...);
}

template <tsr_cuda_type TYPE, bool ADDS, int N>
void wgmma_rows(float (&d)[N][4], uint64_t a, uint64_t b, int line = __builtin_LINE()) {
  using namespace emulator;
  static_assert(N == 8 || N == 16, "64 or 128 columns");
  gemm g = {d, N, ADDS, false, nullptr, {}, {}, {}, {}, tensor_value<TYPE>, 0, line};
  g.a_matrix = matrix_of(a, true, line);
  g.b = matrix_of(b, true, line);
  __syncwarp(~0u, line);
  check_call(gemm_own(), {a, b, N, line});
  gemm_begin(g);
}

template <tsr_cuda_type TYPE, int N>
void wgmma_columns(
    float (&d)[N][4], const uint32_t (&a)[4], uint64_t b, int line = __builtin_LINE()) {
  using namespace emulator;
  static_assert(N == 8 || N == 16, "64 or 128 columns");
  gemm g = {d, N, true, true, a, {}, {}, {}, {}, tensor_value<TYPE>, 0, line};
  g.b = matrix_of(b, false, line);
  registers_read(&g, a, line);
  check_call(gemm_own(), {0, b, N, line});
  gemm_begin(g);
}

#endif
