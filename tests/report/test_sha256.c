// SPDX-License-Identifier: Apache-2.0
/* SHA-256 against FIPS 180-4's examples. */
#include "base/sha256.h"
#include "tests/check.h"

int main(void) {
  tsr_arena *arena = tsr_arena_new();
  tsr_sha256 *sha = tsr_sha256_new(arena);
  char text[TSR_SHA256_TEXT_BYTES];
  tsr_sha256_final(sha, text);
  CHECK_STR(text, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  tsr_sha256_update(sha, "abc", 3);
  tsr_sha256_final(sha, text);
  CHECK_STR(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  tsr_sha256_update(sha, "a", 1);
  tsr_sha256_update(sha, "", 0);
  tsr_sha256_update(sha, "bc", 2);
  tsr_sha256_final(sha, text);
  CHECK_STR(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  tsr_arena_free(arena);
  return check_done("sha256");
}
