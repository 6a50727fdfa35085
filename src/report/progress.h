// SPDX-License-Identifier: Apache-2.0
/* How far the run is, for people: a line that renews itself on a terminal, and plain lines for
 * logs.
 *
 *   step 120/1000 [##--------------]  loss 2.3456  12,345 tok/s  ETA 1:23
 *   Step 100: Loss = 2.3456, 12,345 tokens/s, lr 3.0000e-04, grad norm 1.2340
 *
 * With data parallelism the loss is the mean over all ranks of dp: "Global Loss = 2.3456". */
#ifndef TSR_REPORT_PROGRESS_H
#define TSR_REPORT_PROGRESS_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct {
  int64_t step, steps; /* updates done, and in the whole run */
  double loss, lr;
  double grad_norm;    /* NaN: not computed, and not shown */
  double tokens_per_s; /* 0: unknown, and not shown */
  double eta_s;        /* until the last step; below 0: unknown */
  bool is_samples;     /* the data are rows, so tokens_per_s counts them */
  bool is_global;      /* the batch is split over dp, so the loss is of all its ranks */
} tsr_progress_state;

enum { TSR_PROGRESS_LINE_BYTES = 512 };

/* The renewing line, without control characters, at most `width` columns wide: what has no room
 * goes first the bar, then tokens/s, the ETA, the loss. Returns its length. */
int tsr_progress_format_bar(
    const tsr_progress_state *state, int width, char ret_line[TSR_PROGRESS_LINE_BYTES]);
/* The plain line, without its end of line. Returns its length. */
int tsr_progress_format_step(
    const tsr_progress_state *state, char ret_line[TSR_PROGRESS_LINE_BYTES]);

typedef struct {
  FILE *bar;          /* the terminal; NULL: no renewing line */
  FILE *plain;        /* the log; NULL: no plain lines */
  int64_t log_every;  /* steps between plain lines; the last step has one too; 0: none */
  int64_t first_step; /* done before this process began */
  double start_s, shown_s;
  bool is_shown; /* the line stands on the terminal now */
} tsr_progress;

/* Plain lines go to `plain`, the renewing line to standard error where that takes one
 * (base/terminal_line.h). `quiet`: neither. Times are seconds of any steady clock. */
tsr_progress
tsr_progress_start(FILE *plain, bool quiet, int64_t log_every, int64_t first_step, double now_s);

/* After each step: works out the ETA, renews the line (at most 10 times a second) and prints a
 * plain line where one is due. */
void tsr_progress_show(tsr_progress *progress, tsr_progress_state state, double now_s);

/* Takes the line off the terminal: before anything else is printed there, and at the end. */
void tsr_progress_clear(tsr_progress *progress);

#endif
