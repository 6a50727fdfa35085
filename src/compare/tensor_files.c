// SPDX-License-Identifier: Apache-2.0
#include "compare/tensor_files.h"
#include "base/memory.h"
#include "checkpoint/safetensors.h"
#include "compare/elements.h"
#include "compare/error_bound.h"
#include "kernels/kernels.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_MAX = 10 };

/* A pair of tensors whose bits differ. */
typedef struct {
  const char *name;
  tsr_element_difference elements;
  double deviation, bound; /* bound 0: not known */
} pair;

typedef struct {
  tsr_arena *arena;
  tsr_safetensors files[2];
  pair *pairs;
  int count;
  tsr_file_comparison *result;
  tsr_diags *diags;
} comparison;

static const char *metadata_of(const tsr_safetensors *f, const char *prefix, const char *name) {
  size_t length = strlen(prefix);
  for (int i = 0; i < f->metadata_count; i++) {
    const char *key = f->metadata[2 * i];
    if (!strncmp(key, prefix, length) && !strcmp(key + length, name)) return f->metadata[2 * i + 1];
  }
  return NULL;
}

/* The tensor of the other file that is this one: by its name, or by the name that either file has
 * for it in Hugging Face's models. */
static int find_partner(const tsr_safetensors *of, const tsr_safetensors *other, const char *name) {
  const char *foreign = metadata_of(of, "hf.", name);
  int at = tsr_safetensors_find(other, name);
  if (at < 0 && foreign) at = tsr_safetensors_find(other, foreign);
  for (int i = 0; at < 0 && i < other->metadata_count; i++)
    if (!strncmp(other->metadata[2 * i], "hf.", 3) && !strcmp(other->metadata[2 * i + 1], name))
      at = tsr_safetensors_find(other, other->metadata[2 * i] + 3);
  return at;
}

/* ---- numbers ---- */

static bool is_float(const char *dtype) { return tsr_unit_roundoff(dtype) > 0; }

static float *read_numbers(const tsr_safetensors *f, const tsr_safetensor *t, int64_t count) {
  const tsr_kernels *k = tsr_kernels_get(NULL);
  const void *bytes = f->map + t->offset;
  float *numbers = tsr_memory_try(sizeof *numbers * (size_t)(count + 1));
  if (!numbers) return NULL;
  if (!strcmp(t->dtype, "BF16")) k->bf16_to_f32(numbers, bytes, 0, count);
  else if (!strcmp(t->dtype, "F16")) k->fp16_to_f32(numbers, bytes, 0, count);
  else memcpy(numbers, bytes, sizeof *numbers * (size_t)count);
  return numbers;
}

/* As dimensions of 1 do not matter, neither do those of a scalar. */
static bool same_shape(const tsr_safetensor *a, const tsr_safetensor *b) {
  int i = 0, k = 0;
  for (;; i++, k++) {
    while (i < a->ndim && a->shape[i] == 1) i++;
    while (k < b->ndim && b->shape[k] == 1) k++;
    if (i >= a->ndim || k >= b->ndim) return i >= a->ndim && k >= b->ndim;
    if (a->shape[i] != b->shape[k]) return false;
  }
}

static double bound_of(const comparison *c, const tsr_safetensor *a, const tsr_safetensor *b) {
  const tsr_safetensor *of[] = {a, b};
  double roundoff = fmax(tsr_unit_roundoff(a->dtype), tsr_unit_roundoff(b->dtype));
  double bound = 0;
  for (int i = 0; i < 2; i++) {
    const char *path = metadata_of(&c->files[i], "path.", of[i]->name);
    tsr_rounding_path p;
    if (!path || sscanf(path, "%lf %lf %lf", &p.roundings, &p.stored, &p.sums) != 3) continue;
    bound = fmax(bound, tsr_error_bound(p, roundoff));
  }
  return bound;
}

