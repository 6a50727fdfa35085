// SPDX-License-Identifier: Apache-2.0
/* Arithmetic, comparisons, items and slices, as Python has them. */
#include "jinja/run.h"
#include <math.h>
#include <string.h>

static bool is(tsr_jinja_string op, const char *text) {
  return tsr_jinja_is_text(tsr_jinja_bytes(op.bytes, op.length), text);
}

static bool is_sequence(tsr_jinja_value v) {
  return v.kind == TSR_JINJA_LIST || v.kind == TSR_JINJA_TUPLE;
}
static int64_t whole(tsr_jinja_value v) { return v.kind == TSR_JINJA_BOOL ? v.truth : v.integer; }

/* ---- arithmetic ---- */

static bool mismatch(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_string op, tsr_jinja_value a,
    tsr_jinja_value b) {
  tsr_jinja_value undefined = a.kind == TSR_JINJA_UNDEFINED ? a : b;
  if (undefined.kind == TSR_JINJA_UNDEFINED)
    return tsr_jinja_fail(
        r, location, "'%s' is undefined, and '%.*s' needs a value",
        undefined.undefined ? undefined.undefined : "this value", (int)op.length, op.bytes);
  return tsr_jinja_fail(
      r, location, "'%.*s' is not defined for %s and %s", (int)op.length, op.bytes,
      tsr_jinja_kind_name(a.kind), tsr_jinja_kind_name(b.kind));
}

/* Rounds towards minus infinity, as Python does. */
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
    tsr_jinja_run *r, tsr_location location, tsr_jinja_string op, int64_t a, int64_t b,
    tsr_jinja_value *ret) {
  int64_t x = 0;
  bool over = false;
  if (((is(op, "/") || is(op, "//") || is(op, "%")) && b == 0) || (is(op, "**") && !a && b < 0))
    return tsr_jinja_fail(r, location, "division by zero");
  if (is(op, "/")) return *ret = tsr_jinja_float((double)a / (double)b), true;
  if (is(op, "**") && b < 0) return *ret = tsr_jinja_float(pow((double)a, (double)b)), true;
  if (is(op, "+")) over = __builtin_add_overflow(a, b, &x);
  else if (is(op, "-")) over = __builtin_sub_overflow(a, b, &x);
  else if (is(op, "*")) over = __builtin_mul_overflow(a, b, &x);
  else if (is(op, "**"))
    over = !tsr_jinja_count_steps(r, location, b < 64 ? b : 64) || !power(a, b, &x);
  else if (a == INT64_MIN && b == -1) over = is(op, "//");
  else x = is(op, "//") ? floor_divide(a, b) : a - floor_divide(a, b) * b;
  if (over) return tsr_jinja_fail(r, location, "the result is too large for an integer of 64 bits");
  return *ret = tsr_jinja_int(x), true;
}

/* float.__floordiv__: the quotient is exact, so 7.0 // 0.1 is 69.0. */
static double floor_divide_floats(double a, double b) {
  double rest = fmod(a, b), quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return copysign(0, a / b);
  double below = floor(quotient);
  return quotient - below > 0.5 ? below + 1 : below;
}

static bool floats(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_string op, double a, double b,
    tsr_jinja_value *ret) {
  if (((is(op, "/") || is(op, "//") || is(op, "%")) && b == 0) || (is(op, "**") && !a && b < 0))
    return tsr_jinja_fail(r, location, "division by zero");
  double x = is(op, "+")    ? a + b
             : is(op, "-")  ? a - b
             : is(op, "*")  ? a * b
             : is(op, "/")  ? a / b
             : is(op, "//") ? floor_divide_floats(a, b)
             : is(op, "**") ? pow(a, b)
                            : fmod(a, b);
  if (is(op, "%") && x == 0) x = copysign(0, b);
  if (is(op, "%") && x != 0 && (x < 0) != (b < 0)) x += b;
  return *ret = tsr_jinja_float(x), true;
}

/* If one of them is marked, the other is escaped. */
static bool join_texts(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_value a, tsr_jinja_value b,
    tsr_jinja_value *ret) {
  tsr_text text = {0};
  bool is_markup = a.is_markup || b.is_markup;
  for (int i = 0; i < 2; i++) {
    tsr_jinja_value part = i ? b : a;
    if (is_markup) tsr_jinja_add_escaped(part, &text);
    else tsr_text_add_bytes(&text, part.string.bytes, (size_t)part.string.length);
  }
  *ret = tsr_jinja_take(r->arena, &text);
  ret->is_markup = is_markup;
  return tsr_jinja_count_bytes(r, location, ret->string.length);
}

static bool join_lists(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_value a, tsr_jinja_value b,
    tsr_jinja_value *ret) {
  *ret = tsr_jinja_new_list(r->arena, a.kind);
  if (!tsr_jinja_count_steps(r, location, (int64_t)a.list->count + b.list->count)) return false;
  for (int i = 0; i < a.list->count; i++) tsr_jinja_append(r->arena, ret->list, a.list->items[i]);
  for (int i = 0; i < b.list->count; i++) tsr_jinja_append(r->arena, ret->list, b.list->items[i]);
  return true;
}

