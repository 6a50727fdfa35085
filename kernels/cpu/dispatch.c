// SPDX-License-Identifier: Apache-2.0
/* Which levels are built in, and which this CPU runs. */
#include "kernels/kernels.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

extern const tsr_kernels tsr_table_x86_64, tsr_table_x86_64_v3, tsr_table_x86_64_v4,
    tsr_table_v4_bf16, tsr_table_amx_bf16;
static const tsr_kernels *const tables[] = {
    &tsr_table_amx_bf16, &tsr_table_v4_bf16, &tsr_table_x86_64_v4, &tsr_table_x86_64_v3,
    &tsr_table_x86_64};
static const char *const names[] = {"amx-bf16",  "v4-bf16", "x86-64-v4",
                                    "x86-64-v3", "x86-64",  NULL};

/* Linux lets a process use the tiles' registers only after it has requested them. */
static bool may_use_tiles(void) {
  enum { REQUEST = 0x1023, TILE_DATA = 18 };
  return !syscall(SYS_arch_prctl, REQUEST, TILE_DATA);
}

static bool has_bf16(bool tiles) {
  unsigned a = 0, b, c, d = 0;
  if (!__get_cpuid_count(7, tiles ? 0 : 1, &a, &b, &c, &d)) return false;
  bool has_tiles = (d >> 22 & 1) && (d >> 24 & 1); /* AMX-BF16, AMX-TILE */
  return tiles ? has_tiles && may_use_tiles() : a >> 5 & 1;
}

static bool cpu_runs(const tsr_kernels *table) {
  bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
            __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("avx512vl");
  if (table == &tsr_table_amx_bf16) return v4 && has_bf16(true);
  if (table == &tsr_table_v4_bf16) return v4 && has_bf16(false);
  if (table == &tsr_table_x86_64_v4) return v4;
  if (table == &tsr_table_x86_64_v3) return v3;
  return true;
}

/* In f32 the levels for bf16 have the bits of the one below them; a recipe is not bound to their
 * processors without need. vdpbf16ps has twice the rate of f32's multiply-adds on AMD's Zen 4,
 * and half of it on Intel's Sapphire Rapids. */
static bool is_default(const tsr_kernels *table, bool bf16) {
  if (table == &tsr_table_amx_bf16) return bf16;
  if (table == &tsr_table_v4_bf16) return bf16 && __builtin_cpu_is("amd");
  return true;
}
#else
extern const tsr_kernels tsr_table_generic;
static const tsr_kernels *const tables[] = {&tsr_table_generic};
static const char *const names[] = {"generic", NULL};

static bool cpu_runs(const tsr_kernels *table) { return table != NULL; }
static bool is_default(const tsr_kernels *table, bool bf16) {
  return (void)table, (void)bf16, true;
}
#endif

const char *tsr_kernels_requested(void) {
  const char *level = getenv("TESSERA_ISA");
  return level && *level ? level : NULL;
}

enum { TABLES = sizeof tables / sizeof tables[0] };

static const tsr_kernels *find_default(bool bf16) {
  for (int i = 0; i < TABLES; i++)
    if (is_default(tables[i], bf16) && cpu_runs(tables[i])) return tables[i];
  return NULL;
}

const tsr_kernels *tsr_kernels_get(const char *isa) {
  if (!isa) isa = tsr_kernels_requested();
  if (!isa) return find_default(false);
  for (int i = 0; i < TABLES; i++)
    if (!strcmp(isa, names[i])) return cpu_runs(tables[i]) ? tables[i] : NULL;
  return NULL;
}

const tsr_kernels *tsr_kernels_get_for_bf16(void) {
  return tsr_kernels_requested() ? tsr_kernels_get(NULL) : find_default(true);
}

const char *const *tsr_kernels_levels(void) { return names; }
