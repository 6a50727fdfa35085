// SPDX-License-Identifier: Apache-2.0
/* A pipeline schedule over time, as text. */
#include "schedule/pipeline.h"
#include "schedule/pipeline_walk.h"
#include <string.h>

static double shortest(const tsr_pipeline *pipeline, const tsr_pipeline_times *times) {
  double least = times->total;
  for (int s = 0; s < pipeline->stages; s++)
    for (int i = 0; i < pipeline->counts[s]; i++) {
      double cost = times->end[s][i] - times->start[s][i];
      if (cost > 0 && cost < least) least = cost;
    }
  return least;
}

static bool is_multiple(double value, double of) {
  if (value / of > 1e9) return false;
  double times = value / of, off = times - (double)(int64_t)(times + 0.5);
  return off > -1e-6 && off < 1e-6;
}

/* Whether all that takes time takes a multiple of the shortest. */
static bool is_even(const tsr_pipeline *pipeline, const tsr_pipeline_times *times, double least) {
  for (int s = 0; s < pipeline->stages; s++)
    for (int i = 0; i < pipeline->counts[s]; i++)
      if (!is_multiple(times->end[s][i] - times->start[s][i], least)) return false;
  return true;
}

/* The least of 1, 2, 5, 10, 20, … (and 0.5, 0.2, …) that is at least that. */
static double round_step(double at_least) {
  double step = 1;
  if (!(at_least > 0 && at_least < 1e300)) return step;
  while (step < at_least) step *= 10;
  while (step / 10 >= at_least) step /= 10;
  return step / 5 >= at_least ? step / 5 : step / 2 >= at_least ? step / 2 : step;
}

static double min(double a, double b) { return a < b ? a : b; }
static double max(double a, double b) { return a > b ? a : b; }

/* In percent; a rounding error below 0 is 0. */
static double bubble_of(const tsr_pipeline_times *times) { return max(100 * times->bubble, 0); }

static const char *const kind_names[TSR_ACTION_KINDS] = {
    "forward", "backward", "weights' gradients"};

static bool has_kind(const tsr_pipeline *pipeline, tsr_action_kind kind) {
  if (kind == TSR_ACTION_WEIGHTS) return pipeline->splits_backward;
  return kind == TSR_ACTION_FORWARD || !pipeline->forward_only;
}

enum { COLUMNS_MIN = 40, TICK_COLUMNS = 10 };

/* One row of the chart. */
typedef struct {
  int width;
  double scale; /* columns per unit of time */
  char *cells;  /* a letter, the fill of its box, or '.' where the stage is idle */
  double (*spent)[TSR_ACTION_KINDS]; /* per column: columns of each kind, 0 to 1 */
} row;

static int column_at(const row *r, double time) {
  int column = (int)(time * r->scale + 0.5);
  return column < r->width ? column : r->width;
}

/* "F3-": the letter, the numbers where they fit, and what fills the rest of the box. Where F3.1
 * does not fit it is f3: of a later chunk. */
static void draw_box(const row *r, tsr_action action, int begin, int end) {
  if (begin == end) return;
  tsr_short_text name = tsr_action_text(action);
  char *text = name.text;
  if ((int)strlen(text) > end - begin) {
    text[strcspn(text, ".")] = 0;
    if (action.chunk) text[0] = "fbw"[action.kind];
  }
  int length = (int)strlen(text) <= end - begin ? (int)strlen(text) : 1;
  memset(r->cells + begin, "-=~"[action.kind], (size_t)(end - begin));
  memcpy(r->cells + begin, text, (size_t)length);
}

static void spend(const row *r, tsr_action_kind kind, double start, double end) {
  start *= r->scale, end *= r->scale;
  for (int c = (int)start; c < r->width && c < end; c++)
    r->spent[c][kind] += min(end, c + 1) - max(start, c);
}

