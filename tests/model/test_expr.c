// SPDX-License-Identifier: Apache-2.0
/* Expressions of graph files: values, and the exact text and column of every error. */
#include "base/text.h"
#include "model/expr.h"
#include "tests/check.h"
#include <stdlib.h>

typedef struct {
  tsr_arena *arena;
  tsr_diags *diags;
  tsr_scope scope;
} fixture;

static fixture fixture_new(void) {
  static const double hidden[] = {128, 64, 32};
  fixture f = {.arena = tsr_arena_new()};
  f.diags = tsr_diags_new(f.arena);
  f.scope = (tsr_scope){.arena = f.arena};
  tsr_scope_push_number(&f.scope, "embedding_dim", 100);
  tsr_scope_push_number(&f.scope, "num_heads", 6);
  tsr_scope_push_number(&f.scope, "rope_scaling.factor", 8);
  tsr_name list = {.name = "hidden", .value = {.kind = TSR_EVAL_LIST, .count = 3, .list = hidden}};
  tsr_scope_push(&f.scope, &list);
  tsr_name word = {.name = "tying", .value = {.kind = TSR_EVAL_WORD, .word = "enabled"}};
  tsr_scope_push(&f.scope, &word);
  tsr_name bad = {.name = "bad", .bad = true};
  tsr_scope_push(&f.scope, &bad);
  tsr_scope_word(&f.scope, "enabled");
  tsr_scope_word(&f.scope, "disabled");
  tsr_scope_word(&f.scope, "num_heads");
  return f;
}

static bool parse(fixture *f, const char *text, tsr_expr **e) {
  const char *file = tsr_arena_printf(f->arena, "e: %s\n", text);
  tsr_yaml *root;
  return tsr_yaml_parse(f->arena, "e.yaml", file, strlen(file), &root, f->diags) &&
         tsr_expr_parse(f->arena, root->items[0], false, e, f->diags);
}

static void check_value(const char *text, const char *want) {
  fixture f = fixture_new();
  tsr_expr *e;
  tsr_eval v;
  bool ok = parse(&f, text, &e) && tsr_expr_eval(e, &f.scope, &v, f.diags);
  CHECK_AT(ok, "%s", text);
  if (ok) {
    const char *got = tsr_eval_text(f.arena, &v);
    CHECK_AT(!strcmp(got, want), "%s is %s, not %s", text, got, want);
  }
  tsr_arena_free(f.arena);
}

/* `want`: "column: message" of the first error; whole: as a whole number of at least 1. */
static void check_error(const char *text, bool whole, const char *want) {
  fixture f = fixture_new();
  tsr_expr *e;
  tsr_eval v;
  int64_t n;
  bool ok = parse(&f, text, &e) && (whole ? tsr_expr_whole(e, &f.scope, "size", 1, &n, f.diags)
                                          : tsr_expr_eval(e, &f.scope, &v, f.diags));
  char *report;
  size_t length;
  FILE *stream = open_memstream(&report, &length);
  tsr_diags_print(f.diags, stream);
  fclose(stream);
  CHECK_AT(!ok, "%s was accepted", text);
  char *got = strstr(report, "e.yaml:1:");
  if (got) {
    got += strlen("e.yaml:1:");
    got[strcspn(got, "\n")] = 0;
    char *error = strstr(got, ": error: ");
    if (error) memmove(error + 2, error + 9, strlen(error + 9) + 1);
  }
  CHECK_AT(
      got ? !strcmp(got, want) : !*want, "%s says\n%s\nnot\n%s", text, got ? got : report, want);
  free(report);
  tsr_arena_free(f.arena);
}

