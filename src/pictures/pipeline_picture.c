// SPDX-License-Identifier: Apache-2.0
#include "pictures/pictures.h"
#include "pictures/svg.h"
#include "schedule/pipeline_walk.h"
#include <math.h>
#include <string.h>

enum {
  LEFT = 92,
  RIGHT = 28,
  TOP = 82,
  BOX = 24,
  BASELINE = BOX / 2 + 4,
  BOX_PIXELS = 26,
  TICK_PIXELS = 90
};
enum { CHART_MIN = 620, CHART_MAX = 1800, ACTIONS_MAX = 4096, STAGES_MAX = 64 };
/* Of the boxes' 11-pixel text, and between the texts of two boxes. */
static const double character_pixels = 7, gap_pixels = 4;

static const char *const kind_names[TSR_ACTION_KINDS] = {
    "forward", "backward", "weights' gradients"};
static const char *const kind_classes[TSR_ACTION_KINDS] = {"c0", "c1", "c2"};

typedef struct {
  const tsr_pipeline *pipeline;
  tsr_pipeline_times times; /* ms */
  double chart, scale;      /* pixels; of a ms */
  bool merged;              /* there are too many actions for a box each */
  int step, row;            /* stages of a row; pixels */
  tsr_text *svg;
} page;

static bool has_kind(const tsr_pipeline *pipeline, tsr_action_kind kind) {
  if (kind == TSR_ACTION_WEIGHTS) return pipeline->splits_backward;
  return kind == TSR_ACTION_FORWARD || !pipeline->forward_only;
}

static double shortest(const page *p) {
  double least = p->times.total;
  for (int s = 0; s < p->pipeline->stages; s++)
    for (int i = 0; i < p->pipeline->counts[s]; i++) {
      double cost = p->times.end[s][i] - p->times.start[s][i];
      if (cost > 0 && cost < least) least = cost;
    }
  return least;
}

static double y_of(const page *p, int stage) {
  int row = stage / p->step;
  return TOP + row * p->row;
}

static double bottom_of(const page *p) { return y_of(p, p->pipeline->stages - 1) + p->row; }

/* ---- the rows ---- */

/* A box shows what fits with a gap: F3.1, else the microbatch, else nothing; its tip has it all. */
static void draw_action(const page *p, int stage, int index) {
  tsr_action a = p->pipeline->actions[stage][index];
  double start = p->times.start[stage][index], end = p->times.end[stage][index];
  double x = LEFT + start * p->scale, width = (end - start) * p->scale;
  double y = y_of(p, stage) + (p->row - BOX) / 2.0;
  const tsr_short_text whole = tsr_action_text(a);
  char number[16], class[16];
  tsr_text tip = {0};
  tsr_text_add(
      &tip, "%s: %s of microbatch %d, stage %d", whole.text, kind_names[a.kind], a.microbatch,
      stage);
  if (p->pipeline->chunks > 1) tsr_text_add(&tip, ", chunk %d", a.chunk);
  tsr_text_add(&tip, ": %.6g to %.6g ms", start, end);
  snprintf(number, sizeof number, "%d", a.microbatch);
  snprintf(class, sizeof class, "%s cell", kind_classes[a.kind]);
  if (a.chunk)
    tsr_text_add(
        p->svg, "<g fill-opacity=\"%s\">",
        tsr_svg_number(1 - 0.65 * a.chunk / (p->pipeline->chunks - 1)).text);
  tsr_svg_rect(p->svg, class, x, y, width, BOX, tip.data);
  tsr_text_free(&tip);
  if (a.chunk) tsr_text_add(p->svg, "</g>\n");
  const char *label = whole.text;
  if ((double)strlen(label) * character_pixels > width - gap_pixels) label = number;
  if ((double)strlen(label) * character_pixels <= width - gap_pixels)
    tsr_svg_text(p->svg, a.chunk ? "small" : "on", "middle", x + width / 2, y + BASELINE, label);
}

