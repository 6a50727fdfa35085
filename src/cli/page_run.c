// SPDX-License-Identifier: Apache-2.0
#include "cli/page_run.h"
#include "base/file_read.h"
#include "cli/run_compile.h"
#include "config/print.h"
#include "html_report/plan_json.h"
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

void page_run_read_lock(app *a, const char *folder, tsr_page_run *run, tsr_text *notes) {
  const char *path = tsr_path_join(a->arena, folder, TSR_RUN_LOCK_NAME);
  tsr_run_lock *lock = tsr_arena_alloc(a->arena, sizeof *lock);
  tsr_diags *own = begin_notes(a);
  run->lock = NULL;
  if (tsr_file_exists(path) && tsr_run_lock_read(a->arena, folder, lock, a->diags))
    run->lock = lock;
  end_notes(a, own, notes);
}

void page_run_read_checkpoints(app *a, const char *folder, tsr_page_run *run, tsr_text *notes) {
  tsr_diags *own = begin_notes(a);
  tsr_checkpoints_list(
      a->arena, tsr_path_join(a->arena, folder, "checkpoints"), &run->checkpoints,
      &run->checkpoints_count, a->diags);
  end_notes(a, own, notes);
}

/* ---- the configuration and its plan ---- */

static const char *print_config(app *a, const tsr_config *config) {
  tsr_text text = {0};
  tsr_config_print(config, &text);
  const char *copy = tsr_arena_strdup(a->arena, text.data ? text.data : "");
  tsr_text_free(&text);
  return copy;
}

static bool make_plan(app *a, const char *path, page_config *config, tsr_text *json) {
  setup s = {0};
  prepared p = {0};
  tsr_programs programs[TSR_COMPILED_PROGRAMS_MAX];
  tsr_estimate estimate;
  a->options.config = path;
  bool ok = setup_load_config(a, &s);
  if (ok) config->resolved = print_config(a, s.config);
  ok = ok && prepare(a, &s, &p);
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

void page_run_read_config(
    app *a, const char *folder, tsr_page_run *run, page_config *ret, tsr_text *notes) {
  enum { CONFIG_MAX = 1 << 24 };
  const char *path = tsr_path_join(a->arena, folder, "config.yaml");
  char *text = NULL;
  size_t length;
  tsr_text json = {0};
  *ret = (page_config){0};
  run->config = run->plan = NULL;
  tsr_diags *own = begin_notes(a);
  bool ok = tsr_file_read_regular(
      a->arena, path, CONFIG_MAX, (tsr_location){.file = path}, &text, &length, a->diags);
  end_notes(a, own, notes);
  if (!ok) return;
  run->config = ret->text = text;
  own = begin_notes(a);
  tsr_file_refuse_pipes(true);
  if (!make_plan(a, path, ret, &json))
    tsr_text_add(notes, "the plan of this run cannot be made:\n");
  else if (json.data) run->plan = tsr_arena_strdup(a->arena, json.data);
  tsr_file_refuse_pipes(false);
  end_notes(a, own, notes);
  tsr_text_free(&json);
}

bool page_run_check_machine(app *a) {
  const char *path;
  tsr_machine *machine;
  return !a->options.machine ||
         (tsr_machine_find(a->arena, a->share, a->options.machine, TSR_NOWHERE, &path, a->diags) &&
          tsr_machine_read(a->arena, path, TSR_NOWHERE, &machine, a->diags));
}

/* ---- edits ---- */

/* Whether a text has the values that the run had at its last start. A run.lock of a version that
 * did not write their hash has the text of its first one. */
static bool is_of_start(const char *text, const tsr_run_lock *lock) {
  char hash[TSR_HASH_TEXT], first[TSR_HASH_TEXT];
  const tsr_lock_start *last = &lock->starts[lock->starts_count - 1];
  if (!last->config_hash && lock->starts_count > 1) return true; /* which cannot be told */
  tsr_config_print_hash(text, hash);
  tsr_config_print_hash(lock->config, first);
  return !strcmp(hash, last->config_hash ? last->config_hash : first);
}

void page_run_note_edits(
    const char *folder, const page_config *config, const tsr_run_lock *lock, tsr_text *notes) {
  if (!config->text || !lock || is_of_start(config->text, lock)) return;
  if (config->resolved && is_of_start(config->resolved, lock)) return; /* it is written otherwise */
  tsr_text_add(
      notes,
      "%s/config.yaml was edited after the run's last start, by run.lock: the configuration and "
      "the plan on this page are not those that the run had\n",
      folder);
}
