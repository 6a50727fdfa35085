// SPDX-License-Identifier: Apache-2.0
/* The tensor cores' instructions of kernels/cuda/mma.cuh on the CPU, for tests: included after
 * emulator.h and before a .cu file. A matrix is put together from the lanes' words as the PTX ISA
 * lays it out, element by element, independently of the code that is tested.
 *
 * What is fetched into shared memory comes at once or, where `emulator::fetches_late` is set, when
 * it is waited for: a kernel whose result depends on that lacks a wait or a barrier. */
#ifndef TSR_TESTS_CUDA_MMA_H
#define TSR_TESTS_CUDA_MMA_H
extern "C" {
#include "kernels/kernels.h"
}
#include "base/fp8_layout.h"
#include "kernels/cuda/number.cuh"
#include <vector>

namespace emulator {

struct fetch {
  uint16_t *to;
  const uint16_t *from;
  bool real;
};
inline bool fetches_late = false;
inline std::vector<fetch> fetches[THREADS_MAX];

inline void fetch_do(fetch f) {
  uint16_t zeros[8] = {0};
  if ((uintptr_t)f.to % 16 || (uintptr_t)f.from % 16)
    fail("a fetch that is not aligned", current, 0);
  memcpy(f.to, f.real ? f.from : zeros, 16);
}

/* Words of mma: 4 of A and 2 of B a lane; two sets in turn, as emulator.h's exchange. */
inline uint32_t operands[2][THREADS_MAX][6];
inline int operands_turn[THREADS_MAX];

inline const uint32_t (*tell_operands(const uint32_t a[4], const uint32_t b[2]))[6] {
  int *turn = &operands_turn[current], own = lane();
  uint32_t(*warp)[6] = operands[*turn] + current / WARP * WARP;
  memcpy(warp[own], a, 4 * sizeof *a);
  memcpy(warp[own] + 4, b, 2 * sizeof *b);
  *turn ^= 1;
  __syncwarp();
  return warp;
}

/* Half k % 2 of the word that holds columns pair, pair+1 of the place k in 0..15. */
inline uint16_t half_of(uint32_t word, int k) { return (uint16_t)(word >> k % 2 * 16); }
inline uint16_t a_element(const uint32_t (*warp)[6], int row, int k) {
  int lane = row % 8 * 4 + k % 8 / 2;
  return half_of(warp[lane][row / 8 + k / 8 * 2], k);
}
inline uint16_t b_element(const uint32_t (*warp)[6], int k, int column) {
  int lane = column * 4 + k % 8 / 2;
  return half_of(warp[lane][4 + k / 8], k);
}

inline void matrices_read(uint32_t words[4], const uint16_t *row, bool transposed, int line) {
  const uint64_t *rows = tell((uint64_t)(uintptr_t)row, ~0u, line);
  int own = lane();
  for (int i = 0; i < 4; i++) {
    uint16_t x[2];
    for (int half = 0; half < 2; half++) {
      int r = transposed ? own % 4 * 2 + half : own / 4,
          c = transposed ? own / 4 : own % 4 * 2 + half;
      const uint16_t *from = (const uint16_t *)(uintptr_t)rows[8 * i + r];
      if ((uintptr_t)from % 16) fail("a matrix's row that is not aligned", current, line);
      x[half] = from[c];
    }
    words[i] = x[0] | (uint32_t)x[1] << 16;
  }
}

} // namespace emulator

inline void tensor_read(uint32_t words[4], const uint16_t *row) {
  emulator::matrices_read(words, row, false, __LINE__);
}
inline void tensor_read_transposed(uint32_t words[4], const uint16_t *row) {
  emulator::matrices_read(words, row, true, __LINE__);
}

inline float f16_value(uint16_t bits) {
  static std::vector<float> values;
  if (values.empty())
    for (unsigned i = 0; i < 1 << 16; i++) values.push_back(number_float(tsr_f16{(uint16_t)i}));
  return values[bits];
}

template <tsr_cuda_type TYPE> inline float tensor_value(uint16_t bits) {
  return TYPE == TSR_CUDA_BF16 ? number_float(tsr_bf16{bits}) : f16_value(bits);
}

