// SPDX-License-Identifier: Apache-2.0
/* The command `report`: runs on one page. */
#include "base/command_progress.h"
#include "base/file_read.h"
#include "base/new_file.h"
#include "cli/console.h"
#include "cli/page_run.h"
#include "html_report/page.h"
#include <inttypes.h>
#include <string.h>

/* What is in the folder beside the metrics. What cannot be read is a note on the page. */
static void read_folder(app *a, const char *folder, tsr_page_run *run, tsr_text *notes) {
  page_config config;
  page_run_read_lock(a, folder, run, notes);
  page_run_read_checkpoints(a, folder, run, notes);
  page_run_read_config(a, folder, run, &config, notes);
  page_run_note_edits(folder, &config, run->lock, notes);
}

static bool read_run(app *a, const char *path, tsr_page_run *run) {
  tsr_text notes = {0};
  bool folder = tsr_file_is_folder(path);
  const char *file = folder ? tsr_path_join(a->arena, path, "metrics.jsonl") : path;
  tsr_run_metrics *metrics = tsr_arena_alloc(a->arena, sizeof *metrics);
  *run = (tsr_page_run){.name = path, .metrics = metrics};
  bool ok = tsr_run_metrics_read(a->arena, file, metrics, a->diags);
  if (!ok && folder)
    tsr_diag_hint(a->diags, "a run with --metrics has written them there: name that file");
  if (ok && metrics->lines && metrics->broken == metrics->lines) {
    tsr_diag_error(a->diags, (tsr_location){.file = file}, "the file has no metrics of a run");
    ok = false;
  }
  if (ok && folder) read_folder(a, path, run, &notes);
  run->warnings = tsr_arena_strdup(a->arena, notes.data ? notes.data : "");
  tsr_text_free(&notes);
  return ok;
}

/* ---- the page ---- */

static void print_written(const app *a, const tsr_page_run *runs, int count, size_t bytes) {
  for (int i = 0; i < count && !a->options.quiet; i++) {
    const tsr_run_metrics *m = runs[i].metrics;
    const tsr_series *loss = &m->series[TSR_SERIES_LOSS];
    printf("%s: %d step%s", runs[i].name, loss->count, loss->count == 1 ? "" : "s");
    if (loss->count) printf(", the last one %" PRId64, loss->points[loss->count - 1].step);
    if (m->restarts_count)
      printf(", %d restart%s", m->restarts_count, m->restarts_count == 1 ? "" : "s");
    if (m->broken) printf(", %" PRId64 " broken line%s", m->broken, m->broken == 1 ? "" : "s");
    printf("%s\n", runs[i].plan ? "" : ", no plan");
  }
  if (!a->options.quiet)
    printf("report: %s, %s\n", a->options.html, tsr_text_bytes((int64_t)bytes).text);
}

static bool write_page(app *a, const tsr_page_run *runs, int count) {
  tsr_text json = {0}, page = {0};
  tsr_report_data_make(runs, count, TSR_VERSION, &json);
  tsr_report_page_make(&json, &page);
  bool ok = tsr_file_check_replaced(
                a->options.html, TSR_REPORT_PAGE_BEGIN, "report of tessera-train", a->diags) &&
            tsr_file_write(a->options.html, page.data, page.length, a->diags);
  if (ok) print_written(a, runs, count, page.length);
  tsr_text_free(&json);
  tsr_text_free(&page);
  return ok;
}

int app_run_report(app *a) {
  const tsr_words *folders = &a->options.arguments;
  tsr_page_run *runs = tsr_arena_array(a->arena, tsr_page_run, folders->count + 1);
  bool ok = page_run_check_machine(a);
  tsr_command_progress_begin("reading", folders->count, "runs");
  for (int i = 0; i < folders->count; i++) {
    ok &= read_run(a, folders->items[i], &runs[i]);
    tsr_command_progress_add(1);
  }
  tsr_command_progress_end();
  return console_finish(a, ok && write_page(a, runs, folders->count));
}
