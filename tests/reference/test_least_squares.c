// SPDX-License-Identifier: Apache-2.0
/* Gradient descent on dp 2 x tp 2 ends at the least-squares fit, which the normal equations give in
 * closed form. usage: test_least_squares PROGRAM; runs in the source root. */
#include "base/file_read.h"
#include "data/table.h"
#include "tests/check.h"
#include <stdlib.h>
#include <unistd.h>

enum { COEFFICIENTS_MAX = 16 };

/* The least mean squared error of y = w x + b: solves (X'X) w = X'y by elimination with pivots. */
static double least_error(const tsr_table *t) {
  int n = (int)t->features + 1;
  double a[COEFFICIENTS_MAX][COEFFICIENTS_MAX + 1] = {{0}}, error = 0;
  for (int64_t r = 0; r < t->rows; r++) {
    double row[COEFFICIENTS_MAX + 1];
    for (int i = 0; i < n - 1; i++) row[i] = t->x[r * t->features + i];
    row[n - 1] = 1;
    row[n] = t->y[r];
    for (int i = 0; i < n; i++)
      for (int k = 0; k <= n; k++) a[i][k] += row[i] * row[k];
  }
  for (int i = 0; i < n; i++) {
    int pivot = i;
    for (int r = i + 1; r < n; r++)
      if (fabs(a[r][i]) > fabs(a[pivot][i])) pivot = r;
    for (int k = 0; k <= n; k++) {
      double swapped = a[i][k];
      a[i][k] = a[pivot][k];
      a[pivot][k] = swapped;
    }
    for (int r = 0; r < n; r++) {
      double factor = r == i ? 0 : a[r][i] / a[i][i];
      for (int k = i; k <= n; k++) a[r][k] -= factor * a[i][k];
    }
  }
  for (int64_t r = 0; r < t->rows; r++) {
    double fit = a[n - 1][n] / a[n - 1][n - 1];
    for (int i = 0; i < n - 1; i++) fit += a[i][n] / a[i][i] * t->x[r * t->features + i];
    error += (t->y[r] - fit) * (t->y[r] - fit);
  }
  return error / (double)t->rows;
}

/* A number of the last step in the metrics, or NaN. */
static double last_number(const char *metrics, const char *key) {
  const char *last = NULL;
  for (const char *at = metrics; (at = strstr(at, "\"event\":\"step\"")); at++) last = at;
  const char *number = last ? strstr(last, key) : NULL;
  return number ? atof(number + strlen(key)) : NAN;
}

int main(int argc, char **argv) {
  CHECK_INT(argc, 2);
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_table table;
  tsr_table_columns columns = {0};
  bool ok = tsr_table_read(
      arena, TSR_SOURCE_ROOT "/configs/data/linear_regression.csv", &columns, TSR_NOWHERE, &table,
      diags);
  char path[] = "/tmp/least_squares_XXXXXX";
  int file = mkstemp(path);
  CHECK(ok && file >= 0 && argc == 2 && table.features < COEFFICIENTS_MAX);
  const char *command = tsr_arena_printf(
      arena, "'%s' --config '%s/configs/runs/linear_regression_tp_dp.yaml' --quiet --metrics %s",
      argv[argc - 1], TSR_SOURCE_ROOT, path);
  CHECK_INT(system(command), 0);
  char *metrics;
  size_t length;
  if (ok && tsr_file_read(arena, path, 1 << 24, TSR_NOWHERE, &metrics, &length, diags)) {
    double least = least_error(&table), loss = last_number(metrics, "\"loss\":");
    CHECK(least > 0.001 && least < 0.1);
    CHECK_AT(fabs(loss - least) < 1e-5 * least, "the loss ends at %.9g, not %.9g", loss, least);
  }
  CHECK_INT(tsr_diags_errors(diags), 0);
  unlink(path);
  close(file);
  tsr_arena_free(arena);
  return check_done("reference.least_squares");
}