template <tsr_cuda_type TYPE>
inline void tensor_gemm(float c[4], const uint32_t a[4], const uint32_t b[2]) {
  using namespace emulator;
  const uint32_t(*warp)[6] = tell_operands(a, b);
  int own = lane();
  for (int i = 0; i < 4; i++) {
    int row = own / 4 + i / 2 * 8, column = own % 4 * 2 + i % 2;
    double sum = c[i];
    for (int k = 0; k < 16; k++)
      sum += (double)tensor_value<TYPE>(a_element(warp, row, k)) *
             tensor_value<TYPE>(b_element(warp, k, column));
    c[i] = (float)sum;
  }
}

/* ---- codes of FP8 ---- */

namespace emulator {

/* Whether kernels multiply codes, or halves. */
inline bool has_fp8 = false;

/* Code k % 4 of the word that holds four neighbours of the place k in 0..31. */
inline uint8_t code_of(uint32_t word, int k) { return (uint8_t)(word >> k % 4 * 8); }
inline uint8_t a_code(const uint32_t (*warp)[6], int row, int k) {
  return code_of(warp[row % 8 * 4 + k % 16 / 4][row / 8 + k / 16 * 2], k);
}
inline uint8_t b_code(const uint32_t (*warp)[6], int k, int column) {
  return code_of(warp[column * 4 + k % 16 / 4][4 + k / 16], k);
}

/* `digits` of fraction; the exponents of both formats end with one that E4M3 shares with numbers,
 * and E5M2 does not. */
inline double code_value(tsr_fp8_format format, uint8_t code) {
  int digits = format == TSR_FP8_E4M3 ? 3 : 2, bias = format == TSR_FP8_E4M3 ? 7 : 15;
  int exponent = (code & 0x7F) >> digits, fraction = code & ((1 << digits) - 1);
  double size = exponent ? ldexp((1 << digits) + fraction, exponent - bias - digits)
                         : ldexp(fraction, 1 - bias - digits);
  if (format == TSR_FP8_E4M3 && (code & 0x7F) == 0x7F) size = NAN;
  if (format == TSR_FP8_E5M2 && exponent == 31) size = fraction ? NAN : INFINITY;
  return code & 0x80 ? -size : size;
}

/* Of all codes. */
inline const double *code_values(tsr_fp8_format format) {
  static std::vector<double> values[2];
  std::vector<double> &of = values[format == TSR_FP8_E5M2];
  for (int i = (int)of.size(); i < 256; i++) of.push_back(code_value(format, (uint8_t)i));
  return of.data();
}

} // namespace emulator

inline bool tensor_has_fp8() { return emulator::has_fp8; }

template <tsr_fp8_format FORMAT>
inline void tensor_gemm_codes(float c[4], const uint32_t a[4], const uint32_t b[2]) {
  using namespace emulator;
  const double *of_a = code_values(FORMAT), *of_b = code_values(TSR_FP8_E4M3);
  const uint32_t(*warp)[6] = tell_operands(a, b);
  for (int i = 0; i < 4; i++) {
    int own = lane(), row = own / 4 + i / 2 * 8, column = own % 4 * 2 + i % 2;
    double sum = c[i];
    for (int k = 0; k < 32; k++) sum += of_a[a_code(warp, row, k)] * of_b[b_code(warp, k, column)];
    c[i] = (float)sum;
  }
}

inline uint32_t tensor_pair_times(uint32_t x, uint32_t y) {
  uint32_t word = 0;
  for (int i = 0; i < 2; i++) {
    tsr_f16 half;
    number_set(&half, f16_value((uint16_t)(x >> 16 * i)) * f16_value((uint16_t)(y >> 16 * i)));
    word |= (uint32_t)half.bits << 16 * i;
  }
  return word;
}

template <tsr_cuda_type TYPE> inline uint32_t tensor_pair(float first, float second) {
  tsr_bf16 b[2];
  tsr_f16 h[2];
  float x[2] = {first, second};
  for (int i = 0; i < 2; i++) number_set(&b[i], x[i]), number_set(&h[i], x[i]);
  return TYPE == TSR_CUDA_BF16 ? b[0].bits | (uint32_t)b[1].bits << 16
                               : h[0].bits | (uint32_t)h[1].bits << 16;
}

inline void tensor_fetch(uint16_t *to, const uint16_t *from, bool real) {
  using namespace emulator;
  if (fetches_late) fetches[current].push_back({to, from, real});
  else fetch_do({to, from, real});
}
inline void tensor_fetch_wait() {
  for (const emulator::fetch &f : emulator::fetches[emulator::current]) emulator::fetch_do(f);
  emulator::fetches[emulator::current].clear();
}
inline float tensor_power(float x) { return exp2f(x); }
inline float tensor_reciprocal(float x) { return 1 / x; }

#endif
