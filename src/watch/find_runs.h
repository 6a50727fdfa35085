// SPDX-License-Identifier: Apache-2.0
/* The runs at a path: the path itself where it is a file of metrics or a run's folder, else those
 * in the folders below it, as a sweep leaves them. */
#ifndef TSR_WATCH_FIND_RUNS_H
#define TSR_WATCH_FIND_RUNS_H
#include "base/arena.h"
#include <stdbool.h>

typedef struct {
  const char *path;
  double changed; /* when its metrics were written to, in seconds since 1970 */
} tsr_found_run;

typedef struct {
  tsr_found_run *items;
  int count, capacity;
} tsr_found_runs;

/* Adds the runs at a path, in no order. A folder that has metrics.jsonl is a run's. What cannot be
 * read has no runs. Links to folders are not followed below the path; neither are hidden folders,
 * nor more than three levels. */
void tsr_find_runs(tsr_arena *arena, const char *path, tsr_found_runs *runs);

/* The runs that were written to last come first; of one time, by name. */
void tsr_found_runs_sort_by_time(tsr_found_runs *runs);
/* The first `count` runs rise by name. */
void tsr_found_runs_sort_by_name(tsr_found_runs *runs, int count);

#endif
