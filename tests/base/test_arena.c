// SPDX-License-Identifier: Apache-2.0
/* Formatted text in an arena is that of the C library, whichever way it is made; and sanitizers see what an allocation
 * is. */
#include "base/arena.h"
#include "tests/check.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define CHECK_FORMAT(arena, ...)                                                                   \
  do {                                                                                             \
    char want[512];                                                                                \
    snprintf(want, sizeof want, __VA_ARGS__);                                                      \
    CHECK_STR(tsr_arena_printf(arena, __VA_ARGS__), want);                                         \
  } while (0)

static void test_names(tsr_arena *arena) {
  CHECK_FORMAT(arena, "name");
  CHECK_FORMAT(arena, "%s", "");
  CHECK_FORMAT(arena, "block.%lld.%s", 125LL, "attn.wq");
  CHECK_FORMAT(arena, "%s.%d", "x", 0);
  CHECK_FORMAT(arena, "%d%d", -7, 12);
  CHECK_FORMAT(arena, "%d, %d", INT_MIN, INT_MAX);
  CHECK_FORMAT(arena, "%lld, %lld", LLONG_MIN, LLONG_MAX);
  CHECK_FORMAT(arena, "%s#%lld:%lld/%lld", "w", 0LL, -1LL, 3LL);
}

/* Others than those of names, and more pieces than those have. */
static void test_others(tsr_arena *arena) {
  CHECK_FORMAT(arena, "%d of 100 %%", 3);
  CHECK_FORMAT(arena, "%s is %.3g", "x", 0.125);
  CHECK_FORMAT(arena, "%5d|%-4s|%04lld|%.*s", 3, "a", 7LL, 2, "abc");
  CHECK_FORMAT(arena, "%ld %zu %c %x %llu", 1L, (size_t)2, 'c', 255u, ULLONG_MAX);
  CHECK_FORMAT(arena, "%d %d %d %d %d %d %d %d %d", 1, 2, 3, 4, 5, 6, 7, 8, 9);
  CHECK_FORMAT(arena, "%s%s%s%s%s%s%s%s%s", "1", "2", "3", "4", "5", "6", "7", "8", "9");
}

static void check_memory(tsr_arena *arena, size_t bytes) {
  unsigned char *memory = tsr_arena_alloc(arena, bytes);
  size_t set = 0;
  for (size_t i = 0; i < bytes; i++) set += memory[i] != 0;
  CHECK_AT(!set && (size_t)memory % 16 == 0, "%zu bytes: %zu set", bytes, set);
  memset(memory, 1, bytes);
}

/* Memory is zeroed, aligned and nobody else's, whatever an arena has by then. */
static void test_memory(tsr_arena *arena) {
  enum { MOST = 20 << 20 };
  for (size_t bytes = 1; bytes < MOST; bytes = bytes * 2 + 1) check_memory(arena, bytes);
  for (size_t bytes = MOST; bytes; bytes /= 2)
    for (int i = 0; i < 3; i++) check_memory(arena, bytes);
}

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>

static void test_ends(tsr_arena *arena) {
  for (size_t size = 0; size < 100; size++) {
    char *memory = tsr_arena_alloc(arena, size);
    CHECK(!size || !__asan_region_is_poisoned(memory, size));
    for (size_t behind = 0; behind < 16; behind++)
      CHECK(__asan_address_is_poisoned(memory + size + behind));
  }
}
#endif

int main(void) {
  tsr_arena *arena = tsr_arena_new();
  test_names(arena);
  test_others(arena);
  test_memory(arena);
#ifdef __SANITIZE_ADDRESS__
  test_ends(arena);
#endif
  tsr_arena_free(arena);
  return check_done("base.arena");
}
