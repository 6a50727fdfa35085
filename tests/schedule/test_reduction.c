// SPDX-License-Identifier: Apache-2.0
/* The tree of a reduction's leaves against its definition: what is even is halved, of what is odd
 * the largest power of two comes first, and each unit is the tree of the next axis' units. */
#include "schedule/sum_order.h"
#include "tests/check.h"
#include <stdio.h>
#include <string.h>

enum { LEAVES = 1024, TEXT = 1 << 16 };

/* "(0 1)" is leaf 0 plus leaf 1. */
typedef struct {
  char text[TEXT];
  int length;
} expression;

static void put(expression *e, const char *text) {
  int length = (int)strlen(text);
  memcpy(e->text + e->length, text, (size_t)length + 1);
  e->length += length;
}

/* Units [first, first + n) of count[0], each of `below` leaves. */
static void define(expression *e, const int64_t *count, int levels, int64_t first, int64_t n) {
  int64_t below = 1, half = n / 2;
  char number[24];
  for (int k = 1; k < levels; k++) below *= count[k];
  if (n == 1 && levels > 1) return define(e, count + 1, levels - 1, first, count[1]);
  if (n == 1) {
    snprintf(number, sizeof number, "%d", (int)first);
    return put(e, number);
  }
  if (n % 2)
    for (half = 1; 2 * half < n; half *= 2) continue;
  put(e, "(");
  define(e, count, levels, first, half);
  put(e, " ");
  define(e, count, levels, first + half * below, n - half);
  put(e, ")");
}

/* Entry k of the stack begins at begin[k] of the text. */
static void add(const tsr_reduction *r, expression *e) {
  static int begin[LEAVES];
  int top = 0;
  for (int64_t leaf = 0; leaf < tsr_reduction_leaves(r); leaf++) {
    char number[24];
    CHECK_INT(tsr_reduction_entries(r, leaf), top);
    begin[top++] = e->length;
    CHECK(top <= tsr_reduction_depth(r));
    snprintf(number, sizeof number, "%d", (int)leaf);
    put(e, number);
    for (int merges = tsr_reduction_merges(r, leaf); merges && top > 1; merges--, top--) {
      int at = begin[top - 2], second = begin[top - 1];
      memmove(e->text + second + 2, e->text + second, (size_t)(e->length - second));
      memmove(e->text + at + 1, e->text + at, (size_t)(second - at));
      e->text[at] = '(';
      e->text[second + 1] = ' ';
      e->length += 2;
      put(e, ")");
    }
  }
  CHECK_INT(top, 1);
}

static void try_counts(int64_t batch, int64_t sequence, int64_t tp, bool keeps_batch) {
  static expression want, got;
  tsr_reduction r = tsr_reduction_none();
  r.batch = batch;
  r.sequence = sequence;
  r.tp = tp;
  r.keeps_batch = keeps_batch;
  const int64_t count[] = {keeps_batch ? 1 : batch, sequence, tp};
  want.length = got.length = 0;
  define(&want, count, 3, 0, count[0]);
  add(&r, &got);
  CHECK_AT(
      !strcmp(got.text, want.text), "%d batch, %d sequence, %d tp units: %s", (int)batch,
      (int)sequence, (int)tp, got.text);
}

int main(void) {
  for (int64_t batch = 1; batch <= 24; batch++)
    for (int64_t sequence = 1; sequence <= 8; sequence *= 2)
      for (int64_t tp = 1; tp <= 5; tp++) try_counts(batch, sequence, tp, batch % 3 == 0);
  try_counts(96, 1, 1, false);
  try_counts(1, 1, 1, true);
  return check_done("reduction");
}
