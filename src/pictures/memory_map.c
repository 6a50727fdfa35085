// SPDX-License-Identifier: Apache-2.0
#include "pictures/memory_map.h"
#include "pictures/svg.h"
#include <stdlib.h>
#include <string.h>

const char *const tsr_memory_use_names[TSR_USES] = {
    "activations", "gradients", "communication", "scratch"};
const char *const tsr_memory_use_classes[TSR_USES] = {"c0", "c1", "c2", "c3"};

bool tsr_memory_is_counted(const tsr_program *p, const tsr_work_piece *piece) {
  return !piece->holders || piece->holders == p->peak_holders;
}

int tsr_memory_peak_place(const tsr_program *p) {
  int at = 0;
  while (at + 1 < p->tasks_count && p->plan_order[at] != p->peak_task) at++;
  return at;
}

static double x_at(const tsr_memory_plot *m, int place) {
  return m->left + m->width * place / m->program->tasks_count;
}

/* ---- the frame ---- */

static const tsr_part *part_of(const tsr_program *p, int task) {
  for (int i = 0; i < p->parts_count; i++)
    if (task >= p->parts[i].begin && task < p->parts[i].end) return &p->parts[i];
  return NULL;
}

/* A line where a part of the step begins, and its name where that has room. */
static void draw_parts(const tsr_memory_plot *m, bool with_names, tsr_text *svg) {
  enum { NAME = 96, CHARACTER = 7 }; /* room for a name, and for one of its characters */
  const tsr_program *p = m->program;
  const tsr_part *before = NULL;
  double named = -1e9;
  for (int at = 0; at < p->tasks_count; at++) {
    if (before && p->plan_order[at] >= before->begin && p->plan_order[at] < before->end) continue;
    before = part_of(p, p->plan_order[at]);
    if (!before) continue;
    double x = x_at(m, at);
    tsr_svg_line(svg, "grid", x, m->top, x, m->top + m->height);
    if (!with_names || x < named + NAME) continue;
    bool chunks =
        p->pipeline->chunks > 1 && before->section != TSR_PROLOGUE && before->section != TSR_UPDATE;
    char name[64];
    if (chunks)
      snprintf(name, sizeof name, "%s, chunk %d", tsr_section_name(before->section), before->chunk);
    else snprintf(name, sizeof name, "%s", tsr_section_name(before->section));
    double last = m->left + m->width - CHARACTER * (double)strlen(name); /* which is not cut off */
    tsr_svg_text(svg, "small soft", "start", x + 2 < last ? x + 2 : last, m->top - 6, name);
    named = x;
  }
}

static void draw_frame(const tsr_memory_plot *m, int64_t most, bool with_names, tsr_text *svg) {
  tsr_svg_rect(svg, "panel", m->left, m->top, m->width, m->height, NULL);
  for (int i = 0; i <= 4; i++) {
    double y = m->top + m->height * (4 - i) / 4;
    tsr_svg_line(svg, "grid", m->left, y, m->left + m->width, y);
    tsr_svg_text(
        svg, "small soft", "end", m->left - 6, y + 4,
        tsr_text_bytes(most / 4 * i + most % 4 * i / 4).text);
  }
  draw_parts(m, with_names, svg);
}

static void draw_peak(const tsr_memory_plot *m, tsr_text *svg) {
  int peak = tsr_memory_peak_place(m->program);
  double x = (x_at(m, peak) + x_at(m, peak + 1)) / 2;
  tsr_svg_line(svg, "mark", x, m->top, x, m->top + m->height);
}

/* ---- the map ---- */

enum { OWN_MAX = 500, CELL = 3 };

/* The cells of small pieces, a bit a use. */
typedef struct {
  int columns, rows;
  unsigned char *cells;
} raster;

typedef struct {
  const tsr_work_piece *piece;
  double area;
  int index;
} candidate;

static int larger_first(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  if (x->area != y->area) return x->area < y->area ? 1 : -1;
  return x->index - y->index;
}

