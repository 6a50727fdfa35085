// SPDX-License-Identifier: Apache-2.0
/* A run's metrics (report/metrics.h) as the page shows them. Where a file has a step twice, as one
 * that was collected from a pipe over a restart has, the later lines count. */
#ifndef TSR_HTML_REPORT_RUN_METRICS_H
#define TSR_HTML_REPORT_RUN_METRICS_H
#include "base/diag.h"
#include "html_report/series.h"

typedef enum {
  TSR_SERIES_LOSS,
  TSR_SERIES_VALIDATION,
  TSR_SERIES_ACCURACY,
  TSR_SERIES_LR,
  TSR_SERIES_GRAD_NORM,
  TSR_SERIES_RATE,    /* tokens a second */
  TSR_SERIES_STEP_MS, /* of a step */
  TSR_SERIES_TOKENS,  /* since the first step */
  TSR_SERIES_SECONDS, /* the sum of the steps' times */
  TSR_SERIES_SCALE,
  TSR_SERIES_IMBALANCE, /* the largest of the layers with experts */
  TSR_SERIES_DROPPED,   /* the sum over these */
  TSR_SERIES_COUNT
} tsr_series_kind;

typedef struct {
  int64_t step;
  const char *text;
} tsr_run_sample;

enum { TSR_RUN_SAMPLES_MAX = 200, TSR_RUN_PROBLEMS_MAX = 10, TSR_RUN_LINE_MAX = 1 << 24 };

typedef struct {
  const char *path;
  tsr_series series[TSR_SERIES_COUNT];
  const char *start, *end; /* these lines, JSON; NULL: there is none. The newest start */
  int64_t *restarts;       /* steps behind which the run was started again */
  int restarts_count, restarts_capacity;
  tsr_run_sample *samples; /* the last ones */
  int samples_count, samples_capacity;
  int64_t lines, broken;                      /* lines that are no line of a run's metrics */
  const char *problems[TSR_RUN_PROBLEMS_MAX]; /* what is wrong with the first of them */
  int64_t returns; /* how often the run went back, so that points of its series are gone */
} tsr_run_metrics;

/* Reads the lines of a file one after another. */
typedef struct {
  tsr_arena *arena; /* of what the metrics have */
  tsr_run_metrics *metrics;
  int64_t step; /* of the newest line */
  double seconds;
} tsr_run_metrics_reader;

/* `path` is what messages name. */
tsr_run_metrics_reader
tsr_run_metrics_begin(tsr_arena *arena, const char *path, tsr_run_metrics *ret_metrics);
/* `is_cut`: its newline is missing; such a line counts where it is whole. False: it was not taken.
 * A line of more than TSR_RUN_LINE_MAX bytes is broken; of such a one the length alone is used. */
bool tsr_run_metrics_add(
    tsr_run_metrics_reader *reader, const char *line, size_t length, bool is_cut);

/* Errors: a file that cannot be read. Lines that are broken are counted; a last line that is cut
 * off is not one, and is read where just its newline is missing. */
bool tsr_run_metrics_read(
    tsr_arena *arena, const char *path, tsr_run_metrics *ret_metrics, tsr_diags *diags);

#endif
