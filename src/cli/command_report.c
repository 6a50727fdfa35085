// SPDX-License-Identifier: Apache-2.0
/* The command `report`: runs on one page. */
#include "base/file_read.h"
#include "base/new_file.h"
#include "cli/console.h"
#include "html_report/page.h"
#include "html_report/plan_json.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Takes the diagnostics that are given from here on apart from the command's own. */
static tsr_diags *begin_notes(app *a) {
  tsr_diags *own = a->diags;
  a->diags = a->job.diags = tsr_diags_new(a->arena);
  return own;
}

/* They become lines of the page. */
static void end_notes(app *a, tsr_diags *own, tsr_text *notes) {
  char *text = NULL;
  size_t length = 0;
  FILE *stream = open_memstream(&text, &length);
  if (stream) {
    tsr_diags_print(a->diags, stream);
    fclose(stream);
    tsr_text_add(notes, "%s", text);
  }
  free(text);
  a->diags = a->job.diags = own;
}

/* ---- the plan ---- */

/* Compiles the run's configuration again, as `plan` does. */
static bool make_plan(app *a, const char *config, tsr_text *json) {
  setup s = {0};
  prepared p = {0};
  tsr_programs programs[TSR_COMPILED_PROGRAMS_MAX];
  tsr_estimate estimate;
  a->options.config = config;
  bool ok = setup_load_config(a, &s) && prepare(a, &s, &p);
  if (!ok) prepare_explain_model(a, &s, &p);
  if (ok && p.training.graph->loss >= 0) {
    tsr_plan_request r = prepare_plan_request(a, &s, &p);
    tsr_report report;
    ok = tsr_plan_make_report(&r, programs, &estimate, &report, a->diags);
    if (ok) tsr_plan_json(a->arena, &report, json);
  }
  tsr_parallelism_context_close(); /* another run's is opened next */
  return ok;
}

/* ---- a run ---- */

static void read_plan(app *a, const char *config, tsr_page_run *run, tsr_text *notes) {
  tsr_text json = {0};
  tsr_diags *own = begin_notes(a);
  if (!make_plan(a, config, &json)) tsr_text_add(notes, "the plan of this run cannot be made:\n");
  else if (json.data) run->plan = tsr_arena_strdup(a->arena, json.data);
  end_notes(a, own, notes);
  tsr_text_free(&json);
}

/* What is in the folder beside the metrics. What cannot be read is a note on the page. */
static void read_folder(app *a, const char *folder, tsr_page_run *run, tsr_text *notes) {
  enum { CONFIG_MAX = 1 << 24 };
  const char *config = tsr_path_join(a->arena, folder, "config.yaml");
  const char *lock_path = tsr_path_join(a->arena, folder, TSR_RUN_LOCK_NAME);
  tsr_run_lock *lock = tsr_arena_alloc(a->arena, sizeof *lock);
  char *text;
  size_t length;
  tsr_diags *own = begin_notes(a);
  if (tsr_file_read_regular(
          a->arena, config, CONFIG_MAX, (tsr_location){.file = config}, &text, &length, a->diags))
    run->config = text;
  if (tsr_file_exists(lock_path) && tsr_run_lock_read(a->arena, folder, lock, a->diags))
    run->lock = lock;
  tsr_checkpoints_list(
      a->arena, tsr_path_join(a->arena, folder, "checkpoints"), &run->checkpoints,
      &run->checkpoints_count, a->diags);
  end_notes(a, own, notes);
  if (run->config) read_plan(a, config, run, notes);
}

static bool read_run(app *a, const char *path, tsr_page_run *run) {
  tsr_text notes = {0};
  bool folder = tsr_file_is_folder(path);
  const char *metrics = folder ? tsr_path_join(a->arena, path, "metrics.jsonl") : path;
  *run = (tsr_page_run){.name = path};
  bool ok = tsr_run_metrics_read(a->arena, metrics, &run->metrics, a->diags);
  if (!ok && folder)
    tsr_diag_hint(a->diags, "a run with --metrics has written them there: name that file");
  if (ok && run->metrics.lines && run->metrics.broken == run->metrics.lines) {
    tsr_diag_error(a->diags, (tsr_location){.file = metrics}, "the file has no metrics of a run");
    ok = false;
  }
  if (ok && folder) read_folder(a, path, run, &notes);
  run->warnings = tsr_arena_strdup(a->arena, notes.data ? notes.data : "");
  tsr_text_free(&notes);
  return ok;
}

/* A run whose plan cannot be made is on the page without it. An option that is wrong ends the
 * command. */
static bool check_machine(app *a) {
  const char *path;
  tsr_machine *machine;
  return !a->options.machine ||
         (tsr_machine_find(a->arena, a->share, a->options.machine, TSR_NOWHERE, &path, a->diags) &&
          tsr_machine_read(a->arena, path, TSR_NOWHERE, &machine, a->diags));
}

/* ---- the page ---- */

static void print_written(const app *a, const tsr_page_run *runs, int count, size_t bytes) {
  for (int i = 0; i < count && !a->options.quiet; i++) {
    const tsr_run_metrics *m = &runs[i].metrics;
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

int app_run_report(app *a) {
  const tsr_words *folders = &a->options.arguments;
  tsr_page_run *runs = tsr_arena_array(a->arena, tsr_page_run, folders->count + 1);
  tsr_text page = {0};
  bool ok = check_machine(a);
  for (int i = 0; i < folders->count; i++) ok &= read_run(a, folders->items[i], &runs[i]);
  if (ok) {
    tsr_report_page_make(runs, folders->count, TSR_VERSION, &page);
    ok = tsr_file_check_replaced(
             a->options.html, TSR_REPORT_PAGE_BEGIN, "report of tessera-train", a->diags) &&
         tsr_file_write(a->options.html, page.data, page.length, a->diags);
  }
  if (ok) print_written(a, runs, folders->count, page.length);
  tsr_text_free(&page);
  return console_finish(a, ok);
}
