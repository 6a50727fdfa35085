// SPDX-License-Identifier: Apache-2.0
#include "pictures/memory_map.h"
#include "pictures/pictures.h"
#include "pictures/svg.h"
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 1040, LEFT = 96, PLOT = 920, MAP_HEIGHT = 360, CURVE_HEIGHT = 130 };
enum { ROW = 20, PEAK_ROWS = 12, STAGE_ROWS = 32, KINDS = 5 };

static const char *const kind_names[KINDS] = {
    "parameters", "optimizer state", "constants and inputs", "key/value cache", "work"};
static const char *const kind_classes[KINDS] = {"c4", "c5", "c6", "c7", "c0"};

static void kinds_of(const tsr_memory *m, int64_t ret_bytes[KINDS]) {
  ret_bytes[0] = m->parameters;
  ret_bytes[1] = m->state;
  ret_bytes[2] = m->sources;
  ret_bytes[3] = m->cache;
  ret_bytes[4] = m->work;
}

typedef struct {
  tsr_arena *arena;
  const tsr_report *report;
  tsr_text *svg;
  tsr_memory memory; /* of the stage that needs the most */
  int stage, stages;
  double y; /* where the next thing begins */
} page;

static int find_fullest(const tsr_report *r, tsr_memory *ret_memory) {
  int fullest = 0;
  tsr_memory_of(r->programs, r->programs_count, 0, ret_memory);
  for (int s = 1; s < r->programs->pipeline->stages; s++) {
    tsr_memory m;
    tsr_memory_of(r->programs, r->programs_count, s, &m);
    if (m.total > ret_memory->total) *ret_memory = m, fullest = s;
  }
  return fullest;
}

static void draw_bar(
    const tsr_memory *m, double x, double y, double width, double height, int64_t most,
    tsr_text *svg) {
  int64_t bytes[KINDS];
  kinds_of(m, bytes);
  for (int k = 0; k < KINDS; k++) {
    double part = most ? width * (double)bytes[k] / (double)most : 0;
    char tip[128], class[16];
    snprintf(tip, sizeof tip, "%s: %s bytes", kind_names[k], tsr_text_count(bytes[k]).text);
    snprintf(class, sizeof class, "%s cell", kind_classes[k]);
    if (bytes[k]) tsr_svg_rect(svg, class, x, y, part, height, tip);
    x += part;
  }
}

/* ---- the rank ---- */

static void draw_head(page *p) {
  const tsr_report *r = p->report;
  const char *model = r->graph->name;
  tsr_text text = {0};
  tsr_text_add(&text, "Memory of a rank: %s", tsr_text_bytes(p->memory.total).text);
  tsr_svg_text(p->svg, "head", "start", 24, 34, text.data);
  text.length = 0;
  tsr_text_add(&text, "%s", model);
  if (p->stages > 1)
    tsr_text_add(&text, ", stage %d of %d, which needs the most", p->stage, p->stages);
  tsr_text_add(
      &text, "; %s bytes of %s that a device of %s has", tsr_text_count(p->memory.total).text,
      tsr_text_bytes(r->machine->memory).text, r->machine->name);
  if (p->memory.fullest != r->programs[0].of_stage[p->stage])
    tsr_text_add(&text, "; work: of evaluation or generation");
  tsr_svg_text_cut(p->svg, "soft", 24, 54, WIDTH - 48, text.data);
  tsr_text_free(&text);
  p->y = 70;
}

static void draw_rank(page *p) {
  int64_t bytes[KINDS];
  kinds_of(&p->memory, bytes);
  draw_bar(&p->memory, 24, p->y, WIDTH - 48, 26, p->memory.total, p->svg);
  p->y += 46;
  double x = 24;
  for (int k = 0; k < KINDS; k++) {
    if (!bytes[k]) continue;
    tsr_svg_rect(p->svg, kind_classes[k], x, p->y - 10, 12, 12, NULL);
    tsr_svg_textf(
        p->svg, "", "start", x + 18, p->y, "%s %s", kind_names[k], tsr_text_bytes(bytes[k]).text);
    x += 100 + 7.0 * (double)strlen(kind_names[k]);
  }
  p->y += 34;
}

