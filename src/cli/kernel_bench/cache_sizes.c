// SPDX-License-Identifier: Apache-2.0
#include "cli/kernel_bench/cache_sizes.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

/* An attribute of a cache from sysfs: "3", "Unified", "32768K". */
static bool read_fact(int index, const char *fact, const char *format, void *ret_value) {
  char path[96];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, fact);
  FILE *file = fopen(path, "r");
  if (!file) return false;
  bool ok = fscanf(file, format, ret_value) == 1;
  fclose(file);
  return ok;
}

tsr_bench_caches tsr_bench_caches_find(void) {
  tsr_bench_caches found = {512 << 10, 32 << 20};
  int64_t last_level = 0, level, kib;
  char type[32];
  for (int i = 0; read_fact(i, "level", "%" SCNd64, &level); i++) {
    bool is_data = read_fact(i, "type", "%31s", type) && *type != 'I';
    if (!is_data || !read_fact(i, "size", "%" SCNd64 "K", &kib) || kib <= 0) continue;
    if (level == 2) found.second = kib << 10;
    if (level < 2 || level < last_level) continue;
    last_level = level;
    found.last = kib << 10;
  }
  return found;
}