static void check_values(void) {
  check_value("1 + 2 * 3", "7");
  check_value("(1 + 2) * 3", "9");
  check_value("7 - 2 - 1", "4");
  check_value("-2 * -3", "6");
  check_value("7 / 2", "3.5");
  check_value("7 // 2", "3");
  check_value("-7 // 2", "-4");
  check_value("7 % 4", "3");
  check_value("-7 % 4", "1");
  check_value("1.5e-3", "0.0015");
  check_value(".5", "0.5");
  check_value("num_heads * 4 == 24", "1");
  check_value("1 < 2 and 2 < 1", "0");
  check_value("1 < 2 or 1 / 0", "1");
  check_value("not 1 == 2", "1");
  check_value("not 1", "0");
  check_value("num_heads == 6 and tying != num_heads", "1"); // behind a word it is a word
  check_value("1 <= 1 and 2 >= 3", "0");
  check_value("1 != 1", "0");
  check_value("tying == enabled", "1");
  check_value("tying != disabled", "1");
  check_value("disabled", "disabled");
  check_value("1 if tying == disabled else 2 if num_heads > 5 else 3", "2");
  check_value("\"max(3, num_heads) + min(1, 2)\"", "7");
  check_value("round_up(embedding_dim * 8 / 3, 256)", "512");
  check_value("ceil(1.2) + floor(1.8)", "3");
  check_value("sqrt(16)", "4");
  check_value("len(hidden)", "3");
  check_value("\"contains(hidden, 64) + contains(hidden, num_heads)\"", "1");
  check_value("\"contains(hidden, 7)\"", "0");
  check_value("\"index(hidden, 64) * 10 + index(hidden, 7)\"", "13");
  check_value("\"where([1, 0, 1], 1)\"", "[0, 2]");
  check_value("\"list(i, 4, i * i if i != 2 else num_heads)\"", "[0, 1, 6, 9]");
  check_value("\"list(num_heads, 2, num_heads)[1] + num_heads\"", "7"); // the name is its own
  check_value("\"list(i, 0, i)\"", "[]");
  check_value("\"list(i, 2, list(k, 2, i + k)[1])\"", "[1, 2]");
  check_value("[enabled, disabled]", "[enabled, disabled]");
  check_value("\"list(i, 3, enabled if i == 1 else disabled)[1]\"", "enabled");
  check_value("\"where([enabled, disabled, enabled], enabled)\"", "[0, 2]");
  check_value("\"index([enabled, disabled], disabled)\"", "1");
  check_value("\"contains([enabled], disabled)\"", "0");
  check_value("\"where([], enabled)\"", "[]");
  check_value("hidden == [128, 64, 32] and hidden != [128, 64, 33] and hidden != [128, 64]", "1");
  check_value("\"[enabled, disabled] == list(i, 2, enabled if i == 0 else disabled)\"", "1");
  check_value("\"[enabled] == [disabled] or [enabled] == [1]\"", "0");
  check_value("hidden[num_heads - 4]", "32");
  check_value("hidden", "[128, 64, 32]");
  check_value("[1, num_heads]", "[1, 6]");
  check_value("\"[1, 2][1]\"", "2");
  check_value("rope_scaling.factor / 2", "4");
  check_value("true and not false", "1");
  check_value("0x10 + 010 + 1_000 + 0b11", "1027");
  check_value("1e-2 * 1.5E+2", "1.5");
  check_value("2. + .5 - 1e1", "-7.5");
  check_value("hidden[0] if len(hidden) else 1", "128");
}

static void check_syntax(void) {
  check_error("1 +", false, "7: the expression ends where a number, a name or '(' should follow");
  check_error("(1", false, "6: the expression ends where ')' should follow");
  check_error("1 2", false, "6: expected the end of the expression, found '2'");
  check_error("max(1 2)", false, "10: expected ',' or ')', found '2'");
  check_error("3x", false, "4: expected a number, a name or '(', found '3'");
  check_error("1 + 08", false, "8: expected a number, a name or '(', found '08'");
  check_error("1 + 0o17", false, "8: expected a number, a name or '(', found '0'");
  check_error("1.2.3", false, "4: expected a number, a name or '(', found '1.2.3'");
  check_error("1e+", false, "4: expected a number, a name or '(', found '1'");
  check_error("1 $ 2", false, "6: expected the end of the expression, found '$'");
  check_error("1 if 2", false, "10: the expression ends where 'else' should follow");
  check_error("hidden[1", false, "12: the expression ends where ']' should follow");
  check_error("\"1 + + 2\"", false, "9: expected a number, a name or '(', found '+'");
  check_error("{a: 1}", false, "4: expected an expression, found a map");
  check_error("max(a=1, 2)", false, "9: expected ',' or ')', found '='");
}

