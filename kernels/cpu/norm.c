// SPDX-License-Identifier: Apache-2.0
/* Rows: broadcast of a row, layer norm (Ba et al. 2016), RMS norm (Zhang & Sennrich 2019), softmax;
 * and the sums over rows that their weights' and biases' gradients are. */
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/level.h"
#include <stddef.h>

#define EACH_COLUMN _Pragma("omp simd") for (int64_t c = 0; c < C; c++)

void LEVEL(add_row)(
    float *out, const float *x, const float *row, int64_t C, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; r++) EACH_COLUMN out[r * C + c] = x[r * C + c] + row[c];
}

void LEVEL(mul_row)(
    float *out, const float *x, const float *row, int64_t C, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; r++) EACH_COLUMN out[r * C + c] = x[r * C + c] * row[c];
}

void LEVEL(layernorm)(
    float *y, float *mean, float *rstd, const float *x, const float *w, const float *b, int64_t C,
    float eps, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; r++) {
    const float *in = x + r * C;
    float *out = y + r * C;
    float center = row_sum(in, C) / (float)C;
    float factor = 1.0f / sqrtf(row_sum_squares(in, center, C) / (float)C + eps);
    mean[r] = center;
    rstd[r] = factor;
    if (b) EACH_COLUMN out[c] = (in[c] - center) * factor * w[c] + b[c];
    else EACH_COLUMN out[c] = (in[c] - center) * factor * w[c];
  }
}

/* With g = dy w and n = (x - mean) rstd: dx = rstd (g - mean(g) - n mean(g n)). */
void LEVEL(layernorm_backward)(
    float *dx, const float *dy, const float *x, const float *w, const float *mean,
    const float *rstd, int64_t C, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; r++) {
    const float *in = x + r * C, *d = dy + r * C;
    float *out = dx + r * C, center = mean[r], factor = rstd[r];
    lanes sum = {{{0}}}, dot = {{{0}}};
    int64_t i = 0;
    for (; i + LANES <= C; i += LANES) EACH_VECTOR(k) {
        vector g = lanes_load(d + i, k) * lanes_load(w + i, k);
        sum.v[k] += g;
        dot.v[k] += g * ((lanes_load(in + i, k) - center) * factor);
      }
    float s[LANES], t[LANES];
    memcpy(s, &sum, sizeof s);
    memcpy(t, &dot, sizeof t);
    for (int64_t l = 0; l < C - i; l++) {
      float g = d[i + l] * w[i + l];
      s[l] += g;
      t[l] += g * ((in[i + l] - center) * factor);
    }
    float mean_g = lanes_fold_sum(s) / (float)C, mean_gn = lanes_fold_sum(t) / (float)C;
    EACH_COLUMN out[c] = factor * (d[c] * w[c] - mean_g - (in[c] - center) * factor * mean_gn);
  }
}

void LEVEL(rmsnorm)(
    float *y, float *rstd, const float *x, const float *w, float offset, int64_t C, float eps,
    int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; r++) {
    const float *in = x + r * C;
    float *out = y + r * C;
    float factor = 1.0f / sqrtf(row_sum_squares(in, 0, C) / (float)C + eps);
    rstd[r] = factor;
    EACH_COLUMN out[c] = in[c] * factor * (w[c] + offset);
  }
}

void LEVEL(rmsnorm_backward)(
    float *dx, const float *dy, const float *x, const float *w, float offset, const float *rstd,
    int64_t C, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; r++) {
    const float *in = x + r * C, *d = dy + r * C;
    float *out = dx + r * C, factor = rstd[r];
    lanes dot = {{{0}}};
    int64_t i = 0;
    for (; i + LANES <= C; i += LANES) EACH_VECTOR(k) {
        vector g = lanes_load(d + i, k) * (lanes_load(w + i, k) + offset);
        dot.v[k] += g * (lanes_load(in + i, k) * factor);
      }
    float t[LANES];
    memcpy(t, &dot, sizeof t);
    for (int64_t l = 0; l < C - i; l++)
      t[l] += d[i + l] * (w[i + l] + offset) * (in[i + l] * factor);
    float mean_gn = lanes_fold_sum(t) / (float)C;
    EACH_COLUMN out[c] = factor * (d[c] * (w[c] + offset) - in[c] * factor * mean_gn);
  }
}

void LEVEL(softmax)(float *y, const float *x, int64_t C, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; r++) {
    float *out = y + r * C;
    float factor = 1.0f / row_exp_sum(out, x + r * C, row_max(x + r * C, C), C);
    EACH_COLUMN out[c] = out[c] * factor;
  }
}

/* dx = y (dy - sum(dy y)) */
void LEVEL(softmax_backward)(
    float *dx, const float *dy, const float *y, int64_t C, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; r++) {
    const float *d = dy + r * C, *p = y + r * C;
    float *out = dx + r * C, dot = row_dot(d, p, C);
    EACH_COLUMN out[c] = p[c] * (d[c] - dot);
  }
}

/* Columns in strips whose running sums stay in the first cache while the rows stream by. */
enum { STRIP = 1024 };

#define EACH_STRIP                                                                                 \
  for (int64_t first = begin, last; first < end; first = last)                                     \
    if (last = end - first > STRIP ? first + STRIP : end, true)

void LEVEL(sum_rows)(
    float *out, const float *x, int64_t C, int64_t row_first, int64_t row_step, int64_t rows,
    int64_t begin, int64_t end) {
  EACH_STRIP {
    memset(out + first, 0, (size_t)(last - first) * sizeof *out);
    for (int64_t r = 0; r < rows; r++) {
      const float *in = x + (row_first + r * row_step) * C;
#pragma omp simd
      for (int64_t c = first; c < last; c++) out[c] += in[c];
    }
  }
}

void LEVEL(norm_dw)(
    float *out, const float *dy, const float *x, const float *mean, const float *rstd, int64_t C,
    int64_t row_first, int64_t row_step, int64_t rows, int64_t begin, int64_t end) {
  EACH_STRIP {
    memset(out + first, 0, (size_t)(last - first) * sizeof *out);
    for (int64_t r = 0; r < rows; r++) {
      int64_t row = row_first + r * row_step;
      const float *in = x + row * C, *d = dy + row * C;
      float center = mean ? mean[row] : 0, factor = rstd[row];
#pragma omp simd
      for (int64_t c = first; c < last; c++) out[c] += d[c] * ((in[c] - center) * factor);
    }
  }
}
