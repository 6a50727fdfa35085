// SPDX-License-Identifier: Apache-2.0
/* The terminal that standard error may be. */
#ifndef TSR_BASE_TERMINAL_H
#define TSR_BASE_TERMINAL_H
#include <stdbool.h>

/* Whether standard error is a terminal that takes a line that renews itself: TERM is set and not
 * "dumb", and NO_COLOR is not set to something. */
bool tsr_terminal_is_live(void);
/* Its width, in columns; 80 where it is not known. */
int tsr_terminal_columns(void);

/* Goes to the begin of the cursor's line and clears it. */
#define TSR_TERMINAL_CLEAR_LINE "\r\033[K"

#endif
