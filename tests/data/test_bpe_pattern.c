// SPDX-License-Identifier: Apache-2.0
/* Split patterns: the pieces of the tokenizers package, the same from the matchers of known patterns
 * as from Oniguruma, and what ends a search. Argument: tests/data/bpe. */
#include "tokenizer/subword.h"
#include "tokenizer/pattern.h"
#include "tests/check.h"
#include "tests/data/bpe_json.h"
#include "tests/data/mixed_text.h"
#include "tests/printed.h"
#include <dlfcn.h>

/* ---- the package's pieces ---- */

static const char *escaped(tsr_arena *arena, const char *text) {
  char *copy = tsr_arena_alloc(arena, 2 * strlen(text) + 1), *to = copy;
  for (; *text; *to++ = *text++)
    if (*text == '\\') *to++ = '\\';
  return copy;
}

/* A tokenizer that puts a space before each piece that begins with none, so that pieces show. */
static bool
parse_split(tsr_arena *arena, const char *pattern, tsr_subword **ret_bpe, tsr_diags *diags) {
  bpe_json json = {
      .pre_tokenizer = tsr_arena_printf(
          arena,
          "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
          "\"%s\"},\"behavior\":\"Isolated\"},"
          "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":false}]}",
          escaped(arena, pattern))};
  return bpe_json_parse(arena, &json, ret_bpe, diags);
}

/* What the tokens are bytes of, with a tab before each of the package's pieces, and without. */
static void take_pieces(const char *pieces, tsr_text *text, tsr_text *want) {
  bool is_first = true;
  for (; *pieces; is_first = *pieces++ == '|') {
    if (*pieces == '|') continue;
    if (is_first && *pieces != ' ') tsr_text_add(want, " ");
    tsr_text_add_bytes(text, pieces, 1);
    tsr_text_add_bytes(want, pieces, 1);
  }
}

static void
test_pieces(tsr_arena *arena, const char *pattern, const char *pieces, tsr_diags *diags) {
  tsr_subword *bpe;
  tsr_text text = {0}, want = {0}, got = {0};
  take_pieces(pieces, &text, &want);
  bool ok = parse_split(arena, pattern, &bpe, diags);
  CHECK_AT(ok, "%s: %s", pattern, printed_diags(arena, diags));
  if (!ok) return;
  int32_t *tokens = tsr_arena_array(arena, int32_t, tsr_subword_room(bpe, text.data, text.length));
  int64_t count;
  tsr_subword_scratch *scratch = tsr_subword_scratch_new();
  CHECK(tsr_subword_encode(bpe, scratch, text.data, text.length, tokens, &count, diags));
  for (int64_t i = 0; i < count; i++) tsr_text_add(&got, "%c", (char)tokens[i]);
  CHECK_AT(!strcmp(got.data, want.data), "%s:\n%s\nnot\n%s", pattern, got.data, want.data);
  tsr_subword_scratch_free(scratch);
  tsr_text_free(&text), tsr_text_free(&want), tsr_text_free(&got);
}

static void test_package(tsr_arena *arena, const char *folder, tsr_diags *diags) {
  FILE *file = fopen(tsr_arena_printf(arena, "%s/patterns.txt", folder), "rb");
  CHECK(file);
  char line[1024], pieces[1024];
  int accepted = 0, refused = 0;
  while (file && fgets(line, sizeof line, file)) {
    char *tab = strchr(line, '\t');
    *tab++ = 0;
    pieces[mixed_unescape(tab, pieces)] = 0;
    if (pieces[0] != '!') {
      test_pieces(arena, line, pieces, diags);
      accepted++;
      continue;
    }
    tsr_subword *bpe;
    CHECK(!parse_split(arena, line, &bpe, diags));
    CHECK_STR(
        printed_diags(arena, diags),
        tsr_arena_printf(
            arena, "t.json: error: the pattern '%s' is not right: %s\n", line, pieces + 1));
    refused++;
  }
  CHECK(accepted > 60 && refused > 10);
  if (file) fclose(file);
}

/* ---- known patterns against Oniguruma ---- */

static const char *const known[] = {
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "\\p{N}",
    "\\p{N}+",
    "\\p{N}{1,3}"};
enum { KNOWN = sizeof known / sizeof *known };

typedef struct {
  tsr_pattern *fast[KNOWN], *defined[KNOWN]; /* by its matcher, by Oniguruma */
  tsr_match *match;
} both;

static void compare(const both *b, const char *text, size_t length, const char *what) {
  for (int k = 0; k < KNOWN; k++) {
    size_t at = 0, begin[2] = {0}, end[2] = {0};
    int found[2];
    do {
      found[0] = tsr_pattern_find(b->fast[k], b->match, text, length, at, &begin[0], &end[0]);
      found[1] = tsr_pattern_find(b->defined[k], b->match, text, length, at, &begin[1], &end[1]);
      if (found[0] != found[1] || begin[0] != begin[1] || end[0] != end[1]) {
        CHECK_AT(
            false, "%s: pattern %d from byte %zu: [%zu, %zu), not [%zu, %zu)", what, k, at,
            begin[0], end[0], begin[1], end[1]);
        break;
      }
      at = end[0];
    } while (found[0] > 0 && at < length);
    CHECK(found[0] >= 0);
  }
}

/* Each character behind a tab, and, in the planes of more than ideographs and private use, behind a
 * letter, a digit, a space and "'". */
