// SPDX-License-Identifier: Apache-2.0
#include "collective_oracle.h"
#include <math.h>
#include <string.h>

enum { LOOKED_AT = 100000 };

/* ---- numbers: IEEE 754-2019, 3.4 ---- */

/* Bits of the fraction, and the exponent of the least normal number. */
static int fraction_of(tsr_dtype dtype) { return dtype == TSR_BF16 ? 7 : 10; }
static int least_of(tsr_dtype dtype) { return dtype == TSR_BF16 ? -126 : -14; }

float collective_oracle_read(tsr_dtype dtype, const void *x, int64_t at) {
  if (dtype == TSR_F32) return ((const float *)x)[at];
  int bits = ((const uint16_t *)x)[at], fraction = fraction_of(dtype);
  int exponent = (bits & 0x7fff) >> fraction, rest = bits & ((1 << fraction) - 1);
  if (exponent) rest += 1 << fraction;
  int scale = least_of(dtype) - fraction + (exponent ? exponent - 1 : 0);
  return ldexpf((float)(bits & 0x8000 ? -rest : rest), scale) * (rest || bits < 0x8000 ? 1 : -1);
}

void collective_oracle_write(tsr_dtype dtype, void *x, int64_t at, float number) {
  if (dtype == TSR_F32) {
    ((float *)x)[at] = number;
    return;
  }
  int least = least_of(dtype), fraction = fraction_of(dtype);
  int exponent = number == 0 || ilogbf(number) < least ? least : ilogbf(number);
  /* The default rounding is to even, and a step too far is the next exponent's first number. */
  int steps = (int)rint(ldexp(fabs((double)number), fraction - exponent));
  int code = steps + ((exponent - least) << fraction);
  ((uint16_t *)x)[at] = (uint16_t)(code | (signbit(number) ? 0x8000 : 0));
}

/* ---- the order of a sum: docs/architecture.md, "The tree" ---- */

/* In half precision a sum of two is made in f32 and rounded. */
static float add_two(tsr_dtype dtype, float x, float y) {
  float sum;
  collective_oracle_write(dtype, &sum, 0, x + y);
  return collective_oracle_read(dtype, &sum, 0);
}

/* Summands [begin, begin + count) of an odd number: the largest power of two that fits, plus the
 * sum of the rest. */
static float add_counted(tsr_dtype dtype, const float *x, int count);

/* An even number is halved. */
static float add(tsr_dtype dtype, const float *x, int count) {
  if (count == 1) return x[0];
  if (count % 2) return add_counted(dtype, x, count);
  return add_two(dtype, add(dtype, x, count / 2), add(dtype, x + count / 2, count / 2));
}

static float add_counted(tsr_dtype dtype, const float *x, int count) {
  int most = 1;
  while (2 * most <= count) most *= 2;
  if (most == count) return add(dtype, x, count);
  return add_two(dtype, add(dtype, x, most), add_counted(dtype, x + most, count - most));
}

/* ---- where an element lies ---- */

typedef struct {
  int64_t at[TSR_DIMS_MAX];
} coordinates;

static coordinates coordinates_of(const tsr_collective *c, int64_t element) {
  coordinates x;
  for (int d = c->ndim - 1; d >= 0; d--) {
    x.at[d] = element % c->shape[d];
    element /= c->shape[d];
  }
  return x;
}

/* The block of dimension `dim`, split into `blocks`, that has the element, and its place there. In
 * zigzag a block is run b and run 2 * blocks - 1 - b of 2 * blocks runs. */
static int64_t
place_in_block(const tsr_collective *c, coordinates x, int dim, int blocks, bool zigzag, int *ret) {
  int64_t size = c->shape[dim] / blocks, location = 0;
  *ret = (int)(x.at[dim] / size);
  int64_t within = x.at[dim] % size;
  if (zigzag) {
    int64_t run = size / 2, number = x.at[dim] / run;
    bool second = number >= blocks;
    *ret = (int)(second ? 2 * blocks - 1 - number : number);
    within = x.at[dim] % run + (second ? run : 0);
  }
  for (int d = 0; d < c->ndim; d++)
    location = location * (d == dim ? size : c->shape[d]) + (d == dim ? within : x.at[d]);
  return location;
}

