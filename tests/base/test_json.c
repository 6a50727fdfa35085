// SPDX-License-Identifier: Apache-2.0
/* Strict JSON: what RFC 8259 has and has not, the places of errors, texts there and back, speed. */
#include "base/json.h"
#include "tests/check.h"
#include "tests/printed.h"
#include <stdlib.h>
#include <time.h>

static tsr_arena *arena;

static cJSON *parse_bytes(const char *text, size_t length, const char **ret_said) {
  tsr_diags *diags = tsr_diags_new(arena);
  cJSON *json = NULL;
  bool ok = tsr_json_parse(arena, "f", text, length, &json, diags);
  *ret_said = printed_diags(arena, diags);
  CHECK_INT(ok, tsr_diags_errors(diags) == 0);
  return ok ? json : NULL;
}

static cJSON *parse(const char *text, const char **ret_said) {
  return parse_bytes(text, strlen(text), ret_said);
}

static void test_good(void) {
  static const char *const texts[] = {
      "0",
      "-0",
      "1e5",
      "-1.5E-3",
      "1E+2",
      "123456789012345678901234567890",
      "true",
      "false",
      " null\r\n\t ",
      "\"\"",
      "[]",
      "{}",
      "[ ]",
      "{ }",
      "[1,2]",
      "{\"a\":1,\"A\":2}",
      "{\"\":{\"\":[{},[],\"\"]}}",
      "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude42\"",
      "\"\x7f\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82\xf4\x8f\xbf\xbf\"",
      "1e-999"};
  const char *said;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    CHECK_AT(parse(texts[i], &said), "%s: %s", texts[i], said);
  cJSON *json = parse("\"\\ud83d\\ude42 \\u00e9\\n\"", &said);
  CHECK_STR(json->valuestring, "🙂 é\n");
}

/* The first line of what is said, without "f:". */
static void check_said(const char *text, const char *want) {
  const char *said;
  CHECK_AT(!parse(text, &said), "%s is taken", text);
  const char *end = strchr(said, '\n');
  CHECK_STR(end ? tsr_arena_strndup(arena, said + 2, (size_t)(end - said - 2)) : said, want);
}

static void test_bad_values(void) {
  check_said("", "1:1: error: expected a value, not the end of the text");
  check_said(" \n ", "2:2: error: expected a value, not the end of the text");
  check_said("nul", "1:1: error: expected a value, not 'n'");
  check_said("NaN", "1:1: error: expected a value, not 'N'");
  check_said("'a'", "1:1: error: expected a value, not '''");
  check_said("\x01", "1:1: error: expected a value, not byte 0x01");
  check_said("\xff", "1:1: error: expected a value, not byte 0xff");
  check_said("é", "1:1: error: expected a value, not 'é'");
  check_said("\xef\xbb\xbf{}", "1:1: error: JSON begins without a byte order mark");
  check_said("{} {}", "1:4: error: '{' after the end of the JSON");
  check_said("{}\n1", "2:1: error: '1' after the end of the JSON");
  check_said("truex", "1:5: error: 'x' after the end of the JSON");
  check_said("[1 2]", "1:4: error: expected ',' or ']' after a value, not '2'");
  check_said("[1", "1:3: error: expected ',' or ']' after a value, not the end of the text");
  check_said("[1}", "1:3: error: expected ',' or ']' after a value, not '}'");
  check_said("[1,]", "1:4: error: expected a value, not ']'");
  check_said("[,1]", "1:2: error: expected a value, not ','");
  check_said("{\"a\":1,}", "1:8: error: expected a key in double quotes, not '}'");
  check_said("{a:1}", "1:2: error: expected a key in double quotes, not 'a'");
  check_said("{\"a\" 1}", "1:6: error: expected ':' after a key, not '1'");
  check_said("{\"a\":1]", "1:7: error: expected ',' or '}' after a value, not ']'");
  check_said("// x\n1", "1:1: error: expected a value, not '/'");
}

static void test_bad_numbers(void) {
  check_said("01", "1:1: error: a number begins with 0");
  check_said("-01", "1:1: error: a number begins with 0");
  check_said("+1", "1:1: error: expected a value, not '+'");
  check_said(".5", "1:1: error: expected a value, not '.'");
  check_said("-", "1:2: error: expected a digit after '-', not the end of the text");
  check_said("1.", "1:3: error: expected a digit after '.', not the end of the text");
  check_said("[1.e5]", "1:4: error: expected a digit after '.', not 'e'");
  check_said("1e", "1:3: error: expected a digit in the exponent, not the end of the text");
  check_said("1e+ ", "1:4: error: expected a digit in the exponent, not ' '");
  check_said("[0x10]", "1:3: error: expected ',' or ']' after a value, not 'x'");
  check_said("[1, 1e999]", "1:5: error: 1e999 is too large");
  char text[80];
  memset(text, '1', 64);
  text[64] = 0;
  check_said(text, "1:1: error: a number of 64 characters; at most 63 are read");
  const char *said;
  CHECK(parse_bytes(text, 63, &said));
}

