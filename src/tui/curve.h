// SPDX-License-Identifier: Apache-2.0
/* A number by step, in memory of a fixed size, and its picture. */
#ifndef TSR_TUI_CURVE_H
#define TSR_TUI_CURVE_H
#include "tui/screen.h"

enum { TSR_CURVE_POINTS = 2048 };

typedef struct {
  double step, sum;
  int count; /* finite values in the sum */
} tsr_curve_point;

/* Points of so many neighbouring steps each; as many as fit. All zero: an empty one. */
typedef struct {
  tsr_curve_point points[TSR_CURVE_POINTS];
  int count;
  int64_t each;      /* steps of a point; 0: none was added */
  int64_t last_step; /* that was added */
} tsr_curve;

/* Of a step that is not behind the last one: the run went back, and its points from there on are
 * gone. */
void tsr_curve_add(tsr_curve *curve, int64_t step, double value);

/* Draws the curves over each other, the first one on top, into rows and columns of the screen: with
 * numbers at the left, and the first and the last step below. `styles`: of each. */
typedef struct {
  int row, column, rows, columns;
} tsr_area;
void tsr_curve_draw(
    tsr_screen *screen, tsr_area area, const tsr_curve *const *curves, const tsr_style *styles,
    int count);

#endif
