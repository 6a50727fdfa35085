// SPDX-License-Identifier: Apache-2.0
/* NFC against what Python's unicodedata gives. Argument: tests/data/nfc_cases.txt. */
#include "data/nfc.h"
#include "base/utf8.h"
#include "tests/check.h"
#include <stdlib.h>

static size_t normalize(tsr_nfc_scratch *scratch, const char *text, size_t length, char *to) {
  size_t put = tsr_nfc(scratch, text, length, to);
  CHECK(put <= length * TSR_NFC_GROWTH);
  return put;
}

static void test_case(tsr_nfc_scratch *scratch, const char *line) {
  const char *tab = strchr(line, '\t'), *want = tab + 1;
  char got[512], again[512];
  size_t length = normalize(scratch, line, (size_t)(tab - line), got);
  got[length] = 0;
  CHECK_STR(got, want);
  CHECK_INT(normalize(scratch, got, length, again), length);
  CHECK(!memcmp(got, again, length));
  size_t given = (size_t)(tab - line);
  if (tsr_nfc_is_plain(line, given)) CHECK(given == strlen(want) && !memcmp(line, want, given));
}

static void test_block(tsr_nfc_scratch *scratch, const char *line) {
  char *end;
  uint32_t block = (uint32_t)strtoul(line, &end, 16);
  uint64_t want = strtoull(end, NULL, 16), hash = UINT64_C(0xcbf29ce484222325);
  for (uint32_t code = block << 8; code < (block + 1) << 8; code++) {
    char text[16] = "e", got[64];
    size_t length = 1 + (size_t)tsr_utf8_put(code, text + 1);
    memcpy(text + length, "\xcc\xa3\xcc\x81", 4);
    length = normalize(scratch, text, length + 4, got);
    for (size_t i = 0; i < length; i++)
      hash = (hash ^ (unsigned char)got[i]) * UINT64_C(0x100000001b3);
  }
  CHECK_AT(hash == want, "block U+%04X differs", block << 8);
}

/* A letter with very many marks: sorted, and in no quadratic time. */
static void test_many_marks(tsr_arena *arena, tsr_nfc_scratch *scratch) {
  enum { COUNT = 200000 };
  char *text = tsr_arena_alloc(arena, 1 + 4 * COUNT), *got = tsr_arena_alloc(arena, 3 + 12 * COUNT);
  text[0] = 'a';
  for (int i = 0; i < COUNT; i++) memcpy(text + 1 + 4 * i, "\xcc\x81\xcc\xa3", 4);
  size_t length = tsr_nfc(scratch, text, 1 + 4 * COUNT, got);
  CHECK_INT(length, 3 + 4 * COUNT - 2); /* ạ, then the other dots below, then all acutes */
  CHECK(!memcmp(got, "\xe1\xba\xa1\xcc\xa3", 5));
  CHECK(!memcmp(got + length - 4, "\xcc\x81\xcc\x81", 4));
}

int main(int count, char **arguments) {
  tsr_arena *arena = tsr_arena_new();
  tsr_nfc_scratch scratch = {.arena = arena};
  FILE *file = count > 1 ? fopen(arguments[1], "rb") : NULL;
  CHECK(file);
  char line[1024];
  int lines = 0;
  for (; file && fgets(line, sizeof line, file); lines++) {
    line[strcspn(line, "\n")] = 0;
    if (strchr(line, '\t')) test_case(&scratch, line);
    else test_block(&scratch, line);
  }
  CHECK(lines > 900);
  if (file) fclose(file);
  test_many_marks(arena, &scratch);
  tsr_arena_free(arena);
  return check_done("nfc");
}
