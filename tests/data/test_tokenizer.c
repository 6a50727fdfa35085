// SPDX-License-Identifier: Apache-2.0
/* Tokenizers: vocabularies, there and back, and what they refuse. */
#include "data/tokenizer.h"
#include "base/utf8.h"
#include "tests/check.h"
#include "tests/data/scratch.h"

static tsr_text_file text_file(const char *path, const char *text) {
  return (tsr_text_file){path, text, strlen(text)};
}

static void test_utf8(void) {
  for (uint32_t code = 0; code < TSR_UTF8_CODES; code += code < 0x1000 ? 1 : 61) {
    char bytes[4];
    uint32_t back = 0;
    int length = tsr_utf8_put(code, bytes);
    bool is_surrogate = code >= 0xd800 && code < 0xe000;
    CHECK_INT(tsr_utf8_next(bytes, 4, &back), is_surrogate ? 0 : length);
    if (!is_surrogate) CHECK_INT(back, code);
    CHECK_INT(tsr_utf8_next(bytes, (size_t)length - 1, &back), 0);
  }
  static const char *const bad[] = {
      "\x80",
      "\xc0\x80",
      "\xc1\xbf",
      "\xe0\x9f\xbf",
      "\xf0\x8f\xbf\xbf",
      "\xf4\x90\x80\x80",
      "\xf5\x80\x80\x80",
      "\xff",
      "\xc3(",
      "\xe2\x82("};
  uint32_t code;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    CHECK_INT(tsr_utf8_next(bad[i], strlen(bad[i]), &code), 0);
}

static void test_char(tsr_arena *arena, tsr_diags *diags) {
  tsr_text_file files[] = {
      text_file("a", "bad\n"), text_file(
                                   "b", "\xc3\xa9\xf0\x9f\x99\x82"
                                        "a")};
  tsr_tokenizer tokenizer;
  CHECK(tsr_tokenizer_char(arena, files, 2, &tokenizer, diags));
  CHECK_INT(tokenizer.vocab_size, 6); /* \n a b d é 🙂 */
  int32_t tokens[16];
  int64_t count;
  CHECK(tsr_tokenizer_encode(&tokenizer, &files[1], tokens, &count, diags));
  CHECK_INT(count, 3);
  CHECK(tokens[0] == 4 && tokens[1] == 5 && tokens[2] == 1);
  tsr_text text = {0};
  tsr_tokenizer_decode(&tokenizer, tokens, count, &text);
  CHECK_STR(text.data, files[1].text);
  text.length = 0;

  /* The vocabulary's own text makes the same tokenizer. */
  int32_t all[] = {0, 1, 2, 3, 4, 5};
  tsr_tokenizer_decode(&tokenizer, all, 6, &text);
  tsr_text_file vocabulary = {"vocabulary", text.data, text.length};
  tsr_tokenizer again;
  CHECK(tsr_tokenizer_char(arena, &vocabulary, 1, &again, diags));
  CHECK_INT(again.vocab_size, 6);
  CHECK(!memcmp(again.chars, tokenizer.chars, 6 * sizeof *again.chars));
  CHECK(!memcmp(again.ascii, tokenizer.ascii, sizeof again.ascii));
  tsr_text_free(&text);

  tsr_text_file prompts[] = {
      text_file("--prompt", "bad\nba\xc3\xbc"), text_file("p2", "a\tb"), text_file("p3", "z")};
  for (int i = 0; i < 3; i++)
    CHECK(!tsr_tokenizer_encode(&tokenizer, &prompts[i], tokens, &count, diags));
  CHECK_STR(
      scratch_diags(diags),
      "--prompt:2:3: error: character 'ü' (U+00FC) is not in the vocabulary of 6 characters\n"
      "    2 | baü\n"
      "      |   ^\n"
      "p2:1:2: error: character U+0009 is not in the vocabulary of 6 characters\n"
      "    1 | a\tb\n"
      "      |  ^\n"
      "p3:1:1: error: character 'z' (U+007A) is not in the vocabulary of 6 characters\n"
      "    1 | z\n"
      "      | ^\n");
}

static void test_char_errors(tsr_arena *arena, tsr_diags *diags) {
  tsr_text_file files[] = {text_file("good", "ok"), text_file("bad", "one\ntwo \xff\n")};
  tsr_tokenizer tokenizer;
  CHECK(!tsr_tokenizer_char(arena, files, 2, &tokenizer, diags));
  const char *text = scratch_diags(diags);
  CHECK(strstr(text, "bad:2:5: error: invalid UTF-8: byte 0xff\n") == text);
  CHECK(strstr(text, "      = tokenizer_type: byte reads any file\n") != NULL);
}

static void test_byte(tsr_diags *diags) {
  tsr_tokenizer tokenizer = tsr_tokenizer_byte();
  CHECK_INT(tokenizer.vocab_size, 256);
  tsr_text_file file = {"f", "\xff\0a", 3};
  int32_t tokens[3];
  int64_t count;
  CHECK(tsr_tokenizer_encode(&tokenizer, &file, tokens, &count, diags));
  CHECK(count == 3 && tokens[0] == 255 && tokens[1] == 0 && tokens[2] == 'a');
  tsr_text text = {0};
  tsr_tokenizer_decode(&tokenizer, tokens, count, &text);
  CHECK(text.length == 3 && !memcmp(text.data, file.text, 3));
  tsr_text_free(&text);
}

static void test_ids(tsr_diags *diags) {
  tsr_tokenizer tokenizer = tsr_tokenizer_ids(100);
  tsr_text_file file = text_file("f", " 0 7\n\t99 ");
  int32_t tokens[16];
  int64_t count;
  CHECK(tsr_tokenizer_encode(&tokenizer, &file, tokens, &count, diags));
  CHECK(count == 3 && tokens[0] == 0 && tokens[1] == 7 && tokens[2] == 99);
  tsr_text text = {0};
  tsr_tokenizer_decode(&tokenizer, tokens, count, &text);
  CHECK_STR(text.data, "0 7 99");
  tsr_text_free(&text);
  tsr_text_file bad[] = {
      text_file("a.txt", "1 100"), text_file("b.txt", "1\n -2"),
      text_file("c.txt", "99999999999999999999")};
  for (int i = 0; i < 3; i++)
    CHECK(!tsr_tokenizer_encode(&tokenizer, &bad[i], tokens, &count, diags));
  CHECK_STR(
      scratch_diags(diags),
      "a.txt:1:3: error: token 100 is outside the vocabulary of 100 tokens\n"
      "    1 | 1 100\n"
      "      |   ^~~\n"
      "b.txt:2:2: error: '-2' is not a token number\n"
      "    2 |  -2\n"
      "      |  ^~\n"
      "c.txt:1:1: error: token 99999999999999999999 is outside the vocabulary of 100 tokens\n"
      "    1 | 99999999999999999999\n"
      "      | ^~~~~~~~~~~~~~~~~~~~\n");
}

int main(void) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  test_utf8();
  test_char(arena, diags);
  test_char_errors(arena, diags);
  test_byte(diags);
  test_ids(diags);
  tsr_arena_free(arena);
  return check_done("tokenizer");
}
