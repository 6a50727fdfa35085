// SPDX-License-Identifier: Apache-2.0
/* Matrices in NF4 (base/quantized_layout.h) to numbers that GEMMs read. A thread decodes
 * LAUNCH_NF4_WIDTH neighbours, which have one scale. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/quantize.h"

/* The levels of elements and of scales. */
typedef struct {
  float elements[16], scales[256];
} nf4_levels;

/* What a matrix's units have in common; sizes in bytes count from a unit's first one. */
typedef struct {
  int64_t cols, unit_rows, unit_cols, unit_bytes, scales_at, groups_at, groups;
} nf4_units;

template <typename T>
static __global__ void
nf4_decode(T *out, const unsigned char *data, nf4_units of, nf4_levels levels, int64_t n) {
  enum { W = LAUNCH_NF4_WIDTH };
  for (int64_t i = map_thread() * W; i < n; i += map_threads() * W) {
    int64_t row = i / of.cols, col = i % of.cols;
    int64_t unit = row / of.unit_rows * (of.cols / of.unit_cols) + col / of.unit_cols;
    int64_t at = row % of.unit_rows * of.unit_cols + col % of.unit_cols;
    const unsigned char *bytes = data + unit * of.unit_bytes;
    const float *groups = (const float *)(bytes + of.groups_at);
    int64_t block = at / TSR_QUANTIZED_BLOCK;
    float scale = levels.scales[bytes[of.scales_at + block]] * groups[block / TSR_NF4_GROUP];
    scale += groups[of.groups];
    float x[W];
#pragma unroll
    for (int k = 0; k < W; k += 2) {
      unsigned char two = bytes[(at + k) / 2];
      x[k] = levels.elements[two >> 4] * scale;
      x[k + 1] = levels.elements[two & 15] * scale;
    }
    row_store(out, x, i, n, true);
  }
}

extern "C" void tsr_cuda_nf4_decode(
    tsr_cuda_stream s, tsr_cuda_type type, void *out, const tsr_quantized_layout *l,
    const void *data) {
  int64_t n = l->rows * l->cols, blocks = tsr_quantized_unit_blocks(l);
  nf4_units of;
  nf4_levels levels;
  if (n <= 0) return;
  of.cols = l->cols;
  of.unit_rows = l->unit_rows;
  of.unit_cols = l->unit_cols;
  of.unit_bytes = tsr_quantized_unit_bytes(l);
  of.scales_at = blocks * TSR_QUANTIZED_BLOCK / 2;
  of.groups_at = tsr_quantized_codes_bytes(l);
  of.groups = (blocks + TSR_NF4_GROUP - 1) / TSR_NF4_GROUP;
  for (int i = 0; i < 16; i++) levels.elements[i] = tsr_nf4_levels[i];
  for (int i = 0; i < 256; i++) levels.scales[i] = tsr_nf4_scale_levels[i];
  TSR_BY_TYPE(
      type, T,
      TSR_LAUNCH(
          (nf4_decode<T>), launch_nf4(n), s, (T *)out, (const unsigned char *)data, of, levels, n))
}
