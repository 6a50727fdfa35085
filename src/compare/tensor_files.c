// SPDX-License-Identifier: Apache-2.0
#include "compare/tensor_files.h"
#include "base/command_progress.h"
#include "base/file_read.h"
#include "compare/elements.h"
#include "compare/error_bound.h"
#include "compare/file_pairs.h"
#include "compare/tensor_dump.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_MAX = 10 };

/* A pair of tensors whose bits differ. */
typedef struct {
  const char *name;
  bool is_integer;
  tsr_element_difference elements; /* of floats */
  int64_t rows, other_rows;        /* of integers: those along all dimensions but the last */
  bool has_path;
  tsr_error_path path;
  double roundoff; /* of the types in the files */
  double far;      /* elements.apart, or the share of other rows */
  double bound;    /* of `far` */
} difference;

typedef struct {
  tsr_arena *arena;
  tsr_safetensors files[2], bounds[2]; /* bounds: beside the files; closed where there are none */
  difference *differences;
  int count;
  double other_choices; /* the largest share of tokens that have chosen other experts */
  tsr_file_comparison *result;
  tsr_diags *diags;
} comparison;

/* ---- numbers ---- */

static bool read_path(const char *text, tsr_error_path *p) {
  if (sscanf(text, "%lf %lf %lf %lf", &p->roundings, &p->stored, &p->sums, &p->choices) != 4)
    return false;
  double sum = p->roundings + p->stored + p->sums + p->choices;
  return isfinite(sum) && p->roundings >= 0 && p->stored >= 0 && p->sums >= 0 && p->choices >= 0;
}

/* Of the two, the path with the larger errors. */
static void find_path(const comparison *c, const tsr_file_pair *p, difference *d) {
  const char *names[2] = {p->tensor->name, p->there[0]->name};
  for (int i = 0; i < 2; i++) {
    const char *text = tsr_file_metadata(&c->bounds[i ? !p->ours : p->ours], "", names[i]);
    tsr_error_path x;
    if (!text || !read_path(text, &x)) continue;
    d->has_path = true;
    d->path.roundings = fmax(d->path.roundings, x.roundings);
    d->path.stored = fmax(d->path.stored, x.stored);
    d->path.sums = fmax(d->path.sums, x.sums);
    d->path.choices = fmax(d->path.choices, x.choices);
  }
  d->roundoff = fmax(tsr_unit_roundoff(p->tensor->dtype), tsr_unit_roundoff(p->there[0]->dtype));
}

static bool out_of_memory(const comparison *c, const tsr_file_pair *p) {
  return tsr_diag_failure(
      c->diags, (tsr_location){.file = c->files[0].path}, "out of memory: the numbers of '%s'",
      p->tensor->name);
}

static bool compare_floats(const comparison *c, const tsr_file_pair *p, difference *d) {
  float *x = tsr_file_pair_floats(p, c->files, 0), *y = tsr_file_pair_floats(p, c->files, 1);
  bool ok = x && y;
  if (ok) tsr_elements_compare(x, y, tsr_safetensor_elements(p->tensor), &d->elements);
  free(x);
  free(y);
  d->far = d->elements.apart;
  return ok || out_of_memory(c, p);
}

static bool compare_integers(const comparison *c, const tsr_file_pair *p, difference *d) {
  const tsr_safetensor *t = p->tensor;
  int64_t *x = tsr_file_pair_integers(p, c->files, 0), *y = tsr_file_pair_integers(p, c->files, 1);
  int64_t row = t->ndim > 1 ? t->shape[t->ndim - 1] : 1, count = tsr_safetensor_elements(t);
  bool ok = x && y;
  d->is_integer = true;
  for (int64_t i = 0; ok && i < count; i += row, d->rows++)
    d->other_rows += memcmp(x + i, y + i, sizeof *x * (size_t)row) != 0;
  free(x);
  free(y);
  if (d->rows) d->far = (double)d->other_rows / (double)d->rows;
  return ok || out_of_memory(c, p);
}

