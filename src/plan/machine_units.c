// SPDX-License-Identifier: Apache-2.0
#include "plan/machine_units.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* `divide`: the value is number / scale, since 1e-6 is no double and 5 / 1e6 is the nearest to
 * 5e-6.
 */
typedef struct {
  const char *name;
  double scale;
  bool divide, read_only;
} unit;

/* In the order in which tsr_quantity_print prefers them. */
#define KIBI 1024.0
static const unit byte_units[] = {
    {"TB", 1e12},
    {"GB", 1e9},
    {"MB", 1e6},
    {"kB", 1e3},
    {"B", 1},
    {"TiB", KIBI *KIBI *KIBI *KIBI},
    {"GiB", KIBI *KIBI *KIBI},
    {"MiB", KIBI *KIBI},
    {"KiB", KIBI},
};
static const unit rate_units[] = {
    {"TB/s", 1e12},
    {"GB/s", 1e9},
    {"MB/s", 1e6},
    {"kB/s", 1e3},
    {"B/s", 1},
    {"TiB/s", KIBI *KIBI *KIBI *KIBI},
    {"GiB/s", KIBI *KIBI *KIBI},
    {"MiB/s", KIBI *KIBI},
    {"KiB/s", KIBI},
    {"Tb/s", 1e12 / 8, false, true},
    {"Gb/s", 1e9 / 8, false, true},
    {"Mb/s", 1e6 / 8, false, true},
};
static const unit flops_units[] = {
    {"PFLOP/s", 1e15}, {"TFLOP/s", 1e12}, {"GFLOP/s", 1e9}, {"MFLOP/s", 1e6}, {"FLOP/s", 1},
};
static const unit second_units[] = {
    {"s", 1},
    {"ms", 1e3, true},
    {"us", 1e6, true},
    {"ns", 1e9, true},
};

#define COUNT(array) (int)(sizeof(array) / sizeof *(array))
enum { UNITS_MAX = 12 };
static const struct {
  const unit *units;
  int units_count;
  const char *wanted;
} kinds[] = {
    [TSR_QUANTITY_BYTES] = {byte_units, COUNT(byte_units), "bytes above 0, such as 80GiB"},
    [TSR_QUANTITY_RATE] =
        {rate_units, COUNT(rate_units), "bytes per second above 0, such as 450GB/s"},
    [TSR_QUANTITY_FLOPS] =
        {flops_units, COUNT(flops_units), "operations per second above 0, such as 67TFLOP/s"},
    [TSR_QUANTITY_SECONDS] = {second_units, COUNT(second_units), "seconds from 0 on, such as 5us"},
    [TSR_QUANTITY_FRACTION] = {NULL, 0, "a fraction above 0 and at most 1"},
};
_Static_assert(COUNT(rate_units) <= UNITS_MAX, "tsr_quantity_read lists them");

static double apply(const unit *u, double number) {
  return u->divide ? number / u->scale : number * u->scale;
}

/* Decimal numbers only: strtod alone would take 0x10, inf and nan. */
static bool split(const char *text, double *ret_number, const char **ret_unit) {
  const char *at = text + (*text == '-' || *text == '+');
  bool decimal = isdigit((unsigned char)at[at[0] == '.']) != 0;
  if (!decimal || (at[0] == '0' && tolower((unsigned char)at[1]) == 'x')) return false;
  char *end;
  *ret_number = strtod(text, &end);
  while (*end == ' ') end++;
  *ret_unit = end;
  return true;
}

static bool in_range(tsr_quantity kind, double value) {
  if (!isfinite(value)) return false;
  if (kind == TSR_QUANTITY_SECONDS) return value >= 0;
  return value > 0 && (kind != TSR_QUANTITY_FRACTION || value <= 1);
}

/* Bytes become an int64_t. */
static bool is_countable(tsr_quantity kind, double value) {
  return kind != TSR_QUANTITY_BYTES || (value >= 1 && value <= 9e18);
}

static const unit *find_unit(tsr_quantity kind, const char *name) {
  for (int i = 0; i < kinds[kind].units_count; i++)
    if (!strcmp(kinds[kind].units[i].name, name)) return &kinds[kind].units[i];
  return NULL;
}

static void hint_units(tsr_quantity kind, const char *name, tsr_diags *diags) {
  const char *names[UNITS_MAX];
  for (int i = 0; i < kinds[kind].units_count; i++) names[i] = kinds[kind].units[i].name;
  tsr_diag_nearest(diags, name, names, kinds[kind].units_count);
}

bool tsr_quantity_read(
    tsr_arena *arena, tsr_quantity kind, const char *key, const tsr_yaml *node, double *ret_value,
    tsr_diags *diags) {
  double number = 0;
  const char *name = "";
  bool numeric = node->kind == TSR_YAML_SCALAR && split(node->text, &number, &name);
  const unit *u = find_unit(kind, name);
  bool has_unit = u || !*name;
  *ret_value = u ? apply(u, number) : number;
  if (numeric && has_unit && in_range(kind, *ret_value) && is_countable(kind, *ret_value))
    return true;
  const char *found = tsr_yaml_describe(arena, node);
  if (numeric && has_unit && number > 0 && !is_countable(kind, *ret_value))
    return tsr_diag_error(
        diags, node->location, "'%s' is out of range (1 to 9e18 bytes), found %s", key, found);
  tsr_diag_error(
      diags, node->location, "'%s' must be %s, found %s", key, kinds[kind].wanted, found);
  if (numeric && !has_unit && kinds[kind].units_count) hint_units(kind, name, diags);
  return false;
}

/* The fewest digits with which `u` (NULL: no unit) gives the value again, and the text of them; 0
 * when none do. */
static int shortest(const unit *u, double value, char text[48]) {
  double number = !u ? value : u->divide ? value * u->scale : value / u->scale;
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(text, 48, "%.*g", digits, number);
    double read = strtod(text, NULL);
    if ((u ? apply(u, read) : read) != value) continue;
    if (strchr(text, 'e') && number >= 1 && number < 1e6) snprintf(text, 48, "%.0f", number);
    snprintf(text + strlen(text), 48 - strlen(text), "%s", u ? u->name : "");
    return digits;
  }
  return 0;
}

void tsr_quantity_print(tsr_quantity kind, double value, tsr_text *text) {
  char best[48] = "", candidate[48];
  int best_digits = 0;
  for (int i = 0; value && i < kinds[kind].units_count; i++) {
    const unit *u = &kinds[kind].units[i];
    /* In a unit that is too big the number begins with zeros: 0.00335PB. */
    if (u->read_only || value < apply(u, 1)) continue;
    int digits = shortest(u, value, candidate);
    enum { WORTH = 3 }; /* digits: 81559MiB, not 85.520809984GB; but 12.5GB, not 12500MB */
    if (!digits || (best_digits && digits + WORTH > best_digits)) continue;
    best_digits = digits;
    strcpy(best, candidate);
  }
  if (!best_digits) shortest(NULL, value, best);
  tsr_text_add(text, "%s", best);
}