/* ---- WORK over the step ---- */

static void draw_use_key(page *p) {
  const tsr_program *program = p->memory.fullest;
  double x = LEFT;
  for (int u = 0; u < TSR_USES; u++) {
    tsr_svg_rect(p->svg, tsr_memory_use_classes[u], x, p->y - 10, 12, 12, NULL);
    tsr_svg_textf(
        p->svg, "small", "start", x + 18, p->y, "%s, %s at the peak", tsr_memory_use_names[u],
        tsr_text_bytes(program->peak_bytes[u]).text);
    x += 230;
  }
  p->y += 30;
}

static void draw_work(page *p) {
  const tsr_program *program = p->memory.fullest;
  tsr_memory_plot plot = {program, p->arena, LEFT, 0, PLOT, MAP_HEIGHT};
  tsr_svg_textf(
      p->svg, "strong", "start", 24, p->y, "Addresses of work: %s bytes, over %s tasks of a step",
      tsr_text_count(program->bytes[TSR_SEGMENT_WORK]).text,
      tsr_text_count(program->tasks_count).text);
  plot.top = p->y + 30;
  int rest = tsr_memory_map_draw(&plot, p->svg);
  p->y = plot.top + MAP_HEIGHT + 20;
  if (rest) {
    tsr_svg_textf(
        p->svg, "small soft", "start", LEFT, p->y - 2,
        "%s smaller buffers are drawn together, in cells of 3 pixels, without names.",
        tsr_text_count(rest).text);
    p->y += 18;
  }
  p->y += 14;
  tsr_svg_textf(
      p->svg, "strong", "start", 24, p->y, "Bytes in use, by use%s",
      program->tasks_count > 440 ? " (of neighbouring tasks the fullest)" : "");
  plot.top = p->y + 14;
  plot.height = CURVE_HEIGHT;
  tsr_memory_curve_draw(&plot, p->svg);
  p->y = plot.top + CURVE_HEIGHT + 24;
  draw_use_key(p);
}

/* ---- the peak ---- */

static int larger_first(const void *a, const void *b) {
  const tsr_work_piece *x = *(const tsr_work_piece *const *)a;
  const tsr_work_piece *y = *(const tsr_work_piece *const *)b;
  int64_t bytes_x = x->bytes * x->slots, bytes_y = y->bytes * y->slots;
  if (bytes_x != bytes_y) return bytes_x < bytes_y ? 1 : -1;
  return x->value - y->value;
}

static void draw_peak_row(
    page *p, const char *name, const char *class, int64_t bytes, int64_t most, const char *tasks) {
  double part = most ? (double)bytes / (double)most : 0;
  tsr_svg_text_cut(p->svg, "small", 24, p->y, 300, name);
  tsr_svg_rect(p->svg, class, 330, p->y - 10, 340 * part, 12, NULL);
  tsr_svg_text(p->svg, "small", "end", 830, p->y, tsr_text_count(bytes).text);
  tsr_svg_text(p->svg, "small soft", "end", 1016, p->y, tasks);
  p->y += ROW;
}

