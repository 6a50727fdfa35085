// SPDX-License-Identifier: Apache-2.0
#include "sweep/result.h"
#include "base/json.h"
#include "html_report/series.h"
#include "sweep/halving.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const states[] = {
    [TSR_SWEEP_WAITS] = "waits",
    [TSR_SWEEP_DONE] = "done",
    [TSR_SWEEP_STOPPED] = "stopped",
    [TSR_SWEEP_FAILED] = "failed"};

const char *tsr_sweep_run_folder(tsr_arena *arena, int run) {
  return tsr_arena_printf(arena, "run-%03d", run);
}

void tsr_sweep_order(const tsr_sweep_table *t, int *ret) {
  int last = t->sweep->rungs_count ? t->sweep->rungs_count - 1 : 0, at = 0;
  tsr_arena *arena = tsr_arena_new();
  tsr_sweep_score *scores = tsr_arena_array(arena, tsr_sweep_score, t->count + 1);
  for (int rung = last; rung >= -1; rung--) {
    int count = 0;
    for (int i = 0; i < t->count; i++) {
      const tsr_sweep_result *r = &t->results[i];
      double objective = r->state == TSR_SWEEP_FAILED ? NAN : r->objective;
      if (r->rung == rung) scores[count++] = (tsr_sweep_score){i, objective};
    }
    tsr_sweep_rank(scores, count);
    for (int i = 0; i < count; i++) ret[at++] = scores[i].run;
  }
  tsr_arena_free(arena);
}

/* ---- as text ---- */

typedef struct {
  const char *cells[TSR_SWEEP_PARAMETERS_MAX + 5];
} row;

/* Characters, not bytes. */
static int width_of(const char *text) {
  int width = 0;
  for (; *text; text++) width += (*text & 0xc0) != 0x80;
  return width;
}

static row head(const tsr_sweep_table *t) {
  int n = 0;
  row r;
  r.cells[n++] = "run";
  for (int p = 0; p < t->sweep->parameters_count; p++) r.cells[n++] = t->sweep->parameters[p].name;
  r.cells[n++] = "state";
  r.cells[n++] = "steps";
  r.cells[n++] = t->sweep->metric;
  r.cells[n] = "folder";
  return r;
}

static row row_of(tsr_arena *arena, const tsr_sweep_table *t, int run) {
  const tsr_sweep_result *result = &t->results[run];
  bool known = isfinite(result->objective);
  int n = 0;
  row r;
  r.cells[n++] = tsr_arena_printf(arena, "%d", run + 1);
  for (int p = 0; p < t->sweep->parameters_count; p++) r.cells[n++] = t->runs[run].values[p];
  r.cells[n++] = states[result->state];
  r.cells[n++] = tsr_arena_printf(arena, "%" PRId64, result->step);
  r.cells[n++] = known ? tsr_arena_printf(arena, "%.4f", result->objective) : "-";
  r.cells[n] = tsr_sweep_run_folder(arena, run + 1);
  return r;
}

void tsr_sweep_table_text(tsr_arena *arena, const tsr_sweep_table *t, tsr_text *text) {
  int columns = t->sweep->parameters_count + 5, widths[TSR_SWEEP_PARAMETERS_MAX + 5] = {0};
  int *order = tsr_arena_array(arena, int, t->count + 1);
  row *rows = tsr_arena_array(arena, row, t->count + 1);
  tsr_sweep_order(t, order);
  rows[0] = head(t);
  for (int i = 0; i < t->count; i++) rows[i + 1] = row_of(arena, t, order[i]);
  for (int i = 0; i <= t->count; i++)
    for (int c = 0; c < columns; c++) {
      int width = width_of(rows[i].cells[c]);
      if (width > widths[c]) widths[c] = width;
    }
  for (int i = 0; i <= t->count; i++)
    for (int c = 0; c < columns; c++) {
      const char *cell = rows[i].cells[c];
      bool last = c == columns - 1;
      tsr_text_add(
          text, "%s%*s%s", cell, last ? 0 : widths[c] - width_of(cell) + 2, "", last ? "\n" : "");
    }
}

