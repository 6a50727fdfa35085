// SPDX-License-Identifier: Apache-2.0
/* Pinnings: any of these devices may sit in any of those slots. They are checked, and otherwise
 * Tenstorrent's own affair. */
#include "mesh/mesh_internal.h"
#include <ctype.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

/* One id of one side of a pinning: the plain number or the pattern. */
typedef struct {
  const char *field, *regex_field;
  bool has_id;
  int id;
  const char *regex; /* NULL: none */
} id_or_regex;

/* "0-31" and "0,2,4-6": only digits, commas and dashes make a list of ranges. */
static bool is_range_list(const char *pattern) {
  return *pattern && strspn(pattern, "0123456789,- ") == strlen(pattern);
}

static bool range_list_ok(const char *pattern, const char **ret_why) {
  const char *at = pattern;
  for (;;) {
    char *end;
    if (!isdigit((unsigned char)*at)) return *ret_why = "a number is missing", false;
    unsigned long low = strtoul(at, &end, 10), high = low;
    if (*end == '-') {
      at = end + 1;
      if (!isdigit((unsigned char)*at)) return *ret_why = "a range has no end", false;
      high = strtoul(at, &end, 10);
    }
    if (high < low) return *ret_why = "a range ends below its start", false;
    if (!*end) return true;
    if (*end != ',') return *ret_why = "only commas stand between ranges", false;
    at = end + 1;
  }
}

/* The C library's compiler recurses on brackets and unrolls counted repeats: long or counted
 * patterns could exhaust it, and no id needs them. */
static bool is_modest(const char *pattern) {
  return strlen(pattern) <= 128 && !strchr(pattern, '{');
}

static void
check_pattern(const tsr_mesh_source *source, const void *message, const id_or_regex *x) {
  tsr_location location = tsr_mesh_place(source, message, x->regex_field, 0);
  const char *why = NULL;
  char text[128];
  regex_t compiled;
  if (!*x->regex) why = "it is empty";
  else if (is_range_list(x->regex)) range_list_ok(x->regex, &why);
  else if (!is_modest(x->regex)) why = "at most 128 characters, and no counted repeats";
  else {
    int code = regcomp(&compiled, x->regex, REG_EXTENDED | REG_NOSUB);
    if (!code) regfree(&compiled);
    else {
      regerror(code, &compiled, text, sizeof text);
      why = text;
    }
  }
  if (!why) return;
  tsr_diag_error(source->diags, location, "invalid %s '%.60s': %s", x->regex_field, x->regex, why);
  tsr_diag_hint(source->diags, "valid: \"0-31\", \"0,2,4-6\", or a regular expression");
}

static void check_either(
    const tsr_mesh_source *source, const void *message, const id_or_regex *x, int *uses_plain,
    int *uses_regex) {
  if (x->regex) check_pattern(source, message, x);
  if (x->has_id && x->regex)
    tsr_diag_error(
        source->diags, tsr_mesh_place(source, message, x->regex_field, 0),
        "a pinning takes either %s or %s, not both", x->field, x->regex_field);
  else if ((x->has_id && *uses_regex) || (x->regex && *uses_plain))
    tsr_diag_error(
        source->diags, tsr_mesh_place(source, message, x->regex ? x->regex_field : x->field, 0),
        "a pinning cannot mix %s and %s", x->field, x->regex_field);
  *uses_plain |= x->has_id;
  *uses_regex |= x->regex != NULL;
}

static void check_byte(const tsr_mesh_source *source, const void *message, const id_or_regex *x) {
  if (x->has_id && (x->id < 0 || x->id > 255))
    tsr_diag_error(
        source->diags, tsr_mesh_place(source, message, x->field, 0),
        "%s must be from 0 to 255, not %d", x->field, x->id);
}