/* Pixels of a stage's row: each is drawn as what most of its time goes to. */
static void draw_merged(const page *p, int stage) {
  int pixels = (int)p->chart;
  tsr_arena *scratch = tsr_arena_new();
  double(*spent)[TSR_ACTION_KINDS] = tsr_arena_alloc(scratch, sizeof *spent * (size_t)(pixels + 1));
  for (int i = 0; i < p->pipeline->counts[stage]; i++) {
    double start = p->times.start[stage][i] * p->scale, end = p->times.end[stage][i] * p->scale;
    for (int x = (int)start; x < pixels && x < end; x++)
      spent[x][p->pipeline->actions[stage][i].kind] += fmin(end, x + 1) - fmax(start, x);
  }
  double y = y_of(p, stage) + (p->row - BOX) / 2.0;
  for (int kind = 0; kind < TSR_ACTION_KINDS; kind++) {
    tsr_text path = {0};
    for (int x = 0, end; x < pixels; x = end + 1) {
      for (end = x; end < pixels; end++) {
        const double *s = spent[end];
        double idle = 1 - s[0] - s[1] - s[2];
        bool most = s[kind] > idle + 1e-9;
        for (int k = 0; k < TSR_ACTION_KINDS; k++)
          most &= k >= kind ? s[kind] >= s[k] : s[kind] > s[k];
        if (!most) break;
      }
      if (end > x)
        tsr_text_add(
            &path, "M%d %sh%dv%dh-%dz", LEFT + x, tsr_svg_number(y).text, end - x, BOX, end - x);
    }
    if (path.data)
      tsr_text_add(p->svg, "<path class=\"%s\" d=\"%s\"/>\n", kind_classes[kind], path.data);
    tsr_text_free(&path);
  }
  tsr_arena_free(scratch);
}

static void draw_stage(const page *p, int stage) {
  double y = y_of(p, stage) + (p->row - BOX) / 2.0, total = p->times.total;
  char tip[96];
  snprintf(
      tip, sizeof tip, "stage %d: busy %.6g ms, idle %.1f%%", stage, p->times.busy[stage],
      total > 0 ? 100 - 100 * p->times.busy[stage] / total : 0);
  tsr_svg_textf(p->svg, "small", "start", 24, y + BASELINE, "stage %d", stage);
  tsr_svg_rect(p->svg, "idle", LEFT, y, total > 0 ? total * p->scale : 0, BOX, tip);
  if (p->merged) draw_merged(p, stage);
  for (int i = 0; !p->merged && i < p->pipeline->counts[stage]; i++) draw_action(p, stage, i);
}

/* ---- around them ---- */

static void draw_axis(const page *p) {
  double step = tsr_svg_round_step(TICK_PIXELS / p->scale), bottom = bottom_of(p);
  for (int k = 0; k * step <= p->times.total; k++) {
    double x = LEFT + k * step * p->scale;
    tsr_svg_line(p->svg, "grid", x, TOP - 4, x, bottom + 4);
    tsr_svg_textf(p->svg, "small soft", "middle", x, bottom + 19, "%.6g", k * step);
  }
  tsr_svg_text(p->svg, "small soft", "start", 24, bottom + 19, "ms");
}

static void draw_key(const page *p, double y) {
  double x = LEFT;
  for (int kind = 0; kind < TSR_ACTION_KINDS; kind++) {
    if (!has_kind(p->pipeline, kind)) continue;
    tsr_svg_rect(p->svg, kind_classes[kind], x, y, 14, 14, NULL);
    tsr_svg_textf(
        p->svg, "small", "start", x + 20, y + 11, "%c: %s", "FBW"[kind], kind_names[kind]);
    x += 64 + 7 * (double)strlen(kind_names[kind]);
  }
  tsr_svg_rect(p->svg, "idle", x, y, 14, 14, NULL);
  tsr_svg_textf(
      p->svg, "small", "start", x + 20, y + 11, "idle%s",
      p->pipeline->chunks > 1 && !p->merged
          ? "; F3.1: microbatch 3 of chunk 1; later chunks are paler"
          : "");
}

