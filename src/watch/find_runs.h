// SPDX-License-Identifier: Apache-2.0
/* The runs at a path: the path itself where it is a file of metrics or a run's folder, else those
 * in the folders below it, as a sweep leaves them. */
#ifndef TSR_WATCH_FIND_RUNS_H
#define TSR_WATCH_FIND_RUNS_H
#include "base/arena.h"
#include <stdbool.h>

enum { TSR_FOUND_RUNS_MAX = 200 };

typedef struct {
  const char *paths[TSR_FOUND_RUNS_MAX]; /* rising by name */
  int count;
  bool is_cut; /* there are more */
} tsr_found_runs;

/* A folder that has metrics.jsonl is a run's. What cannot be read has no runs. Links to folders
 * are not followed below the path; neither are hidden folders, nor more than three levels. */
void tsr_find_runs(tsr_arena *arena, const char *path, tsr_found_runs *ret_runs);

#endif
