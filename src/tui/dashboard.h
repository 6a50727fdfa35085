// SPDX-License-Identifier: Apache-2.0
/* A run on one screen: its progress, curves, numbers, newest sample and messages. The layout uses
 * what room there is, down to one row. */
#ifndef TSR_TUI_DASHBOARD_H
#define TSR_TUI_DASHBOARD_H
#include "tui/curve.h"

enum { TSR_DASHBOARD_TEXT = 512, TSR_DASHBOARD_MESSAGES = 4096 };

/* All zero is one that knows nothing but the numbers that tsr_dashboard_init sets to NaN. */
typedef struct {
  char title[TSR_DASHBOARD_TEXT]; /* what the run is */
  char state[TSR_DASHBOARD_TEXT]; /* "trains", and what may be said of it; "": nothing */
  int64_t step, steps;            /* done, and in all (0: unknown) */
  double loss, lr, grad_norm;     /* NaN: not shown; so for all numbers below */
  double tokens_per_s, step_ms, mfu, tokens;
  bool is_samples; /* the data are rows, so that tokens are samples */
  double elapsed_s, eta_s;
  double validation, best_validation, accuracy;
  int64_t validation_step, best_step;
  double resident_bytes, peak_bytes;
  int64_t checkpoint_step; /* -1: none */
  bool is_saving;
  int64_t sample_step; /* -1: none */
  char sample[TSR_DASHBOARD_TEXT];
  char messages[TSR_DASHBOARD_MESSAGES]; /* lines, the newest last; "": none */
  tsr_curve losses, validations;
} tsr_dashboard;

void tsr_dashboard_init(tsr_dashboard *ret_dashboard);
void tsr_dashboard_set_validation(tsr_dashboard *dashboard, int64_t step, double loss);
/* A text's begin; as many whole characters as there is room for. */
void tsr_dashboard_set_sample(
    tsr_dashboard *dashboard, int64_t step, const char *text, size_t length);

/* Draws it into a screen that is cleared. */
void tsr_dashboard_draw(const tsr_dashboard *dashboard, tsr_screen *screen);

#endif
