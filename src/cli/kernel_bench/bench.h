// SPDX-License-Identifier: Apache-2.0
/* Kernels one by one, each beside what the machine could do when it ran. */
#ifndef TSR_CLI_KERNEL_BENCH_BENCH_H
#define TSR_CLI_KERNEL_BENCH_BENCH_H
#include "base/text.h"
#include "cli/kernel_bench/case.h"
#include "runtime/peak_rates.h"

/* compute: multiplications and additions in registers; memory: reading what no cache holds; cache:
 * its arrays stay in a cache and there is little to compute, so neither of the two. */
typedef enum { TSR_BENCH_COMPUTE, TSR_BENCH_MEMORY, TSR_BENCH_CACHE } tsr_bench_limit;

typedef struct {
  char name[TSR_BENCH_NAME_MAX], shape[32];
  double seconds; /* of a call, the least */
  /* Of all threads' calls together. Bytes that are read, written or both count once: memory is
   * fetched once for all of these, and what is written goes back beside that. */
  double flops, bytes;
  bool is_fixed;         /* a call of one shape */
  tsr_peak_rates limits; /* the mean of before and after */
  tsr_bench_limit limit;
  double share; /* of that limit; 0 beside none */
} tsr_bench_row;

typedef struct tsr_bench tsr_bench;

/* Chooses the cases whose name has `filter` in it (NULL: all), and measures the limits. Each thread
 * makes the same calls on memory of its own. Errors: no such kernel, no threads, no memory. */
bool tsr_bench_open(
    tsr_arena *arena, const tsr_kernels *kernels, int threads, const char *filter,
    tsr_bench **ret_bench, tsr_diags *diags);
void tsr_bench_close(tsr_bench *bench);
int tsr_bench_rows_count(const tsr_bench *bench);
/* Takes about a fifth of a second. */
void tsr_bench_measure(tsr_bench *bench, int index, tsr_bench_row *ret_row);

/* ---- text ---- */

/* The levels, which of them this machine runs and which is chosen, and the kernels by name. */
void tsr_bench_list(const tsr_kernels *chosen, tsr_text *text);
void tsr_bench_print_head(const tsr_kernels *kernels, int threads, tsr_text *text);
void tsr_bench_print_row(const tsr_bench_row *row, tsr_text *text);
/* What was between the limits, and which kernels are far from them. */
void tsr_bench_print_end(const tsr_bench_row *rows, int count, tsr_text *text);

#endif
