// SPDX-License-Identifier: Apache-2.0
/* Arithmetic, comparisons, items and slices, as Python has them. */
#include "jinja/run.h"
#include <math.h>
#include <string.h>

static bool is(jinja_string op, const char *text) {
  return jinja_is_text(jinja_bytes(op.bytes, op.length), text);
}

static bool is_sequence(jinja_value v) { return v.kind == JINJA_LIST || v.kind == JINJA_TUPLE; }
static int64_t whole(jinja_value v) { return v.kind == JINJA_BOOL ? v.truth : v.integer; }

/* ---- arithmetic ---- */

static bool mismatch(
    jinja_run *r, tsr_location location, jinja_string op, jinja_value a, jinja_value b) {
  jinja_value undefined = a.kind == JINJA_UNDEFINED ? a : b;
  if (undefined.kind == JINJA_UNDEFINED)
    return run_fail(
        r, location, "'%s' is undefined, and '%.*s' needs a value",
        undefined.undefined ? undefined.undefined : "this value", (int)op.length, op.bytes);
  return run_fail(
      r, location, "'%.*s' between %s and %s", (int)op.length, op.bytes, jinja_kind_name(a.kind),
      jinja_kind_name(b.kind));
}

/* Towards minus infinity, as Python divides. */
static int64_t floor_divide(int64_t a, int64_t b) {
  int64_t q = a / b;
  return a % b && (a < 0) != (b < 0) ? q - 1 : q;
}

static bool power(int64_t base, int64_t exponent, int64_t *ret) {
  int64_t result = 1;
  for (int64_t i = 0; i < exponent; i++)
    if (__builtin_mul_overflow(result, base, &result)) return false;
    else if (result == 0 || (result == 1 && base == 1)) break;
  return *ret = result, true;
}

static bool integers(
    jinja_run *r, tsr_location location, jinja_string op, int64_t a, int64_t b, jinja_value *ret) {
  int64_t x = 0;
  bool over = false;
  if ((is(op, "/") || is(op, "//") || is(op, "%")) && b == 0)
    return run_fail(r, location, "division by zero");
  if (is(op, "/")) return *ret = jinja_float((double)a / (double)b), true;
  if (is(op, "**") && b < 0) return *ret = jinja_float(pow((double)a, (double)b)), true;
  if (is(op, "+")) over = __builtin_add_overflow(a, b, &x);
  else if (is(op, "-")) over = __builtin_sub_overflow(a, b, &x);
  else if (is(op, "*")) over = __builtin_mul_overflow(a, b, &x);
  else if (is(op, "**")) over = !run_count(r, location, b < 64 ? b : 64) || !power(a, b, &x);
  else if (a == INT64_MIN && b == -1) over = is(op, "//");
  else x = is(op, "//") ? floor_divide(a, b) : a - floor_divide(a, b) * b;
  if (over) return run_fail(r, location, "the result is too large for an integer of 64 bits");
  return *ret = jinja_int(x), true;
}

static bool floats(
    jinja_run *r, tsr_location location, jinja_string op, double a, double b, jinja_value *ret) {
  if ((is(op, "/") || is(op, "//") || is(op, "%")) && b == 0)
    return run_fail(r, location, "division by zero");
  double x = is(op, "+")    ? a + b
             : is(op, "-")  ? a - b
             : is(op, "*")  ? a * b
             : is(op, "/")  ? a / b
             : is(op, "//") ? floor(a / b)
             : is(op, "**") ? pow(a, b)
                            : fmod(a, b);
  if (is(op, "%") && x != 0 && (x < 0) != (b < 0)) x += b;
  return *ret = jinja_float(x), true;
}

static bool join_texts(jinja_run *r, tsr_location location, jinja_value a, jinja_value b, jinja_value *ret) {
  tsr_text text = {0};
  tsr_text_add_bytes(&text, a.string.bytes, (size_t)a.string.length);
  tsr_text_add_bytes(&text, b.string.bytes, (size_t)b.string.length);
  *ret = jinja_take(r->arena, &text);
  return run_made(r, location, ret->string.length);
}