/* ---- for programs ---- */

static void add_cell(const char *cell, bool last, tsr_text *text) {
  bool quoted = strpbrk(cell, ",\"\n\r") != NULL;
  if (quoted) tsr_text_add(text, "\"");
  for (const char *at = cell; *at; at++) tsr_text_add(text, *at == '"' ? "\"%c" : "%c", *at);
  tsr_text_add(text, "%s%s", quoted ? "\"" : "", last ? "\r\n" : ",");
}

static void add_objective(const tsr_sweep_result *r, const char *none, tsr_text *text) {
  if (isfinite(r->objective)) tsr_series_print_number(r->objective, text);
  else tsr_text_add(text, "%s", none);
}

void tsr_sweep_table_csv(tsr_arena *arena, const tsr_sweep_table *t, tsr_text *text) {
  int *order = tsr_arena_array(arena, int, t->count + 1);
  tsr_sweep_order(t, order);
  add_cell("run", false, text);
  for (int p = 0; p < t->sweep->parameters_count; p++)
    add_cell(t->sweep->parameters[p].key, false, text);
  add_cell("state", false, text);
  add_cell("steps", false, text);
  add_cell(t->sweep->metric, false, text);
  add_cell("weights_sha256", false, text);
  add_cell("folder", true, text);
  for (int i = 0; i < t->count; i++) {
    const tsr_sweep_result *r = &t->results[order[i]];
    tsr_text_add(text, "%d,", order[i] + 1);
    for (int p = 0; p < t->sweep->parameters_count; p++)
      add_cell(t->runs[order[i]].values[p], false, text);
    tsr_text_add(text, "%s,%" PRId64 ",", states[r->state], r->step);
    add_objective(r, "", text);
    tsr_text_add(text, ",%s,", r->sha256);
    add_cell(tsr_sweep_run_folder(arena, order[i] + 1), true, text);
  }
}

static void add_text(const char *key, const char *value, tsr_text *text) {
  tsr_text_add(text, ",\"%s\":", key);
  tsr_json_add_text(text, value, strlen(value));
}

static void add_run(tsr_arena *arena, const tsr_sweep_table *t, int run, tsr_text *text) {
  const tsr_sweep_result *r = &t->results[run];
  tsr_text_add(text, "\n{\"run\":%d,\"values\":{", run + 1);
  for (int p = 0; p < t->sweep->parameters_count; p++) {
    const char *key = t->sweep->parameters[p].key, *value = t->runs[run].values[p];
    if (p) tsr_text_add(text, ",");
    tsr_json_add_text(text, key, strlen(key));
    tsr_text_add(text, ":");
    tsr_json_add_text(text, value, strlen(value));
  }
  tsr_text_add(
      text, "},\"state\":\"%s\",\"steps\":%" PRId64 ",\"objective\":", states[r->state], r->step);
  add_objective(r, "null", text);
  if (r->state == TSR_SWEEP_FAILED) add_text("why", r->why, text);
  add_text("weights_sha256", r->sha256, text);
  add_text("folder", tsr_sweep_run_folder(arena, run + 1), text);
  tsr_text_add(text, "}");
}

void tsr_sweep_table_json(tsr_arena *arena, const tsr_sweep_table *t, tsr_text *text) {
  tsr_text method = {0};
  int *order = tsr_arena_array(arena, int, t->count + 1);
  tsr_sweep_order(t, order);
  tsr_sweep_print_method(t->sweep, &method);
  tsr_text_add(text, "{\"format\":1");
  add_text("config", t->config, text);
  add_text("method", method.data, text);
  add_text("metric", t->sweep->metric, text);
  tsr_text_add(text, ",\"runs\":[");
  for (int i = 0; i < t->count; i++) {
    if (i) tsr_text_add(text, ",");
    add_run(arena, t, order[i], text);
  }
  tsr_text_add(text, "]}\n");
  tsr_text_free(&method);
}
