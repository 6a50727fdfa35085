// SPDX-License-Identifier: Apache-2.0
/* A picture of characters, and the bytes that bring it onto a terminal. No memory is allocated: a
 * screen has room for TSR_SCREEN_ROWS × TSR_SCREEN_COLUMNS; of larger terminals a part is used. */
#ifndef TSR_TUI_SCREEN_H
#define TSR_TUI_SCREEN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TSR_SCREEN_ROWS = 100, TSR_SCREEN_COLUMNS = 250 };

typedef enum {
  TSR_STYLE_PLAIN,
  TSR_STYLE_SOFT,   /* names beside numbers */
  TSR_STYLE_STRONG, /* titles */
  TSR_STYLE_CURVE,
  TSR_STYLE_OTHER, /* a second curve */
  TSR_STYLE_WARNING,
  TSR_STYLES
} tsr_style;

typedef struct {
  uint32_t code : 24; /* a code point that takes one column */
  uint32_t style : 8;
} tsr_cell;

typedef struct {
  int rows, columns;
  bool is_utf8, has_colours;
  tsr_cell cells[TSR_SCREEN_ROWS][TSR_SCREEN_COLUMNS];
  /* ---- private: what the terminal shows ---- */
  int shown_rows, shown_columns;
  tsr_cell shown[TSR_SCREEN_ROWS][TSR_SCREEN_COLUMNS];
} tsr_screen;

/* Empties it; the size is that of the terminal. */
void tsr_screen_clear(tsr_screen *screen, int rows, int columns);
/* What lies outside is left out. */
void tsr_screen_put(tsr_screen *screen, int row, int column, uint32_t code, tsr_style style);
/* UTF-8, or what may be; the column behind it. Ends at `end` (a column) with "…" where it is
 * longer, without one where `end` is outside. Control characters are spaces; characters that do not
 * take one column are '?', as all are that a terminal without UTF-8 does not have. */
int tsr_screen_text(
    tsr_screen *screen, int row, int column, int end, const char *text, tsr_style style);
/* How many columns tsr_screen_text needs. */
int tsr_screen_width(const char *text);

/* The bytes that make the terminal show it, at most `most`: rows that have changed, or all where
 * `all`. What has no room comes next time. */
enum { TSR_SCREEN_BYTES = TSR_SCREEN_ROWS * TSR_SCREEN_COLUMNS * 4 };
size_t tsr_screen_flush(tsr_screen *screen, bool all, char *ret_bytes, size_t most);

#endif
