// SPDX-License-Identifier: Apache-2.0
#include "compare/foreign_place.h"
#include <inttypes.h>
#include <stdlib.h>

enum { NUMBERS = 9 }; /* before the shape of a tensor there */

const char *tsr_foreign_place_text(tsr_arena *arena, const tsr_hf_place *p) {
  if (!p->tensors && !tsr_hf_place_is_part(p) && tsr_hf_place_is_run(p)) return NULL;
  const int64_t numbers[NUMBERS] = {p->tensors, p->experts, p->out,    p->in,  p->first,
                                    p->expert,  p->row,     p->column, p->ndim};
  tsr_text text = {0};
  for (int i = 0; i < NUMBERS; i++) tsr_text_add(&text, "%s%" PRId64, i ? " " : "", numbers[i]);
  for (int d = 0; d < p->ndim; d++) tsr_text_add(&text, " %" PRId64, p->whole[d]);
  if (p->span < p->out) tsr_text_add(&text, " %" PRId64 " %" PRId64, p->span, p->group);
  const char *copy = tsr_arena_strdup(arena, text.data);
  tsr_text_free(&text);
  return copy;
}

/* A number that is not negative; false: there is none, or a larger one than 2^40. */
static bool take_number(const char **at, int64_t *ret) {
  char *end;
  long long number = strtoll(*at, &end, 10);
  if (end == *at || number < 0 || number > (int64_t)1 << 40) return false;
  *at = end;
  return *ret = number, true;
}

static bool is_inside(const tsr_hf_place *p) {
  double last = (double)p->first, whole = 1;
  if (!p->experts || !p->out || !p->in || !p->span || p->out % p->span) return false;
  int64_t groups = p->out / p->span;
  last += (double)(p->experts - 1) * (double)p->expert + (double)(p->span - 1) * (double)p->row +
          (double)(groups - 1) * (double)p->group + (double)(p->in - 1) * (double)p->column;
  for (int d = 0; d < p->ndim; d++) whole *= (double)p->whole[d];
  return last < whole;
}

bool tsr_foreign_place_read(const char *name, const char *text, tsr_hf_place *p) {
  int64_t ndim;
  *p = (tsr_hf_place){.name = name};
  int64_t *const numbers[NUMBERS] = {&p->tensors, &p->experts, &p->out,    &p->in, &p->first,
                                     &p->expert,  &p->row,     &p->column, &ndim};
  for (int i = 0; i < NUMBERS; i++)
    if (!take_number(&text, numbers[i])) return false;
  if (ndim > TSR_DIMS_MAX) return false;
  p->ndim = (int)ndim;
  for (int d = 0; d < p->ndim; d++)
    if (!take_number(&text, &p->whole[d])) return false;
  p->span = p->out;
  if (*text && (!take_number(&text, &p->span) || !take_number(&text, &p->group))) return false;
  return !*text && is_inside(p);
}

bool tsr_foreign_place_fits(const tsr_hf_place *p, const tsr_safetensor *there) {
  bool same = there->ndim == p->ndim;
  for (int d = 0; same && d < p->ndim; d++) same = there->shape[d] == p->whole[d];
  return same;
}

void tsr_foreign_place_take(const tsr_hf_place *p, const float *there, float *ours) {
  for (int64_t e = 0; e < p->experts; e++)
    for (int64_t o = 0; o < p->out; o++)
      for (int64_t i = 0; i < p->in; i++)
        *ours++ = there[tsr_hf_place_row(p, e, o) + i * p->column];
}
