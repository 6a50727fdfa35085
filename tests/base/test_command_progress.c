// SPDX-License-Identifier: Apache-2.0
/* The lines of a command's progress, to the letter. tests/report/test_command_progress.py has those
 * of real commands on a terminal. */
#include "base/command_progress.h"
#include "tests/check.h"
#include <string.h>

static const int64_t GIB = (int64_t)1 << 30;

static tsr_command_progress_state importing(void) {
  return (tsr_command_progress_state){"importing", NULL, GIB, 3 * GIB, 4};
}

static void check_line(tsr_command_progress_state state, const char *want) {
  char line[TSR_COMMAND_PROGRESS_BYTES];
  int length = tsr_command_progress_format_line(&state, line);
  CHECK_STR(line, want);
  CHECK_INT(length, (int)strlen(line));
}

static void check_bar(tsr_command_progress_state state, int width, const char *want) {
  char line[TSR_COMMAND_PROGRESS_BYTES];
  int length = tsr_command_progress_format_bar(&state, width, line);
  CHECK_STR(line, want);
  CHECK_INT(length, (int)strlen(line));
  CHECK(length <= width);
}

static void test_lines(void) {
  check_line(importing(), "importing: 33%, 1.0 GiB of 3.0 GiB, 256.0 MiB/s, ETA 0:08");
  check_line(
      (tsr_command_progress_state){"measuring", "models", 1, 10, 3},
      "measuring: 10%, 1 of 10 models, 0.33 models/s, ETA 0:27");
  check_line(
      (tsr_command_progress_state){"repeating", "steps", 1500, 3000, 1},
      "repeating: 50%, 1,500 of 3,000 steps, 1500 steps/s, ETA 0:01");
  check_line(
      (tsr_command_progress_state){"reading", NULL, 1 << 20, 0, 2},
      "reading: 1.0 MiB, 512.0 KiB/s, 0:02"); /* no total: the time that has passed */
  check_line(
      (tsr_command_progress_state){"repeating", "steps", 12, 10, 3}, /* more than expected */
      "repeating: 100%, 10 of 10 steps, 4 steps/s, ETA 0:00");
  check_line(
      (tsr_command_progress_state){"measuring", "models", 0, 10, 0},
      "measuring: 0%, 0 of 10 models, ETA --:--");
}

static void test_bars(void) {
  check_bar(
      importing(), 99,
      "importing [########----------------]  33%  1.0 GiB of 3.0 GiB  256.0 MiB/s  ETA 0:08");
  check_bar(
      importing(), 72, "importing [####--------]  33%  1.0 GiB of 3.0 GiB  256.0 MiB/s  ETA 0:08");
  check_bar(importing(), 60, "importing  33%  1.0 GiB of 3.0 GiB  256.0 MiB/s  ETA 0:08");
  check_bar(importing(), 50, "importing  33%  1.0 GiB of 3.0 GiB  ETA 0:08");
  check_bar(importing(), 30, "importing  33%  ETA 0:08");
  check_bar(importing(), 15, "importing  33%");
  check_bar(importing(), 9, "importing");
  check_bar(importing(), 4, "impo");
  check_bar(importing(), 0, "");
}

/* Without a terminal nothing is counted or shown; sections may be inside of each other. */
static void test_disabled(void) {
  tsr_command_progress_begin("a", 1, NULL);
  tsr_command_progress_add(1);
  tsr_command_progress_begin("b", 1, NULL);
  tsr_command_progress_end();
  tsr_command_progress_end();
  tsr_command_progress_clear();
  tsr_command_progress_disable();
  CHECK(true);
}

int main(void) {
  test_lines();
  test_bars();
  test_disabled();
  return check_done("command_progress");
}
