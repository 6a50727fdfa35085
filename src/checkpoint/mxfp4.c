// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/mxfp4.h"
#include <math.h>

void tsr_mxfp4_decode(
    const uint8_t *blocks, const uint8_t *scales, int64_t count, float *ret_values) {
  static const float e2m1[] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                               -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  enum { BIAS = 127, SCALE_NAN = 255 };
  for (int64_t b = 0; b < count; b++) {
    float scale = scales[b] == SCALE_NAN ? NAN : ldexpf(1, scales[b] - BIAS);
    const uint8_t *from = blocks + b * TSR_MXFP4_BLOCK_BYTES;
    for (int i = 0; i < TSR_MXFP4_BLOCK_BYTES; i++) {
      *ret_values++ = e2m1[from[i] & 15] * scale;
      *ret_values++ = e2m1[from[i] >> 4] * scale;
    }
  }
}
