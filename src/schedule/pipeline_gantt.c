// SPDX-License-Identifier: Apache-2.0
/* A pipeline schedule over time, drawn: as text, and as an SVG document. */
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

/* ---- text ------------------------------------------------------------------------------------ */

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

/* ---- SVG ------------------------------------------------------------------------------------- */

enum { LEFT = 80, RIGHT = 30, TOP = 44, ROW = 34, BOX = 26, FOOT = 76, TICK_PIXELS = 80 };
static const double character_pixels = 6.5; /* of the boxes' 11-pixel text */

/* The bytes of the well-formed UTF-8 character at `at` that XML allows, else 0. */
static int character_bytes(const unsigned char *at) {
  if (*at < 0x80) return *at >= 0x20 && *at != 0x7f;
  int bytes = *at >= 0xf0 && *at <= 0xf4 ? 4 : *at >= 0xe0 ? 3 : *at >= 0xc2 ? 2 : 0;
  if (*at > 0xf4) return 0;
  unsigned code = *at & (0xffu >> (bytes + 1));
  for (int i = 1; i < bytes; i++) {
    if ((at[i] & 0xc0) != 0x80) return 0;
    code = code << 6 | (at[i] & 0x3f);
  }
  bool overlong = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  bool refused = (code >= 0xd800 && code < 0xe000) || code == 0xfffe || code == 0xffff;
  return overlong || refused || code > 0x10ffff ? 0 : bytes;
}

static void add_escaped(const char *name, tsr_text *svg) {
  for (const unsigned char *at = (const unsigned char *)name; *at;) {
    int bytes = character_bytes(at);
    if (*at == '&') tsr_text_add(svg, "&amp;");
    else if (*at == '<') tsr_text_add(svg, "&lt;");
    else if (*at == '>') tsr_text_add(svg, "&gt;");
    else if (bytes) tsr_text_add_bytes(svg, at, (size_t)bytes);
    else tsr_text_add(svg, "?");
    at += bytes ? bytes : 1;
  }
}

static void add_head(
    const tsr_pipeline *pipeline, const tsr_pipeline_times *times, int width, int height,
    tsr_text *svg) {
  tsr_text_add(
      svg,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
      "viewBox=\"0 0 %d %d\">\n"
      "<style>\n"
      "text { font: 13px sans-serif; fill: #222 }\n"
      ".box text { font-size: 11px; text-anchor: middle }\n"
      ".axis text { font-size: 11px; text-anchor: middle; fill: #555 }\n"
      ".axis line { stroke: #ddd }\n"
      ".idle { fill: #f1f1f1 }\n"
      ".F { fill: #8ec5ee; stroke: #3f7fb0 }\n"
      ".B { fill: #f2b36b; stroke: #b0762c }\n"
      ".W { fill: #9fd6a4; stroke: #4f9556 }\n"
      "</style>\n"
      "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n"
      "<text x=\"%d\" y=\"26\">",
      width, height, width, height, width, height, LEFT);
  add_escaped(pipeline->name, svg);
  tsr_text_add(
      svg, ": %d stage%s, %d microbatch%s, total %.6g, bubble %.1f%%</text>\n", pipeline->stages,
      pipeline->stages == 1 ? "" : "s", pipeline->microbatches,
      pipeline->microbatches == 1 ? "" : "es", times->total, bubble_of(times));
}

static void add_axis_lines(
    const tsr_pipeline *pipeline, const tsr_pipeline_times *times, double scale, tsr_text *svg) {
  double step = round_step(TICK_PIXELS / scale);
  int bottom = TOP + pipeline->stages * ROW;
  tsr_text_add(svg, "<g class=\"axis\">\n");
  for (int k = 0; k * step <= times->total; k++)
    tsr_text_add(
        svg,
        "<line x1=\"%.2f\" y1=\"%d\" x2=\"%.2f\" y2=\"%d\"/>"
        "<text x=\"%.2f\" y=\"%d\">%.6g</text>\n",
        LEFT + k * step * scale, TOP - 4, LEFT + k * step * scale, bottom + 4,
        LEFT + k * step * scale, bottom + 18, k * step);
  tsr_text_add(svg, "</g>\n");
}

/* Later chunks are paler. */
static double opacity(const tsr_pipeline *pipeline, int chunk) {
  return pipeline->chunks > 1 ? 1 - 0.7 * chunk / (pipeline->chunks - 1) : 1;
}

