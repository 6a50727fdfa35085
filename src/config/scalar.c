// SPDX-License-Identifier: Apache-2.0
/* One scalar against one row of the table. */
#include "base/uri.h"
#include "config/config_internal.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void *member(const tsr_loader *l, const tsr_field *f) {
  return f->at ? (char *)l->config + f->at : NULL;
}

/* Octal numbers of YAML 1.2, and decimal ones with a 0 before them. */
static void hint_base(tsr_loader *l, const tsr_yaml *node) {
  const char *text = node->kind == TSR_YAML_SCALAR && !node->quoted ? node->text : "";
  size_t zeros = strspn(text, "0"), digits = strspn(text, "0123456789");
  if (!strncmp(text, "0o", 2) && text[2] && !text[2 + strspn(text + 2, "01234567")])
    tsr_diag_hint(l->diags, "an octal number is written 0%s here, as YAML 1.1 has it", text + 2);
  else if (zeros && digits > zeros && !text[digits])
    tsr_diag_hint(l->diags, "a number that begins with 0 is octal; write %s", text + zeros);
}

bool tsr_value_wrong_type(
    tsr_loader *l, const tsr_field *f, const char *key, const tsr_yaml *node) {
  tsr_text want = {0};
  tsr_field_describe(f, &want);
  tsr_diag_error(
      l->diags, node->location, "'%s' must be %s, found %s", key, want.data,
      tsr_yaml_describe(l->arena, node));
  tsr_text_free(&want);
  double number;
  tsr_yaml plain = *node;
  plain.quoted = false;
  bool numeric =
      f->type == TSR_FIELD_INT || f->type == TSR_FIELD_SEED || f->type == TSR_FIELD_FLOAT;
  if (numeric) hint_base(l, node);
  if (!numeric || !tsr_yaml_float(&plain, &number)) return false;
  if (node->quoted) tsr_diag_hint(l->diags, "without quotes it is a number");
  else if (f->type != TSR_FIELD_FLOAT && number == floor(number) && fabs(number) < 1e15)
    tsr_diag_hint(l->diags, "write %.0f", number);
  return false;
}

static bool holds(const tsr_field_range *r, double v) {
  if (!(r->min < r->max)) return true;
  bool low = r->min_open ? v > r->min : v >= r->min;
  bool high = r->max_open ? v < r->max : v <= r->max;
  return (low && high) || (isinf(r->min) && isinf(r->max));
}

static bool
in_range(tsr_loader *l, const tsr_field *f, const char *key, const tsr_yaml *node, double v) {
  if (holds(&f->range, v)) return true;
  tsr_text want = {0};
  tsr_field_range_describe(f, &want);
  tsr_diag_error(
      l->diags, node->location, "'%s' must be %s, found %s", key, want.data,
      tsr_yaml_describe(l->arena, node));
  tsr_text_free(&want);
  return false;
}

/* Of what is no int64_t: whether it is written as an integer all the same. */
static bool is_huge_integer(const tsr_yaml *node) {
  if (node->kind != TSR_YAML_SCALAR || node->quoted) return false;
  const char *at = node->text + (*node->text == '-' || *node->text == '+');
  const char *digits = "0123456789_";
  if (*at == '_') return false;
  if (!strncmp(at, "0x", 2)) at += 2, digits = "0123456789abcdefABCDEF_";
  else if (!strncmp(at, "0b", 2)) at += 2, digits = "01_";
  else if (*at == '0') at++, digits = "01234567_";
  return *at && !at[strspn(at, digits)];
}

static bool out_of_range(tsr_loader *l, const char *key, const tsr_yaml *node) {
  return tsr_diag_error(
      l->diags, node->location, "'%s' is out of range, found %s", key,
      tsr_yaml_describe(l->arena, node));
}