static void draw_notes(const page *p, double y, int actions) {
  if (p->merged)
    tsr_svg_textf(
        p->svg, "small soft", "start", LEFT, y,
        "%s actions in columns of %.3g ms; a column shows what most of its time goes to.",
        tsr_text_count(actions).text, 1 / p->scale);
  if (p->step > 1)
    tsr_svg_textf(
        p->svg, "small soft", "start", LEFT, y + 16, "Of %d stages every %dth is drawn.",
        p->pipeline->stages, p->step);
}

static void draw_head(const page *p, const tsr_report *r) {
  const tsr_estimate *e = r->estimate;
  const tsr_pipeline *pipeline = p->pipeline;
  tsr_svg_text(p->svg, "head", "start", 24, 34, "Pipeline of a step");
  tsr_text line = {0};
  tsr_text_add(&line, "%s", pipeline->name);
  if (pipeline->chunks > 1) tsr_text_add(&line, ", %d chunks a stage", pipeline->chunks);
  tsr_text_add(
      &line, ": %d stage%s, %d microbatch%s, %.6g ms, bubble %.1f%%", pipeline->stages,
      pipeline->stages == 1 ? "" : "s", pipeline->microbatches,
      pipeline->microbatches == 1 ? "" : "es", p->times.total, fmax(0, 100 * e->times.bubble));
  tsr_svg_text_cut(p->svg, "soft", 24, 54, LEFT + p->chart - 24, line.data);
  tsr_text_free(&line);
  if (r->machine->threads)
    tsr_svg_textf(
        p->svg, "small soft", "start", 24, 70, "as if each stage had a device of its own");
  else
    tsr_svg_textf(
        p->svg, "small soft", "start", 24, 70,
        "step %.6g ms on %s: before the pipeline %.6g ms, after it %.6g ms", 1e3 * e->step,
        r->machine->name, 1e3 * e->before, 1e3 * e->after);
}

static void fit(page *p, int actions) {
  double total = p->times.total > 0 ? p->times.total : 1;
  double wanted = p->times.total > 0 ? total / shortest(p) * BOX_PIXELS : CHART_MIN;
  p->chart = floor(fmin(fmax(wanted, CHART_MIN), CHART_MAX));
  p->scale = p->chart / total;
  p->merged = actions > ACTIONS_MAX;
  p->step = (p->pipeline->stages + STAGES_MAX - 1) / STAGES_MAX;
  p->row = BOX + 8;
}

void tsr_picture_pipeline(tsr_arena *arena, const tsr_report *report, tsr_text *svg) {
  page p = {.pipeline = report->programs->pipeline, .svg = svg};
  int actions = 0;
  p.times = tsr_report_pipeline_times(arena, report);
  for (int s = 0; s < p.pipeline->stages; s++) actions += p.pipeline->counts[s];
  fit(&p, actions);
  double bottom = bottom_of(&p);
  char about[256];
  snprintf(
      about, sizeof about, "%s: %d stages, %d microbatches, %d actions, %.6g ms, bubble %.1f%%",
      p.pipeline->name, p.pipeline->stages, p.pipeline->microbatches, actions, p.times.total,
      fmax(0, 100 * report->estimate->times.bubble));
  tsr_svg_begin(
      svg, LEFT + p.chart + RIGHT, bottom + 64 + (p.merged ? 26 : 0) + (p.step > 1 ? 16 : 0),
      "Pipeline of a step", about);
  draw_head(&p, report);
  draw_axis(&p);
  for (int s = 0; s < p.pipeline->stages; s += p.step) draw_stage(&p, s);
  draw_key(&p, bottom + 34);
  draw_notes(&p, bottom + 70, actions);
  tsr_svg_end(svg);
}
