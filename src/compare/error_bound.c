// SPDX-License-Identifier: Apache-2.0
#include "compare/error_bound.h"
#include <math.h>
#include <string.h>

/* Of errors that are not independent. */
static const double SAFETY = 1.5;

double tsr_unit_roundoff(const char *dtype) {
  if (!strcmp(dtype, "F32")) return 0x1p-24;
  if (!strcmp(dtype, "F16")) return 0x1p-11;
  if (!strcmp(dtype, "F8_E4M3")) return 0x1p-4;
  if (!strcmp(dtype, "F8_E5M2")) return 0x1p-3;
  return strcmp(dtype, "BF16") ? 0 : 0x1p-8;
}

double tsr_error_bound(tsr_error_path p, double roundoff, double other_choices, int64_t elements) {
  double square = fmax(p.stored, p.roundings * roundoff * roundoff) + p.sums * 0x1p-48 +
                  2 * p.choices * other_choices;
  return SAFETY * sqrt(square) * (1 + 3 / sqrt((double)elements));
}
