// SPDX-License-Identifier: Apache-2.0
/* Brings a dashboard onto the terminal (base/terminal.h). */
#ifndef TSR_TUI_PAINTER_H
#define TSR_TUI_PAINTER_H
#include "tui/dashboard.h"

typedef struct tsr_painter tsr_painter;

/* Takes the terminal; what it draws with is made here. False: there is none that can be taken, and
 * nothing has changed. */
bool tsr_painter_open(tsr_painter **ret_painter);
/* Gives it back. NULL is fine. */
void tsr_painter_close(tsr_painter *painter);

/* The newest lines of what standard error was given meanwhile become the dashboard's messages, and
 * the picture the painter's. */
void tsr_painter_draw(tsr_painter *painter, tsr_dashboard *dashboard);
/* Writes it; what the terminal shows already is not written again. A terminal that takes nothing is
 * waited for. */
void tsr_painter_write(tsr_painter *painter);

#endif