static bool
wrong_integer(tsr_loader *l, const tsr_field *f, const char *key, const tsr_yaml *node) {
  if (!is_huge_integer(node)) return tsr_value_wrong_type(l, f, key, node);
  out_of_range(l, key, node);
  tsr_diag_hint(
      l->diags, "integers are from %lld to %lld", (long long)INT64_MIN, (long long)INT64_MAX);
  return false;
}

bool tsr_value_unsupported(tsr_loader *l, tsr_location location, const char *feature) {
  const char *remedy = strchr(feature, '\n');
  int length = remedy ? (int)(remedy - feature) : (int)strlen(feature);
  tsr_diag_error(l->diags, location, "unsupported feature: %.*s", length, feature);
  if (remedy) tsr_diag_hint(l->diags, "%s", remedy + 1);
  return false;
}

static bool read_int(tsr_loader *l, const tsr_field *f, const char *key, const tsr_yaml *node) {
  int64_t value;
  if (!tsr_yaml_int(node, &value)) return wrong_integer(l, f, key, node);
  if (!in_range(l, f, key, node, (double)value)) return false;
  int64_t *to = member(l, f);
  if (to) *to = value; /* a seed's uint64_t has the same bytes */
  return true;
}

static bool read_float(tsr_loader *l, const tsr_field *f, const char *key, const tsr_yaml *node) {
  double value;
  if (!tsr_yaml_float(node, &value)) return tsr_value_wrong_type(l, f, key, node);
  if (!isfinite(value) && f->at)
    return tsr_diag_error(
        l->diags, node->location, "'%s' must be a finite number, found %s", key,
        tsr_yaml_describe(l->arena, node));
  if (!in_range(l, f, key, node, value)) return false;
  float single = (float)value;
  if (f->at && (isinf(single) || !holds(&f->range, (double)single)))
    return tsr_diag_error(
        l->diags, node->location, "'%s' is a 32-bit float, and %s rounds to %g", key, node->text,
        (double)single);
  double *to = member(l, f);
  if (to) *to = value;
  return true;
}

static bool read_bool(tsr_loader *l, const tsr_field *f, const char *key, const tsr_yaml *node) {
  bool value;
  if (!tsr_yaml_bool(node, &value)) {
    tsr_value_wrong_type(l, f, key, node);
    const char *text = node->kind == TSR_YAML_SCALAR ? node->text : "";
    if (!strcasecmp(text, "yes") || !strcasecmp(text, "on") || !strcasecmp(text, "true"))
      tsr_diag_hint(l->diags, "write true");
    if (!strcasecmp(text, "no") || !strcasecmp(text, "off") || !strcasecmp(text, "false"))
      tsr_diag_hint(l->diags, "write false");
    return false;
  }
  bool *to = member(l, f);
  if (to) *to = value;
  return true;
}

static bool read_text(tsr_loader *l, const tsr_field *f, const char *key, const tsr_yaml *node) {
  if (node->kind != TSR_YAML_SCALAR) return tsr_value_wrong_type(l, f, key, node);
  const char **to = member(l, f);
  if (to) *to = node->text;
  return true;
}

bool tsr_path_read(tsr_loader *l, const tsr_yaml *node, const char **ret_path) {
  const char *unset, *expanded = tsr_include_expand(l->arena, node->text, &unset);
  return tsr_uri_path(l->arena, expanded, node->location, ret_path, l->diags);
}

static bool read_path(tsr_loader *l, const tsr_field *f, const char *key, const tsr_yaml *node) {
  const char *path;
  if (node->kind != TSR_YAML_SCALAR) return tsr_value_wrong_type(l, f, key, node);
  if (!tsr_path_read(l, node, &path)) return false;
  const char **to = member(l, f);
  if (to) *to = path;
  return true;
}

/* tt-train's messages are "Unknown optimizer type" and "Unknown scheduler type", whatever the key
 * is. */
