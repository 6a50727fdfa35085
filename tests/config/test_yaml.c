// SPDX-License-Identifier: Apache-2.0
#include "config/yaml.h"
#include "tests/check.h"
#include <stdlib.h>

static tsr_arena *arena;

static tsr_yaml *parse(const char *text, char **ret_said) {
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_yaml *root = NULL;
  tsr_yaml_parse(arena, "a.yaml", text, strlen(text), &root, diags);
  size_t length;
  char *said = NULL;
  FILE *stream = open_memstream(&said, &length);
  tsr_diags_print(diags, stream);
  fclose(stream);
  *ret_said = tsr_arena_strdup(arena, said);
  free(said);
  return root;
}

static void check_said(const char *text, const char *want) {
  char *said;
  parse(text, &said);
  CHECK_STR(said, want);
}

static tsr_yaml *parse_clean(const char *text) {
  char *said;
  tsr_yaml *root = parse(text, &said);
  CHECK_STR(said, "");
  return root;
}

static tsr_yaml *scalar(const char *text) { return tsr_yaml_get(parse_clean(text), "a"); }

static void test_numbers(void) {
  static const struct {
    const char *text;
    bool is_int;
    int64_t want;
  } ints[] = {
      {"a: 0", true, 0},
      {"a: -12", true, -12},
      {"a: +7", true, 7},
      {"a: 010", true, 8},
      {"a: 017", true, 15},
      {"a: 08", false, 0},
      {"a: 00", true, 0},
      {"a: 0_7", true, 7},
      {"a: 0b101", true, 5},
      {"a: 30_000", true, 30000},
      {"a: 0x_1F", true, 31},
      {"a: _1", false, 0},
      {"a: 0x1F", true, 31},
      {"a: 0o17", false, 0},
      {"a: -0x10", true, -16},
      {"a: -1_000", true, -1000},
      {"a: 1:30", false, 0},
      {"a: 0x", false, 0},
      {"a: 0o8", false, 0},
      {"a: \"1\"", false, 0},
      {"a: 1.0", false, 0},
      {"a: 1e3", false, 0},
      {"a: !!str 1", false, 0},
      {"a: ''", false, 0},
      {"a: -", false, 0},
      {"a: 0X1F", false, 0},
      {"a: 9223372036854775807", true, INT64_MAX},
      {"a: -9223372036854775808", true, INT64_MIN},
      {"a: 9223372036854775808", false, 0},
      {"a: -9223372036854775809", false, 0},
      {"a: 99999999999999999999999", false, 0},
  };
  for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
    int64_t value = 0;
    /* A lone dash is YAML's own. */
    char *said;
    const tsr_yaml *node = tsr_yaml_get(parse(ints[i].text, &said), "a");
    CHECK_AT(tsr_yaml_int(node, &value) == ints[i].is_int, "%s", ints[i].text);
    CHECK_AT(value == ints[i].want, "%s: %lld", ints[i].text, (long long)value);
  }
  static const struct {
    const char *text;
    double want;
  } floats[] = {{"a: 3e-5", 3e-5},       {"a: 1.", 1},    {"a: .5", .5},
                {"a: -1.5E+2", -150},    {"a: 7", 7},     {"a: .inf", INFINITY},
                {"a: -.Inf", -INFINITY}, {"a: 0x10", 16}, {"a: +12.25", 12.25},
                {"a: 1_000.5", 1000.5},  {"a: 017", 15},  {"a: 017.5", 17.5},
                {"a: 1_0e2", 1000},      {"a: 0.5", .5},  {"a: 99999999999999999999", 1e20}};
  for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
    double value = 0;
    CHECK_AT(tsr_yaml_float(scalar(floats[i].text), &value), "%s", floats[i].text);
    CHECK_AT(value == floats[i].want, "%s: %g", floats[i].text, value);
  }
  double value;
  CHECK(tsr_yaml_float(scalar("a: .nan"), &value) && isnan(value));
  static const char *const others[] = {"a: inf", "a: nan", "a: 1e",   "a: e5", "a: .",  "a: 1.2.3",
                                       "a: 1f",  "a: 08",  "a: 0o17", "a: _1", "a: ._5"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    CHECK_AT(!tsr_yaml_float(scalar(others[i]), &value), "%s", others[i]);
}