/* A string or a sequence, so many times. */
static bool repeat(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_value of, int64_t times,
    tsr_jinja_value *ret) {
  if (of.kind == TSR_JINJA_STRING) {
    tsr_text text = {0};
    bool ok = true;
    for (int64_t i = 0; ok && of.string.length && i < times; i++) {
      tsr_text_add_bytes(&text, of.string.bytes, (size_t)of.string.length);
      ok = tsr_jinja_count_bytes(r, location, of.string.length);
    }
    *ret = tsr_jinja_take(r->arena, &text);
    ret->is_markup = of.is_markup;
    return ok;
  }
  *ret = tsr_jinja_new_list(r->arena, of.kind);
  for (int64_t i = 0; of.list->count && i < times; i++) {
    if (!tsr_jinja_count_steps(r, location, of.list->count)) return false;
    for (int k = 0; k < of.list->count; k++)
      tsr_jinja_append(r->arena, ret->list, of.list->items[k]);
  }
  return true;
}

bool tsr_jinja_binary(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_string op, tsr_jinja_value a,
    tsr_jinja_value b, tsr_jinja_value *ret) {
  if (tsr_jinja_is_number(a) && tsr_jinja_is_number(b)) {
    if (a.kind == TSR_JINJA_FLOAT || b.kind == TSR_JINJA_FLOAT)
      return floats(r, location, op, tsr_jinja_as_double(a), tsr_jinja_as_double(b), ret);
    return integers(r, location, op, whole(a), whole(b), ret);
  }
  if (is(op, "+") && a.kind == TSR_JINJA_STRING && b.kind == TSR_JINJA_STRING)
    return join_texts(r, location, a, b, ret);
  if (is(op, "+") && is_sequence(a) && a.kind == b.kind) return join_lists(r, location, a, b, ret);
  if (is(op, "*")) {
    bool first = a.kind == TSR_JINJA_STRING || is_sequence(a),
         count = b.kind == TSR_JINJA_INT || b.kind == TSR_JINJA_BOOL;
    if (first && count) return repeat(r, location, a, whole(b), ret);
    if ((b.kind == TSR_JINJA_STRING || is_sequence(b)) &&
        (a.kind == TSR_JINJA_INT || a.kind == TSR_JINJA_BOOL))
      return repeat(r, location, b, whole(a), ret);
  }
  if (is(op, "%") && a.kind == TSR_JINJA_STRING)
    return tsr_jinja_fail(r, location, "formatting with '%%' is not supported");
  return mismatch(r, location, op, a, b);
}

/* ---- comparisons ---- */

/* An iterator is consumed up to the item. */
static bool contains_item(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_value of, tsr_jinja_value x, bool *ret) {
  int at = 0;
  *ret = false;
  bool ok = true;
  while (ok && !*ret && at < of.list->count)
    ok = tsr_jinja_same(r, location, of.list->items[at++], x, ret);
  if (at && of.kind == TSR_JINJA_ITERATOR)
    of.list->items += at, of.list->count -= at, of.list->capacity -= at;
  return ok && tsr_jinja_count_steps(r, location, at);
}

static bool contains(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_value of, tsr_jinja_value x, bool *ret) {
  const tsr_jinja_value *found;
  bool ok;
  switch (of.kind) {
  case TSR_JINJA_UNDEFINED:
    return *ret = false, true;
  case TSR_JINJA_STRING:
    if (x.kind != TSR_JINJA_STRING) break;
    return *ret = tsr_jinja_find_text(of.string, x.string, 0) >= 0,
           tsr_jinja_count_steps(r, location, of.string.length / 64);
  case TSR_JINJA_LIST:
  case TSR_JINJA_TUPLE:
  case TSR_JINJA_VIEW:
  case TSR_JINJA_ITERATOR:
    return contains_item(r, location, of, x, ret);
  case TSR_JINJA_DICT:
    if (x.kind == TSR_JINJA_LIST || x.kind == TSR_JINJA_DICT) break;
    ok = tsr_jinja_lookup(r, location, of.dict, x, &found);
    return *ret = found != NULL, ok;
  default:
    break;
  }
  return mismatch(r, location, (tsr_jinja_string){"in", 2}, x, of);
}

bool tsr_jinja_compare(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_string op, tsr_jinja_value a,
    tsr_jinja_value b, bool *ret) {
  int order = 0;
  if (is(op, "==") || is(op, "!=")) {
    bool same = false, ok = tsr_jinja_same(r, location, a, b, &same);
    return *ret = same == is(op, "=="), ok;
  }
  if (is(op, "in")) return contains(r, location, b, a, ret);
  if (is(op, "not in")) {
    bool there = false, ok = contains(r, location, b, a, &there);
    return *ret = !there, ok;
  }
  if (!tsr_jinja_ranked(r, location, a, b, &order)) return mismatch(r, location, op, a, b);
  bool nan =
      tsr_jinja_is_number(a) && (isnan(tsr_jinja_as_double(a)) || isnan(tsr_jinja_as_double(b)));
  *ret = !nan && (is(op, "<")    ? order < 0
                  : is(op, "<=") ? order <= 0
                  : is(op, ">")  ? order > 0
                                 : order >= 0);
  return true;
}

