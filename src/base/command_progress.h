// SPDX-License-Identifier: Apache-2.0
/* How far a command is that takes long: a line on standard error that renews itself on a terminal,
 * or a plain line from time to time.
 *
 *   importing [########----------------]  34%  1.2 GiB of 3.5 GiB  310.2 MiB/s  ETA 0:08
 *   importing: 34%, 1.2 GiB of 3.5 GiB, 310.2 MiB/s, ETA 0:08
 *
 * One for the process, as standard error is. A command names what it does and how much that is;
 * what works on it counts, from any thread. Nothing is shown before the delay, and nothing stays on
 * a terminal: not at the end, before diagnostics, or when a signal ends the process. (The line of a
 * training run is report/progress.h.) */
#ifndef TSR_BASE_COMMAND_PROGRESS_H
#define TSR_BASE_COMMAND_PROGRESS_H
#include <stdbool.h>
#include <stdint.h>

enum { TSR_COMMAND_PROGRESS_BYTES = 512 };

typedef struct {
  const char *what;    /* "importing" */
  const char *unit;    /* of what is counted, "steps"; NULL: bytes */
  int64_t done, total; /* total 0: not known */
  double seconds;      /* since it began */
} tsr_command_progress_state;

/* On terminals after `delay_s`; elsewhere, where `lines` is true, every `delay_s`. Before this call
 * nothing is shown. */
void tsr_command_progress_enable(double delay_s, bool lines);
/* Nothing is shown from here on, and no line is taken off: of a process that another one prints
 * for. */
void tsr_command_progress_disable(void);

/* A piece of work; texts as in tsr_command_progress_state, which must live until its end. One that
 * begins inside of another one is not counted. */
void tsr_command_progress_begin(const char *what, int64_t total, const char *unit);
void tsr_command_progress_add(int64_t done);
void tsr_command_progress_end(void);
/* Takes the line off the terminal, for what is printed next. */
void tsr_command_progress_clear(void);
/* Whether there is one. A signal handler asks, and clears it by a write (base/terminal_line.h). */
bool tsr_command_progress_is_shown(void);

/* At most `width` bytes: where there is no room first the bar, then the speed, the counts and the
 * ETA are left out. Returns the length. */
int tsr_command_progress_format_bar(
    const tsr_command_progress_state *state, int width, char ret_line[TSR_COMMAND_PROGRESS_BYTES]);
int tsr_command_progress_format_line(
    const tsr_command_progress_state *state, char ret_line[TSR_COMMAND_PROGRESS_BYTES]);

#endif