static float sum_at(const tsr_collective *c, const float *before, int64_t element) {
  static _Thread_local float summands[1 << 16];
  for (int m = 0; m < c->members; m++)
    summands[m] = collective_oracle_read(c->dtype, c->in[m], element);
  if (c->tree == TSR_TREE_BINARY) return add(c->dtype, summands, c->members);
  float sum = summands[0];
  if (c->onto)
    sum = add_two(c->dtype, collective_oracle_read(c->dtype, before, element), summands[0]);
  for (int m = 1; m < c->members; m++) sum = add_two(c->dtype, sum, summands[m]);
  return sum;
}

static bool
same(const tsr_collective *c, const void *a, int64_t a_at, const void *b, int64_t b_at) {
  return !memcmp(
      (const char *)a + a_at * c->element, (const char *)b + b_at * c->element, (size_t)c->element);
}

/* ---- collectives ---- */

/* Members that have element `e` of the whole tensor wrongly. */
static int wrong_at(const tsr_collective *c, const float *before, int64_t e) {
  int blocks = c->members / c->groups, wrong = 0, has = 0, gets = 0;
  coordinates x = coordinates_of(c, e);
  int64_t from = c->from < 0 ? e : place_in_block(c, x, c->from, blocks, c->zigzag, &has);
  int64_t to = c->to < 0 ? e : place_in_block(c, x, c->to, blocks, false, &gets);
  float sum = 0;
  if (c->op == TSR_OP_ALL_REDUCE || c->op == TSR_OP_REDUCE_SCATTER || c->op == TSR_OP_REDUCE)
    collective_oracle_write(c->dtype, &sum, 0, sum_at(c, before, e));
  for (int m = 0; m < c->members; m++) {
    int neighbours = m / blocks * blocks; /* the first of the member's group */
    switch ((int)c->op) {
    case TSR_OP_ALL_REDUCE:
      wrong += !same(c, c->out[m], e, &sum, 0);
      break;
    case TSR_OP_REDUCE_SCATTER:
      if (m % blocks == gets) wrong += !same(c, c->out[m], to, &sum, 0);
      break;
    case TSR_OP_ALL_GATHER:
      wrong += !same(c, c->out[m], e, c->in[neighbours + has], from);
      break;
    case TSR_OP_REDUCE: /* the others' tensors are zero before */
      wrong += !same(c, c->out[m], e, m % blocks == c->root ? &sum : &(float){0}, 0);
      break;
    case TSR_OP_BROADCAST:
      wrong += !same(c, c->out[m], e, c->in[neighbours + c->root], e);
      break;
    case TSR_OP_RING_SHIFT:
      wrong += !same(c, c->out[(m + c->by + 64 * c->members) % c->members], e, c->in[m], e);
      break;
    default: /* all_to_all */
      if (m == gets) wrong += !same(c, c->out[m], to, c->in[has], from);
    }
  }
  return wrong;
}

void collective_oracle_place(const tsr_collective *c, const float *whole) {
  int64_t elements = 1;
  int blocks = c->members / c->groups, gets = 0;
  for (int d = 0; d < c->ndim; d++) elements *= c->shape[d];
  for (int64_t e = 0; e < elements; e++) {
    int64_t to = e;
    if (c->to >= 0) to = place_in_block(c, coordinates_of(c, e), c->to, blocks, false, &gets);
    for (int m = 0; m < c->members; m++)
      if (c->op == TSR_OP_REDUCE ? m % blocks == c->root : c->to < 0 || m % blocks == gets)
        collective_oracle_write(
            c->dtype, c->out[m], to, collective_oracle_read(c->dtype, whole, e));
  }
}

int64_t collective_oracle_differences(const tsr_collective *c, const float *before) {
  int64_t elements = 1, wrong = 0;
  for (int d = 0; d < c->ndim; d++) elements *= c->shape[d];
  int64_t distance = elements * c->members / LOOKED_AT + 1;
  for (int64_t e = 0; e < elements; e += distance) wrong += wrong_at(c, before, e);
  return wrong + wrong_at(c, before, elements - 1);
}
