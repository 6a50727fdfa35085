// SPDX-License-Identifier: Apache-2.0
/* The library's state is only complete for those who compile it in. */
#define XXH_INLINE_ALL
#include "base/hash.h"
#include "base/tensor_hash.h"
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

struct tsr_hasher {
  XXH3_state_t state;
};

/* The state needs more alignment than an arena has. */
tsr_hasher *tsr_hasher_new(tsr_arena *arena) {
  size_t alignment = _Alignof(tsr_hasher);
  uintptr_t at = (uintptr_t)tsr_arena_alloc(arena, sizeof(tsr_hasher) + alignment);
  return (tsr_hasher *)((at + alignment - 1) / alignment * alignment);
}

uint64_t tsr_hash_number(const void *bytes, size_t length) { return XXH3_64bits(bytes, length); }

uint64_t tsr_hash_fnv1a(const void *bytes, size_t length) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < length; i++)
    hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
  return hash;
}

uint64_t tsr_hash_named(const char *name, uint64_t hash) {
  return (tsr_hash_fnv1a(name, strlen(name)) | 1) * hash;
}

void tsr_hasher_begin(tsr_hasher *h) { XXH3_128bits_reset(&h->state); }

void tsr_hasher_add(tsr_hasher *h, const void *bytes, size_t length) {
  if (length) XXH3_128bits_update(&h->state, bytes, length);
}

void tsr_hasher_end(tsr_hasher *h, char ret_text[TSR_HASH_TEXT]) {
  XXH128_hash_t hash = XXH3_128bits_digest(&h->state);
  snprintf(
      ret_text, TSR_HASH_TEXT, "%016llx%016llx", (unsigned long long)hash.high64,
      (unsigned long long)hash.low64);
}

void tsr_hash_text(const void *bytes, size_t length, char ret_text[TSR_HASH_TEXT]) {
  XXH128_hash_t hash = XXH3_128bits(bytes, length);
  snprintf(
      ret_text, TSR_HASH_TEXT, "%016llx%016llx", (unsigned long long)hash.high64,
      (unsigned long long)hash.low64);
}
