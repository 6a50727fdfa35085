// SPDX-License-Identifier: Apache-2.0
/* The text format reader: every case of the table with its exact errors, values in their members,
 * places, limits, and texts that C strings cannot hold. */
#include "mesh_test.h"
#include "textproto_cases.h"
#include "mesh/textproto.h"
#include "base/text.h"
#include "all_types.pb-c.h"

typedef Tsr__Test__AllTypes all_types;

static tsr_arena *arena;
static tsr_places *places;
static tsr_diags *diags;

static all_types *read_bytes(const char *text, size_t length, bool *ret_ok) {
  ProtobufCMessage *message;
  places = tsr_places_new(arena);
  diags = tsr_diags_new(arena);
  *ret_ok = tsr_textproto_read(
      arena, "t", text, length, &tsr__test__all_types__descriptor, &message, places, diags);
  return (all_types *)message;
}

/* The text that must be right. */
static all_types *read_good(const char *text) {
  bool ok;
  all_types *m = read_bytes(text, strlen(text), &ok);
  CHECK_AT(ok && m, "refused: %s", text);
  if (!m) exit(1);
  return m;
}

static void expect_error(const char *text, size_t length, const char *error) {
  bool ok;
  read_bytes(text, length, &ok);
  CHECK(!ok);
  char *said = printed(diags);
  CHECK_STR(said, error);
  free(said);
}

static void test_table(void) {
  for (int i = 0; i < TEXTPROTO_CASES; i++) {
    const textproto_case *c = &textproto_cases[i];
    bool ok;
    read_bytes(c->text, strlen(c->text), &ok);
    CHECK_AT(ok == !c->error, "%s: %s", ok ? "accepted" : "refused", c->text);
    char *said = printed(diags);
    CHECK_STR(said, c->error ? c->error : "");
    free(said);
  }
}

static void test_values(void) {
  all_types *m = read_good(
      "i32: -0x80000000 u64: 18446744073709551615 real: 0.1 wide: -1e400 truth: t color: -3\n"
      "text: 'a\\u20ac' \"b\" raw: '\\000\\377' numbers: [1, 2] numbers: 3 inner { deeper { x: 4 } "
      "}\n"
      "two: 'x' texts: ['p', 'q']");
  CHECK(m->has_i32 && m->i32 == INT32_MIN);
  CHECK(m->has_u64 && m->u64 == UINT64_MAX);
  CHECK(m->has_real && m->real == 0.1f);
  CHECK(m->has_wide && isinf(m->wide) && m->wide < 0);
  CHECK(m->has_truth && m->truth == 1);
  CHECK_INT(m->color, -3);
  CHECK_STR(
      m->text, "a\xe2\x82\xac"
               "b");
  CHECK_INT(m->raw.len, 2);
  CHECK(m->raw.data[0] == 0 && m->raw.data[1] == 255);
  CHECK_INT(m->n_numbers, 3);
  CHECK_INT(m->numbers[2], 3);
  CHECK_INT(m->inner->deeper->x, 4);
  CHECK(!m->inner->has_x && !m->has_u32);
  CHECK_INT(m->choice_case, TSR__TEST__ALL_TYPES__CHOICE_TWO);
  CHECK_STR(m->two, "x");
  CHECK_STR(m->texts[1], "q");
  CHECK_STR(m->with_default, "default");
  CHECK_INT(m->number_default, 42);
}

static void test_places(void) {
  all_types *m =
      read_good("i32: 5\n  inner {\n    x: 7 }\nnumbers: [1,\n 2]\ninners [{}, { x: 1 }]");
  CHECK_INT(tsr_places_find(places, m, "i32", 0).col, 6);
  tsr_location inner = tsr_places_find(places, m->inner, NULL, 0);
  CHECK(inner.line == 2 && inner.col == 3 && inner.length == 5);
  tsr_location x = tsr_places_find(places, m->inner, "x", 0);
  CHECK(x.line == 3 && x.col == 8);
  CHECK_INT(tsr_places_find(places, m, "numbers", 1).line, 5);
  CHECK_INT(tsr_places_find(places, m, "numbers", 2).line, 0); /* there is none: the message's */
  CHECK_INT(tsr_places_find(places, m->inners[1], NULL, 0).col, 13);
  CHECK_STR(tsr_places_find(places, m, NULL, 0).file, "t");
  CHECK(!tsr_places_is_damaged(places, m));

  bool ok;
  const char *text = "inner { y: 1 } inners {}";
  m = read_bytes(text, strlen(text), &ok);
  CHECK(!ok && m); /* a mistake, but the rest could be followed */
  CHECK(tsr_places_is_damaged(places, m->inner));
  CHECK(!tsr_places_is_damaged(places, m->inners[0]));
  text = "inner { y 1 } inners {}";
  CHECK(!read_bytes(text, strlen(text), &ok) && !ok);
}

