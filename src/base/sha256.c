// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"
#include <nettle/sha2.h>
#include <stdio.h>

struct tsr_sha256 {
  struct sha256_ctx context;
};

tsr_sha256 *tsr_sha256_new(tsr_arena *arena) {
  tsr_sha256 *sha = tsr_arena_alloc(arena, sizeof *sha);
  sha256_init(&sha->context);
  return sha;
}

void tsr_sha256_update(tsr_sha256 *sha, const void *bytes, size_t length) {
  sha256_update(&sha->context, length, bytes);
}

void tsr_sha256_final(tsr_sha256 *sha, char ret_text[TSR_SHA256_TEXT_BYTES]) {
  uint8_t digest[SHA256_DIGEST_SIZE];
  sha256_digest(&sha->context, sizeof digest, digest);
  for (int i = 0; i < SHA256_DIGEST_SIZE; i++) snprintf(ret_text + 2 * i, 3, "%02x", digest[i]);
}