/* A box says what fits: F3.1, else the microbatch's number, else nothing; its tip says it all. */
static void add_box(
    const tsr_pipeline *pipeline, const tsr_pipeline_times *times, int stage, int index,
    double scale, tsr_text *svg) {
  tsr_action a = pipeline->actions[stage][index];
  double start = times->start[stage][index], end = times->end[stage][index];
  double x = LEFT + start * scale, width = (end - start) * scale;
  int y = TOP + stage * ROW + (ROW - BOX) / 2;
  tsr_text_add(
      svg, "<rect class=\"%c\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\"", "FBW"[a.kind], x,
      y, width, BOX);
  if (a.chunk) tsr_text_add(svg, " fill-opacity=\"%.2f\"", opacity(pipeline, a.chunk));
  tsr_text_add(
      svg, "><title>%s of stage %d: %.6g to %.6g</title></rect>", tsr_action_text(a).text, stage,
      start, end);
  char number[16];
  snprintf(number, sizeof number, "%d", a.microbatch);
  const tsr_short_text whole = tsr_action_text(a);
  const char *label = whole.text;
  if ((double)strlen(label) * character_pixels > width) label = number;
  if ((double)strlen(label) * character_pixels <= width)
    tsr_text_add(svg, "<text x=\"%.2f\" y=\"%d\">%s</text>", x + width / 2, y + BOX / 2 + 4, label);
  tsr_text_add(svg, "\n");
}

static void add_stage(
    const tsr_pipeline *pipeline, const tsr_pipeline_times *times, int stage, double scale,
    tsr_text *svg) {
  int y = TOP + stage * ROW + (ROW - BOX) / 2;
  tsr_text_add(svg, "<text x=\"12\" y=\"%d\">stage %d</text>\n", y + BOX / 2 + 5, stage);
  tsr_text_add(
      svg,
      "<g class=\"box\">\n<rect class=\"idle\" x=\"%d\" y=\"%d\" width=\"%.2f\" "
      "height=\"%d\"/>\n",
      LEFT, y, times->total * scale, BOX);
  for (int i = 0; i < pipeline->counts[stage]; i++) add_box(pipeline, times, stage, i, scale, svg);
  tsr_text_add(svg, "</g>\n");
}

static void add_key(const tsr_pipeline *pipeline, int y, tsr_text *svg) {
  int x = LEFT;
  for (int kind = 0; kind < TSR_ACTION_KINDS; kind++) {
    if (!has_kind(pipeline, kind)) continue;
    tsr_text_add(
        svg,
        "<rect class=\"%c\" x=\"%d\" y=\"%d\" width=\"16\" height=\"16\"/>"
        "<text x=\"%d\" y=\"%d\">%c %s</text>\n",
        "FBW"[kind], x, y, x + 22, y + 13, "FBW"[kind], kind_names[kind]);
    x += 60 + 8 * (int)strlen(kind_names[kind]);
  }
  tsr_text_add(
      svg,
      "<rect class=\"idle\" x=\"%d\" y=\"%d\" width=\"16\" height=\"16\"/>"
      "<text x=\"%d\" y=\"%d\">idle%s</text>\n",
      x, y, x + 22, y + 13, pipeline->chunks > 1 ? "; later chunks are paler" : "");
}

void tsr_pipeline_gantt_svg(
    const tsr_pipeline *pipeline, const tsr_pipeline_times *times, tsr_text *text) {
  enum { CHART_MIN = 560, CHART_MAX = 4000, BOX_PIXELS = 26 };
  double total = times->total > 0 ? times->total : 1;
  double wanted = times->total > 0 ? total / shortest(pipeline, times) * BOX_PIXELS : CHART_MIN;
  double chart = min(max(wanted, CHART_MIN), CHART_MAX), scale = chart / total;
  int rows = TOP + pipeline->stages * ROW;
  add_head(pipeline, times, LEFT + (int)(chart + 0.5) + RIGHT, rows + FOOT, text);
  add_axis_lines(pipeline, times, scale, text);
  for (int s = 0; s < pipeline->stages; s++) add_stage(pipeline, times, s, scale, text);
  add_key(pipeline, rows + 40, text);
  tsr_text_add(text, "</svg>\n");
}
