// SPDX-License-Identifier: Apache-2.0
#include "tui/screen.h"
#include "base/utf8.h"
#include <stdio.h>
#include <string.h>

void tsr_screen_clear(tsr_screen *s, int rows, int columns) {
  s->rows = rows < TSR_SCREEN_ROWS ? rows : TSR_SCREEN_ROWS;
  s->columns = columns < TSR_SCREEN_COLUMNS ? columns : TSR_SCREEN_COLUMNS;
  for (int r = 0; r < s->rows; r++)
    for (int c = 0; c < s->columns; c++) s->cells[r][c] = (tsr_cell){' ', TSR_STYLE_PLAIN};
}

void tsr_screen_put(tsr_screen *s, int row, int column, uint32_t code, tsr_style style) {
  if (row < 0 || row >= s->rows || column < 0 || column >= s->columns) return;
  s->cells[row][column] = (tsr_cell){code, style};
}

/* ---- texts ---- */

/* Letters of the scripts that terminals show in one column each, and what this program draws. */
static bool takes_one_column(uint32_t code) {
  if (code < 0x300) return code >= 0xa0 && code != 0xad;
  if (code < 0x370) return false; /* combining */
  if (code < 0x590) return code < 0x483 || code > 0x489;
  return (code >= 0x1e00 && code < 0x2000) || (code >= 0x2010 && code < 0x2028) ||
         (code >= 0x2030 && code < 0x205f) || (code >= 0x2190 && code < 0x2200) ||
         (code >= 0x2500 && code < 0x25a0) || (code >= 0x2800 && code < 0x2900);
}

static uint32_t shown_as(uint32_t code, bool is_utf8) {
  if (code < 0x20 || code == 0x7f) return ' ';
  if (code < 0x7f) return code;
  return is_utf8 && takes_one_column(code) ? code : '?';
}

int tsr_screen_width(const char *text) {
  int width = 0;
  for (const char *at = text; *at; at++) width += ((unsigned char)*at & 0xc0) != 0x80;
  return width;
}

/* The next code point; of what is no UTF-8 each byte is U+FFFD. */
static uint32_t next(const char **at, size_t length) {
  uint32_t code;
  int bytes = tsr_utf8_next(*at, length, &code);
  *at += bytes ? bytes : 1;
  return bytes ? code : 0xfffd;
}

int tsr_screen_text(
    tsr_screen *s, int row, int column, int end, const char *text, tsr_style style) {
  const char *behind = text + strlen(text);
  bool marks = end <= s->columns;
  if (!marks) end = s->columns;
  while (text < behind && column < end) {
    uint32_t code = next(&text, (size_t)(behind - text));
    if (marks && column == end - 1 && text < behind) code = s->is_utf8 ? 0x2026 : '>'; /* … */
    tsr_screen_put(s, row, column++, shown_as(code, s->is_utf8), style);
  }
  return column;
}

/* ---- bytes ---- */

typedef struct {
  char *bytes;
  size_t length, most;
} output;

static void add(output *o, const char *text) {
  size_t length = strlen(text);
  if (o->length + length > o->most) return;
  memcpy(o->bytes + o->length, text, length);
  o->length += length;
}

static void add_code(output *o, uint32_t code) {
  char text[TSR_UTF8_BYTES_MAX + 1] = "";
  tsr_utf8_put(code, text);
  add(o, text);
}

static void add_row(const tsr_screen *s, int row, output *o) {
  static const char *const styles[TSR_STYLES] = {"\033[0m",    "\033[0;2m",  "\033[0;1m",
                                                 "\033[0;36m", "\033[0;33m", "\033[0;31m"};
  char place[16];
  int last = s->columns, style = TSR_STYLE_PLAIN;
  snprintf(place, sizeof place, "\033[%d;1H", row + 1);
  add(o, place);
  while (last && s->cells[row][last - 1].code == ' ') last--;
  for (int c = 0; c < last; c++) {
    const tsr_cell *cell = &s->cells[row][c];
    if (s->has_colours && cell->style != style && cell->code != ' ')
      add(o, styles[style = cell->style]);
    add_code(o, cell->code);
  }
  if (style != TSR_STYLE_PLAIN) add(o, styles[TSR_STYLE_PLAIN]);
  if (last < s->columns) add(o, "\033[K");
}

size_t tsr_screen_flush(tsr_screen *s, bool all, char *bytes, size_t most) {
  enum { CELL_BYTES = 10, ROW_BYTES = 32 };
  output o = {bytes, 0, most};
  all |= s->shown_rows != s->rows || s->shown_columns != s->columns;
  if (all) add(&o, "\033[0m\033[2J"), memset(s->shown, 0, sizeof s->shown);
  s->shown_rows = s->rows;
  s->shown_columns = s->columns;
  for (int row = 0; row < s->rows; row++) {
    size_t bytes_of_row = sizeof(tsr_cell) * (size_t)s->columns;
    if (!memcmp(s->shown[row], s->cells[row], bytes_of_row)) continue;
    if (o.length + (size_t)s->columns * CELL_BYTES + ROW_BYTES > most) break;
    add_row(s, row, &o);
    memcpy(s->shown[row], s->cells[row], bytes_of_row);
  }
  return o.length;
}