static bool compare_pair(comparison *c, const tsr_safetensor *a, const tsr_safetensor *b) {
  pair *p = &c->pairs[c->count];
  tsr_location location = {.file = c->files[1].path};
  int64_t count = 1;
  for (int d = 0; d < a->ndim; d++) count *= a->shape[d];
  if (!same_shape(a, b))
    return tsr_diag_error(
        c->diags, location, "'%s' is %s, and '%s' in '%s' %s", b->name,
        tsr_shape_text(b->ndim, b->shape).text, a->name, c->files[0].path,
        tsr_arena_strdup(c->arena, tsr_shape_text(a->ndim, a->shape).text));
  c->result->compared++;
  bool same = !strcmp(a->dtype, b->dtype) && a->bytes == b->bytes &&
              !memcmp(c->files[0].map + a->offset, c->files[1].map + b->offset, (size_t)a->bytes);
  if (same) return c->result->equal++, true;
  if (!is_float(a->dtype) || !is_float(b->dtype)) {
    *p = (pair){.name = a->name, .deviation = INFINITY, .bound = 1};
    c->count++;
    return true;
  }
  float *x = read_numbers(&c->files[0], a, count), *y = read_numbers(&c->files[1], b, count);
  bool ok = x && y;
  if (ok) {
    *p = (pair){.name = a->name, .bound = bound_of(c, a, b)};
    tsr_elements_compare(x, y, count, &p->elements);
    p->deviation = tsr_elements_deviation(&p->elements);
    if (p->elements.differing) c->count++;
    else c->result->equal++;
  }
  free(x);
  free(y);
  return ok || tsr_diag_failure(
                   c->diags, location, "out of memory: %s for '%s'", tsr_text_bytes(8 * count).text,
                   b->name);
}

/* ---- the report ---- */

static double excess(const pair *p) { return p->bound > 0 ? p->deviation / p->bound : 0; }

static int by_excess(const void *a, const void *b) {
  double x = excess(a), y = excess(b);
  if (x != y) return x < y ? 1 : -1;
  double far_a = ((const pair *)a)->deviation, far_b = ((const pair *)b)->deviation;
  return far_a < far_b ? 1 : far_a > far_b ? -1 : 0;
}

static void add_pair(const pair *p, tsr_text *text) {
  tsr_text_add(text, "%s: ", p->name);
  if (!p->elements.count) {
    tsr_text_add(text, "the integers differ\n");
    return;
  }
  tsr_text_add(
      text, "%s of %s elements, by at most %.3g, %.2g of the largest",
      tsr_text_count(p->elements.differing).text, tsr_text_count(p->elements.count).text,
      p->elements.most, p->deviation);
  if (p->bound > 0)
    tsr_text_add(
        text, "; %s the bound of %.2g", p->deviation <= p->bound ? "within" : "beyond", p->bound);
  tsr_text_add(
      text, "; element %" PRId64 " is %.9g | %.9g\n", p->elements.first, p->elements.values[0],
      p->elements.values[1]);
}

static void add_report(const comparison *c, tsr_text *text) {
  const tsr_file_comparison *r = c->result;
  for (int i = 0; i < c->count && i < SHOWN_MAX; i++) add_pair(&c->pairs[i], text);
  if (c->count > SHOWN_MAX) tsr_text_add(text, "and %d more that differ\n", c->count - SHOWN_MAX);
  tsr_text_add(
      text,
      "tensors: %d compared, %d with the same bits; %d only in the first, %d only in the second\n",
      r->compared, r->equal, r->only[0], r->only[1]);
  if (!r->compared) return;
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
  const tsr_safetensors *a = &c->files[0], *b = &c->files[1];
  bool ok = true;
  c->pairs = tsr_arena_array(c->arena, pair, a->tensors_count + 1);
  for (int i = 0; i < a->tensors_count; i++) {
    int at = find_partner(a, b, a->tensors[i].name);
    if (at < 0) c->result->only[0]++;
    else ok &= compare_pair(c, &a->tensors[i], &b->tensors[at]);
  }
  for (int i = 0; i < b->tensors_count; i++)
    c->result->only[1] += find_partner(b, a, b->tensors[i].name) < 0;
  for (int i = 0; i < c->count; i++) {
    c->result->beyond += c->pairs[i].bound > 0 && !(c->pairs[i].deviation <= c->pairs[i].bound);
    c->result->unbounded += !(c->pairs[i].bound > 0);
  }
  qsort(c->pairs, (size_t)c->count, sizeof *c->pairs, by_excess);
  if (ok && !c->result->compared)
    return tsr_diag_error(
        c->diags, TSR_NOWHERE, "'%s' and '%s' have no tensor of one name", a->path, b->path);
  return ok;
}

bool tsr_tensor_files_compare(
    tsr_arena *arena, const char *first, const char *second, tsr_file_comparison *ret,
    tsr_text *text, tsr_diags *diags) {
  comparison c = {.arena = arena, .result = ret, .diags = diags};
  *ret = (tsr_file_comparison){0};
  if (!tsr_safetensors_open(arena, first, TSR_NOWHERE, &c.files[0], diags)) return false;
  bool ok = tsr_safetensors_open(arena, second, TSR_NOWHERE, &c.files[1], diags) && compare_all(&c);
  if (ok) add_report(&c, text);
  tsr_safetensors_close(&c.files[0]);
  if (c.files[1].map) tsr_safetensors_close(&c.files[1]);
  return ok;
}
