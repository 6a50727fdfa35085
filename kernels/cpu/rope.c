// SPDX-License-Identifier: Apache-2.0
/* Rotary positions (Su et al. 2021). */
#include "kernels/cpu/level.h"
#include <math.h>
#include <string.h>

/* Llama 3.1's rule: long waves are slowed by the factor, short ones kept, those between blended. */
static double scaled_frequency(
    double frequency, double factor, double low, double high, double original_context) {
  double wavelength = 2 * 3.14159265358979323846 / frequency;
  if (wavelength < original_context / high) return frequency;
  if (wavelength > original_context / low) return frequency / factor;
  double blend = (original_context / wavelength - low) / (high - low);
  return (1 - blend) * frequency / factor + blend * frequency;
}

/* The pair, in fractions, that turns so many times in the original context. */
static double
pair_of_rotations(double rotations, int64_t D, double theta, const tsr_rope_scaling *s) {
  const double pi = 3.14159265358979323846;
  return (double)D * log(s->original_context / (rotations * 2 * pi)) / (2 * log(theta));
}

/* YaRN as transformers computes it: pairs before the first keep their frequency, those behind the
 * last are slowed by the factor, and between them it is a line. */
static double
yarn_frequency(double frequency, int64_t i, int64_t D, double theta, const tsr_rope_scaling *s) {
  double first = pair_of_rotations(s->beta_fast, D, theta, s);
  double last = pair_of_rotations(s->beta_slow, D, theta, s);
  if (s->truncate) first = floor(first), last = ceil(last);
  first = fmax(first, 0);
  last = fmin(last, (double)D - 1);
  if (first == last) last += 0.001;
  double slowed = fmin(fmax(((double)i - first) / (last - first), 0), 1);
  return frequency / s->yarn_factor * slowed + frequency * (1 - slowed);
}

void LEVEL(rope_table)(
    float *table, int64_t T, int64_t D, int64_t position_offset, double theta,
    const tsr_rope_scaling *s) {
  double times = s->attention != 0 ? s->attention : 1;
  for (int64_t i = 0; i < D / 2; i++) {
    double frequency = pow(theta, -2.0 * (double)i / (double)D);
    if (s->factor != 0)
      frequency =
          scaled_frequency(frequency, s->factor, s->low_freq, s->high_freq, s->original_context);
    if (s->yarn_factor != 0) frequency = yarn_frequency(frequency, i, D, theta, s);
    if (s->linear != 0) frequency /= s->linear;
    if (s->factors) frequency /= s->factors[i];
    for (int64_t t = 0; t < T; t++) {
      double angle = (double)(t + position_offset) * frequency;
      table[(t * (D / 2) + i) * 2] = (float)(cos(angle) * times);
      table[(t * (D / 2) + i) * 2 + 1] = (float)(sin(angle) * times);
    }
  }
}

static void turn_halves(float *out, const float *x, const float *turn, int64_t half, float sign) {
  const float *low = x, *high = x + half;
#pragma omp simd
  for (int64_t i = 0; i < half; i++) {
    float a = low[i], b = high[i], cosine = turn[2 * i], sine = sign * turn[2 * i + 1];
    out[i] = a * cosine - b * sine;
    out[i + half] = b * cosine + a * sine;
  }
}

static void turn_pairs(float *out, const float *x, const float *turn, int64_t half, float sign) {
#pragma omp simd
  for (int64_t i = 0; i < half; i++) {
    float a = x[2 * i], b = x[2 * i + 1], cosine = turn[2 * i], sine = sign * turn[2 * i + 1];
    out[2 * i] = a * cosine - b * sine;
    out[2 * i + 1] = b * cosine + a * sine;
  }
}

/* What is not turned. */
static void keep(float *out, const float *x, int64_t begin, int64_t end) {
  if (out != x && end > begin) memcpy(out + begin, x + begin, (size_t)(end - begin) * sizeof *x);
}

void LEVEL(rope)(
    const tsr_rope *r, float *y, const float *x, const float *table, int64_t begin, int64_t end) {
  int64_t half = r->rotary / 2;
  for (int64_t row = begin; row < end; row++) {
    const float *turn = table + row % r->T * half * 2; // (rotary/2, 2)
    for (int64_t h = 0; h < r->H; h++) {
      const float *in = x + (row * r->H + h) * r->D;
      float *out = y + (row * r->H + h) * r->D;
      keep(out, in, 0, r->offset);
      keep(out, in, r->offset + r->rotary, r->D);
      if (r->interleaved) turn_pairs(out + r->offset, in + r->offset, turn, half, r->sign);
      else turn_halves(out + r->offset, in + r->offset, turn, half, r->sign);
    }
  }
}
