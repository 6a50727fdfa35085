// SPDX-License-Identifier: Apache-2.0
/* What balances the experts of a mixture: counts of choices, and gradients of losses. Sums over
 * experts are one chain. */
#include "kernels/cpu/elementary.h"
#include "kernels/cpu/level.h"
#include <math.h>

void LEVEL(expert_counts)(
    float *counts, const int32_t *experts, int64_t each, int64_t k, int64_t E, int64_t begin,
    int64_t end) {
  for (int64_t run = begin; run < end; run++) {
    float *of_run = counts + run * E;
    const int32_t *chosen = experts + run * each * k;
    memset(of_run, 0, (size_t)E * sizeof *of_run);
    for (int64_t slot = 0; slot < each * k; slot++) of_run[chosen[slot]]++;
  }
}

void LEVEL(balance_backward)(
    float *dscores, const float *counts, const float *scores, int64_t each, int64_t E, float factor,
    bool normalizes, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; t++) {
    const float *count = counts + t / each * E, *s = scores + t * E;
    float *d = dscores + t * E, sum = 0, inner = 0;
    for (int64_t e = 0; e < E && normalizes; e++) sum += s[e];
    if (!normalizes) sum = 1;
    for (int64_t e = 0; e < E && normalizes; e++) inner += factor * count[e] * (s[e] / sum);
#pragma omp simd
    for (int64_t e = 0; e < E; e++) d[e] = (factor * count[e] - inner) / sum;
  }
}

void LEVEL(router_z_backward)(
    float *dlogits, const float *logits, int64_t E, float factor, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; t++) {
    const float *x = logits + t * E;
    float *d = dlogits + t * E, max = x[0], sum = 0;
    for (int64_t e = 1; e < E; e++) max = x[e] > max ? x[e] : max;
#pragma omp simd
    for (int64_t e = 0; e < E; e++) d[e] = real_exp(x[e] - max);
    for (int64_t e = 0; e < E; e++) sum += d[e];
    float z = (float)((double)max + double_log(sum)), scale = factor * z / sum;
#pragma omp simd
    for (int64_t e = 0; e < E; e++) d[e] *= scale;
  }
}