static void test_bad_strings(void) {
  check_said("\"a", "1:1: error: a string has no closing quote");
  check_said("\"a\\\"", "1:1: error: a string has no closing quote");
  check_said("\"a\nb\"", "1:3: error: byte 0x0a in a string should be written \\u000a");
  check_said("\"\\x41\"", "1:2: error: a backslash may not stand before 'x'");
  check_said("\"\\", "1:2: error: a backslash may not stand before the end of the text");
  check_said("\"\\u12g4\"", "1:2: error: \\u needs four hexadecimal digits");
  check_said("\"\\u12", "1:2: error: \\u needs four hexadecimal digits");
  check_said("\"\\u0000\"", "1:2: error: \\u0000 is not taken: texts end at a NUL");
  check_said("\"\\ud83d\"", "1:2: error: \\ud83d is half of a surrogate pair alone");
  check_said("\"\\ude42\"", "1:2: error: \\ude42 is half of a surrogate pair alone");
  check_said("\"\\ud83d\\u0041\"", "1:2: error: \\ud83d is half of a surrogate pair alone");
  check_said("\"\\ud83d\\ud83d\"", "1:2: error: \\ud83d is half of a surrogate pair alone");
  static const char *const bad[] = {"\x80",
                                    "\xc0\x80",
                                    "\xe0\x9f\xbf",
                                    "\xed\xa0\x80",
                                    "\xf0\x8f\xbf\xbf",
                                    "\xf4\x90\x80\x80",
                                    "\xf5\x80",
                                    "\xc3(",
                                    "\xe2\x82"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    check_said(
        tsr_arena_printf(arena, "\"%s\"", bad[i]),
        tsr_arena_printf(
            arena, "1:2: error: invalid UTF-8: byte 0x%02x", (unsigned char)bad[i][0]));
  const char *said;
  CHECK(!parse_bytes("\"a\0b\"", 5, &said));
  CHECK(strstr(said, "1:3: error: byte 0x00 in a string is not taken: texts end at a NUL"));
}

static void test_levels(void) {
  char text[2 * TSR_JSON_DEPTH_MAX + 3];
  for (int depth = TSR_JSON_DEPTH_MAX; depth <= TSR_JSON_DEPTH_MAX + 1; depth++) {
    memset(text, '[', (size_t)depth);
    memset(text + depth, ']', (size_t)depth);
    const char *said;
    cJSON *json = parse_bytes(text, 2 * (size_t)depth, &said);
    CHECK_INT(json != NULL, depth == TSR_JSON_DEPTH_MAX);
    if (!json) CHECK(!strncmp(said, "f:1:129: error: more than 128 levels\n", 37));
  }
}

static void test_keys_twice(void) {
  const char *said;
  CHECK(!parse("{\"a\": 1,\n \"b\": {\"a\": 2},\n \"a\": 3}", &said));
  CHECK_STR(
      said, "f:3:2: error: key 'a' stands twice\n"
            "    3 |  \"a\": 3}\n"
            "      |  ^\n"
            "      = the first one stands in line 1, column 2\n");
  check_said("{\"\\u0061\":1,\"a\":2}", "1:13: error: key 'a' stands twice");
  check_said(
      "{\"a\\n\":1,\"\\u000a\":2,\"a\\u000A\":2}", "1:21: error: key 'a\\u000A' stands twice");
  check_said("[{\"\":1,\"\":2}]", "1:8: error: key '' stands twice");
  CHECK(parse("[{\"a\":1},{\"a\":{\"a\":2}}]", &said));
  /* Many keys, by the hash table; then one of them again. */
  for (int twice = 0; twice < 2; twice++) {
    tsr_text text = {0};
    tsr_text_add(&text, "{");
    for (int i = 0; i < 5000; i++) tsr_text_add(&text, "\"k%d\":{\"k1\":%d},", i, i);
    tsr_text_add(&text, "\"k%d\":0}", twice ? 2500 : 5000);
    CHECK_INT(parse_bytes(text.data, text.length, &said) == NULL, twice);
    if (twice) CHECK(strstr(said, "key 'k2500' stands twice\n"));
    tsr_text_free(&text);
  }
}

static void test_members(void) {
  const char *said, *text = NULL;
  cJSON *json = parse(
      "{\"t\":\"x\",\"i\":9007199254740992,\"d\":0.5,\"b\":true,\"n\":null,\"l\":[],\"o\":{},"
      "\"big\":9007199254740994,\"I\":-3}",
      &said);
  tsr_diags *diags = tsr_diags_new(arena);
  int64_t i = 0;
  double d = 0;
  bool b = false;
  CHECK(tsr_json_text(json, "t", "f", &text, diags) && !strcmp(text, "x"));
  CHECK(tsr_json_int(json, "i", "f", &i, diags) && i == (int64_t)1 << 53);
  CHECK(tsr_json_int(json, "I", "f", &i, diags) && i == -3);
  CHECK(tsr_json_double(json, "d", "f", &d, diags) && d == 0.5);
  CHECK(tsr_json_bool(json, "b", "f", &b, diags) && b);
  CHECK(!tsr_json_get(json, "T") && !tsr_json_get(cJSON_GetObjectItem(json, "l"), "a"));
  CHECK(!tsr_json_get(NULL, "a"));
  CHECK_STR(printed_diags(arena, diags), "");
  CHECK(!tsr_json_text(json, "i", "config.json", &text, diags));
  CHECK(!tsr_json_int(json, "t", "config.json", &i, diags));
  CHECK(!tsr_json_int(json, "d", "config.json", &i, diags));
  CHECK(!tsr_json_int(json, "big", "config.json", &i, diags));
  CHECK(!tsr_json_double(json, "b", "config.json", &d, diags));
  CHECK(!tsr_json_bool(json, "n", "config.json", &b, diags));
  CHECK(!tsr_json_bool(json, "l", "config.json", &b, diags));
  CHECK(!tsr_json_bool(json, "o", "config.json", &b, diags));
  CHECK(!tsr_json_bool(json, "none", "config.json", &b, diags));
  CHECK_STR(
      printed_diags(arena, diags),
      "error: 'config.json': key 'i' should be a string, not 9007199254740992\n"
      "error: 'config.json': key 't' should be a whole number, not a string\n"
      "error: 'config.json': key 'd' should be a whole number, not 0.5\n"
      "error: 'config.json': key 'big' should be a whole number, not 9007199254740994\n"
      "error: 'config.json': key 'b' should be a number, not true or false\n"
      "error: 'config.json': key 'n' should be true or false, not null\n"
      "error: 'config.json': key 'l' should be true or false, not a list\n"
      "error: 'config.json': key 'o' should be true or false, not an object\n"
      "error: 'config.json': key 'none' is missing\n");
}

static void test_add_text(void) {
  tsr_text text = {0};
  tsr_json_add_text(&text, "a\"\\/\b\f\n\r\t\x01\x1f\x7f\xc3\xa9\xc3(\xed\xa0\x80\xe2\x82", 21);
  CHECK_STR(
      text.data, "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\xc3\xa9\xef\xbf\xbd(\xef\xbf\xbd"
                 "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
  /* Any bytes but NUL become JSON; valid UTF-8 comes back as it was. */
  for (int round = 0; round < 2000; round++) {
    char bytes[40];
    int length = rand() % 40;
    bool plain = round % 2;
    for (int i = 0; i < length; i++) bytes[i] = (char)(1 + rand() % (plain ? 127 : 255));
    text.length = 0;
    tsr_json_add_text(&text, bytes, (size_t)length);
    const char *said;
    cJSON *json = parse_bytes(text.data, text.length, &said);
    CHECK_AT(json, "%s", said);
    if (plain && json) CHECK(!strncmp(json->valuestring, bytes, (size_t)length));
  }
  tsr_text_free(&text);
}

/* A vocabulary of 128k tokens, as a tokenizer.json has it, takes no long. Only a search of every
 * key through all others would fail this. */
static void test_large(void) {
  tsr_text text = {0};
  tsr_text_add(&text, "{\"vocab\":{");
  for (int i = 0; i < 128000; i++)
    tsr_text_add(&text, "%s\"\\u0120token%x\":%d", i ? "," : "", i * 7919, i);
  tsr_text_add(&text, "}}");
  clock_t begin = clock();
  const char *said;
  cJSON *json = parse_bytes(text.data, text.length, &said);
  double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
  CHECK(json && cJSON_GetArraySize(tsr_json_get(json, "vocab")) == 128000);
  CHECK_AT(seconds < 5, "%zu bytes took %g s", text.length, seconds);
  tsr_text_free(&text);
}

int main(void) {
  arena = tsr_arena_new();
  test_good();
  test_bad_values();
  test_bad_numbers();
  test_bad_strings();
  test_levels();
  test_keys_twice();
  test_members();
  test_add_text();
  test_large();
  tsr_arena_free(arena);
  return check_done("json");
}
