// SPDX-License-Identifier: Apache-2.0
/* Rotary positions (Su et al. 2021), halves rotated as in Hugging Face's Llama. */
#include "kernels/cpu/level.h"
#include <math.h>

/* Llama 3.1's rule: long waves are slowed by the factor, short ones kept, those between blended. */
static double scaled_frequency(
    double frequency, double factor, double low, double high, double original_context) {
  double wavelength = 2 * 3.14159265358979323846 / frequency;
  if (wavelength < original_context / high) return frequency;
  if (wavelength > original_context / low) return frequency / factor;
  double blend = (original_context / wavelength - low) / (high - low);
  return (1 - blend) * frequency / factor + blend * frequency;
}

void LEVEL(rope_table)(
    float *table, int64_t T, int64_t D, int64_t position_offset, double theta,
    double scaling_factor, double low_freq_factor, double high_freq_factor,
    double original_context) {
  for (int64_t i = 0; i < D / 2; i++) {
    double frequency = pow(theta, -2.0 * (double)i / (double)D);
    if (scaling_factor != 0)
      frequency = scaled_frequency(
          frequency, scaling_factor, low_freq_factor, high_freq_factor, original_context);
    for (int64_t t = 0; t < T; t++) {
      double angle = (double)(t + position_offset) * frequency;
      table[(t * (D / 2) + i) * 2] = (float)cos(angle);
      table[(t * (D / 2) + i) * 2 + 1] = (float)sin(angle);
    }
  }
}

void LEVEL(rope)(
    float *y, const float *x, const float *table, int64_t T, int64_t H, int64_t D, float sign,
    int64_t begin, int64_t end) {
  int64_t half = D / 2;
  for (int64_t r = begin; r < end; r++) {
    const float *turn = table + r % T * half * 2; // (D/2, 2)
    for (int64_t h = 0; h < H; h++) {
      const float *low = x + (r * H + h) * D, *high = low + half;
      float *out = y + (r * H + h) * D;
#pragma omp simd
      for (int64_t i = 0; i < half; i++) {
        float a = low[i], b = high[i], cosine = turn[2 * i], sine = sign * turn[2 * i + 1];
        out[i] = a * cosine - b * sine;
        out[i + half] = b * cosine + a * sine;
      }
    }
  }
}
