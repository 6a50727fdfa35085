// SPDX-License-Identifier: Apache-2.0
#include "tui/painter.h"
#include "base/memory.h"
#include "base/terminal.h"
#include <stdlib.h>
#include <string.h>

struct tsr_painter {
  tsr_screen screen;
  size_t length;
  char bytes[TSR_SCREEN_BYTES];
};

bool tsr_painter_open(tsr_painter **ret) {
  *ret = NULL;
  if (!tsr_terminal_open()) return false;
  tsr_painter *p = *ret = tsr_memory_new(sizeof *p);
  p->screen.is_utf8 = tsr_terminal_is_utf8();
  p->screen.has_colours = tsr_terminal_has_colours();
  return true;
}

void tsr_painter_close(tsr_painter *p) {
  if (!p) return;
  tsr_terminal_leave();
  free(p);
}

/* The first line may be cut. */
static void read_messages(tsr_dashboard *d) {
  size_t length = tsr_terminal_read_errors(d->messages, sizeof d->messages - 1);
  if (!length) return;
  d->messages[length] = 0;
  for (size_t i = 0; i < length; i++)
    if (!d->messages[i]) d->messages[i] = ' ';
}

void tsr_painter_draw(tsr_painter *p, tsr_dashboard *d) {
  int rows, columns;
  bool all = tsr_terminal_take_damage();
  tsr_terminal_trim();
  read_messages(d);
  tsr_terminal_size(&rows, &columns);
  tsr_screen_clear(&p->screen, rows, columns);
  tsr_dashboard_draw(d, &p->screen);
  p->length = tsr_screen_flush(&p->screen, all, p->bytes, sizeof p->bytes);
}

void tsr_painter_write(tsr_painter *p) { tsr_terminal_write(p->bytes, p->length); }
