// SPDX-License-Identifier: Apache-2.0
/* What the page of `report` and `watch` has of a run's folder beside the metrics. Each function
 * reads one part, into a->arena; what cannot be read is added to `notes`, lines for the page. */
#ifndef TSR_CLI_PAGE_RUN_H
#define TSR_CLI_PAGE_RUN_H
#include "cli/app.h"
#include "html_report/run_json.h"

/* The text of config.yaml, and the configuration that it is, as --print-config prints it; NULL
 * where it cannot be read. */
typedef struct {
  const char *text, *resolved;
} page_config;

void page_run_read_lock(app *a, const char *folder, tsr_page_run *run, tsr_text *notes);
void page_run_read_checkpoints(app *a, const char *folder, tsr_page_run *run, tsr_text *notes);
/* And the plan, which compiles it as the command `plan` does. */
void page_run_read_config(
    app *a, const char *folder, tsr_page_run *run, page_config *ret_config, tsr_text *notes);
/* A note where config.yaml was edited after the run's last start, by its run.lock. */
void page_run_note_edits(
    const char *folder, const page_config *config, const tsr_run_lock *lock, tsr_text *notes);

/* An option --machine that names none ends the command: runs whose plan cannot be made are on the
 * page without it. */
bool page_run_check_machine(app *a);

#endif
