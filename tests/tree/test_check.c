// SPDX-License-Identifier: Apache-2.0
/* What tests are made of must fail itself: where nothing was checked, and where one check failed.
 */
#include "tests/check.h"
#include <stdbool.h>

/* The verdict of a test of so many checks, of which so many have failed. */
static int verdict(int count, int failed) {
  int before = check_count, failed_before = check_failed;
  check_count = count, check_failed = failed;
  int result = check_done("(pretended)");
  check_count = before, check_failed = failed_before;
  return result;
}

/* Whether a check that does not hold is counted as one. */
static bool fails(void (*check)(void)) {
  int before = check_count, failed_before = check_failed;
  check();
  bool counted = check_count == before + 1 && check_failed == failed_before + 1;
  check_count = before, check_failed = failed_before;
  return counted;
}

static void check_false(void) { CHECK(check_count < 0); }
static void check_int(void) { CHECK_INT(2 + 2, 5); }
static void check_text(void) { CHECK_STR("text", "other"); }
static void check_no_text(void) { CHECK_STR(NULL, "other"); }
static void check_near(void) { CHECK_NEAR(1.001, 1.0, 1e-4); }
static void check_nan(void) { CHECK_NEAR(NAN, 1.0, 1e-4); }

int main(void) {
  CHECK_INT(verdict(0, 0), 1);
  CHECK_INT(verdict(1, 0), 0);
  CHECK_INT(verdict(9, 1), 1);
  CHECK_INT(verdict(9, 9), 1);
  CHECK(fails(check_false));
  CHECK(fails(check_int));
  CHECK(fails(check_text));
  CHECK(fails(check_no_text));
  CHECK(fails(check_near));
  CHECK(fails(check_nan));
  return check_done("tree.check");
}
