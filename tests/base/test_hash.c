// SPDX-License-Identifier: Apache-2.0
/* FNV-1a 64 against vectors of its authors' test suite (Fowler, Noll, Vo: test_fnv.c). */
#include "base/hash.h"
#include "tests/check.h"
#include <string.h>

int main(void) {
  static const struct {
    const char *text;
    uint64_t hash;
  } vectors[] = {{"", 0xcbf29ce484222325},       {"a", 0xaf63dc4c8601ec8c},
                 {"b", 0xaf63df4c8601f1a5},      {"foo", 0xdcb27518fed9d577},
                 {"foobar", 0x85944171f73967e8}, {"chongo was here!\n", 0x46810940eff5f915}};
  for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
    uint64_t hash = tsr_hash_fnv1a(vectors[i].text, strlen(vectors[i].text));
    CHECK_AT(hash == vectors[i].hash, "'%s': %016llx", vectors[i].text, (unsigned long long)hash);
  }
  /* A byte above 127 is not negative. */
  CHECK(tsr_hash_fnv1a("\xff", 1) == (0xcbf29ce484222325u ^ 0xff) * 0x100000001b3u);
  return check_done("hash");
}