static bool join_lists(jinja_run *r, tsr_location location, jinja_value a, jinja_value b, jinja_value *ret) {
  *ret = jinja_new_list(r->arena, a.kind);
  if (!run_count(r, location, (int64_t)a.list->count + b.list->count)) return false;
  for (int i = 0; i < a.list->count; i++) jinja_append(r->arena, ret->list, a.list->items[i]);
  for (int i = 0; i < b.list->count; i++) jinja_append(r->arena, ret->list, b.list->items[i]);
  return true;
}

/* A string or a sequence, so many times. */
static bool repeat(jinja_run *r, tsr_location location, jinja_value of, int64_t times, jinja_value *ret) {
  if (of.kind == JINJA_STRING) {
    tsr_text text = {0};
    bool ok = true;
    for (int64_t i = 0; ok && of.string.length && i < times; i++) {
      tsr_text_add_bytes(&text, of.string.bytes, (size_t)of.string.length);
      ok = run_made(r, location, of.string.length);
    }
    *ret = jinja_take(r->arena, &text);
    return ok;
  }
  *ret = jinja_new_list(r->arena, of.kind);
  for (int64_t i = 0; of.list->count && i < times; i++) {
    if (!run_count(r, location, of.list->count)) return false;
    for (int k = 0; k < of.list->count; k++) jinja_append(r->arena, ret->list, of.list->items[k]);
  }
  return true;
}

bool run_binary(
    jinja_run *r, tsr_location location, jinja_string op, jinja_value a, jinja_value b,
    jinja_value *ret) {
  if (jinja_is_number(a) && jinja_is_number(b)) {
    if (a.kind == JINJA_FLOAT || b.kind == JINJA_FLOAT)
      return floats(r, location, op, jinja_as_double(a), jinja_as_double(b), ret);
    return integers(r, location, op, whole(a), whole(b), ret);
  }
  if (is(op, "+") && a.kind == JINJA_STRING && b.kind == JINJA_STRING)
    return join_texts(r, location, a, b, ret);
  if (is(op, "+") && is_sequence(a) && a.kind == b.kind) return join_lists(r, location, a, b, ret);
  if (is(op, "*")) {
    bool first = a.kind == JINJA_STRING || is_sequence(a), count = b.kind == JINJA_INT;
    if (first && count) return repeat(r, location, a, b.integer, ret);
    if ((b.kind == JINJA_STRING || is_sequence(b)) && a.kind == JINJA_INT)
      return repeat(r, location, b, a.integer, ret);
  }
  if (is(op, "%") && a.kind == JINJA_STRING)
    return run_fail(r, location, "formatting by '%%' is not supported: use ~ or format()");
  return mismatch(r, location, op, a, b);
}

/* ---- comparisons ---- */

static bool contains(jinja_run *r, tsr_location location, jinja_value of, jinja_value x, bool *ret) {
  switch (of.kind) {
  case JINJA_UNDEFINED: return *ret = false, true;
  case JINJA_STRING:
    if (x.kind != JINJA_STRING) break;
    return *ret = jinja_find(of.string, x.string, 0) >= 0,
           run_count(r, location, of.string.length / 64);
  case JINJA_LIST:
  case JINJA_TUPLE:
    *ret = false;
    for (int i = 0; !*ret && i < of.list->count; i++) *ret = jinja_equal(of.list->items[i], x);
    return run_count(r, location, of.list->count);
  case JINJA_DICT:
    return *ret = jinja_get(of.dict, x) != NULL, run_count(r, location, of.dict->count);
  default: break;
  }
  return mismatch(r, location, (jinja_string){"in", 2}, x, of);
}

bool run_compare(
    jinja_run *r, tsr_location location, jinja_string op, jinja_value a, jinja_value b, bool *ret) {
  int order = 0;
  if (is(op, "==")) return *ret = jinja_equal(a, b), true;
  if (is(op, "!=")) return *ret = !jinja_equal(a, b), true;
  if (is(op, "in")) return contains(r, location, b, a, ret);
  if (is(op, "not in")) {
    bool there = false, ok = contains(r, location, b, a, &there);
    return *ret = !there, ok;
  }
  if (!jinja_compare(a, b, &order)) return mismatch(r, location, op, a, b);
  bool nan = jinja_is_number(a) && (isnan(jinja_as_double(a)) || isnan(jinja_as_double(b)));
  *ret = !nan && (is(op, "<") ? order < 0 : is(op, "<=") ? order <= 0 : is(op, ">") ? order > 0 : order >= 0);
  return true;
}

