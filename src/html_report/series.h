// SPDX-License-Identifier: Apache-2.0
/* A number of a run by step, and its JSON for the page. Of many points these are buckets of
 * neighbouring steps; the first and the last point are always exact. */
#ifndef TSR_HTML_REPORT_SERIES_H
#define TSR_HTML_REPORT_SERIES_H
#include "base/arena.h"
#include "base/text.h"

typedef struct {
  int64_t step;
  double value; /* NaN: the line has null */
} tsr_series_point;

typedef struct {
  const char *tag; /* "loss/train" */
  tsr_series_point *points;
  int count, capacity;
} tsr_series;

void tsr_series_add(tsr_arena *arena, tsr_series *series, int64_t step, double value);
/* Leaves the points of steps below `step`. */
void tsr_series_cut(tsr_series *series, int64_t step);

enum { TSR_SERIES_BUCKETS = 1000 };
/* {"tag", "count", "x": [step…], "y": [value…], "first": [step, value], "last", "missing": how many
 * values are no finite numbers, "missing_steps": the first of these}. Of more than twice as many
 * points as there are buckets, y are the means of buckets, x their middle steps, and "lo" and "hi"
 * have the least and the largest value of each. null is no finite number. A reader that has the
 * first `known` points gets {"tag", "same": true} where there are no more, and where y has the
 * points themselves those behind them, with "from": known; 0: it has none. */
void tsr_series_print(const tsr_series *series, int known, tsr_text *json);
/* A finite number by its shortest text that reads back as the same double; others are null. */
void tsr_series_print_number(double value, tsr_text *json);

#endif