static void test_every_character(tsr_arena *arena, const both *b) {
  enum { STEP = 0x1000, ROOM = STEP * 32 };
  char *text = tsr_arena_alloc(arena, ROOM);
  for (uint32_t first = 0; first < TSR_UTF8_CODES; first += STEP) {
    if (first >= 0x40000 && first < 0xe0000) continue; /* nothing is assigned */
    const char *const all = first < 0x20000 ? "\ta1 '" : "\t";
    size_t length = 0;
    for (uint32_t code = first; code < first + STEP; code++)
      for (const char *before = all; *before && (code < 0xd800 || code >= 0xe000); before++) {
        text[length++] = *before;
        length += (size_t)tsr_utf8_put(code, text + length);
      }
    compare(b, text, length, tsr_arena_printf(arena, "U+%04X", first));
  }
}

/* Words, contractions with letters that fold to theirs, numbers, and all kinds of space. */
static size_t random_text(uint64_t *state, char *text, size_t room) {
  static const char *const parts[] = {
      "'s", "'T",           "'\xc5\xbf", "'LL", "'re", "'v",           "'m",           " ",
      "  ", "\xe1\xa0\x8e", "\xc2\x85",  "\n",  "\r",  "\xe2\x80\xa8", "\xe3\x80\x80", "/",
      "12", "\xc2\xbd",     "abc",       "Ab",  "\t",  "\xcc\x81",     "\xc7\x85",     "."};
  size_t length = 0;
  while (length + 16 < room) {
    uint64_t draw = mixed_draw(state, 48);
    uint32_t code = (uint32_t)mixed_draw(state, draw < 40 ? 0x3000 : 0x30000);
    if (draw < 24) length += (size_t)sprintf(text + length, "%s", parts[draw]);
    else if (draw < 32) text[length++] = (char)(' ' + code % 95);
    else if (code < 0xd800 || code >= 0xe000) length += (size_t)tsr_utf8_put(code, text + length);
  }
  return length;
}

static void test_known(tsr_arena *arena, tsr_diags *diags) {
  enum { TEXTS = 300, ROOM = 2048 };
  both b = {.match = tsr_match_new(arena)};
  for (int k = 0; k < KNOWN; k++) {
    const char *other =
        tsr_arena_printf(arena, "(?:%s)", known[k]); /* not the text that is known */
    CHECK(tsr_known_pattern_find(arena, known[k]) && !tsr_known_pattern_find(arena, other));
    CHECK(tsr_pattern_compile(arena, known[k], false, "", &b.fast[k], diags));
    CHECK(tsr_pattern_compile(arena, other, false, "", &b.defined[k], diags));
  }
  test_every_character(arena, &b);
  uint64_t state = 1;
  char text[ROOM];
  for (int i = 0; i < TEXTS; i++)
    compare(&b, text, random_text(&state, text, ROOM), tsr_arena_printf(arena, "text %d", i));
  tsr_match_free(b.match);
}

/* ---- what ends a search ---- */

static void test_failure(
    tsr_arena *arena, const char *pattern, const char *text, size_t length, const char *reason,
    tsr_diags *diags) {
  tsr_subword *bpe;
  CHECK(parse_split(arena, pattern, &bpe, diags));
  int64_t count;
  int32_t *tokens = tsr_arena_array(arena, int32_t, tsr_subword_room(bpe, text, length));
  tsr_subword_scratch *scratch = tsr_subword_scratch_new();
  CHECK(!tsr_subword_encode(bpe, scratch, text, length, tokens, &count, diags));
  CHECK_STR(
      printed_diags(arena, diags),
      tsr_arena_printf(arena, "t.json: error: a pattern fails on this text: %s\n", reason));
  int32_t *others = tsr_arena_array(arena, int32_t, tsr_subword_room(bpe, "--", 2));
  CHECK(tsr_subword_encode(bpe, scratch, "--", 2, others, &count, diags)); /* it is usable still */
  tsr_subword_scratch_free(scratch);
}

static void test_limits(tsr_arena *arena, tsr_diags *diags) {
  enum { LENGTH = 200000, LONG = (1 << 23) + 1 };
  char *text = tsr_arena_alloc(arena, LONG);
  memset(text, 'a', LONG);
  /* 2^40 ways to read forty letters */
  test_failure(arena, "(?:a|[ab])+[^ab]", text, 40, "retry-limit-in-match over", diags);
  /* from each letter to the end */
  test_failure(arena, "(?:a|bc)+[de]", text, LENGTH, "retry-limit-in-search over", diags);
  test_failure(arena, "\\p{L}+", text, LONG, "match-stack limit over", diags);
  test_failure(
      arena, "(?<=\\Ka)a", text, 3,
      "\\K in a look-behind puts the begin of a match before the last one's end", diags);
}

/* libonig has functions of the names in <regex.h>, with a regex_t of its own. */
static void test_regex_of_c(void) {
  static const char *const names[] = {"regcomp", "regexec", "regerror", "regfree"};
  Dl_info of_c, found;
  CHECK(dladdr(dlsym(RTLD_DEFAULT, "fopen"), &of_c));
  for (int i = 0; i < 4; i++) {
    CHECK(dladdr(dlsym(RTLD_DEFAULT, names[i]), &found));
    CHECK_STR(found.dli_fname, of_c.dli_fname);
  }
}

int main(int count, char **arguments) {
  const char *folder = count > 1 ? arguments[1] : ".";
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  test_package(arena, folder, diags);
  test_known(arena, diags);
  test_limits(arena, diags);
  test_regex_of_c();
  tsr_arena_free(arena);
  return check_done("bpe_pattern");
}