static void test_words(void) {
  bool truth = false;
  CHECK(tsr_yaml_bool(scalar("a: true"), &truth) && truth);
  CHECK(tsr_yaml_bool(scalar("a: FALSE"), &truth) && !truth);
  CHECK(!tsr_yaml_bool(scalar("a: yes"), &truth));
  CHECK(!tsr_yaml_bool(scalar("a: 'true'"), &truth));
  CHECK_INT(scalar("a: ~")->kind, TSR_YAML_NULL);
  CHECK_INT(scalar("a:")->kind, TSR_YAML_NULL);
  CHECK_INT(scalar("a: ''")->kind, TSR_YAML_SCALAR);
  CHECK_STR(scalar("a: null")->text, "");
  CHECK_STR(tsr_yaml_describe(arena, scalar("a: [1]")), "a list");
  CHECK_STR(tsr_yaml_describe(arena, scalar("a: {b: 1}")), "a map");
  CHECK_STR(tsr_yaml_describe(arena, scalar("a: 3")), "the integer 3");
  CHECK_STR(tsr_yaml_describe(arena, scalar("a: 3e-5")), "the number 3e-5");
  CHECK_STR(tsr_yaml_describe(arena, scalar("a: x y")), "the text 'x y'");
  CHECK_STR(tsr_yaml_describe(arena, scalar("a: \"3\"")), "the text '3'");
  CHECK_STR(tsr_yaml_describe(arena, scalar("a:")), "nothing");
  CHECK_STR(tsr_yaml_describe(arena, scalar("a: \"b\\ec\"")), "the text 'b c'");
  CHECK_INT(parse_clean("")->kind, TSR_YAML_NULL);
  CHECK_INT(parse_clean("--- \n# nothing\n")->kind, TSR_YAML_NULL);
}

static void check_place(const tsr_yaml *node, int line, int col, int length) {
  CHECK_INT(node->location.line, line);
  CHECK_INT(node->location.col, col);
  CHECK_INT(node->location.length, length);
}

static void test_places(void) {
  /* Columns count bytes: é takes two. */
  const tsr_yaml *root = parse_clean("é: {k: \"ü\", l: 12}\r\nb:\n  - 3\n  - &x y\nc: *x\n");
  check_place(root->keys[0], 1, 1, 2);
  check_place(root->items[0], 1, 5, 1);
  check_place(root->items[0]->items[0], 1, 9, 4);
  check_place(root->items[0]->items[1], 1, 18, 2);
  check_place(tsr_yaml_get(root, "b")->items[0], 3, 5, 1);
  CHECK_STR(tsr_yaml_get(root, "c")->text, "y");
  CHECK(tsr_yaml_get(root, "c") == tsr_yaml_get(root, "b")->items[1]);
  CHECK(!tsr_yaml_get(root, "d") && !tsr_yaml_key(root, "d"));
  CHECK_STR(tsr_yaml_key(root, "b")->text, "b");
}

/* Columns are those that an editor shows, which hides a byte order mark. */
static void test_byte_order_mark(void) {
  const tsr_yaml *root = parse_clean("\xef\xbb\xbf"
                                     "a: 1\nb: 2\n");
  check_place(root->keys[0], 1, 1, 1);
  check_place(root->items[0], 1, 4, 1);
  check_place(root->items[1], 2, 4, 1);
  CHECK_STR(root->keys[0]->text, "a");
  CHECK_INT(parse_clean("\xef\xbb\xbf")->kind, TSR_YAML_NULL);
  check_said(
      "\xef\xbb\xbf"
      "a: *b\n",
      "a.yaml:1:4: error: unknown anchor 'b'\n    1 | a: *b\n"
      "      |    ^~\n      = an anchor '&b' must end before '*b' names it\n");
  check_said(
      "\xef\xbb\xbf"
      "a: \xff\n",
      "a.yaml:1:4: error: not YAML: invalid leading UTF-8 octet\n"
      "    1 | a: \xff\n      |    ^\n");
}

static void test_merge(void) {
  const tsr_yaml *root = parse_clean("a: &a {x: 1, y: 2}\nb: &b {y: 3, z: 4}\nc:\n  z: 5\n  <<: "
                                     "[*a, *b]\n  w: 6\nd: {<<: *a, x: 9}\n"
                                     "e: {\"<<\": 1}\n");
  const tsr_yaml *c = tsr_yaml_get(root, "c"), *d = tsr_yaml_get(root, "d");
  CHECK_INT(c->count, 4);
  static const char *const keys[] = {"z", "x", "y", "w"}, *const values[] = {"5", "1", "2", "6"};
  for (int i = 0; i < 4; i++) {
    CHECK_STR(c->keys[i]->text, keys[i]);
    CHECK_STR(c->items[i]->text, values[i]);
  }
  CHECK_INT(d->count, 2);
  CHECK_STR(tsr_yaml_get(d, "x")->text, "9");
  CHECK_STR(tsr_yaml_get(d, "y")->text, "2");
  CHECK_STR(tsr_yaml_get(tsr_yaml_get(root, "e"), "<<")->text, "1");
}

