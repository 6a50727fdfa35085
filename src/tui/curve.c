// SPDX-License-Identifier: Apache-2.0
#include "tui/curve.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Drawn at most so far from 0: differences of others are finite. */
static double value_of(const tsr_curve_point *p) {
  const double far = 1e300;
  return p->count ? fmin(fmax(p->sum / p->count, -far), far) : NAN;
}

/* ---- points ---- */

/* Two neighbours become one point. */
static void halve(tsr_curve *c) {
  int kept = 0;
  for (int i = 0; i < c->count; i += 2) {
    tsr_curve_point p = c->points[i];
    if (i + 1 < c->count) {
      p.sum += c->points[i + 1].sum;
      p.count += c->points[i + 1].count;
    }
    c->points[kept++] = p;
  }
  c->count = kept;
  c->each *= 2;
}

void tsr_curve_add(tsr_curve *c, int64_t step, double value) {
  while (c->count && (double)step <= c->points[c->count - 1].step) c->count--;
  if (!c->count) c->each = 1;
  if (c->count == TSR_CURVE_POINTS) halve(c);
  tsr_curve_point *last = c->count ? &c->points[c->count - 1] : NULL;
  bool joins = last && (double)step < last->step + (double)c->each;
  if (!joins) c->points[c->count++] = (tsr_curve_point){.step = (double)step};
  last = &c->points[c->count - 1];
  if (isfinite(value)) last->sum += value, last->count++;
  c->last_step = step;
}

/* ---- the picture ---- */

/* What is drawn: dots of a grid that is finer than the cells, 2 × 4 in each where the terminal has
 * Braille's patterns, else one. */
typedef struct {
  tsr_screen *screen;
  tsr_area inside; /* without the numbers */
  int wide, high;  /* dots of a cell */
  double first, last, low, high_value;
} plot;

static void include(plot *p, const tsr_curve *c) {
  for (int i = 0; i < c->count; i++) {
    double v = value_of(&c->points[i]);
    p->first = fmin(p->first, c->points[i].step);
    p->last = fmax(p->last, (double)c->last_step);
    if (!isfinite(v)) continue;
    p->low = fmin(p->low, v);
    p->high_value = fmax(p->high_value, v);
  }
}

/* The bit of a dot in U+2800 + bits; rows from the top. */
static uint32_t dot_bit(int x, int y) {
  static const uint8_t bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
  return bits[y][x];
}

static void put_dot(const plot *p, int x, int y, tsr_style style) {
  int row = p->inside.row + y / p->high, column = p->inside.column + x / p->wide;
  if (row >= p->screen->rows || column >= p->screen->columns) return;
  uint32_t before = p->screen->cells[row][column].code, code = '*';
  if (p->wide > 1) {
    if (before < 0x2800 || before > 0x28ff) before = 0x2800;
    code = before | dot_bit(x % p->wide, y % p->high);
  }
  tsr_screen_put(p->screen, row, column, code, style);
}

static int dot_row(const plot *p, double value) {
  int dots = p->inside.rows * p->high;
  double share = (p->high_value - value) / (p->high_value - p->low);
  int y = (int)floor(share * (dots - 1) + 0.5);
  return y < 0 ? 0 : y >= dots ? dots - 1 : y;
}

static int dot_column(const plot *p, double step) {
  int dots = p->inside.columns * p->wide;
  return (int)((step - p->first) / (p->last - p->first) * (dots - 1) + 0.5);
}

/* Bresenham's line. */
static void draw_line(const plot *p, int x, int y, int to_x, int to_y, tsr_style style) {
  int wide = to_x - x, high = abs(to_y - y), down = to_y > y ? 1 : -1, error = wide - high;
  for (;;) {
    put_dot(p, x, y, style);
    if (x == to_x && y == to_y) return;
    int twice = 2 * error;
    if (twice > -high) error -= high, x++;
    if (twice < wide) error += wide, y += down;
  }
}

/* Points that are missing leave a gap. */
static void draw_one(const plot *p, const tsr_curve *c, tsr_style style) {
  int before_x = -1, before_y = 0;
  for (int i = 0; i < c->count; i++) {
    double v = value_of(&c->points[i]);
    int x = dot_column(p, c->points[i].step), y = isfinite(v) ? dot_row(p, v) : 0;
    if (isfinite(v) && before_x >= 0) draw_line(p, before_x, before_y, x, y, style);
    else if (isfinite(v)) put_dot(p, x, y, style);
    before_x = isfinite(v) ? x : -1;
    before_y = y;
  }
}

/* Numbers whose texts have the same width, and the width of both. */
static int label(double high, double low, char ret_high[16], char ret_low[16]) {
  snprintf(ret_high, 16, "%.4g", high);
  snprintf(ret_low, 16, "%.4g", low);
  int a = (int)strlen(ret_high), b = (int)strlen(ret_low);
  return a > b ? a : b;
}

void tsr_curve_draw(
    tsr_screen *screen, tsr_area area, const tsr_curve *const *curves, const tsr_style *styles,
    int count) {
  enum { LABELS_MIN = 30, ROWS_MIN = 3 };
  char high[16], low[16], first[32], last[32];
  bool braille = screen->is_utf8;
  plot p = {screen,   area,      braille ? 2 : 1, braille ? 4 : 1,
            INFINITY, -INFINITY, INFINITY,        -INFINITY};
  for (int i = 0; i < count; i++) include(&p, curves[i]);
  if (!(p.low <= p.high_value) || area.rows < 1) return;
  double pad = p.high_value > p.low ? 0 : fabs(p.low) > 1e-300 ? fabs(p.low) / 10 : 1;
  p.low -= pad;
  p.high_value += pad;
  if (p.last <= p.first) p.last = p.first + 1;
  if (area.rows >= ROWS_MIN) p.inside.rows--;
  if (area.columns >= LABELS_MIN) {
    int width = label(p.high_value, p.low, high, low);
    int bottom = area.row + p.inside.rows - 1;
    tsr_screen_text(
        screen, area.row, area.column + width - (int)strlen(high), area.column + width, high,
        TSR_STYLE_SOFT);
    tsr_screen_text(
        screen, bottom, area.column + width - (int)strlen(low), area.column + width, low,
        TSR_STYLE_SOFT);
    p.inside.column += width + 1;
    p.inside.columns -= width + 1;
  }
  for (int i = count - 1; i >= 0; i--) draw_one(&p, curves[i], styles[i]);
  if (p.inside.rows == area.rows) return;
  int end = area.column + area.columns, row = area.row + area.rows - 1;
  snprintf(first, sizeof first, "%.0f", p.first);
  snprintf(last, sizeof last, "%.0f", p.last);
  tsr_screen_text(screen, row, p.inside.column, end, first, TSR_STYLE_SOFT);
  tsr_screen_text(screen, row, end - (int)strlen(last), end, last, TSR_STYLE_SOFT);
}
