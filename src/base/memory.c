// SPDX-License-Identifier: Apache-2.0
#include "base/memory.h"
#include "base/fault.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static tsr_memory_end *on_lack;
static void *on_lack_context;

static bool is_there(void) {
  bool fails = tsr_fault_next(TSR_FAULT_ALLOCATIONS) != TSR_FAULT_NONE;
  if (fails) errno = ENOMEM;
  return !fails;
}

void *tsr_memory_try(size_t bytes) { return is_there() ? malloc(bytes ? bytes : 1) : NULL; }

void *tsr_memory_try_zeroed(size_t bytes) { return is_there() ? calloc(1, bytes) : NULL; }

void *tsr_memory_try_grow(void *memory, size_t bytes) {
  return is_there() ? realloc(memory, bytes) : NULL;
}

void *tsr_memory_map(size_t bytes) {
  if (!is_there()) return NULL;
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

int64_t tsr_memory_available(void) {
  int64_t available = 0, limit = 0;
  char line[256];
  FILE *f = fopen("/proc/meminfo", "r");
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, "MemAvailable: %ld kB", &available) == 1) break;
  if (f) fclose(f);
  available *= 1024;
  f = fopen("/sys/fs/cgroup/memory.max", "r");
  if (f && fscanf(f, "%ld", &limit) == 1 && limit > 0 && limit < available) available = limit;
  if (f) fclose(f);
  return available;
}

void tsr_memory_lack(size_t bytes) {
  if (on_lack) on_lack(on_lack_context, bytes);
  fprintf(stderr, "error: out of memory: %zu bytes\n", bytes);
  exit(1);
}

static void *must(void *memory, size_t bytes) {
  if (!memory) tsr_memory_lack(bytes);
  return memory;
}

void *tsr_memory_new(size_t bytes) { return must(tsr_memory_try_zeroed(bytes), bytes); }

void *tsr_memory_grow(void *memory, size_t bytes) {
  return must(tsr_memory_try_grow(memory, bytes), bytes);
}

void tsr_memory_on_lack(tsr_memory_end *end, void *context) {
  on_lack_context = context;
  on_lack = end;
}