static void draw_piece(const tsr_memory_plot *m, const tsr_work_piece *x, tsr_text *svg) {
  const tsr_program *p = m->program;
  double scale = m->height / (double)p->bytes[TSR_SEGMENT_WORK];
  const char *name = x->value >= 0 ? p->graph->values[x->value].name
                                   : p->graph->nodes[p->tasks[p->plan_order[x->first]].node].name;
  tsr_text tip = {0};
  for (int slot = 0; slot < x->slots; slot++) {
    int64_t offset = x->offset + slot * x->stride;
    if (tip.data) tip.length = 0;
    tsr_text_add(&tip, "%s", name);
    if (x->slots > 1) tsr_text_add(&tip, ", slot %d of %d", slot, x->slots);
    tsr_text_add(
        &tip, ": %s bytes at %s, %s, tasks %d to %d", tsr_text_count(x->bytes).text,
        tsr_text_count(offset).text, tsr_memory_use_names[x->use], x->first, x->last);
    char class[16];
    bool is_thin = (double)x->bytes * scale < 3; /* an outline would hide it */
    snprintf(class, sizeof class, "%s%s", tsr_memory_use_classes[x->use], is_thin ? "" : " cell");
    tsr_svg_rect(
        svg, class, x_at(m, x->first), m->top + m->height - (double)(offset + x->bytes) * scale,
        x_at(m, x->last + 1) - x_at(m, x->first), (double)x->bytes * scale, tip.data);
  }
  tsr_text_free(&tip);
}

static void fill_cells(const tsr_memory_plot *m, const tsr_work_piece *x, const raster *r) {
  double scale = m->height / (double)m->program->bytes[TSR_SEGMENT_WORK] / CELL;
  int begin = (int)((x_at(m, x->first) - m->left) / CELL);
  int end = (int)((x_at(m, x->last + 1) - m->left) / CELL);
  for (int slot = 0; slot < x->slots; slot++) {
    double offset = (double)(x->offset + slot * x->stride);
    int low = (int)(offset * scale), high = (int)((offset + (double)x->bytes) * scale);
    for (int row = low; row <= high && row < r->rows; row++)
      for (int column = begin; column <= end && column < r->columns; column++)
        r->cells[row * r->columns + column] |= (unsigned char)(1 << x->use);
  }
}

/* Each use's cells as one path of horizontal runs. */
static void draw_cells(const tsr_memory_plot *m, const raster *r, tsr_text *svg) {
  for (int use = 0; use < TSR_USES; use++) {
    tsr_text path = {0};
    for (int row = 0; row < r->rows; row++)
      for (int column = 0, end; column < r->columns; column = end + 1) {
        const unsigned char *cells = r->cells + row * r->columns;
        for (end = column; end < r->columns && cells[end] >> use & 1;) end++;
        if (end > column)
          tsr_text_add(
              &path, "M%s %sh%dv%dh-%dz", tsr_svg_number(m->left + column * CELL).text,
              tsr_svg_number(m->top + m->height - (row + 1) * CELL).text, (end - column) * CELL,
              CELL, (end - column) * CELL);
      }
    if (path.data)
      tsr_text_add(svg, "<path class=\"%s\" d=\"%s\"/>\n", tsr_memory_use_classes[use], path.data);
    tsr_text_free(&path);
  }
}

