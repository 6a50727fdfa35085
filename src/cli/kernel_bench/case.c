// SPDX-License-Identifier: Apache-2.0
#include "cli/kernel_bench/case.h"
#include <inttypes.h>
#include <stdio.h>

const tsr_bench_group *const *tsr_bench_groups(void) {
  static const tsr_bench_group *const groups[] = {
      &tsr_bench_elementwise,
      &tsr_bench_rows,
      &tsr_bench_tokens,
      &tsr_bench_random,
      &tsr_bench_optimizer,
      &tsr_bench_convert,
      &tsr_bench_gemms,
      &tsr_bench_attention,
      &tsr_bench_ring,
      &tsr_bench_experts,
      NULL};
  return groups;
}

void tsr_bench_name(const tsr_bench_case *what, char ret_name[TSR_BENCH_NAME_MAX]) {
  const char *variant = what->variant ? what->variant : "";
  snprintf(ret_name, TSR_BENCH_NAME_MAX, "%s%s%s", what->kernel, *variant ? " " : "", variant);
}

static tsr_bench_size streaming_size(const tsr_bench_case *what, int64_t bytes_max) {
  tsr_bench_size s = {.cols = what->cols, .arrays = what->arrays};
  s.rows = bytes_max / (4 * what->cols * what->arrays);
  if (s.rows < 1) s.rows = 1;
  s.elements = s.rows * s.cols;
  s.floats = what->touched * (double)s.elements;
  s.few = s.rows + s.cols < s.elements ? s.rows + s.cols : s.elements;
  if (s.cols == 1) snprintf(s.shape, sizeof s.shape, "%" PRId64, s.rows);
  else snprintf(s.shape, sizeof s.shape, "%" PRId64 "x%" PRId64, s.rows, s.cols);
  return s;
}

tsr_bench_size
tsr_bench_size_of(const tsr_bench_case *what, const tsr_kernels *k, int64_t bytes_max) {
  tsr_bench_size s = {0};
  if (what->fix) what->fix(what, k, &s);
  else s = streaming_size(what, bytes_max);
  if (what->scratch) s.scratch_bytes = what->scratch(k, &s);
  return s;
}
