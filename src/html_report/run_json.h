// SPDX-License-Identifier: Apache-2.0
/* What the page has of one run: an object of the list "runs" in its JSON. */
#ifndef TSR_HTML_REPORT_RUN_JSON_H
#define TSR_HTML_REPORT_RUN_JSON_H
#include "checkpoint/folder.h"
#include "html_report/run_metrics.h"
#include "report/run_lock.h"

typedef struct {
  const char *name; /* of the folder, as it was given */
  tsr_run_metrics metrics;
  const char *config;       /* the text of config.yaml; NULL: there is none */
  const tsr_run_lock *lock; /* NULL: there is none */
  tsr_checkpoint_entry *checkpoints;
  int checkpoints_count;
  const char *plan;     /* JSON (plan_json.h); NULL: there is none */
  const char *warnings; /* what could not be read or planned, lines of text */
} tsr_page_run;

/* {"name", "start", "end": lines of the metrics or null, "series": [series.h…], "restarts":
 * [step…], "samples": [[step, text]…], "lines", "broken", "problems": [text…], "config", "lock":
 * {"policy", "starts": [{"step", "mesh", "ranks", "processes", "threads", "isa", "cpu",
 * "version"}…]}, "checkpoints": [[step, folder]…], "warnings": [text…], "plan"} */
void tsr_run_json(const tsr_page_run *run, tsr_text *json);

#endif
