// SPDX-License-Identifier: Apache-2.0
/* Tests: `x is name`. */
#include "jinja/run.h"
#include <string.h>
#include <utf8proc.h>

#define TEST(name, holds)                                                                          \
  static bool test_##name(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {  \
    tsr_jinja_value v = a->self;                                                                   \
    (void)v;                                                                                       \
    if (!tsr_jinja_check_arguments(r, a, 0, NULL)) return false;                                   \
    return *ret = tsr_jinja_bool(holds), true;                                                     \
  }

/* Whether every letter is of that case, and there is one. */
static bool
test_case(tsr_jinja_run *r, const tsr_jinja_arguments *a, bool upper, tsr_jinja_value *ret) {
  tsr_jinja_value text;
  bool any = false, other = false;
  if (!tsr_jinja_check_arguments(r, a, 0, NULL) || !tsr_jinja_text_of(r, a, a->self, &text))
    return false;
  for (int64_t at = 0, end; at < text.string.length; at = end) {
    int category = utf8proc_category((int32_t)tsr_jinja_code_point(text.string, at, &end));
    bool is_upper = category == UTF8PROC_CATEGORY_LU, is_lower = category == UTF8PROC_CATEGORY_LL;
    other |= (upper ? is_lower : is_upper) || category == UTF8PROC_CATEGORY_LT;
    any |= is_upper || is_lower;
  }
  return *ret = tsr_jinja_bool(any && !other), true;
}
static bool test_lower(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return test_case(r, a, false, ret);
}
static bool test_upper(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return test_case(r, a, true, ret);
}

TEST(defined, v.kind != TSR_JINJA_UNDEFINED)
TEST(undefined, v.kind == TSR_JINJA_UNDEFINED)
TEST(none, v.kind == TSR_JINJA_NONE)
TEST(boolean, v.kind == TSR_JINJA_BOOL)
TEST(true, v.kind == TSR_JINJA_BOOL && v.truth)
TEST(false, v.kind == TSR_JINJA_BOOL && !v.truth)
TEST(integer, v.kind == TSR_JINJA_INT)
TEST(float, v.kind == TSR_JINJA_FLOAT)
TEST(number, tsr_jinja_is_number(v))
TEST(string, v.kind == TSR_JINJA_STRING)
TEST(mapping, v.kind == TSR_JINJA_DICT)
TEST(
    sequence, v.kind == TSR_JINJA_STRING || v.kind == TSR_JINJA_LIST || v.kind == TSR_JINJA_TUPLE ||
                  v.kind == TSR_JINJA_DICT || v.kind == TSR_JINJA_UNDEFINED ||
                  (v.kind == TSR_JINJA_VIEW && v.list->is_range))
TEST(
    iterable, v.kind == TSR_JINJA_STRING || v.kind == TSR_JINJA_LIST || v.kind == TSR_JINJA_TUPLE ||
                  v.kind == TSR_JINJA_VIEW || v.kind == TSR_JINJA_ITERATOR ||
                  v.kind == TSR_JINJA_DICT || v.kind == TSR_JINJA_UNDEFINED ||
                  v.kind == TSR_JINJA_LOOP)
TEST(
    callable,
    v.kind == TSR_JINJA_FUNCTION || v.kind == TSR_JINJA_LOOP || v.kind == TSR_JINJA_UNDEFINED)

static bool parity(
    tsr_jinja_run *r, const tsr_jinja_arguments *a, int64_t divisor, int64_t rest,
    tsr_jinja_value *ret) {
  tsr_jinja_value remainder;
  if (!tsr_jinja_is_number(a->self))
    return tsr_jinja_fail(
        r, a->location, "'%.*s' needs a number, not %s", (int)a->name.length, a->name.bytes,
        tsr_jinja_kind_name(a->self.kind));
  if (!tsr_jinja_binary(
          r, a->location, (tsr_jinja_string){"%", 1}, a->self, tsr_jinja_int(divisor), &remainder))
    return false;
  return *ret = tsr_jinja_bool(tsr_jinja_as_double(remainder) == (double)rest), true;
}
static bool test_odd(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return parity(r, a, 2, 1, ret);
}
static bool test_even(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  return parity(r, a, 2, 0, ret);
}
static bool test_divisibleby(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  const tsr_jinja_value *by = tsr_jinja_argument(a, 0, "num");
  if (!by || by->kind != TSR_JINJA_INT || by->integer <= 0)
    return tsr_jinja_fail(r, a->location, "'divisibleby' needs a positive integer");
  return parity(r, a, by->integer, 0, ret);
}

static bool
compare_with(tsr_jinja_run *r, const tsr_jinja_arguments *a, const char *op, tsr_jinja_value *ret) {
  const tsr_jinja_value *other = tsr_jinja_argument(a, 0, "b");
  bool holds;
  if (!other) return tsr_jinja_fail(r, a->location, "this test needs a value to compare with");
  if (!tsr_jinja_compare(
          r, a->location, (tsr_jinja_string){op, (int64_t)strlen(op)}, a->self, *other, &holds))
    return false;
  return *ret = tsr_jinja_bool(holds), true;
}
#define COMPARISON(name, op)                                                                       \
  static bool test_##name(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {  \
    return compare_with(r, a, op, ret);                                                            \
  }
COMPARISON(eq, "==")
COMPARISON(ne, "!=")
COMPARISON(lt, "<")
COMPARISON(le, "<=")
COMPARISON(gt, ">")
COMPARISON(ge, ">=")
COMPARISON(in, "in")

/* Values have no identity here: the same kind and equal. */
static bool test_sameas(tsr_jinja_run *r, const tsr_jinja_arguments *a, tsr_jinja_value *ret) {
  const tsr_jinja_value *other = tsr_jinja_argument(a, 0, "other");
  if (!other) return tsr_jinja_fail(r, a->location, "'sameas' needs a value to compare with");
  bool same, ok = tsr_jinja_same(r, a->location, a->self, *other, &same);
  return *ret = tsr_jinja_bool(a->self.kind == other->kind && same), ok;
}

/* clang-format off */
static const tsr_jinja_named tests[] = {
    {"!=", test_ne},
    {"<", test_lt},
    {"<=", test_le},
    {"==", test_eq},
    {">", test_gt},
    {">=", test_ge},
    {"boolean", test_boolean},
    {"callable", test_callable},
    {"defined", test_defined},
    {"divisibleby", test_divisibleby},
    {"eq", test_eq},
    {"equalto", test_eq},
    {"even", test_even},
    {"false", test_false},
    {"float", test_float},
    {"ge", test_ge},
    {"greaterthan", test_gt},
    {"gt", test_gt},
    {"in", test_in},
    {"integer", test_integer},
    {"iterable", test_iterable},
    {"le", test_le},
    {"lessthan", test_lt},
    {"lower", test_lower},
    {"lt", test_lt},
    {"mapping", test_mapping},
    {"ne", test_ne},
    {"none", test_none},
    {"number", test_number},
    {"odd", test_odd},
    {"sameas", test_sameas},
    {"sequence", test_sequence},
    {"string", test_string},
    {"true", test_true},
    {"undefined", test_undefined},
    {"upper", test_upper}};
/* clang-format on */

tsr_jinja_native *tsr_jinja_find_test(tsr_jinja_string name) {
  return tsr_jinja_find_named(tests, sizeof tests / sizeof *tests, name);
}
