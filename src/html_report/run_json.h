// SPDX-License-Identifier: Apache-2.0
/* What the page has of one run: an object of the list "runs" in its JSON. */
#ifndef TSR_HTML_REPORT_RUN_JSON_H
#define TSR_HTML_REPORT_RUN_JSON_H
#include "base/folder_lock.h"
#include "checkpoint/folder.h"
#include "html_report/run_metrics.h"
#include "report/run_lock.h"

/* Of a run that is watched. */
typedef struct {
  bool has_metrics; /* the file exists */
  double changed;   /* when it was written to, in seconds since 1970 */
  tsr_folder_use process;
  const char *owner; /* "process 123 on host"; NULL: no process has the folder */
} tsr_run_live;

typedef struct {
  const char *name; /* of the folder, as it was given */
  const tsr_run_metrics *metrics;
  const char *config;       /* the text of config.yaml; NULL: there is none */
  const tsr_run_lock *lock; /* NULL: there is none */
  tsr_checkpoint_entry *checkpoints;
  int checkpoints_count;
  const char *plan;         /* JSON (plan_json.h); NULL: there is none */
  const char *warnings;     /* what could not be read or planned, lines of text */
  const tsr_run_live *live; /* NULL: the page does not follow the run */
} tsr_page_run;

/* The object's keys, in the order that it has them:
 *
 *   NAME         "name"
 *   ENDS         "start", "end": lines of the metrics or null
 *   SERIES       "series": [series.h…]
 *   RESTARTS     "restarts": [step…]
 *   SAMPLES      "samples_count", "samples": [[step, text]…]; of a text longer than
 *                TSR_RUN_SAMPLE_MAX the begin, and [step, begin, characters of the whole]
 *   LINES        "lines", "broken", "problems": [text…]
 *   CONFIG       "config"
 *   LOCK         "lock": {"policy", "starts": [{"step", "mesh", "ranks", "processes", "threads",
 *                "isa", "cpu", "version"}…]}
 *   CHECKPOINTS  "checkpoints": [[step, folder]…]
 *   WARNINGS     "warnings": [text…]
 *   PLAN         "plan"
 *   LIVE         "live": {"has_metrics", "changed": seconds since 1970, "process": "alive", "gone"
 *                or "unknown", "owner"}; only of a run that is watched */
typedef enum {
  TSR_RUN_PART_NAME,
  TSR_RUN_PART_ENDS,
  TSR_RUN_PART_SERIES,
  TSR_RUN_PART_RESTARTS,
  TSR_RUN_PART_SAMPLES,
  TSR_RUN_PART_LINES,
  TSR_RUN_PART_CONFIG,
  TSR_RUN_PART_LOCK,
  TSR_RUN_PART_CHECKPOINTS,
  TSR_RUN_PART_WARNINGS,
  TSR_RUN_PART_PLAN,
  TSR_RUN_PART_LIVE,
  TSR_RUN_PARTS
} tsr_run_part;

enum { TSR_RUN_SAMPLE_MAX = 4000 }; /* characters */

/* How many points of each series a reader has. */
typedef struct {
  int known[TSR_SERIES_COUNT];
} tsr_run_known;

/* `"key":value,…` of a part, without braces; nothing of a part that the run does not have. `known`:
 * of SERIES; NULL: none. */
void tsr_run_json_part(
    const tsr_page_run *run, tsr_run_part part, const tsr_run_known *known, tsr_text *json);
/* The object. */
void tsr_run_json(const tsr_page_run *run, tsr_text *json);

#endif
