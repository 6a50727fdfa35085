// SPDX-License-Identifier: Apache-2.0
/* Typed values of YAML nodes. Integers are those of YAML 1.1 (yaml.org/type/int.html, without base
 * 60), as PyYAML reads tt-train's files; all else is the core schema of YAML 1.2 (chapter 10.3). */
#include "config/yaml.h"
#include "base/text.h"
#include <stdlib.h>
#include <string.h>

static int find_key(const tsr_yaml *map, const char *key) {
  if (!map || map->kind != TSR_YAML_MAP) return -1;
  for (int i = 0; i < map->count; i++)
    if (!strcmp(map->keys[i]->text, key)) return i;
  return -1;
}

tsr_yaml *tsr_yaml_get(const tsr_yaml *map, const char *key) {
  int i = find_key(map, key);
  return i < 0 ? NULL : map->items[i];
}

tsr_yaml *tsr_yaml_key(const tsr_yaml *map, const char *key) {
  int i = find_key(map, key);
  return i < 0 ? NULL : map->keys[i];
}

static bool is_plain(const tsr_yaml *node) {
  return node && node->kind == TSR_YAML_SCALAR && !node->quoted;
}

static int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

/* The base of an integer; `*at` moves to its digits. A 0 before other digits makes it octal. */
static unsigned take_base(const char **at) {
  const char *text = *at;
  if (text[0] != '0' || !text[1]) return 10;
  *at += text[1] == 'x' || text[1] == 'b' ? 2 : 0;
  return text[1] == 'x' ? 16 : text[1] == 'b' ? 2 : 8;
}

bool tsr_yaml_int_text(const char *at, int64_t *ret_value) {
  bool negative = *at == '-', digits = false;
  if (*at == '-' || *at == '+') at++;
  if (*at == '_') return false;
  uint64_t base = take_base(&at), value = 0, limit = (uint64_t)INT64_MAX + negative;
  for (; *at; at++) {
    uint64_t digit = (uint64_t)digit_value(*at);
    if (*at == '_') continue;
    if (digit >= base || value > (limit - digit) / base) return false;
    value = value * base + digit;
    digits = true;
  }
  *ret_value = (int64_t)(negative ? 0 - value : value);
  return digits;
}

bool tsr_yaml_int(const tsr_yaml *node, int64_t *ret_value) {
  return is_plain(node) && tsr_yaml_int_text(node->text, ret_value);
}

static const char *skip_digits(const char *at) {
  while ((*at >= '0' && *at <= '9') || *at == '_') at++;
  return at;
}

/* [-+]? ( \. [0-9_]+ | [0-9] [0-9_]* ( \. [0-9_]* )? ) ( [eE] [-+]? [0-9]+ )?, but no integer with
 * a 0 before it, which is octal or none. */
static bool is_decimal(const char *at) {
  if (*at == '-' || *at == '+') at++;
  if (*at == '_' || (*at == '0' && at[1] && !at[1 + strspn(at + 1, "0123456789_")])) return false;
  const char *whole = skip_digits(at);
  bool digits = whole > at;
  at = whole;
  if (*at == '.') {
    const char *fraction = skip_digits(at + 1);
    digits = digits || (fraction > at + 1 && at[1] != '_');
    at = fraction;
  }
  if (!digits) return false;
  if (*at == 'e' || *at == 'E') {
    at++;
    if (*at == '-' || *at == '+') at++;
    const char *exponent = at + strspn(at, "0123456789");
    if (exponent == at) return false;
    at = exponent;
  }
  return !*at;
}

/* The number that is_decimal accepts. */
static double decimal(const char *text) {
  tsr_text digits = {0};
  for (const char *at = text; *at; at++)
    if (*at != '_') tsr_text_add(&digits, "%c", *at);
  double value = strtod(digits.data, NULL);
  tsr_text_free(&digits);
  return value;
}

static bool is_one_of(const char *text, const char *a, const char *b, const char *c) {
  return !strcmp(text, a) || !strcmp(text, b) || !strcmp(text, c);
}

bool tsr_yaml_float(const tsr_yaml *node, double *ret_value) {
  if (!is_plain(node)) return false;
  const char *text = node->text;
  int64_t integer;
  if (is_decimal(text)) {
    *ret_value = decimal(text);
    return true;
  }
  if (tsr_yaml_int(node, &integer)) {
    *ret_value = (double)integer;
    return true;
  }
  double sign = *text == '-' ? -1 : 1;
  if (is_one_of(text + (*text == '-' || *text == '+'), ".inf", ".Inf", ".INF")) {
    *ret_value = sign * strtod("inf", NULL);
    return true;
  }
  if (!is_one_of(text, ".nan", ".NaN", ".NAN")) return false;
  *ret_value = strtod("nan", NULL);
  return true;
}

bool tsr_yaml_bool(const tsr_yaml *node, bool *ret_value) {
  if (!is_plain(node)) return false;
  bool yes = is_one_of(node->text, "true", "True", "TRUE");
  if (!yes && !is_one_of(node->text, "false", "False", "FALSE")) return false;
  *ret_value = yes;
  return true;
}

/* The text, cut to what a message can hold, without control characters. */
static char *shown_text(tsr_arena *arena, const tsr_yaml *node) {
  enum { SHOWN_MAX = 48 };
  size_t length = node->text_length;
  bool cut = length > SHOWN_MAX;
  if (cut) {
    length = SHOWN_MAX;
    while (length && ((unsigned char)node->text[length] & 0xc0) == 0x80) length--;
  }
  char *shown = tsr_arena_printf(arena, "%.*s%s", (int)length, node->text, cut ? "…" : "");
  for (char *at = shown; *at; at++)
    if ((unsigned char)*at < 0x20 || *at == 0x7f) *at = ' ';
  return shown;
}

const char *tsr_yaml_describe(tsr_arena *arena, const tsr_yaml *node) {
  if (!node || node->kind == TSR_YAML_NULL) return "nothing";
  if (node->kind == TSR_YAML_LIST) return "a list";
  if (node->kind == TSR_YAML_MAP) return "a map";
  int64_t integer;
  double number;
  bool truth;
  const char *shown = shown_text(arena, node);
  if (tsr_yaml_int(node, &integer)) return tsr_arena_printf(arena, "the integer %s", shown);
  if (tsr_yaml_float(node, &number)) return tsr_arena_printf(arena, "the number %s", shown);
  if (tsr_yaml_bool(node, &truth)) return shown;
  return tsr_arena_printf(arena, "the text '%s'", shown);
}
