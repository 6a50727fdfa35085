// SPDX-License-Identifier: Apache-2.0
/* NFC against what Python's unicodedata gives, without what is newer than Unicode 9, and all forms
 * against the tokenizers package. Arguments: tests/data/nfc_cases.txt, normal_forms.txt. */
#include "tokenizer/normal_form.h"
#include "base/utf8.h"
#include "tests/check.h"
#include <stdlib.h>

typedef struct {
  const tsr_normalizer *normalizer;
  tsr_normalize_scratch scratch;
} form;

static form form_of(tsr_arena *arena, tsr_normal_form name) {
  return (form){tsr_normalizer_new(arena, name), {.arena = arena}};
}

static size_t normalize(form *f, const char *text, size_t length, char *to) {
  size_t put = tsr_normalize(f->normalizer, &f->scratch, text, length, to, NULL);
  CHECK(put <= length * (size_t)tsr_normalizer_growth(f->normalizer));
  return put;
}

static void test_case(form *f, const char *line, const char *want) {
  char got[512], again[512];
  size_t given = strlen(line), length = normalize(f, line, given, got);
  got[length] = 0;
  CHECK_STR(got, want);
  CHECK_INT(normalize(f, got, length, again), length);
  CHECK(!memcmp(got, again, length));
  if (tsr_normalizer_is_plain(f->normalizer, line, given))
    CHECK(given == strlen(want) && !memcmp(line, want, given));
}

static void test_block(form *f, const char *line) {
  char *end;
  uint32_t block = (uint32_t)strtoul(line, &end, 16);
  uint64_t want = strtoull(end, NULL, 16), hash = UINT64_C(0xcbf29ce484222325);
  for (uint32_t code = block << 8; code < (block + 1) << 8; code++) {
    char text[16] = "e", got[64];
    size_t length = 1 + (size_t)tsr_utf8_put(code, text + 1);
    memcpy(text + length, "\xcc\xa3\xcc\x81", 4);
    length = normalize(f, text, length + 4, got);
    for (size_t i = 0; i < length; i++)
      hash = (hash ^ (unsigned char)got[i]) * UINT64_C(0x100000001b3);
  }
  CHECK_AT(hash == want, "block U+%04X differs", block << 8);
}

/* A line of scripts/make_tokenizers: a form, the first of 4096 code points, a hash. */
static void test_package_block(tsr_arena *arena, form *forms, const char *line) {
  enum { CODES = 4096, ROOM = CODES * 17 };
  char *end, *text = tsr_arena_alloc(arena, ROOM), *got = tsr_arena_alloc(arena, 11 * ROOM);
  form *f = &forms[line[0] - '0'];
  uint32_t first = (uint32_t)strtoul(line + 1, &end, 16);
  uint64_t want = strtoull(end, NULL, 16), hash = UINT64_C(0xcbf29ce484222325);
  size_t length = 0;
  for (uint32_t code = first; code < first + CODES; code++) {
    if (code >= 0xd800 && code < 0xe000) continue;
    text[length++] = 'e';
    length += (size_t)tsr_utf8_put(code, text + length);
    memcpy(text + length, "\xcc\xa3\xcc\x81", 4);
    length += 4;
    for (int i = 0; i < 2; i++) length += (size_t)tsr_utf8_put(code, text + length);
  }
  length = normalize(f, text, length, got);
  for (size_t i = 0; i < length; i++)
    hash = (hash ^ (unsigned char)got[i]) * UINT64_C(0x100000001b3);
  CHECK_AT(hash == want, "form %c of U+%04X differs", line[0], first);
}

static void test_package(tsr_arena *arena, form *forms, const char *path) {
  FILE *file = fopen(path, "rb");
  CHECK(file);
  char line[2048];
  int lines = 0;
  for (; file && fgets(line, sizeof line, file); lines++) {
    line[strcspn(line, "\n")] = 0;
    char *want = strchr(line, '\t');
    if (!want) test_package_block(arena, forms, line);
    for (int i = 0; want && i < 4; i++) {
      *want++ = 0;
      char *next = strchr(want, '\t');
      if (next) *next = 0;
      test_case(&forms[i], line, want);
      want = next;
    }
  }
  CHECK_INT(lines, 200 + 4 * 272);
  if (file) fclose(file);
}

/* A letter with very many marks: sorted, and in no quadratic time. */
static void test_many_marks(tsr_arena *arena, form *f) {
  enum { COUNT = 200000 };
  char *text = tsr_arena_alloc(arena, 1 + 4 * COUNT), *got = tsr_arena_alloc(arena, 3 + 12 * COUNT);
  text[0] = 'a';
  for (int i = 0; i < COUNT; i++) memcpy(text + 1 + 4 * i, "\xcc\x81\xcc\xa3", 4);
  size_t length = tsr_normalize(f->normalizer, &f->scratch, text, 1 + 4 * COUNT, got, NULL);
  CHECK_INT(length, 3 + 4 * COUNT - 2); /* ạ, then the other dots below, then all acutes */
  CHECK(!memcmp(got, "\xe1\xba\xa1\xcc\xa3", 5));
  CHECK(!memcmp(got + length - 4, "\xcc\x81\xcc\x81", 4));
}

int main(int count, char **arguments) {
  tsr_arena *arena = tsr_arena_new();
  form forms[4], *nfc = &forms[TSR_NFC];
  for (int i = 0; i < 4; i++) forms[i] = form_of(arena, (tsr_normal_form)i);
  FILE *file = count > 2 ? fopen(arguments[1], "rb") : NULL;
  CHECK(file);
  char line[1024];
  int lines = 0;
  for (; file && fgets(line, sizeof line, file); lines++) {
    line[strcspn(line, "\n")] = 0;
    char *tab = strchr(line, '\t');
    if (tab) *tab = 0;
    if (tab) test_case(nfc, line, tab + 1);
    else test_block(nfc, line);
  }
  CHECK(lines > 900);
  if (file) fclose(file);
  if (count > 2) test_package(arena, forms, arguments[2]);
  test_many_marks(arena, nfc);
  tsr_arena_free(arena);
  return check_done("normalize");
}
