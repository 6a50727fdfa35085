// SPDX-License-Identifier: Apache-2.0
#include "train/sequence_reduction_units.h"
#include <stdio.h>

/* Runs of positions that no rank may share. */
static int64_t runs(const tsr_config *c, const tsr_parallel *p) {
  int64_t cp = p->size[TSR_CP], tp = c->device.enable_sp ? p->size[TSR_TP] : 1;
  return cp * (cp > 1 && c->device.cp_layout == TSR_CP_ZIGZAG ? 2 : 1) * tp;
}

static bool is_power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

int64_t tsr_sequence_units_count(const tsr_config *c, const tsr_parallel *p) {
  int64_t given = c->numerics.units_sequence, needed = runs(c, p);
  bool fits = given % needed == 0;
  return given && (fits || c->numerics.policy != TSR_NUMERICS_FAST) ? given : needed;
}

static tsr_location place_of(const tsr_config *c, const tsr_parallel *p) {
  static const char *const keys[] = {
      "numerics.units.sequence", "device_config.enable_cp", "device_config.enable_sp"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    tsr_location location = tsr_config_location(c, keys[i]);
    if (location.file) return location;
  }
  return tsr_axis_place(c, p->size[TSR_CP] > 1 ? TSR_CP : TSR_TP);
}

/* The tree takes the units of a zigzag recipe from both ends, also where cp = 1, and two of them in
 * their order. */
static bool
check_layout(const tsr_config *c, const tsr_parallel *p, int64_t units, tsr_diags *diags) {
  bool zigzag = c->device.cp_layout == TSR_CP_ZIGZAG && (p->size[TSR_CP] > 1 || units > 2);
  if (!zigzag || !c->device.enable_sp || p->size[TSR_TP] == 1) return true;
  tsr_diag_error(
      diags, tsr_config_location(c, "device_config.cp_layout"),
      "cp_layout 'zigzag' and enable_sp do not go together: tp would split a rank's two runs of "
      "positions");
  tsr_diag_hint(diags, "cp_layout: contiguous, or without enable_sp");
  return false;
}

static bool is_zigzag(const tsr_config *c, const tsr_parallel *p) {
  return c->device.cp_layout == TSR_CP_ZIGZAG && p->size[TSR_CP] > 1;
}

static bool is_split_twice(const tsr_config *c, const tsr_parallel *p) {
  return p->size[TSR_CP] > 1 && c->device.enable_sp && p->size[TSR_TP] > 1;
}

/* In a flat tree a rank's positions are one unit, or all of them are: also in sums over what
 * sequence parallelism has gathered, of which each rank of cp then has tp's units. */
static bool fits_flat(const tsr_config *c, const tsr_parallel *p, int64_t units) {
  int64_t needed = runs(c, p);
  if (p->tree == TSR_TREE_BINARY || needed == 1) return true;
  return units == needed && !is_zigzag(c, p) && !is_split_twice(c, p);
}

/* The axes that split positions, with their sizes: "cp = 2, tp = 4". */
typedef struct {
  char text[64];
} axes_text;

static axes_text splitting_axes(const tsr_config *c, const tsr_parallel *p) {
  axes_text t;
  int length = snprintf(t.text, sizeof t.text, "cp = %d", p->size[TSR_CP]);
  if (c->device.enable_sp)
    snprintf(t.text + length, sizeof t.text - (size_t)length, ", tp = %d", p->size[TSR_TP]);
  return t;
}

bool tsr_sequence_units_fit(const tsr_config *c, const tsr_parallel *p) {
  int64_t units = c->numerics.units_sequence;
  return !units || (units % runs(c, p) == 0 && fits_flat(c, p, units));
}

static bool
check_flat(const tsr_config *c, const tsr_parallel *p, int64_t units, tsr_diags *diags) {
  int64_t needed = runs(c, p);
  bool zigzag = is_zigzag(c, p);
  if (fits_flat(c, p, units)) return true;
  if (is_split_twice(c, p)) {
    tsr_diag_error(
        diags, tsr_config_location(c, "device_config.enable_sp"),
        "reduce_tree 'flat' and enable_sp do not go together with cp = %d: each rank of cp would "
        "have the sequence units of tp = %d",
        p->size[TSR_CP], p->size[TSR_TP]);
    tsr_diag_hint(diags, "reduce_tree: binary, or one of enable_sp and cp");
    return false;
  }
  if (units % needed) return true; /* which is another error */
  tsr_diag_error(
      diags, place_of(c, p),
      "reduce_tree 'flat' adds %lld sequence units one after the other, and a rank of %s has %lld "
      "of them",
      (long long)units, splitting_axes(c, p).text, (long long)(units * (zigzag ? 2 : 1) / needed));
  tsr_diag_hint(
      diags,
      zigzag ? "cp_layout: contiguous, or reduce_tree: binary"
             : "units.sequence: %lld, or reduce_tree: binary",
      (long long)needed);
  return false;
}

/* What tp splits of a sequence is a multiple of its units, as everything that it splits. */
static bool
check_slices(const tsr_config *c, const tsr_parallel *p, int64_t sequence, tsr_diags *diags) {
  int64_t tp = p->size[TSR_TP], units = c->numerics.units_tp ? c->numerics.units_tp : tp;
  if (!c->device.enable_sp || tp == 1 || sequence % units == 0) return true;
  tsr_diag_error(
      diags, tsr_config_location(c, "device_config.enable_sp"),
      "%lld positions do not divide over tp: its units are %lld", (long long)sequence,
      (long long)units);
  tsr_diag_hint(diags, "sequence parallelism needs a multiple of units.tp");
  return false;
}

bool tsr_sequence_units_check(
    const tsr_config *c, const tsr_parallel *p, int64_t sequence, int64_t *units,
    tsr_diags *diags) {
  tsr_location location = place_of(c, p);
  int64_t needed = runs(c, p);
  if (sequence <= 0) {
    *units = 1;
    if (p->size[TSR_CP] == 1) return true;
    return tsr_diag_error(
        diags, tsr_axis_place(c, TSR_CP),
        "context parallelism splits a sequence, and this model has none");
  }
  if (!check_layout(c, p, *units, diags) || !check_slices(c, p, sequence, diags)) return false;
  if (!check_flat(c, p, *units, diags)) return false;
  if (*units <= 1 && needed == 1) return true;
  if (!is_power_of_two(*units)) {
    tsr_diag_error(
        diags, location, "%lld sequence units are not a power of two", (long long)*units);
    if (!c->numerics.units_sequence)
      tsr_diag_hint(
          diags, "cp%s split positions into that many parts; cp = 2 or 4 would do",
          c->device.enable_sp ? " and tp" : "");
    return false;
  }
  if (sequence % *units)
    return tsr_diag_error(
        diags, location, "%lld sequence units do not divide sequence_length %lld",
        (long long)*units, (long long)sequence);
  if (c->numerics.units_sequence && c->numerics.units_sequence != *units)
    tsr_diag_note(
        diags, location,
        "%lld units do not fit this mesh: with policy 'fast' it uses its own %lld, and other bits",
        (long long)c->numerics.units_sequence, (long long)*units);
  if (*units % needed == 0) return true;
  tsr_diag_error(
      diags, location, "%lld sequence units cannot be split over %s", (long long)*units,
      splitting_axes(c, p).text);
  tsr_diag_hint(diags, "a multiple of %lld can", (long long)needed);
  return false;
}
