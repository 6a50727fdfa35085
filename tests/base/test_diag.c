// SPDX-License-Identifier: Apache-2.0
/* How diagnostics are printed: the line, the caret under the right column, hints. */
#include "base/diag.h"
#include "base/text.h"
#include "tests/check.h"
#include "tests/printed.h"

static tsr_arena *arena;

/* The error "m" at the place in the text. */
static char *print_at(const char *text, int line, int col, int length) {
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_diags_source(diags, "f", text, strlen(text));
  tsr_diag_error(diags, (tsr_location){"f", line, col, length}, "m");
  return printed_diags(arena, diags);
}

static void test_places(void) {
  CHECK_STR(print_at("a: b\n", 1, 4, 1), "f:1:4: error: m\n    1 | a: b\n      |    ^\n");
  CHECK_STR(print_at("x\na: bcd\n", 2, 4, 3), "f:2:4: error: m\n    2 | a: bcd\n      |    ^~~\n");
  CHECK_STR(print_at("a: b", 1, 5, 0), "f:1:5: error: m\n    1 | a: b\n      |     ^\n");
  CHECK_STR(print_at("a: b\r\n", 1, 5, 9), "f:1:5: error: m\n    1 | a: b\n      |     ^\n");
  CHECK_STR(print_at("", 1, 1, 1), "f:1:1: error: m\n    1 | \n      | ^\n");
  CHECK_STR(print_at("a\n", 1, 3, 1), "f:1:3: error: m\n"); /* no such column, no such line */
  CHECK_STR(print_at("a\n", 9, 1, 1), "f:9:1: error: m\n");
  CHECK_STR(print_at("a\n", 0, 0, 0), "f: error: m\n");
  CHECK_STR(print_at("a\tb: c\n", 1, 6, 1), "f:1:6: error: m\n    1 | a\tb: c\n      |  \t   ^\n");
  CHECK_STR(print_at("é: ü€x\n", 1, 5, 5), "f:1:5: error: m\n    1 | é: ü€x\n      |    ^~\n");
  CHECK_STR(print_at("a\x1b[0mb\n", 1, 6, 1), "f:1:6: error: m\n    1 | a?[0mb\n      |      ^\n");
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_diag_warning(diags, TSR_NOWHERE, "w %d", 3);
  tsr_diag_failure(diags, (tsr_location){"unread", 2, 3, 1}, "m");
  CHECK_STR(printed_diags(arena, diags), "warning: w 3\nunread:2:3: error: m\n");
  CHECK_INT(tsr_diags_exit_code(diags), 1);
}

/* Nothing that a file says reaches the terminal as a control character. */
static void test_control_characters(void) {
  tsr_diags *diags = tsr_diags_new(arena);
  static const char text[] = "\x1b]0;x\x07\t\xc2\x9b"
                             "31m\xc2\xa0é@\n";
  tsr_diags_source(diags, "a\x1b[2Jb", text, sizeof text - 1);
  tsr_diag_error(
      diags, (tsr_location){"a\x1b[2Jb", 1, 17, 1}, "says '%s'",
      "\x1b[31m\r\n\t\x7f\xc2\x9b\xc2\xa0é");
  tsr_diag_hint(diags, "not '%s'", "\x01\xc2\x85\xc2");
  CHECK_STR(
      printed_diags(arena, diags),
      "a\\x1b[2Jb:1:17: error: says '\\x1b[31m\\x0d\n\\t\\x7f\\x9b\xc2\xa0é'\n"
      "    1 | ?]0;x?\t?31m\xc2\xa0é@\n"
      "      |       \t      ^\n"
      "      = not '\\x01\\x85\xc2'\n");
}

/* before × `left`, the two letters "@@", after × `right`; a caret at the first @. */
static char *long_line(const char *before, int left, const char *after, int right) {
  tsr_text text = {0};
  for (int i = 0; i < left; i++) tsr_text_add(&text, "%s", before);
  int col = (int)text.length + 1;
  tsr_text_add(&text, "@@");
  for (int i = 0; i < right; i++) tsr_text_add(&text, "%s", after);
  tsr_text_add(&text, "\nnext\n");
  char *said = print_at(text.data, 1, col, 2);
  tsr_text_free(&text);
  return said;
}

/* What such a line is printed as, with `left` and `right` characters shown beside the @@. */
static char *shown(
    const char *before, int left, bool cut_left, const char *after, int right, bool cut_right,
    int col) {
  tsr_text text = {0};
  tsr_text_add(&text, "f:1:%d: error: m\n    1 | %s", col, cut_left ? "…" : "");
  for (int i = 0; i < left; i++) tsr_text_add(&text, "%s", before);
  tsr_text_add(&text, "@@");
  for (int i = 0; i < right; i++) tsr_text_add(&text, "%s", after);
  tsr_text_add(&text, "%s\n      | %*s^~\n", cut_right ? "…" : "", left + cut_left, "");
  char *copy = tsr_arena_strdup(arena, text.data);
  tsr_text_free(&text);
  return copy;
}

