// SPDX-License-Identifier: Apache-2.0
/* What this machine can do at most, measured: what kernels' times are compared with. */
#ifndef TSR_RUNTIME_PEAK_RATES_H
#define TSR_RUNTIME_PEAK_RATES_H
#include "base/diag.h"
#include "kernels/kernels.h"
#include "device/cpu/thread_pool.h"

/* Of all threads together, a second: fused multiplications and additions of f32 in registers, each
 * counted as two operations; bytes read from memory that no cache holds. 0: not known. */
typedef struct {
  double flops, bytes;
  double dot_flops; /* as flops, of two matrices in bf16 */
} tsr_peak_rates;

/* The best of several short rounds: about a third of a second. Errors: no threads, no memory. */
bool tsr_peak_rates_measure(
    const tsr_kernels *kernels, int threads, tsr_peak_rates *ret_limits, tsr_diags *diags);

/* The same again and again, on threads and memory that the caller keeps: so many floats of each
 * thread, a multiple of 128 that is more than the caches hold, and all of it written before. */
void tsr_peak_rates_measure_on(
    tsr_pool *pool, const tsr_kernels *kernels, int threads, float *memory, int64_t floats,
    tsr_peak_rates *ret_limits);

/* The share of its own limit that work of so many operations and bytes has reached in that time:
 * the least time that it can take over the time that it took. 0 where nothing is known. */
double
tsr_peak_rates_share(const tsr_peak_rates *limits, double flops, double bytes, double seconds);

#endif