static void
unknown_choice(tsr_loader *l, const tsr_field *f, const char *key, const tsr_yaml *node) {
  static const char text[] = "the text ";
  const char *found = tsr_yaml_describe(l->arena, node), *noun = NULL;
  if (!strcmp(f->key, "socket_type")) { /* its words, as they are */
    tsr_diag_error(l->diags, node->location, "Unknown socket type: %s", node->text);
    return;
  }
  if (!strcmp(f->key, "scheduler_type") || !strcmp(f->section, "scheduler_config"))
    noun = "scheduler type";
  else if (!strcmp(f->section, "training_config.optimizer")) noun = "optimizer type";
  bool is_text = noun && !strncmp(found, text, strlen(text));
  if (is_text)
    tsr_diag_error(l->diags, node->location, "unknown %s %s", noun, found + strlen(text));
  else tsr_diag_error(l->diags, node->location, "unknown %s: %s", noun ? noun : key, found);
}

static bool read_choice(tsr_loader *l, const tsr_field *f, const char *key, const tsr_yaml *node) {
  if (node->kind != TSR_YAML_SCALAR) return tsr_value_wrong_type(l, f, key, node);
  const char *names[16], *word = node->text;
  int count = 0;
  bool value;
  if (tsr_yaml_bool(node, &value)) word = value ? "true" : "false"; /* True and TRUE, too */
  for (const tsr_field_choice *c = f->choices; c->name; c++) {
    if (!strcmp(c->name, word)) {
      if (c->unsupported) return tsr_value_unsupported(l, node->location, c->unsupported);
      int *to = member(l, f);
      if (to) *to = c->value;
      return true;
    }
    if (!c->unsupported && count < 16) names[count++] = c->name;
  }
  unknown_choice(l, f, key, node);
  tsr_diag_nearest(l->diags, node->text, names, count);
  return false;
}

static bool scale_bytes(const char *unit, double *ret_scale) {
  static const struct {
    const char *name;
    double scale;
  } units[] = {
      {"", 1},
      {"B", 1},
      {"kB", 1e3},
      {"KB", 1e3},
      {"MB", 1e6},
      {"GB", 1e9},
      {"TB", 1e12},
      {"KiB", 1024.0},
      {"MiB", 1048576.0},
      {"GiB", 1073741824.0},
      {"TiB", 1099511627776.0}};
  for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
    if (strcmp(unit, units[i].name)) continue;
    *ret_scale = units[i].scale;
    return true;
  }
  return false;
}

static bool read_bytes(tsr_loader *l, const tsr_field *f, const char *key, const tsr_yaml *node) {
  if (node->kind != TSR_YAML_SCALAR) return tsr_value_wrong_type(l, f, key, node);
  char *end;
  double scale, value = strtod(node->text, &end);
  if (end == node->text || !isfinite(value)) return tsr_value_wrong_type(l, f, key, node);
  while (*end == ' ') end++;
  if (!scale_bytes(end, &scale)) return tsr_value_wrong_type(l, f, key, node);
  value *= scale;
  if (value > 9e18) return out_of_range(l, key, node);
  if (!in_range(l, f, key, node, value)) return false;
  int64_t *to = member(l, f);
  if (to) *to = (int64_t)value;
  return true;
}

bool tsr_scalar_read(tsr_loader *l, const tsr_field *f, const char *key, const tsr_yaml *node) {
  static bool (*const readers[])(
      tsr_loader *, const tsr_field *, const char *, const tsr_yaml *) = {
      [TSR_FIELD_INT] = read_int,       [TSR_FIELD_SEED] = read_int,
      [TSR_FIELD_FLOAT] = read_float,   [TSR_FIELD_BOOL] = read_bool,
      [TSR_FIELD_TEXT] = read_text,     [TSR_FIELD_PATH] = read_path,
      [TSR_FIELD_CHOICE] = read_choice, [TSR_FIELD_BYTES] = read_bytes,
  };
  assert((size_t)f->type < sizeof readers / sizeof *readers);
  return readers[f->type](l, f, key, node);
}