/* Of types whose numbers cannot be read: a difference of one element, which nothing bounds. */
static void compare_bytes(difference *d) {
  d->is_integer = true;
  d->rows = d->other_rows = 1;
  d->far = 1;
}

/* As the square of a root mean square of so few rows that it varies. */
static void add_choices(comparison *c, const difference *d) {
  double root = sqrt(d->far) + 1 / sqrt((double)d->rows);
  if (d->other_rows) c->other_choices = fmax(c->other_choices, root * root);
}

static bool compare_pair(comparison *c, const tsr_file_pair *p) {
  difference *d = &c->differences[c->count];
  const char *dtype = p->tensor->dtype;
  bool ok = true;
  if (!tsr_file_pair_check(p, c->files, c->diags)) return false;
  c->result->compared++;
  if (tsr_file_pair_same_bits(p, c->files)) return c->result->equal++, true;
  *d = (difference){.name = p->tensor->name};
  find_path(c, p, d);
  if (tsr_dtype_name_is_float(dtype)) ok = compare_floats(c, p, d);
  else if (tsr_dtype_name_is_integer(dtype)) ok = compare_integers(c, p, d);
  else compare_bytes(d);
  if (d->elements.differing || d->other_rows) c->count++;
  else c->result->equal++;
  if (d->is_integer && d->path.choices > 0) add_choices(c, d);
  return ok;
}

/* ---- the verdict ---- */

/* Integers are exact, but for the choices of experts. */
static void bound(const comparison *c, difference *d) {
  double choices = d->is_integer ? 0 : c->other_choices;
  int64_t count = d->is_integer ? d->rows : d->elements.differing;
  if (d->is_integer && d->path.choices == 0) return;
  d->bound = tsr_error_bound(d->path, d->roundoff, choices, count);
  if (d->is_integer) d->bound += 3 / (double)d->rows;
}

static bool is_bounded(const difference *d) { return d->has_path || d->is_integer; }

/* By its elements together, and each alone. */
static bool is_within(const comparison *c, const difference *d) {
  bool moves_rows = c->other_choices > 0 && d->path.choices > 0;
  if (!(d->far <= d->bound)) return false;
  if (d->is_integer || moves_rows) return true;
  double uneven = d->elements.size > 0 ? d->elements.largest / d->elements.size : 1;
  return d->elements.most <= TSR_ELEMENT_BOUNDS * d->bound * fmax(1, uneven);
}

static double excess(const difference *d) {
  if (!is_bounded(d)) return -1;
  return d->bound > 0 ? d->far / d->bound : INFINITY;
}

/* What is furthest beyond its bound first, and what has none by how far it is apart. */
static int by_excess(const void *a, const void *b) {
  const difference *x = a, *y = b;
  double far_x = excess(x), far_y = excess(y);
  if (far_x == far_y) far_x = x->far, far_y = y->far;
  return far_x > far_y ? -1 : far_x < far_y;
}

static void judge(comparison *c) {
  for (int i = 0; i < c->count; i++) {
    difference *d = &c->differences[i];
    bound(c, d);
    c->result->unbounded += !is_bounded(d);
    c->result->beyond += is_bounded(d) && !is_within(c, d);
  }
  qsort(c->differences, (size_t)c->count, sizeof *c->differences, by_excess);
}

/* ---- the report ---- */

static void add_integers(const comparison *c, const difference *d, tsr_text *text) {
  tsr_text_add(
      text, "%s of %s rows of integers", tsr_text_count(d->other_rows).text,
      tsr_text_count(d->rows).text);
  if (d->path.choices > 0)
    tsr_text_add(
        text, "; %s the bound of %.2g %%: experts whose scores are nearly equal",
        is_within(c, d) ? "within" : "beyond", 100 * d->bound);
  tsr_text_add(text, "\n");
}

