// SPDX-License-Identifier: Apache-2.0
/* Every kernel has its row in the tables of `kernels --bench`, and a row's call keeps to the arrays
 * that the row says, which are allocated one by one here, and computes numbers. */
#define TSR_LEVEL of_no_level /* the list of kernels is wanted, not a level's */
#include "kernel_check.h"
#include "cli/kernel_bench/case.h"
#include "kernels/cpu/level.h"

#define NAME(name) #name,
static const char *const kernels[] = {TSR_KERNEL_LIST(NAME)};
enum { KERNELS = sizeof kernels / sizeof *kernels, SMALL_BYTES = 64 << 10, ALIGNMENT = 64 };

static bool ends_with(const char *name, const char *end) {
  size_t length = strlen(name), n = strlen(end);
  return length >= n && !strcmp(name + length - n, end);
}

/* These compute nothing, or are the limits themselves. */
static bool is_measured(const char *name) {
  return !ends_with(name, "_scratch") && !ends_with(name, "_bytes") && !ends_with(name, "_acc") &&
         !ends_with(name, "_traits") && strcmp(name, "attention_bf16") &&
         strncmp(name, "limit_", 6);
}

static bool has_case(const char *name) {
  for (const tsr_bench_group *const *g = tsr_bench_groups(); *g; g++)
    for (int i = 0; i < (*g)->count; i++)
      if (!strcmp((*g)->cases[i].kernel, name)) return true;
  return false;
}

static bool is_kernel(const char *name) {
  for (int i = 0; i < KERNELS; i++)
    if (!strcmp(kernels[i], name)) return true;
  return false;
}

static void check_names(void) {
  for (int i = 0; i < KERNELS; i++)
    CHECK_AT(
        has_case(kernels[i]) == is_measured(kernels[i]), "kernel '%s': has a case: %d", kernels[i],
        has_case(kernels[i]));
  for (const tsr_bench_group *const *g = tsr_bench_groups(); *g; g++)
    for (int i = 0; i < (*g)->count; i++)
      CHECK_AT(is_kernel((*g)->cases[i].kernel), "no kernel '%s'", (*g)->cases[i].kernel);
}

static int64_t floats_of(const tsr_bench_size *s, int array) {
  return array < s->arrays ? s->elements : s->few;
}

static void check_call(const tsr_kernels *k, const tsr_bench_case *what) {
  tsr_bench_call c = {.k = k, .what = what, .size = tsr_bench_size_of(what, k, SMALL_BYTES)};
  char name[TSR_BENCH_NAME_MAX];
  tsr_bench_name(what, name);
  CHECK_AT(*c.size.shape && c.size.floats > 0 && c.size.flops >= 0, "%s: its size", name);
  for (int i = 0; i < TSR_BENCH_ARRAYS; i++) c.x[i] = input_new(floats_of(&c.size, i), 2);
  int64_t bytes = (c.size.scratch_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  c.scratch = bytes ? aligned_alloc(ALIGNMENT, (size_t)bytes) : NULL;
  if (c.scratch) memset(c.scratch, 0, (size_t)bytes);
  if (what->prepare) what->prepare(&c);
  for (int call = what->fix ? 1 : 0; call < 2; call++) what->run(&c);
  int64_t wrong = 0;
  for (int i = 0; i < c.size.arrays; i++)
    for (int64_t j = 0; j < c.size.elements; j++) wrong += !isfinite(c.x[i][j]);
  CHECK_AT(!wrong, "%s: %s: %lld elements are no numbers", k->isa, name, (long long)wrong);
  for (int i = 0; i < TSR_BENCH_ARRAYS; i++) free(c.x[i]);
  free(c.scratch);
}

int main(void) {
  check_names();
  const tsr_kernels *k = tsr_kernels_get(NULL);
  for (const tsr_bench_group *const *g = tsr_bench_groups(); *g; g++)
    for (int i = 0; i < (*g)->count; i++) check_call(k, &(*g)->cases[i]);
  return check_done("cases");
}