static void test_errors(void) {
  check_said(
      "a: 1\nb: 2\na: 3\n", "a.yaml:3:1: error: key 'a' is given twice\n"
                            "    3 | a: 3\n      | ^\n      = first given on line 1\n");
  check_said(
      "a: {b: 1, b: 2}\na: 3\n",
      "a.yaml:1:11: error: key 'b' is given twice\n    1 | a: {b: 1, b: 2}\n"
      "      |           ^\n      = first given on line 1\n"
      "a.yaml:2:1: error: key 'a' is given twice\n    2 | a: 3\n      | ^\n"
      "      = first given on line 1\n");
  check_said(
      "a: *b\n", "a.yaml:1:4: error: unknown anchor 'b'\n    1 | a: *b\n      |    ^~\n"
                 "      = an anchor '&b' must end before '*b' names it\n");
  check_said(
      "a: &a [*a]\n", "a.yaml:1:8: error: unknown anchor 'a'\n    1 | a: &a [*a]\n"
                      "      |        ^~\n      = an anchor '&a' must end before '*a' names it\n");
  check_said(
      "a: {<<: 1}\n", "a.yaml:1:5: error: '<<' needs a map or a list of maps, found the integer 1\n"
                      "    1 | a: {<<: 1}\n      |     ^~\n");
  check_said(
      "a: 1\n---\nb: 1\n", "a.yaml:2:1: error: a second document begins here, a file may hold one\n"
                           "    2 | ---\n      | ^~~\n");
  check_said(
      "? [1]\n: 2\n", "a.yaml:1:3: error: a map's key must be a text, found a list\n"
                      "    1 | ? [1]\n      |   ^\n");
  check_said(
      "a: !x 1\nb: !!binary 2\n",
      "a.yaml:1:4: error: unknown tag '!x'\n    1 | a: !x 1\n      |    ^~~~\n"
      "a.yaml:2:4: error: unknown tag '!!binary'\n    2 | b: !!binary 2\n"
      "      |    ^~~~~~~~~~\n");
  check_said(
      "a: \"\\0\"\n", "a.yaml:1:4: error: a text may not hold a NUL byte\n    1 | a: \"\\0\"\n"
                      "      |    ^~~~\n");
  check_said(
      "a: \xff\n", "a.yaml:1:4: error: not YAML: invalid leading UTF-8 octet\n"
                   "    1 | a: \xff\n      |    ^\n");
  check_said(
      "a: 1\n\tb: 2\n",
      "a.yaml:2:1: error: not YAML: found a tab character that violates indentation while scanning "
      "a "
      "plain scalar\n    2 | \tb: 2\n      | ^\n      = indent with spaces, not with tabs\n");
  check_said(
      "a:\n  b: 1\n c: 2\n",
      "a.yaml:3:2: error: not YAML: did not find expected key while parsing a block mapping\n"
      "    3 |  c: 2\n      |  ^\n      = what is being read there began on line 1\n");
}

/* n times the text. */
static char *repeat(const char *text, int n) {
  char *all = tsr_arena_alloc(arena, strlen(text) * (size_t)n + 1);
  for (int i = 0; i < n; i++) strcat(all, text);
  return all;
}

static void test_limits(void) {
  char *said;
  parse(tsr_arena_printf(arena, "%s%s", repeat("[", 64), repeat("]", 64)), &said);
  CHECK_STR(said, "");
  parse(tsr_arena_printf(arena, "%s%s", repeat("[", 65), repeat("]", 65)), &said);
  CHECK(strstr(said, "a.yaml:1:65: error: nesting is deeper than 64"));
  /* Through aliases too: 40 inside 40. */
  parse(
      tsr_arena_printf(
          arena, "a: &a %s%s\nb: %s*a%s\n", repeat("[", 40), repeat("]", 40), repeat("[", 40),
          repeat("]", 40)),
      &said);
  CHECK(strstr(said, "a.yaml:2:44: error: nesting is deeper than 64"));
  char *laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; i++)
    laughs = tsr_arena_printf(
        arena, "%sa%d: &a%d [%s*a%d]\n", laughs, i, i,
        repeat(tsr_arena_printf(arena, "*a%d, ", i - 1), 9), i - 1);
  parse(laughs, &said);
  CHECK(strstr(said, "error: aliases repeat more than 100000 nodes"));
  const tsr_yaml *many = parse_clean(tsr_arena_printf(arena, "[%s1]", repeat("1, ", 200000)));
  CHECK_INT(many->count, 200001);
}

int main(void) {
  arena = tsr_arena_new();
  test_numbers();
  test_words();
  test_places();
  test_byte_order_mark();
  test_merge();
  test_errors();
  test_limits();
  tsr_arena_free(arena);
  return check_done("config.yaml");
}