int tsr_memory_map_draw(const tsr_memory_plot *m, tsr_text *svg) {
  const tsr_program *p = m->program;
  candidate *all = tsr_arena_array(m->arena, candidate, p->pieces_count + 1);
  int count = 0, slots = 0, own = 0, rest = 0;
  for (int i = 0; i < p->pieces_count; i++) {
    const tsr_work_piece *x = &p->pieces[i];
    if (!tsr_memory_is_counted(p, x)) continue;
    all[count++] = (candidate){x, (double)x->bytes * (x->last + 1 - x->first), i};
  }
  draw_frame(m, p->bytes[TSR_SEGMENT_WORK], true, svg);
  if (!p->bytes[TSR_SEGMENT_WORK]) return 0;
  qsort(all, (size_t)count, sizeof *all, larger_first);
  while (own < count && slots + all[own].piece->slots <= OWN_MAX) slots += all[own++].piece->slots;
  raster r = {(int)(m->width / CELL), (int)(m->height / CELL), NULL};
  r.cells = tsr_arena_alloc(m->arena, (size_t)r.columns * (size_t)r.rows);
  for (int i = own; i < count; i++) {
    fill_cells(m, all[i].piece, &r);
    rest += all[i].piece->slots;
  }
  draw_cells(m, &r, svg);
  for (int i = 0; i < own; i++) draw_piece(m, all[i].piece, svg);
  draw_peak(m, svg);
  return rest;
}

/* ---- the curve ---- */

enum { COLUMNS_MAX = 440 };

typedef struct {
  int64_t bytes[TSR_USES];
} uses;

static int64_t sum_of(const uses *u) {
  int64_t sum = 0;
  for (int i = 0; i < TSR_USES; i++) sum += u->bytes[i];
  return sum;
}

static uses *add_up(const tsr_memory_plot *m) {
  const tsr_program *p = m->program;
  uses *at = tsr_arena_array(m->arena, uses, p->tasks_count + 1);
  for (int i = 0; i < p->pieces_count; i++) {
    const tsr_work_piece *x = &p->pieces[i];
    if (!tsr_memory_is_counted(p, x)) continue;
    at[x->first].bytes[x->use] += x->bytes * x->slots;
    at[x->last + 1].bytes[x->use] -= x->bytes * x->slots;
  }
  for (int i = 1; i < p->tasks_count; i++)
    for (int u = 0; u < TSR_USES; u++) at[i].bytes[u] += at[i - 1].bytes[u];
  return at;
}

/* The fullest task of each column: the peak is among them. */
static int pick_columns(const uses *at, int tasks, uses *ret_columns) {
  int columns = tasks < COLUMNS_MAX ? tasks : COLUMNS_MAX;
  for (int c = 0; c < columns; c++) {
    int begin = (int)((int64_t)tasks * c / columns),
        end = (int)((int64_t)tasks * (c + 1) / columns);
    int most = begin;
    for (int i = begin; i < end; i++)
      if (sum_of(&at[i]) > sum_of(&at[most])) most = i;
    ret_columns[c] = at[most];
  }
  return columns;
}

/* From the uses below it up to this one, as steps. */
static void draw_use(
    const tsr_memory_plot *m, const uses *columns, int count, int use, double scale,
    tsr_text *svg) {
  double bottom = m->top + m->height, step = m->width / count;
  tsr_text_add(svg, "<path class=\"%s\" d=\"M", tsr_memory_use_classes[use]);
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < count; i++) {
      int c = pass ? count - 1 - i : i;
      int64_t sum = 0;
      for (int u = 0; u < use + !pass; u++) sum += columns[c].bytes[u];
      double from = m->left + step * (c + pass), to = m->left + step * (c + !pass);
      tsr_short_text y = tsr_svg_number(bottom - (double)sum * scale);
      tsr_text_add(
          svg, "%s%s %sH%s", i || pass ? "L" : "", tsr_svg_number(from).text, y.text,
          tsr_svg_number(to).text);
    }
  tsr_text_add(svg, "z\"/>\n");
}

void tsr_memory_curve_draw(const tsr_memory_plot *m, tsr_text *svg) {
  const tsr_program *p = m->program;
  uses *columns = tsr_arena_array(m->arena, uses, COLUMNS_MAX);
  int count = pick_columns(add_up(m), p->tasks_count, columns);
  int64_t most = 0;
  for (int u = 0; u < TSR_USES; u++) most += p->peak_bytes[u];
  draw_frame(m, most, false, svg);
  for (int u = 0; u < TSR_USES && most; u++)
    draw_use(m, columns, count, u, m->height / (double)most, svg);
  draw_peak(m, svg);
}