static char fullest(const double spent[TSR_ACTION_KINDS]) {
  double most = 1 - spent[0] - spent[1] - spent[2];
  char letter = '.';
  for (int kind = 0; kind < TSR_ACTION_KINDS; kind++)
    if (spent[kind] > most + 1e-9) most = spent[kind], letter = "FBW"[kind];
  return letter;
}

static void
draw_row(const row *r, const tsr_pipeline *pipeline, const tsr_pipeline_times *times, int stage) {
  memset(r->spent, 0, sizeof *r->spent * (size_t)r->width);
  const double *start = times->start[stage], *end = times->end[stage];
  for (int i = 0; i < pipeline->counts[stage]; i++)
    spend(r, pipeline->actions[stage][i].kind, start[i], end[i]);
  for (int c = 0; c < r->width; c++) r->cells[c] = fullest(r->spent[c]);
  for (int i = 0; i < pipeline->counts[stage]; i++)
    if ((end[i] - start[i]) * r->scale >= 1 - 1e-9)
      draw_box(r, pipeline->actions[stage][i], column_at(r, start[i]), column_at(r, end[i]));
}

static void draw_axis(const row *r, double total) {
  double step = round_step(TICK_COLUMNS / r->scale);
  memset(r->cells, ' ', (size_t)r->width);
  for (int k = 0; k * step <= total; k++) {
    char tick[32];
    int at = column_at(r, k * step), length = snprintf(tick, sizeof tick, "|%.6g", k * step);
    if (at + length <= r->width) memcpy(r->cells + at, tick, (size_t)length);
  }
}

static void add_row(const row *r, const char *label, int label_width, tsr_text *text) {
  int length = r->width;
  while (length && r->cells[length - 1] == ' ') length--;
  tsr_text_add(text, "%-*s %.*s\n", label_width, label, length, r->cells);
}

static void add_legend(
    const tsr_pipeline *pipeline, const tsr_pipeline_times *times, int label_width,
    tsr_text *text) {
  tsr_text_add(text, "%-*s ", label_width, "");
  for (int kind = 0; kind < TSR_ACTION_KINDS; kind++)
    if (has_kind(pipeline, kind))
      tsr_text_add(text, "%c0%c %s  ", "FBW"[kind], "-=~"[kind], kind_names[kind]);
  tsr_text_add(
      text, ". idle  (0: the microbatch%s)\n",
      pipeline->chunks > 1 ? ", .1: chunk 1, f0: of a later chunk" : "");
  tsr_text_add(
      text, "%-*s total %.6g, bubble %.1f%%\n", label_width, "", times->total, bubble_of(times));
}

void tsr_pipeline_gantt(
    const tsr_pipeline *pipeline, const tsr_pipeline_times *times, int columns, tsr_text *text) {
  if (columns < COLUMNS_MIN) columns = COLUMNS_MIN;
  char label[32];
  int label_width = snprintf(label, sizeof label, "stage %d", pipeline->stages - 1);
  row r = {.width = columns - label_width - 1};
  r.scale = times->total > 0 ? r.width / times->total : 1;
  /* Whole columns for the shortest where that makes all boxes of one cost look equal. */
  double least = shortest(pipeline, times);
  if (least * r.scale >= 1 && is_even(pipeline, times, least))
    r.scale = (int)(least * r.scale + 1e-9) / least;
  r.width = column_at(&r, times->total);
  tsr_arena *arena = tsr_arena_new();
  r.cells = tsr_arena_alloc(arena, (size_t)r.width + 1);
  r.spent = tsr_arena_alloc(arena, sizeof *r.spent * (size_t)r.width + 1);
  for (int s = 0; s < pipeline->stages; s++) {
    draw_row(&r, pipeline, times, s);
    snprintf(label, sizeof label, "stage %d", s);
    add_row(&r, label, label_width, text);
  }
  draw_axis(&r, times->total);
  add_row(&r, "time", label_width, text);
  add_legend(pipeline, times, label_width, text);
  tsr_arena_free(arena);
}
