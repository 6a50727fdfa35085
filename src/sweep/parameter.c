// SPDX-License-Identifier: Apache-2.0
#include "sweep/parameter.h"
#include "config/print.h"
#include "kernels/kernels.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- which values are several ---- */

/* Types whose value is a list itself. */
static bool holds_list(const tsr_field *f) {
  if (!f) return false;
  switch (f->type) {
  case TSR_FIELD_SHAPE:
  case TSR_FIELD_IDS:
  case TSR_FIELD_AXES:
  case TSR_FIELD_STAGES:
  case TSR_FIELD_BLOCKS:
  case TSR_FIELD_SOURCES:
  case TSR_FIELD_NAMES:
    return true;
  default:
    return false;
  }
}

/* Keys of numbers; the model's sizes are such keys, too. Texts may contain anything. */
static bool holds_number(const tsr_field *f) {
  return !f || f->type == TSR_FIELD_INT || f->type == TSR_FIELD_SEED ||
         f->type == TSR_FIELD_FLOAT || f->type == TSR_FIELD_BYTES;
}

/* The model's sizes have no row: those whose ends are written as integers are integers. */
static bool is_integer(const tsr_field *f, const tsr_yaml *v) {
  const char *ends = strchr(v->text, '(');
  return f ? f->type != TSR_FIELD_FLOAT : ends && !strpbrk(ends, ".eE");
}

/* A number with two dots in it is meant as a range, a word before a parenthesis as a distribution.
 */
static bool is_range(const tsr_yaml *v) {
  const char *text = v->text + (*v->text == '-' || *v->text == '+');
  return v->kind == TSR_YAML_SCALAR && isdigit((unsigned char)*text) && strstr(text, "..");
}