/* ---- items ---- */

static jinja_value code_point(jinja_string s, int64_t index) {
  int64_t begin = jinja_offset(s, index), end = jinja_offset(s, index + 1);
  return jinja_bytes(s.bytes + begin, end - begin);
}

bool run_item(
    jinja_run *r, tsr_location location, jinja_value of, jinja_value index, jinja_value *ret) {
  *ret = jinja_missing("there is no such item");
  if (of.kind == JINJA_DICT || of.kind == JINJA_NAMESPACE) {
    const jinja_value *item = jinja_get(of.dict, index);
    if (item) *ret = *item;
    return run_count(r, location, of.dict->count / 8);
  }
  if (index.kind != JINJA_INT && index.kind != JINJA_BOOL) return true;
  int64_t at = whole(index);
  if (is_sequence(of)) {
    if (at < 0) at += of.list->count;
    if (at >= 0 && at < of.list->count) *ret = of.list->items[at];
  } else if (of.kind == JINJA_STRING) {
    int64_t n = jinja_length(of.string);
    if (at < 0) at += n;
    if (at >= 0 && at < n) *ret = code_point(of.string, at);
    return run_count(r, location, n / 64);
  }
  return true;
}

/* ---- slices ---- */

static bool part_of(jinja_run *r, tsr_location location, jinja_value v, int64_t absent, int64_t *ret) {
  *ret = absent;
  if (v.kind == JINJA_NONE) return true;
  if (v.kind != JINJA_INT && v.kind != JINJA_BOOL)
    return run_fail(r, location, "a part of a slice is %s", jinja_kind_name(v.kind));
  return *ret = whole(v), true;
}

static int64_t clamp(int64_t x, int64_t n, int64_t least, int64_t most) {
  if (x < 0) x += n;
  return x < least ? least : x > most ? most : x;
}

bool run_slice(
    jinja_run *r, tsr_location location, jinja_value of, const jinja_value parts[3],
    jinja_value *ret) {
  int64_t begin, end, step, n;
  if (of.kind == JINJA_UNDEFINED || (of.kind != JINJA_STRING && !is_sequence(of)))
    return run_fail(r, location, "%s has no slices", jinja_kind_name(of.kind));
  n = of.kind == JINJA_STRING ? jinja_length(of.string) : of.list->count;
  if (!part_of(r, location, parts[2], 1, &step)) return false;
  if (step == 0) return run_fail(r, location, "the step of a slice is 0");
  if (!part_of(r, location, parts[0], step > 0 ? 0 : n - 1, &begin) ||
      !part_of(r, location, parts[1], step > 0 ? n : -n - 1, &end))
    return false;
  begin = step > 0 ? clamp(begin, n, 0, n) : clamp(begin, n, -1, n - 1);
  end = step > 0 ? clamp(end, n, 0, n) : clamp(end, n, -1, n - 1);
  if (!run_count(r, location, n / 8)) return false;
  if (of.kind == JINJA_STRING && step == 1) {
    int64_t from = jinja_offset(of.string, begin),
            to = end > begin ? jinja_offset(of.string, end) : from;
    return *ret = jinja_bytes(of.string.bytes + from, to - from), true;
  }
  tsr_text text = {0};
  bool is_text = of.kind == JINJA_STRING;
  if (!is_text) *ret = jinja_new_list(r->arena, of.kind);
  for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
    jinja_value item = is_text ? code_point(of.string, i) : of.list->items[i];
    if (is_text) tsr_text_add_bytes(&text, item.string.bytes, (size_t)item.string.length);
    else jinja_append(r->arena, ret->list, item);
    if ((step > 0 && i > n - step) || (step < 0 && i < -step)) break; /* lest it overflow */
  }
  if (is_text) *ret = jinja_take(r->arena, &text);
  return true;
}