static void test_long_lines(void) {
  CHECK_STR(long_line("a", 79, "b", 79), shown("a", 79, false, "b", 79, false, 80));
  CHECK_STR(long_line("a", 158, "b", 0), shown("a", 158, false, "b", 0, false, 159));
  CHECK_STR(long_line("a", 10, "b", 149), shown("a", 10, false, "b", 148, true, 11));
  CHECK_STR(long_line("a", 149, "b", 10), shown("a", 148, true, "b", 10, false, 150));
  CHECK_STR(long_line("a", 500000, "b", 500000), shown("a", 80, true, "b", 78, true, 500001));
  CHECK_STR(long_line("a", 0, "b", 200), shown("a", 0, false, "b", 158, true, 1));
  CHECK_STR(long_line("a", 200, "b", 0), shown("a", 158, true, "b", 0, false, 201));
  CHECK_STR(long_line("é", 158, "b", 0), shown("é", 158, false, "b", 0, false, 317));
  CHECK_STR(long_line("é", 100, "€", 100), shown("é", 80, true, "€", 78, true, 201));
  CHECK_STR(long_line("😀", 100, "😀", 5), shown("😀", 100, false, "😀", 5, false, 401));
  CHECK_STR(long_line("😀", 300, "😀", 5), shown("😀", 153, true, "😀", 5, false, 1201));
  /* What is underlined may be longer than what is shown. */
  tsr_text text = {0};
  for (int i = 0; i < 1000; i++) tsr_text_add(&text, "x");
  char *said = print_at(text.data, 1, 1, 1000);
  tsr_text_free(&text);
  CHECK_INT(strlen(said), strlen("f:1:1: error: m\n    1 | …\n      | \n") + 2 * 160);
  CHECK(strstr(said, "x…\n      | ^~") && !strcmp(said + strlen(said) - 2, "~\n"));
  /* Bytes that are no UTF-8 are cut as well. */
  CHECK(strlen(long_line("\x80", 100000, "\x80", 100000)) < 1000);
}

static void test_hints(void) {
  static const char *const names[] = {"lr", "beta1", "beta2"};
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_diag_hint(diags, "of nothing");
  tsr_diag_nearest(diags, "lr", names, 3);
  CHECK_STR(printed_diags(arena, diags), "");
  tsr_diag_error(diags, TSR_NOWHERE, "a");
  tsr_diag_hint(diags, "one");
  tsr_diag_nearest(diags, "bta2", names, 3);
  tsr_diag_error(diags, TSR_NOWHERE, "b");
  tsr_diag_nearest(diags, "zzzzzz", names, 3);
  CHECK_STR(
      printed_diags(arena, diags), "error: a\n      = one\n      = did you mean 'beta2'?\n"
                                   "error: b\n      = valid: lr, beta1, beta2\n");
  CHECK_INT(tsr_diags_errors(diags), 2);
}

/* The last one that is kept keeps its own hints. */
static void test_many(void) {
  static const char *const names[] = {"lr"};
  tsr_diags *diags = tsr_diags_new(arena);
  for (int i = 0; i < TSR_DIAGS_MAX + 5; i++) {
    tsr_diag_error(diags, TSR_NOWHERE, "e%d", i);
    tsr_diag_nearest(diags, "lt", names, 1);
  }
  static const char end[] = "error: e199\n      = did you mean 'lr'?\n… and 5 more\n";
  const char *said = printed_diags(arena, diags);
  CHECK_STR(said + strlen(said) - strlen(end), end);
  CHECK_INT(tsr_diags_errors(diags), TSR_DIAGS_MAX + 5);
}

/* Notes and warnings are not printed, what is said of them neither; errors keep their hints. */
static void test_quiet(void) {
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_diags_quiet(diags);
  tsr_diag_note(diags, TSR_NOWHERE, "a");
  tsr_diag_hint(diags, "of a note");
  tsr_diag_warning(diags, TSR_NOWHERE, "b");
  CHECK_STR(printed_diags(arena, diags), "");
  tsr_diag_error(diags, TSR_NOWHERE, "c");
  tsr_diag_hint(diags, "of an error");
  tsr_diag_warning(diags, TSR_NOWHERE, "d");
  tsr_diag_hint(diags, "of a warning");
  tsr_diag_failure(diags, TSR_NOWHERE, "e");
  CHECK_STR(printed_diags(arena, diags), "error: c\n      = of an error\nerror: e\n");
  CHECK_INT(tsr_diags_errors(diags), 2);
  for (int i = 0; i < TSR_DIAGS_MAX; i++) tsr_diag_note(diags, TSR_NOWHERE, "n%d", i);
  for (int i = 0; i < 3; i++) tsr_diag_error(diags, TSR_NOWHERE, "f%d", i);
  tsr_diag_note(diags, TSR_NOWHERE, "g");
  CHECK_STR(printed_diags(arena, diags), "… and 3 more\n");
}

int main(void) {
  arena = tsr_arena_new();
  test_quiet();
  test_places();
  test_control_characters();
  test_long_lines();
  test_hints();
  test_many();
  tsr_arena_free(arena);
  return check_done("base.diag");
}
