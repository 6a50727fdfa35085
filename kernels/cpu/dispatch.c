// SPDX-License-Identifier: Apache-2.0
/* Which levels are built in, and which this CPU runs. */
#include "kernels/kernels.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
extern const tsr_kernels tsr_table_x86_64, tsr_table_x86_64_v3, tsr_table_x86_64_v4;
static const tsr_kernels *const tables[] = {
    &tsr_table_x86_64_v4, &tsr_table_x86_64_v3, &tsr_table_x86_64};
static const char *const names[] = {"x86-64-v4", "x86-64-v3", "x86-64", NULL};

static bool cpu_runs(const tsr_kernels *table) {
  bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
            __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("avx512vl");
  if (table == &tsr_table_x86_64_v4) return v4;
  if (table == &tsr_table_x86_64_v3) return v3;
  return true;
}
#else
extern const tsr_kernels tsr_table_generic;
static const tsr_kernels *const tables[] = {&tsr_table_generic};
static const char *const names[] = {"generic", NULL};

static bool cpu_runs(const tsr_kernels *table) { return table != NULL; }
#endif

const char *tsr_kernels_requested(void) {
  const char *level = getenv("TESSERA_ISA");
  return level && *level ? level : NULL;
}

const tsr_kernels *tsr_kernels_get(const char *isa) {
  if (!isa) isa = tsr_kernels_requested();
  for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
    if ((!isa || !strcmp(isa, names[i])) && cpu_runs(tables[i])) return tables[i];
  return NULL;
}

const char *const *tsr_kernels_levels(void) { return names; }