static void test_many(void) {
  tsr_text text = {0};
  for (int i = 0; i < 1000; i++) tsr_text_add(&text, "numbers: %d inners { x: %d }\n", i, i);
  all_types *m = read_good(text.data);
  CHECK_INT(m->n_numbers, 1000);
  CHECK_INT(m->inners[999]->x, 999);
  CHECK_INT(tsr_places_find(places, m->inners[999], "x", 0).line, 1000);
  tsr_text_free(&text);
}

static void test_limits(void) {
  tsr_text text = {0};
  for (int i = 0; i < 64; i++) tsr_text_add(&text, i ? "deeper{" : "inner{");
  for (int i = 0; i < 64; i++) tsr_text_add(&text, "}");
  read_good(text.data);
  tsr_text_free(&text);
  for (int i = 0; i < 100000; i++) tsr_text_add(&text, i ? "deeper{" : "inner{");
  expect_error(text.data, text.length, "t:1:454: error: messages nest more than 64 deep\n");
  tsr_text_free(&text);
  for (int i = 0; i < 100000; i++) tsr_text_add(&text, "unknown<");
  bool ok;
  read_bytes(text.data, text.length, &ok);
  CHECK(!ok);
  CHECK_INT(tsr_diags_errors(diags), 2); /* unknown field, and too deep */
  tsr_text_free(&text);
  for (int i = 0; i < 100000; i++) tsr_text_add(&text, "numbers:[");
  read_bytes(text.data, text.length, &ok);
  CHECK(!ok);
  tsr_text_free(&text);
  tsr_text_add(&text, "numbers: [0");
  for (int i = 1; i < 1000001; i++) tsr_text_add(&text, ",0");
  tsr_text_add(&text, "]");
  expect_error(text.data, text.length, "t:1:2000009: error: more than 1000000 fields and values\n");
  tsr_text_free(&text);
}

static void test_bytes(void) {
#define EXPECT(text, error) expect_error(text, sizeof(text) - 1, error)
  EXPECT("i32: 1\n\0", "t:2:1: error: a NUL byte; a descriptor is a text file\n");
  EXPECT("text: 'a\0b'", "t:1:9: error: a NUL byte; a descriptor is a text file\n");
  EXPECT(
      "\xef\xbb\xbfi32: 1",
      "t:1:1: error: the file starts with a byte order mark; save it without one\n");
  EXPECT("# \xff\ni32: 1", "t:1:3: error: byte 0xff is not valid UTF-8\n");
  EXPECT("raw: '\xc0\x80'", "t:1:7: error: byte 0xc0 is not valid UTF-8\n");
  EXPECT("raw: '\xed\xa0\x80'", "t:1:7: error: byte 0xed is not valid UTF-8\n");
  EXPECT("raw: '\xf4\x90\x80\x80'", "t:1:7: error: byte 0xf4 is not valid UTF-8\n");
  EXPECT("raw: '\xe2\x82", "t:1:7: error: byte 0xe2 is not valid UTF-8\n");
#undef EXPECT
  bool ok;
  CHECK(read_bytes("", 0, &ok) && ok);
  CHECK(read_bytes("i32: 12345", 6, &ok)->i32 == 1); /* the length counts, not a NUL */
}

int main(void) {
  arena = tsr_arena_new();
  test_table();
  test_values();
  test_places();
  test_many();
  test_limits();
  test_bytes();
  tsr_arena_free(arena);
  return check_done("mesh.textproto");
}
