// SPDX-License-Identifier: Apache-2.0
/* The metrics of a run that writes them meanwhile: each look reads the lines that are new. A file
 * that was cut (by a run that resumes), replaced or removed is read from its begin. */
#ifndef TSR_HTML_REPORT_METRICS_FOLLOW_H
#define TSR_HTML_REPORT_METRICS_FOLLOW_H
#include "html_report/run_metrics.h"
#include <sys/types.h>

enum { TSR_FOLLOW_TAIL = 256 };

typedef struct {
  const char *path;
  tsr_arena *arena;        /* of what the metrics have; NULL: there is no file */
  tsr_run_metrics metrics; /* empty where there is no file */
  double changed;          /* when it was written to, in seconds since 1970 */
  int64_t begins;          /* grows where points of the series are gone */
  /* ---- private ---- */
  tsr_run_metrics_reader reader;
  int64_t returns; /* of the metrics, which `begins` counts already */
  dev_t device;
  ino_t inode;
  int64_t offset;             /* behind the bytes that were taken */
  bool is_long;               /* which are those of a line beyond TSR_RUN_LINE_MAX so far */
  char tail[TSR_FOLLOW_TAIL]; /* the bytes before it, by which a file that was cut is known */
} tsr_metrics_follow;

/* `path` outlives it. Nothing is read yet. */
void tsr_metrics_follow_open(const char *path, tsr_metrics_follow *ret_follow);
void tsr_metrics_follow_close(tsr_metrics_follow *follow);
/* Whether anything has changed. A last line without its newline waits until it is whole. What the
 * metrics had may be gone. */
bool tsr_metrics_follow_look(tsr_metrics_follow *follow);

#endif