static void check_pinning(const tsr_mesh_source *source, const pb_pinning *p) {
  tsr_location location = tsr_mesh_place(source, p, NULL, 0);
  bool damaged = tsr_places_is_damaged(source->places, p);
  if (!p->n_logical_fabric_node_id && !damaged)
    tsr_diag_error(source->diags, location, "a pinning needs at least one logical_fabric_node_id");
  if (!p->n_physical_asic_position && !damaged)
    tsr_diag_error(source->diags, location, "a pinning needs at least one physical_asic_position");
  int plain[4] = {0}, regex[4] = {0};
  for (size_t i = 0; i < p->n_logical_fabric_node_id; i++) {
    const pb_node_id *n = p->logical_fabric_node_id[i];
    id_or_regex mesh = {"mesh_id", "mesh_id_regex", n->has_mesh_id, n->mesh_id, n->mesh_id_regex};
    id_or_regex chip = {"chip_id", "chip_id_regex", n->has_chip_id, n->chip_id, n->chip_id_regex};
    check_either(source, n, &mesh, &plain[0], &regex[0]);
    check_either(source, n, &chip, &plain[1], &regex[1]);
  }
  for (size_t i = 0; i < p->n_physical_asic_position; i++) {
    const pb_position *s = p->physical_asic_position[i];
    id_or_regex tray = {"tray_id", "tray_id_regex", s->has_tray_id, s->tray_id, s->tray_id_regex};
    id_or_regex asic = {
        "asic_location", "asic_location_regex", s->has_asic_location, s->asic_location,
        s->asic_location_regex};
    check_either(source, s, &tray, &plain[2], &regex[2]);
    check_either(source, s, &asic, &plain[3], &regex[3]);
    check_byte(source, s, &tray);
    check_byte(source, s, &asic);
  }
}

bool tsr_mesh_check_pinnings(const tsr_mesh_source *source) {
  int errors = tsr_diags_errors(source->diags);
  for (size_t i = 0; i < source->root->n_pinnings; i++)
    check_pinning(source, source->root->pinnings[i]);
  return tsr_diags_errors(source->diags) == errors;
}

typedef struct {
  int id;
  int64_t devices;
} mesh_size;

static int compare_sizes(const void *a, const void *b) {
  const mesh_size *x = a, *y = b;
  return x->id != y->id ? (x->id < y->id ? -1 : 1)
                        : (x->devices > y->devices) - (x->devices < y->devices);
}

static void check_node(
    const tsr_mesh_source *source, const pb_node_id *n, const mesh_size *sizes, size_t count) {
  if (n->mesh_id_regex) return;
  size_t low = 0, high = count;
  while (low < high) { /* the first one with a greater id: the largest of equal ids is before it */
    size_t middle = (low + high) / 2;
    if (sizes[middle].id <= n->mesh_id) low = middle + 1;
    else high = middle;
  }
  if (!low || sizes[low - 1].id != n->mesh_id)
    tsr_diag_error(
        source->diags, tsr_mesh_place(source, n, "mesh_id", 0), "pinned mesh id %d not found",
        n->mesh_id);
  else if (!n->chip_id_regex && (n->chip_id < 0 || n->chip_id >= sizes[low - 1].devices))
    tsr_diag_error(
        source->diags, tsr_mesh_place(source, n, "chip_id", 0),
        "pinned chip id %d not found: mesh %d has devices 0 to %lld", n->chip_id, n->mesh_id,
        (long long)sizes[low - 1].devices - 1);
}

bool tsr_mesh_check_pinned(const tsr_mesh_source *source, const tsr_mesh *mesh) {
  if (!source->root->n_pinnings) return true;
  int errors = tsr_diags_errors(source->diags);
  mesh_size *sizes = tsr_arena_array(source->arena, mesh_size, mesh->instances_count);
  size_t count = 0;
  for (int i = 0; i < mesh->instances_count; i++)
    if (mesh->instances[i].shape)
      sizes[count++] = (mesh_size){mesh->instances[i].id, mesh->instances[i].shape->devices};
  qsort(sizes, count, sizeof *sizes, compare_sizes);
  for (size_t i = 0; i < source->root->n_pinnings; i++) {
    const pb_pinning *p = source->root->pinnings[i];
    for (size_t k = 0; k < p->n_logical_fabric_node_id; k++)
      check_node(source, p->logical_fabric_node_id[k], sizes, count);
  }
  return tsr_diags_errors(source->diags) == errors;
}