static void draw_peak(page *p) {
  const tsr_program *program = p->memory.fullest;
  int peak = tsr_memory_peak_place(program), count = 0;
  int64_t others = 0, sum = 0;
  const tsr_work_piece **live =
      tsr_arena_array(p->arena, const tsr_work_piece *, program->pieces_count + 1);
  for (int i = 0; i < program->pieces_count; i++) {
    const tsr_work_piece *x = &program->pieces[i];
    if (tsr_memory_is_counted(program, x) && x->first <= peak && peak <= x->last) live[count++] = x;
  }
  for (int u = 0; u < TSR_USES; u++) sum += program->peak_bytes[u];
  qsort(live, (size_t)count, sizeof *live, larger_first);
  tsr_text text = {0};
  tsr_text_add(
      &text, "The peak: %s bytes in task %d, %s", tsr_text_count(sum).text, program->peak_task,
      program->graph->nodes[program->tasks[program->peak_task].node].name);
  p->y += 8;
  tsr_svg_text_cut(p->svg, "strong", 24, p->y, WIDTH - 48, text.data);
  p->y += 24;
  int64_t most = count ? live[0]->bytes * live[0]->slots : 0;
  for (int i = 0; i < count; i++) {
    const tsr_work_piece *x = live[i];
    if (i >= PEAK_ROWS) {
      others += x->bytes * x->slots;
      continue;
    }
    text.length = 0;
    tsr_text_add(&text, "%s", x->value >= 0 ? program->graph->values[x->value].name : "scratch");
    if (x->slots > 1) tsr_text_add(&text, " × %d slots", x->slots);
    char tasks[48];
    snprintf(tasks, sizeof tasks, "tasks %d to %d", x->first, x->last);
    draw_peak_row(p, text.data, tsr_memory_use_classes[x->use], x->bytes * x->slots, most, tasks);
  }
  if (count > PEAK_ROWS) {
    char name[64];
    snprintf(name, sizeof name, "%d others", count - PEAK_ROWS);
    draw_peak_row(p, name, "idle", others, most > others ? most : others, "");
  }
  tsr_text_free(&text);
}

/* ---- stages ---- */

static bool is_alike(const tsr_memory *a, const tsr_memory *b) {
  int64_t x[KINDS], y[KINDS];
  kinds_of(a, x);
  kinds_of(b, y);
  return !memcmp(x, y, sizeof x);
}

static void draw_stage(page *p, const tsr_memory *m, int begin, int end) {
  char label[48];
  if (end - begin > 1) snprintf(label, sizeof label, "stages %d to %d", begin, end - 1);
  else snprintf(label, sizeof label, "stage %d", begin);
  tsr_svg_text(p->svg, "small", "start", 24, p->y, label);
  draw_bar(m, 130, p->y - 11, 690, 14, p->memory.total, p->svg);
  tsr_svg_textf(p->svg, "small", "end", 1016, p->y, "%s bytes", tsr_text_count(m->total).text);
  p->y += ROW;
}

/* Neighbours that are alike share a row. */
static void draw_stages(page *p) {
  const tsr_report *r = p->report;
  tsr_memory first, m;
  int begin = 0, rows = 0;
  p->y += 18;
  tsr_svg_text(p->svg, "strong", "start", 24, p->y, "All stages");
  p->y += 24;
  tsr_memory_of(r->programs, r->programs_count, 0, &first);
  for (int s = 1; s <= p->stages; s++) {
    if (s < p->stages) tsr_memory_of(r->programs, r->programs_count, s, &m);
    if (s < p->stages && is_alike(&first, &m)) continue;
    if (rows++ == STAGE_ROWS) {
      tsr_svg_textf(p->svg, "small soft", "start", 24, p->y, "%d more stages", p->stages - begin);
      p->y += ROW;
      return;
    }
    draw_stage(p, &first, begin, s);
    first = m;
    begin = s;
  }
}

void tsr_picture_memory(tsr_arena *arena, const tsr_report *report, tsr_text *svg) {
  tsr_text body = {0}, about = {0};
  page p = {.arena = arena, .report = report, .svg = &body};
  p.stages = report->programs->pipeline->stages;
  p.stage = find_fullest(report, &p.memory);
  draw_head(&p);
  draw_rank(&p);
  if (p.memory.fullest->tasks_count) {
    draw_work(&p);
    draw_peak(&p);
  }
  if (p.stages > 1) draw_stages(&p);
  tsr_text_add(
      &about,
      "%s: parameters %s, optimizer state %s, constants and inputs %s, cache %s, work %s, total %s "
      "bytes",
      report->graph->name, tsr_text_count(p.memory.parameters).text,
      tsr_text_count(p.memory.state).text, tsr_text_count(p.memory.sources).text,
      tsr_text_count(p.memory.cache).text, tsr_text_count(p.memory.work).text,
      tsr_text_count(p.memory.total).text);
  tsr_svg_begin(svg, WIDTH, p.y + 12, "Memory of a rank", about.data);
  tsr_text_add_bytes(svg, body.data, body.length);
  tsr_svg_end(svg);
  tsr_text_free(&body);
  tsr_text_free(&about);
}
