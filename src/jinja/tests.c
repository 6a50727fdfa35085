// SPDX-License-Identifier: Apache-2.0
/* Tests: `x is name`. */
#include "jinja/run.h"
#include <ctype.h>
#include <string.h>

#define TEST(name, holds)                                                                          \
  static bool test_##name(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {              \
    jinja_value v = a->self;                                                                       \
    (void)v;                                                                                       \
    if (!arguments_are(r, a, 0, NULL)) return false;                                               \
    return *ret = jinja_bool(holds), true;                                                         \
  }

static bool is_integer(jinja_value v) { return v.kind == JINJA_INT; }
static int64_t whole(jinja_value v) { return v.kind == JINJA_BOOL ? v.truth : v.integer; }

/* Every cased letter is of that case, and there is one; ASCII. */
static bool has_case(jinja_value v, bool upper) {
  bool any = false;
  for (int64_t i = 0; v.kind == JINJA_STRING && i < v.string.length; i++) {
    unsigned char c = (unsigned char)v.string.bytes[i];
    if (upper ? islower(c) : isupper(c)) return false;
    any |= isalpha(c) != 0;
  }
  return any;
}

TEST(defined, v.kind != JINJA_UNDEFINED)
TEST(undefined, v.kind == JINJA_UNDEFINED)
TEST(none, v.kind == JINJA_NONE)
TEST(boolean, v.kind == JINJA_BOOL)
TEST(true, v.kind == JINJA_BOOL &&v.truth)
TEST(false, v.kind == JINJA_BOOL && !v.truth)
TEST(integer, is_integer(v))
TEST(float, v.kind == JINJA_FLOAT)
TEST(number, jinja_is_number(v))
TEST(string, v.kind == JINJA_STRING)
TEST(mapping, v.kind == JINJA_DICT)
TEST(sequence, v.kind == JINJA_STRING || v.kind == JINJA_LIST || v.kind == JINJA_TUPLE ||
                   v.kind == JINJA_DICT || v.kind == JINJA_UNDEFINED)
TEST(iterable, v.kind == JINJA_STRING || v.kind == JINJA_LIST || v.kind == JINJA_TUPLE ||
                   v.kind == JINJA_DICT || v.kind == JINJA_UNDEFINED || v.kind == JINJA_LOOP)
TEST(callable, v.kind == JINJA_FUNCTION || v.kind == JINJA_LOOP)
TEST(lower, has_case(v, false))
TEST(upper, has_case(v, true))

static bool parity(jinja_run *r, const jinja_arguments *a, int64_t divisor, int64_t rest, jinja_value *ret) {
  if (!is_integer(a->self) && a->self.kind != JINJA_BOOL)
    return run_fail(
        r, a->location, "'%.*s' needs an integer, not %s", (int)a->name.length, a->name.bytes,
        jinja_kind_name(a->self.kind));
  return *ret = jinja_bool((whole(a->self) % divisor + divisor) % divisor == rest), true;
}
static bool test_odd(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return parity(r, a, 2, 1, ret);
}
static bool test_even(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  return parity(r, a, 2, 0, ret);
}
static bool test_divisibleby(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  const jinja_value *by = argument(a, 0, "num");
  if (!by || !is_integer(*by) || by->integer <= 0)
    return run_fail(r, a->location, "'divisibleby' needs a positive integer");
  return parity(r, a, by->integer, 0, ret);
}

static bool compare_with(jinja_run *r, const jinja_arguments *a, const char *op, jinja_value *ret) {
  const jinja_value *other = argument(a, 0, "b");
  bool holds;
  if (!other) return run_fail(r, a->location, "this test needs a value to compare with");
  if (!run_compare(r, a->location, (jinja_string){op, (int64_t)strlen(op)}, a->self, *other, &holds))
    return false;
  return *ret = jinja_bool(holds), true;
}
#define COMPARISON(name, op)                                                                       \
  static bool test_##name(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {              \
    return compare_with(r, a, op, ret);                                                            \
  }
COMPARISON(eq, "==")
COMPARISON(ne, "!=")
COMPARISON(lt, "<")
COMPARISON(le, "<=")
COMPARISON(gt, ">")
COMPARISON(ge, ">=")
COMPARISON(in, "in")

/* Of values that have no identity of their own here: the same kind and equal. */
static bool test_sameas(jinja_run *r, const jinja_arguments *a, jinja_value *ret) {
  const jinja_value *other = argument(a, 0, "other");
  if (!other) return run_fail(r, a->location, "'sameas' needs a value to compare with");
  return *ret = jinja_bool(a->self.kind == other->kind && jinja_equal(a->self, *other)), true;
}

static const jinja_named tests[] = {
    {"defined", test_defined},   {"undefined", test_undefined},
    {"none", test_none},         {"boolean", test_boolean},
    {"true", test_true},         {"false", test_false},
    {"integer", test_integer},   {"float", test_float},
    {"number", test_number},     {"string", test_string},
    {"mapping", test_mapping},   {"sequence", test_sequence},
    {"iterable", test_iterable}, {"callable", test_callable},
    {"lower", test_lower},       {"upper", test_upper},
    {"odd", test_odd},           {"even", test_even},
    {"divisibleby", test_divisibleby}, {"sameas", test_sameas},
    {"eq", test_eq},             {"equalto", test_eq},
    {"ne", test_ne},             {"lt", test_lt},
    {"lessthan", test_lt},       {"le", test_le},
    {"gt", test_gt},             {"greaterthan", test_gt},
    {"ge", test_ge},             {"in", test_in}};

jinja_native *jinja_find_in(const jinja_named *table, int count, jinja_string name) {
  for (int i = 0; i < count; i++)
    if (jinja_is_text(jinja_bytes(name.bytes, name.length), table[i].name)) return table[i].native;
  return NULL;
}

jinja_native *jinja_find_test(jinja_string name) {
  return jinja_find_in(tests, sizeof tests / sizeof *tests, name);
}