static void add_difference(const comparison *c, const difference *d, tsr_text *text) {
  const tsr_element_difference *e = &d->elements;
  double size = e->size > 0 ? e->size : 1;
  tsr_text_add(text, "%s: ", d->name);
  if (d->is_integer) return add_integers(c, d, text);
  tsr_text_add(
      text, "%s of %s elements, by at most %.3g; %.2g of its size%s",
      tsr_text_count(e->differing).text, tsr_text_count(e->count).text, e->most, d->far / size,
      e->size > 0 ? "" : ", which is 0,");
  if (d->has_path)
    tsr_text_add(
        text, ", %s the bound of %.2g", is_within(c, d) ? "within" : "beyond", d->bound / size);
  tsr_text_add(
      text, "; element %" PRId64 " is %.9g | %.9g\n", e->first, e->values[0], e->values[1]);
}

static void add_report(const comparison *c, tsr_text *text) {
  const tsr_file_comparison *r = c->result;
  for (int i = 0; i < c->count && i < SHOWN_MAX; i++) add_difference(c, &c->differences[i], text);
  if (c->count > SHOWN_MAX) tsr_text_add(text, "and %d more that differ\n", c->count - SHOWN_MAX);
  tsr_text_add(
      text,
      "tensors: %d compared, %d with the same bits; %d only in the first, %d only in the second\n",
      r->compared, r->equal, r->only[0], r->only[1]);
  if (r->equal == r->compared) tsr_text_add(text, "verdict: equal\n");
  else if (r->beyond)
    tsr_text_add(text, "verdict: %d beyond the bound of rounding errors\n", r->beyond);
  else if (r->unbounded)
    tsr_text_add(
        text, "verdict: %d differ, and no bound is known: neither file is of trace --save\n",
        r->unbounded);
  else tsr_text_add(text, "verdict: within the bound of rounding errors\n");
}

static bool compare_all(comparison *c) {
  tsr_file_pairs found = tsr_file_pairs_find(c->arena, c->files);
  bool ok = true;
  c->differences = tsr_arena_array(c->arena, difference, found.count + 1);
  tsr_command_progress_begin("comparing", found.count, "tensors");
  for (int i = 0; i < found.count; i++) {
    ok &= compare_pair(c, &found.pairs[i]);
    tsr_command_progress_add(1);
  }
  tsr_command_progress_end();
  for (int f = 0; f < 2; f++) c->result->only[f] = found.only[f];
  judge(c);
  if (ok && !c->result->compared)
    return tsr_diag_error(
        c->diags, TSR_NOWHERE, "'%s' and '%s' have no tensor of one name", c->files[0].path,
        c->files[1].path);
  return ok;
}

/* A file, and the bounds beside it if there are any. */
static bool open_file(comparison *c, int i, const char *path) {
  const char *bounds = tsr_tensor_dump_bounds_path(c->arena, path);
  return tsr_safetensors_open(c->arena, path, TSR_NOWHERE, &c->files[i], c->diags) &&
         (!tsr_file_exists(bounds) ||
          tsr_safetensors_open(c->arena, bounds, TSR_NOWHERE, &c->bounds[i], c->diags));
}

bool tsr_tensor_files_compare(
    tsr_arena *arena, const char *first, const char *second, tsr_file_comparison *ret,
    tsr_text *text, tsr_diags *diags) {
  comparison c = {.arena = arena, .result = ret, .diags = diags};
  *ret = (tsr_file_comparison){0};
  bool ok = open_file(&c, 0, first) && open_file(&c, 1, second) && compare_all(&c);
  if (ok) add_report(&c, text);
  for (int i = 0; i < 2; i++) {
    if (c.files[i].map) tsr_safetensors_close(&c.files[i]);
    if (c.bounds[i].map) tsr_safetensors_close(&c.bounds[i]);
  }
  return ok;
}