static void check_evaluation(void) {
  check_error("num_head * 2", false, "4: unknown name 'num_head'");
  check_error("2 * enable", false, "8: unknown name 'enable'");
  check_error("1 / (2 - 2)", false, "4: '1 / (2 - 2)' divides by zero");
  check_error("5 % 0", false, "4: '5 % 0' divides by zero");
  check_error("hidden + 1", false, "4: 'hidden' is the list [128, 64, 32], not a number");
  check_error("tying + 1", false, "4: 'tying' is the word 'enabled', not a number");
  check_error("tying == 1", false, "4: the word 'enabled' cannot be compared with the number 1");
  check_error("hidden[3]", false, "11: index 3 is outside 'hidden', which has 3 items");
  check_error("num_heads[0]", false, "4: 'num_heads' is the number 6, not a list");
  check_error("sqroot(4)", false, "4: unknown function 'sqroot'");
  check_error("max(1)", false, "4: max takes 2 arguments, not 1");
  check_error("len(1)", false, "8: '1' is the number 1, not a list");
  check_error("\"contains(1, 2)\"", false, "14: '1' is the number 1, not a list");
  check_error(
      "hidden == 1", false, "4: the list [128, 64, 32] cannot be compared with the number 1");
  check_error(
      "\"[1, enabled]\"", false,
      "9: a list has numbers or words, not both: 'enabled' is the word 'enabled'");
  check_error("\"[[1], [2]]\"", false, "6: '[1]' is the list [1], not a number");
  check_error(
      "\"where(hidden, hidden)\"", false,
      "19: 'hidden' is the list [128, 64, 32], which no list has");
  check_error("\"list(1, 2, 3)\"", false, "10: list needs a name to count with first");
  check_error(
      "\"list(i, 0 - 1, 3)\"", false,
      "13: a list and those inside it have 0 to 65536 items, not -1");
  check_error(
      "\"list(i, 1000, len(list(k, 100, k)))\"", false,
      "31: a list and those inside it have 0 to 65536 items, not 100");
  check_error("\"list(i, 2, k)\"", false, "16: unknown name 'k'");
  check_error("sqrt(0 - 1)", false, "4: the square root of -1 is not a number");
  check_error("round_up(3, 0)", false, "4: round_up needs a multiple above 0, not 0");
  check_error("1e300 * 1e300", false, "4: '1e300 * 1e300' is too large");
  check_error("bad + 1", false, "");
}

static void check_whole(void) {
  check_error(
      "embedding_dim / num_heads", true, "4: num_heads 6 does not divide embedding_dim 100");
  check_error("2 * (embedding_dim / 7)", true, "9: 7 does not divide embedding_dim 100");
  check_error("1.5", true, "4: size must be a whole number, not 1.5");
  check_error("0", true, "4: size must be at least 1, not 0");
  check_error("tying", true, "4: 'tying' is 'enabled', not a number");
}

/* Side by side: as many as there may be, one more, and enough to fill a stack with their tree. */
static void check_terms(const char *op) {
  static const int counts[] = {1000, 1001, 40000};
  for (int i = 0; i < 3; i++) {
    tsr_text text = {0};
    tsr_text_add(&text, "1");
    for (int k = 1; k < counts[i]; k++) tsr_text_add(&text, " %s 1", op);
    fixture f = fixture_new();
    tsr_expr *e;
    tsr_eval v;
    bool ok = parse(&f, text.data, &e) && tsr_expr_eval(e, &f.scope, &v, f.diags);
    CHECK_AT(ok == (counts[i] <= 1000), "%d terms of %s", counts[i], op);
    CHECK_INT(tsr_diags_errors(f.diags), !ok);
    tsr_text_free(&text);
    tsr_arena_free(f.arena);
  }
}

/* As deep as YAML text can be: an error, no crash. */
static void check_depth(void) {
  char text[2001];
  memset(text, '(', sizeof text - 1);
  text[sizeof text - 1] = 0;
  check_error(text, false, "64: expected fewer nested parts, found '('");
  for (size_t i = 0; i + 1 < sizeof text; i++) text[i] = '-';
  text[0] = '1';
  check_error(text, false, "65: expected fewer nested parts, found '-'");
  check_terms("+");
  check_terms("%");
  check_terms("and");
}

int main(void) {
  check_values();
  check_syntax();
  check_evaluation();
  check_whole();
  check_depth();
  return check_done("model.expr");
}
