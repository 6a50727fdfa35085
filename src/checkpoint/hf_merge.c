// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hf_merge.h"
#include "checkpoint/trained_values.h"
#include "kernels/kernels.h"
#include <math.h>
#include <string.h>

typedef bool read_stored(void *context, const tsr_stored *s, int64_t first, int64_t n, void *ret);

struct tsr_hf_merge {
  tsr_arena *arena;
  const tsr_hf_change *change;
  float *row;     /* a row of A's sums, (in) */
  void *stored;   /* as many elements as are read at once */
  float *factors; /* of rows, with DoRA; NULL before they are known */
};

tsr_hf_merge *tsr_hf_merge_new(tsr_arena *arena, const tsr_hf_change *change) {
  tsr_hf_merge *m = tsr_arena_alloc(arena, sizeof *m);
  *m = (tsr_hf_merge){.arena = arena, .change = change};
  if (change->values) return m;
  m->row = tsr_arena_array(arena, float, change->in);
  m->stored = tsr_arena_array(arena, float, change->in);
  return m;
}

/* scale * (B A)[out, :] */
static void make_row(const tsr_hf_merge *m, int64_t out) {
  const tsr_hf_change *c = m->change;
  memset(m->row, 0, sizeof *m->row * (size_t)c->in);
  for (int64_t k = 0; k < c->rank; k++) {
    float b = c->b[out * c->rank + k];
    const float *a = c->a + k * c->in;
    for (int64_t i = 0; i < c->in; i++) m->row[i] += b * a[i];
  }
  for (int64_t i = 0; i < c->in; i++) m->row[i] *= c->scale;
}

/* Elements [begin, begin + n) of a row of the weight and its adapter; `ret` has room for them. */
static bool add_row(
    tsr_hf_merge *m, const tsr_stored *s, int64_t out, int64_t begin, int64_t n, read_stored *read,
    void *context, float *ret) {
  if (!read(context, s, out * m->change->in + begin, n, m->stored)) return false;
  tsr_numbers_to_f32(tsr_kernels_get(NULL), s->dtype, m->stored, n, ret);
  make_row(m, out);
  for (int64_t i = 0; i < n; i++) ret[i] += m->row[begin + i];
  return true;
}

/* DoRA: the magnitude of each row by its length. */
static bool find_factors(tsr_hf_merge *m, const tsr_stored *s, read_stored *read, void *context) {
  const tsr_hf_change *c = m->change;
  float *row = tsr_arena_array(m->arena, float, c->in);
  float *factors = tsr_arena_array(m->arena, float, c->out);
  for (int64_t o = 0; o < c->out; o++) {
    double squares = 0;
    if (!add_row(m, s, o, 0, c->in, read, context, row)) return false;
    for (int64_t i = 0; i < c->in; i++) squares += (double)row[i] * (double)row[i];
    factors[o] = c->m[o] / (float)sqrt(squares);
  }
  m->factors = factors;
  return true;
}

bool tsr_hf_merge_read(
    tsr_hf_merge *m, const tsr_stored *s, int64_t first, int64_t n, read_stored *read,
    void *context, float *ret) {
  const tsr_hf_change *c = m->change;
  if (c->values) return memcpy(ret, c->values + first, sizeof *ret * (size_t)n), true;
  if (c->m && !m->factors && !find_factors(m, s, read, context)) return false;
  for (int64_t at = first, end = first + n; at < end;) {
    int64_t out = at / c->in, begin = at % c->in, left = c->in - begin;
    int64_t count = left < end - at ? left : end - at;
    if (!add_row(m, s, out, begin, count, read, context, ret)) return false;
    for (int64_t i = 0; c->m && i < count; i++) ret[i] *= m->factors[out];
    at += count;
    ret += count;
  }
  return true;
}
