// SPDX-License-Identifier: Apache-2.0
/* Rows of numbers: features, and targets or class labels. */
#ifndef TSR_DATA_TABLE_H
#define TSR_DATA_TABLE_H
#include "base/diag.h"
#include <stdint.h>

typedef struct {
  int64_t rows;
  int64_t features, targets; /* columns; targets is 0 where there are labels */
  int32_t classes;           /* labels are in [0, classes); 0: no labels */
  const float *x;            /* (rows, features), or NULL where there are pixels */
  const uint8_t *pixels;     /* (rows, features), to be divided by 255 */
  const float *y;            /* (rows, targets) */
  const int32_t *labels;     /* (rows) */
} tsr_table;

/* Columns are named by the header, or by their number from 0. */
typedef struct {
  const char *const *features; /* none named: all that are not targets, in the file's order */
  int features_count;
  const char *const *targets; /* none named: the last column */
  int targets_count;
  bool is_label; /* the one target column holds class numbers 0, 1, … */
} tsr_table_columns;

/* Reads comma-separated numbers. The first line is a header if none of its fields is a number;
 * fields may be quoted; empty lines are skipped. Errors, located in the file: a row of another
 * width, a field that is not a finite number, a label that is not a class number. At `place`: a
 * file that cannot be read, a column that does not exist. The table lives in `arena`. */
bool tsr_table_read(
    tsr_arena *arena, const char *path, const tsr_table_columns *columns, tsr_location location,
    tsr_table *ret_table, tsr_diags *diags);

#endif
