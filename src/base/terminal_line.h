// SPDX-License-Identifier: Apache-2.0
/* A line on the terminal that standard error may be, which renews itself. */
#ifndef TSR_BASE_TERMINAL_LINE_H
#define TSR_BASE_TERMINAL_LINE_H
#include <stdbool.h>

/* Whether standard error is a terminal that takes a line that renews itself: TERM is set and not
 * "dumb", and NO_COLOR is not set to something. */
bool tsr_terminal_line_is_live(void);
/* The width of the terminal, in columns; 80 where it is not known. */
int tsr_terminal_line_columns(void);

/* Goes to the begin of the cursor's line and clears it. */
#define TSR_TERMINAL_LINE_CLEAR "\r\033[K"

#endif
