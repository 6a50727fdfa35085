// SPDX-License-Identifier: Apache-2.0
/* Which path a text names, by the examples of RFC 8089 and what is no URI. */
#include "base/uri.h"
#include "tests/check.h"
#include <string.h>

int main(void) {
  static const struct {
    const char *text, *path; /* NULL: an error */
  } cases[] = {
      {"", ""},
      {"a/b.txt", "a/b.txt"},
      {"/a b/%41", "/a b/%41"},
      {"c:/x", "c:/x"},
      {"s3:b/x", "s3:b/x"},
      {"1://x", "1://x"},
      {"./s3://b", "./s3://b"},
      {"file:/etc/fstab", "/etc/fstab"},
      {"file:///etc/fstab", "/etc/fstab"},
      {"file://localhost/etc/fstab", "/etc/fstab"},
      {"FILE:///a%20b%2Fc", "/a b/c"},
      {"file:run/*.txt", "run/*.txt"},
      {"file:///caf%C3%A9", "/caf\xc3\xa9"},
      {"file:", NULL},
      {"file://", NULL},
      {"file://host.example.com/share", NULL},
      {"file:///a%2", NULL},
      {"file:///a%zz", NULL},
      {"file:///a%00b", NULL},
      {"s3://bucket/key", NULL},
      {"gs://b", NULL},
      {"s3:/b/x", NULL},
      {"gs:/x", NULL},
      {"https://example.com/x.bin", NULL},
      {"hf://datasets/x", NULL},
      {"git+ssh://x", NULL},
  };
  tsr_arena *arena = tsr_arena_new();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *path;
    tsr_diags *diags = tsr_diags_new(arena);
    bool ok = tsr_uri_path(arena, cases[i].text, TSR_NOWHERE, &path, diags);
    CHECK_AT(ok == (cases[i].path != NULL), "%s", cases[i].text);
    CHECK_AT(tsr_diags_errors(diags) == !ok, "%s", cases[i].text);
    CHECK_AT(!ok || !strcmp(path, cases[i].path), "%s: %s", cases[i].text, path);
  }
  tsr_arena_free(arena);
  return check_done("base.uri");
}