/* ---- items ---- */

static tsr_jinja_value code_points(tsr_jinja_value of, int64_t first, int64_t behind) {
  int64_t begin = tsr_jinja_offset(of.string, first), end = tsr_jinja_offset(of.string, behind);
  of.string = (tsr_jinja_string){of.string.bytes + begin, end - begin};
  return of;
}

/* What messages call an item that is missing. */
static const char *missing_name(tsr_jinja_run *r, tsr_jinja_value index) {
  if (index.kind != TSR_JINJA_STRING) return "this item";
  return tsr_arena_strndup(r->arena, index.string.bytes, (size_t)index.string.length);
}

bool tsr_jinja_item(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_value of, tsr_jinja_value index,
    tsr_jinja_value *ret) {
  *ret = tsr_jinja_missing(missing_name(r, index));
  if (of.kind == TSR_JINJA_DICT || of.kind == TSR_JINJA_NAMESPACE) {
    const tsr_jinja_value *item;
    bool ok = tsr_jinja_lookup(r, location, of.dict, index, &item);
    if (item) *ret = *item;
    return ok;
  }
  if (index.kind != TSR_JINJA_INT && index.kind != TSR_JINJA_BOOL) return true;
  int64_t at = whole(index);
  if (is_sequence(of) || (of.kind == TSR_JINJA_VIEW && of.list->is_range)) {
    if (at < 0) at += of.list->count;
    if (at >= 0 && at < of.list->count) *ret = of.list->items[at];
  } else if (of.kind == TSR_JINJA_STRING) {
    int64_t n = tsr_jinja_length(of.string);
    if (at < 0) at += n;
    if (at >= 0 && at < n) *ret = code_points(of, at, at + 1);
    return tsr_jinja_count_steps(r, location, n / 64);
  }
  return true;
}

/* ---- slices ---- */

static bool
part_of(tsr_jinja_run *r, tsr_location location, tsr_jinja_value v, int64_t absent, int64_t *ret) {
  *ret = absent;
  if (v.kind == TSR_JINJA_NONE) return true;
  if (v.kind != TSR_JINJA_INT && v.kind != TSR_JINJA_BOOL)
    return tsr_jinja_fail(
        r, location, "the bounds of a slice should be integers, not %s",
        tsr_jinja_kind_name(v.kind));
  return *ret = whole(v), true;
}

static int64_t clamp(int64_t x, int64_t n, int64_t least, int64_t most) {
  if (x < 0) x += n;
  return x < least ? least : x > most ? most : x;
}

bool tsr_jinja_slice(
    tsr_jinja_run *r, tsr_location location, tsr_jinja_value of, const tsr_jinja_value parts[3],
    tsr_jinja_value *ret) {
  int64_t begin, end, step, n;
  if (of.kind == TSR_JINJA_UNDEFINED)
    return tsr_jinja_fail(
        r, location, "'%s' is undefined and has no items",
        of.undefined ? of.undefined : "this value");
  bool is_range = of.kind == TSR_JINJA_VIEW && of.list->is_range;
  if (of.kind != TSR_JINJA_STRING && !is_sequence(of) && !is_range)
    return tsr_jinja_fail(r, location, "%s cannot be sliced", tsr_jinja_kind_name(of.kind));
  n = of.kind == TSR_JINJA_STRING ? tsr_jinja_length(of.string) : of.list->count;
  if (!part_of(r, location, parts[2], 1, &step)) return false;
  if (step == 0) return tsr_jinja_fail(r, location, "the step of a slice is 0");
  if (!part_of(r, location, parts[0], step > 0 ? 0 : n - 1, &begin) ||
      !part_of(r, location, parts[1], step > 0 ? n : -n - 1, &end))
    return false;
  begin = step > 0 ? clamp(begin, n, 0, n) : clamp(begin, n, -1, n - 1);
  end = step > 0 ? clamp(end, n, 0, n) : clamp(end, n, -1, n - 1);
  if (!tsr_jinja_count_steps(r, location, n / 8)) return false;
  if (of.kind == TSR_JINJA_STRING && step == 1) {
    return *ret = code_points(of, begin, end > begin ? end : begin), true;
  }
  tsr_jinja_list items;
  tsr_text text = {0};
  bool is_text = of.kind == TSR_JINJA_STRING;
  if (!tsr_jinja_iterate(r, location, of, &items)) return false;
  if (!is_text) {
    *ret = tsr_jinja_new_list(r->arena, of.kind);
    ret->list->is_range = is_range;
  }
  for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
    tsr_jinja_string part = items.items[i].string;
    if (is_text) tsr_text_add_bytes(&text, part.bytes, (size_t)part.length);
    else tsr_jinja_append(r->arena, ret->list, items.items[i]);
    if ((step > 0 && i > n - step) || (step < 0 && i < -step)) break; /* i + step may overflow */
  }
  if (is_text) *ret = tsr_jinja_take(r->arena, &text);
  ret->is_markup = of.is_markup;
  return true;
}
