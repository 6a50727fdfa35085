// SPDX-License-Identifier: Apache-2.0
#include "cli/watch_dashboard.h"
#include "base/file_read.h"
#include "base/folder_lock.h"
#include "checkpoint/folder.h"
#include "cli/console.h"
#include "html_report/metrics_follow.h"
#include "tui/painter.h"
#include "watch/find_runs.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

typedef struct {
  app *a;
  const char *path; /* of the run; NULL: there is none yet */
  bool is_folder;
  tsr_metrics_follow metrics;
  int64_t begins;               /* of the metrics, which the dashboard has: */
  int losses, validations, end; /* points of these series, samples */
  tsr_dashboard dashboard;
  tsr_painter *painter;
} watching;

/* ---- which run ---- */

/* The run that was written to last. */
static const char *newest_run(app *a, tsr_arena *scratch) {
  tsr_found_runs found = {0};
  tsr_find_runs(scratch, a->options.arguments.items[0], &found);
  tsr_found_runs_sort_by_time(&found);
  return found.count ? found.items[0].path : NULL;
}

/* A folder has the configuration of its run, by which the number of steps is known. */
static void read_steps(watching *w, tsr_arena *scratch) {
  tsr_config *config;
  const char *path = tsr_path_join(scratch, w->path, "config.yaml");
  tsr_diags *ignored = tsr_diags_new(scratch);
  if (w->is_folder && tsr_file_exists(path) &&
      tsr_config_load(scratch, path, NULL, 0, &config, ignored))
    w->dashboard.steps = config->training.max_steps;
}

static void forget(watching *w) {
  int64_t steps = w->dashboard.steps;
  tsr_dashboard_init(&w->dashboard);
  w->dashboard.steps = steps;
  w->losses = w->validations = w->end = 0;
  w->begins = w->metrics.begins;
}

static void find(watching *w) {
  app *a = w->a;
  tsr_arena *scratch = tsr_arena_new();
  const char *path = newest_run(a, scratch);
  if (path && (!w->path || strcmp(path, w->path) != 0)) {
    if (w->path) tsr_metrics_follow_close(&w->metrics);
    w->path = tsr_arena_strdup(a->arena, path);
    w->is_folder = tsr_file_is_folder(path);
    tsr_metrics_follow_open(
        w->is_folder ? tsr_path_join(a->arena, path, "metrics.jsonl") : w->path, &w->metrics);
    w->dashboard.steps = 0;
    forget(w);
  }
  if (w->path) read_steps(w, scratch);
  tsr_arena_free(scratch);
}

/* ---- what it has ---- */

/* NaN: it has none. */
static double last_of(const watching *w, tsr_series_kind kind) {
  const tsr_series *s = &w->metrics.metrics.series[kind];
  return s->count ? s->points[s->count - 1].value : NAN;
}

static void take_numbers(watching *w) {
  const tsr_run_metrics *m = &w->metrics.metrics;
  tsr_dashboard *d = &w->dashboard;
  const tsr_series *loss = &m->series[TSR_SERIES_LOSS];
  const tsr_series *validation = &m->series[TSR_SERIES_VALIDATION];
  if (w->begins != w->metrics.begins) forget(w);
  for (; w->losses < loss->count; w->losses++)
    tsr_curve_add(&d->losses, loss->points[w->losses].step, loss->points[w->losses].value);
  for (; w->validations < validation->count; w->validations++)
    tsr_dashboard_set_validation(
        d, validation->points[w->validations].step, validation->points[w->validations].value);
  d->step = loss->count ? loss->points[loss->count - 1].step : 0;
  d->loss = last_of(w, TSR_SERIES_LOSS);
  d->lr = last_of(w, TSR_SERIES_LR);
  d->grad_norm = last_of(w, TSR_SERIES_GRAD_NORM);
  d->tokens_per_s = last_of(w, TSR_SERIES_RATE);
  d->step_ms = last_of(w, TSR_SERIES_STEP_MS);
  d->tokens = last_of(w, TSR_SERIES_TOKENS);
  d->accuracy = last_of(w, TSR_SERIES_ACCURACY);
  d->elapsed_s = last_of(w, TSR_SERIES_SECONDS);
  d->eta_s = NAN;
  if (d->steps >= d->step && loss->count)
    d->eta_s = d->elapsed_s / loss->count * (double)(d->steps - d->step);
  if (m->samples_count > w->end) {
    const tsr_run_sample *s = &m->samples[m->samples_count - 1];
    tsr_dashboard_set_sample(d, s->step, s->text, strlen(s->text));
  }
  w->end = m->samples_count;
}

static void take_checkpoint(watching *w) {
  tsr_arena *scratch = tsr_arena_new();
  tsr_checkpoint_entry *entries;
  int count = 0;
  w->dashboard.checkpoint_step = -1;
  if (tsr_checkpoints_list(
          scratch, tsr_path_join(scratch, w->path, "checkpoints"), &entries, &count,
          tsr_diags_new(scratch)) &&
      count)
    w->dashboard.checkpoint_step = entries[count - 1].step;
  tsr_arena_free(scratch);
}

static void describe(watching *w) {
  tsr_dashboard *d = &w->dashboard;
  char owner[TSR_FOLDER_OWNER_BYTES] = "";
  struct timespec now;
  tsr_folder_use use = TSR_FOLDER_USE_UNKNOWN;
  timespec_get(&now, TIME_UTC);
  double age = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - w->metrics.changed;
  if (w->is_folder) use = tsr_folder_lock_look(w->path, owner);
  snprintf(d->title, sizeof d->title, "%s", w->path);
  if (w->metrics.metrics.end) snprintf(d->state, sizeof d->state, "has ended");
  else
    snprintf(
        d->state, sizeof d->state, "%s, last line %.0f s ago",
        use == TSR_FOLDER_IN_USE ? "trains"
        : use == TSR_FOLDER_FREE ? "its process is gone"
                                 : "of a process that is not known",
        age > 0 ? age : 0);
}

static void look(watching *w) {
  tsr_dashboard *d = &w->dashboard;
  if (!w->path) {
    snprintf(d->title, sizeof d->title, "%s", w->a->options.arguments.items[0]);
    snprintf(d->state, sizeof d->state, "no run yet");
    return;
  }
  tsr_metrics_follow_look(&w->metrics);
  take_numbers(w);
  if (w->is_folder) take_checkpoint(w);
  describe(w);
}

int watch_dashboard(app *a) {
  enum { REST_NS = 250000000, FIND_EVERY = 8 };
  watching *w = tsr_arena_alloc(a->arena, sizeof *w);
  *w = (watching){.a = a};
  tsr_dashboard_init(&w->dashboard);
  app_catch_signals();
  if (!tsr_painter_open(&w->painter)) {
    tsr_diag_error(a->diags, TSR_NOWHERE, "--tui: the output is no terminal, or TERM is 'dumb'");
    tsr_diag_hint(a->diags, "without --tui watch serves a page");
    return console_finish(a, false);
  }
  for (int i = 0; !*a->stop; i++) {
    if (i % FIND_EVERY == 0) find(w);
    look(w);
    tsr_painter_draw(w->painter, &w->dashboard);
    tsr_painter_write(w->painter);
    if (!*a->stop) nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL);
  }
  tsr_painter_close(w->painter);
  if (w->path) tsr_metrics_follow_close(&w->metrics);
  return console_finish_stoppable(a, false); /* it has no other end */
}
