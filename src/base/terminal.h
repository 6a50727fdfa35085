// SPDX-License-Identifier: Apache-2.0
/* The terminal, while this process draws on the whole of it.
 *
 * The picture is on the terminal's other screen (ECMA-48 and xterm's alternate screen, which every
 * terminal of today has; the hundred lines here need no description of terminals, and a library for
 * windows would add nothing to one picture without input). What the process writes to its standard
 * streams meanwhile is kept, where they are the terminal, and written to them when it is left; of
 * much the newest lines, behind one that says how many bytes are missing. It is left by
 * tsr_terminal_leave, at exit, and by each signal that ends the process and has no handler when the
 * terminal is taken; SIGTSTP leaves it until the process continues. */
#ifndef TSR_BASE_TERMINAL_H
#define TSR_BASE_TERMINAL_H
#include <stdbool.h>
#include <stddef.h>

/* Whether the standard output is a terminal that pictures can be drawn on: TERM is set and not
 * "dumb". Whoever sends it elsewhere wants the lines there. */
bool tsr_terminal_can_draw(void);
/* NO_COLOR is not set to something. */
bool tsr_terminal_has_colours(void);
/* By LC_ALL, LC_CTYPE or LANG, the first of them that is set. */
bool tsr_terminal_is_utf8(void);

/* Once in a process. False: it cannot be taken, and nothing has changed. */
bool tsr_terminal_open(void);
/* Writes what was kept. May be called by handlers of signals and any number of times; nothing where
 * no terminal is open. */
void tsr_terminal_leave(void);

/* Gives back the memory of what was printed before the newest megabyte of each stream. Between two
 * calls all is kept. Of any thread. */
enum { TSR_TERMINAL_KEPT = 1 << 20 };
void tsr_terminal_trim(void);

void tsr_terminal_size(int *ret_rows, int *ret_columns); /* 24 and 80 where it is not known */
/* Whether the picture on the terminal may be another one than was drawn: it was resized, or left
 * for a while. */
bool tsr_terminal_take_damage(void);
/* Nothing is written where another job has the terminal. */
void tsr_terminal_write(const char *bytes, size_t length);
/* The newest bytes, at most `most`, of what standard error was given; their number. */
size_t tsr_terminal_read_errors(char *ret_bytes, size_t most);

#endif