static bool is_distribution(const tsr_yaml *v) {
  if (v->kind != TSR_YAML_SCALAR) return false;
  size_t word = strspn(v->text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-");
  return word && v->text[word] == '(';
}

static bool holds_only_lists(const tsr_yaml *v) {
  for (int i = 0; i < v->count; i++)
    if (v->items[i]->kind != TSR_YAML_LIST) return false;
  return v->count > 0;
}

bool tsr_sweep_is_space(const tsr_field *f, const tsr_yaml *v) {
  if (v->kind == TSR_YAML_LIST) return !holds_list(f) || holds_only_lists(v);
  return holds_number(f) && (is_range(v) || is_distribution(v));
}

/* ---- reading ---- */

static const char *line_of(tsr_arena *arena, const tsr_yaml *node) {
  tsr_text text = {0};
  tsr_yaml_print_line(node, &text);
  const char *line = tsr_arena_strdup(arena, text.data);
  tsr_text_free(&text);
  return line;
}

/* Numbers may be written in several ways. NaN: the value is none, or an integer that may have no
 * double. */
static double number_of(const tsr_field *f, const tsr_yaml *v) {
  double x;
  return holds_number(f) && tsr_yaml_float(v, &x) && fabs(x) < 0x1p53 ? x : NAN;
}

static bool read_list(
    tsr_arena *arena, const tsr_field *f, const tsr_yaml *v, tsr_sweep_parameter *p,
    tsr_diags *diags) {
  bool ok = true;
  int count = v->count;
  const char **values = tsr_arena_array(arena, const char *, count + 1);
  double *numbers = tsr_arena_array(arena, double, count + 1);
  if (!count) return tsr_diag_error(diags, v->location, "'%s' has no values", p->name);
  for (int i = 0; i < count; i++) {
    const tsr_yaml *item = v->items[i];
    if (item->kind == TSR_YAML_NULL)
      ok = tsr_diag_error(diags, item->location, "a value of '%s' is empty", p->name);
    values[i] = line_of(arena, item);
    numbers[i] = number_of(f, item);
    for (int k = 0; k < i; k++)
      if (numbers[k] == numbers[i] || !strcmp(values[k], values[i]))
        ok = tsr_diag_error(
            diags, item->location, "'%s' has the value %s twice", p->name, values[k]);
  }
  p->space = TSR_SWEEP_LIST;
  p->values = values;
  p->count = count;
  return ok;
}

/* "1..3", "2..10:4" */
static bool read_range(const tsr_yaml *v, tsr_sweep_parameter *p, tsr_diags *diags) {
  static const char shape[] = "a range is FIRST..LAST or FIRST..LAST:STEP, as in 1..3 or 2..10:4";
  char text[128], *dots, *colon;
  int64_t last = 0, length = 0;
  snprintf(text, sizeof text, "%s", v->text);
  p->space = TSR_SWEEP_RANGE;
  p->step = 1;
  if ((dots = strstr(text, ".."))) *dots = 0;
  if (dots && (colon = strchr(dots + 2, ':'))) *colon++ = 0;
  else colon = NULL;
  bool ok = dots && tsr_yaml_int_text(text, &p->first) && tsr_yaml_int_text(dots + 2, &last) &&
            (!colon || tsr_yaml_int_text(colon, &p->step));
  if (!ok) tsr_diag_error(diags, v->location, "'%s' is no range of integers", v->text);
  else if (p->step < 1)
    ok = tsr_diag_error(diags, v->location, "'%s': the step of a range is at least 1", v->text);
  else if (last < p->first)
    ok = tsr_diag_error(diags, v->location, "'%s': the range ends before it begins", v->text);
  else if (__builtin_sub_overflow(last, p->first, &length) || length / p->step == INT64_MAX)
    ok = tsr_diag_error(diags, v->location, "'%s': the range is too long", v->text);
  if (ok) p->count = length / p->step + 1;
  else tsr_diag_hint(diags, shape);
  return ok;
}

static bool read_number(const char *text, double *ret) {
  tsr_yaml node = {.kind = TSR_YAML_SCALAR, .text = text, .text_length = strlen(text)};
  return tsr_yaml_float(&node, ret) && isfinite(*ret);
}

/* "low, high)" behind the parenthesis, in a copy of the text. */
static bool read_ends(char *text, tsr_sweep_parameter *p) {
  char *ends[2] = {text, strchr(text, ',')};
  size_t length = strlen(text);
  if (!ends[1] || text[length - 1] != ')') return false;
  text[length - 1] = 0;
  *ends[1]++ = 0;
  for (int i = 0; i < 2; i++) {
    ends[i] += strspn(ends[i], " ");
    for (size_t n = strlen(ends[i]); n && ends[i][n - 1] == ' '; n--) ends[i][n - 1] = 0;
  }
  return read_number(ends[0], &p->low) && read_number(ends[1], &p->high);
}

static bool
read_distribution(tsr_arena *arena, const tsr_yaml *v, tsr_sweep_parameter *p, tsr_diags *diags) {
  static const char *const names[] = {"uniform", "log_uniform"};
  enum { EXACT = 1 << 30 /* integers to there are drawn one by one */ };
  size_t word = strcspn(v->text, "(");
  const char *name = tsr_arena_strndup(arena, v->text, word);
  bool is_log = !strcmp(name, names[1]);
  p->space = is_log ? TSR_SWEEP_LOG_UNIFORM : TSR_SWEEP_UNIFORM;
  if (!is_log && strcmp(name, names[0])) {
    tsr_diag_error(diags, v->location, "there is no distribution '%s'", name);
    tsr_diag_nearest(diags, name, names, 2);
    return false;
  }
  if (!read_ends(tsr_arena_strdup(arena, v->text + word + 1), p)) {
    tsr_diag_error(diags, v->location, "'%s' does not have two numbers, the ends", v->text);
    if (strchr(v->text, ')')) tsr_diag_hint(diags, "such as %s(0.001, 0.1)", name);
    else tsr_diag_hint(diags, "in braces quotes are needed: {lr: '%s(0.001, 0.1)'}", name);
    return false;
  }
  if (p->low >= p->high)
    return tsr_diag_error(
        diags, v->location, "'%s': the first number must be below the second", v->text);
  if (!isfinite(p->high - p->low))
    return tsr_diag_error(diags, v->location, "'%s': the range is too wide", v->text);
  if (is_log && p->low <= 0)
    return tsr_diag_error(diags, v->location, "'%s': a logarithm needs numbers above 0", v->text);
  bool whole = p->low == floor(p->low) && p->high == floor(p->high) && fabs(p->low) <= EXACT &&
               fabs(p->high) <= EXACT;
  if (p->is_integer && !whole)
    return tsr_diag_error(
        diags, v->location, "'%s': '%s' is an integer, so both ends are integers up to %d", v->text,
        p->name, EXACT);
  return true;
}

bool tsr_sweep_parameter_read(
    tsr_arena *arena, const char *name, const char *key, const tsr_field *field,
    const tsr_yaml *value, tsr_sweep_parameter *ret, tsr_diags *diags) {
  *ret = (tsr_sweep_parameter){.name = name, .key = key, .location = value->location};
  ret->is_integer = value->text && is_integer(field, value);
  bool numbers = holds_number(field);
  if (numbers && is_range(value)) return read_range(value, ret, diags);
  if (numbers && is_distribution(value)) return read_distribution(arena, value, ret, diags);
  tsr_yaml one = {.kind = TSR_YAML_LIST, .location = value->location, .count = 1};
  one.items = (tsr_yaml *[]){(tsr_yaml *)value};
  return read_list(arena, field, tsr_sweep_is_space(field, value) ? value : &one, ret, diags);
}

/* ---- values ---- */

const char *
tsr_sweep_parameter_value(tsr_arena *arena, const tsr_sweep_parameter *p, int64_t index) {
  if (p->space == TSR_SWEEP_LIST) return p->values[index];
  return tsr_arena_printf(arena, "%lld", (long long)(p->first + p->step * index));
}

/* In [0, 1), 53 bits. */
static double uniform(const tsr_sweep_parameter *p, uint64_t seed, int64_t run, int64_t attempt) {
  uint32_t words[4];
  tsr_philox((uint64_t)run, (uint64_t)attempt, tsr_random_key(seed, p->key, 0), words);
  return (double)(((uint64_t)words[0] << 32 | words[1]) >> 11) * 0x1p-53;
}

/* Rounding to six digits may leave the range, whose ends may have more. */
static const char *number_text(tsr_arena *arena, const tsr_sweep_parameter *p, double value) {
  enum { DIGITS = 6, DIGITS_EXACT = 17 };
  tsr_text text = {0};
  double rounded = value;
  for (int digits = DIGITS; digits <= DIGITS_EXACT; digits++) {
    char number[40];
    snprintf(number, sizeof number, "%.*g", digits, value);
    rounded = strtod(number, NULL);
    if (rounded >= p->low && rounded <= p->high) break;
  }
  tsr_config_print_float(fmin(fmax(rounded, p->low), p->high), &text);
  const char *copy = tsr_arena_strdup(arena, text.data);
  tsr_text_free(&text);
  return copy;
}

const char *tsr_sweep_parameter_draw(
    tsr_arena *arena, const tsr_sweep_parameter *p, uint64_t seed, int64_t run, int64_t attempt) {
  double u = uniform(p, seed, run, attempt), low = p->low, high = p->high;
  if (p->count) {
    int64_t index = (int64_t)(u * (double)p->count);
    return tsr_sweep_parameter_value(arena, p, index < p->count ? index : p->count - 1);
  }
  if (p->is_integer && p->space == TSR_SWEEP_UNIFORM)
    return tsr_arena_printf(arena, "%lld", (long long)(low + floor(u * (high - low + 1))));
  double value = p->space == TSR_SWEEP_UNIFORM ? low + u * (high - low)
                                               : exp(log(low) + u * (log(high) - log(low)));
  if (p->is_integer) return tsr_arena_printf(arena, "%lld", llround(value));
  return number_text(arena, p, value);
}

void tsr_sweep_parameter_print(const tsr_sweep_parameter *p, tsr_text *text) {
  static const char *const names[] = {
      [TSR_SWEEP_UNIFORM] = "uniform", [TSR_SWEEP_LOG_UNIFORM] = "log_uniform"};
  if (p->space == TSR_SWEEP_LIST) {
    for (int64_t i = 0; i < p->count; i++) tsr_text_add(text, "%s%s", i ? ", " : "[", p->values[i]);
    tsr_text_add(text, "]");
  } else if (p->space == TSR_SWEEP_RANGE) {
    tsr_text_add(
        text, "%lld..%lld", (long long)p->first, (long long)(p->first + p->step * (p->count - 1)));
    if (p->step != 1) tsr_text_add(text, ":%lld", (long long)p->step);
  } else tsr_text_add(text, "%s(%.15g, %.15g)", names[p->space], p->low, p->high);
}
