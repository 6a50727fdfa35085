// SPDX-License-Identifier: Apache-2.0
/* The progress line and the log lines, to the letter. */
#include "report/progress.h"
#include "base/text.h"
#include "tests/check.h"
#include <stdlib.h>
#include <unistd.h>

static tsr_progress_state state(void) {
  return (tsr_progress_state){
      .step = 120,
      .steps = 1000,
      .loss = 2.34561,
      .lr = 3e-4,
      .grad_norm = 1.23,
      .tokens_per_s = 12345.4,
      .eta_s = 83};
}

static void check_bar(tsr_progress_state s, int width, const char *want) {
  char line[TSR_PROGRESS_LINE_BYTES];
  int length = tsr_progress_format_bar(&s, width, line);
  CHECK_STR(line, want);
  CHECK_INT(length, strlen(want));
  CHECK(length <= width);
}

static void test_bar(void) {
  check_bar(
      state(), 200,
      "step 120/1000 [##----------------------]  loss 2.3456  12,345 tok/s  ETA 1:23");
  check_bar(state(), 70, "step 120/1000 [##---------------]  loss 2.3456  12,345 tok/s  ETA 1:23");
  check_bar(state(), 61, "step 120/1000 [--------]  loss 2.3456  12,345 tok/s  ETA 1:23");
  check_bar(state(), 60, "step 120/1000  loss 2.3456  12,345 tok/s  ETA 1:23");
  check_bar(state(), 40, "step 120/1000  loss 2.3456  ETA 1:23");
  check_bar(state(), 30, "step 120/1000  loss 2.3456");
  check_bar(state(), 14, "step 120/1000");
  check_bar(state(), 5, "");
  tsr_progress_state s = state();
  s.step = 1000, s.eta_s = 0, s.tokens_per_s = 0, s.loss = NAN;
  check_bar(s, 60, "step 1000/1000 [#######################]  loss nan  ETA 0:00");
}

static void test_time(void) {
  static const struct {
    double seconds;
    const char *text;
  } cases[] = {{0, "0:00"},   {7.4, "0:07"},     {59.6, "1:00"},
               {83, "1:23"},  {7384, "2:03:04"}, {266584, "3d 02:03:04"},
               {-1, "--:--"}, {NAN, "--:--"},    {INFINITY, "--:--"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    CHECK_STR(tsr_text_duration(cases[i].seconds).text, cases[i].text);
  }
}

static void test_step(void) {
  char line[TSR_PROGRESS_LINE_BYTES];
  tsr_progress_state s = state();
  CHECK_INT(tsr_progress_format_step(&s, line), strlen(line));
  CHECK_STR(line, "Step 120: Loss = 2.3456, 12,345 tokens/s, lr 3.0000e-04, grad norm 1.2300");
  tsr_progress_state rows = state();
  rows.is_samples = true;
  tsr_progress_format_step(&rows, line);
  CHECK_STR(line, "Step 120: Loss = 2.3456, 12,345 samples/s, lr 3.0000e-04, grad norm 1.2300");
  tsr_progress_state global = state();
  global.is_global = true;
  tsr_progress_format_step(&global, line);
  CHECK_STR(
      line, "Step 120: Global Loss = 2.3456, 12,345 tokens/s, lr 3.0000e-04, grad norm 1.2300");
  s.grad_norm = NAN, s.tokens_per_s = 0;
  tsr_progress_format_step(&s, line);
  CHECK_STR(line, "Step 120: Loss = 2.3456, lr 3.0000e-04");
}

static char *bar_text, *plain_text;
static size_t bar_length, plain_length;

/* 6 steps at 0.04 s each of a run that was resumed at step 4. */
static void run(void) {
  FILE *bar = open_memstream(&bar_text, &bar_length);
  FILE *plain = open_memstream(&plain_text, &plain_length);
  tsr_progress progress = tsr_progress_start(plain, false, 4, 4, 100);
  progress.bar = bar;
  for (int i = 1; i <= 6; i++) {
    tsr_progress_state s = {.step = 4 + i, .steps = 10, .loss = 1, .lr = 0.5, .grad_norm = NAN};
    tsr_progress_show(&progress, s, 100 + 0.04 * i);
  }
  tsr_progress_clear(&progress);
  tsr_progress_clear(&progress);
  fclose(bar);
  fclose(plain);
}

static void test_show(void) {
  run();
  CHECK_STR(
      plain_text, "Step 8: Loss = 1.0000, lr 5.0000e-01\nStep 10: Loss = 1.0000, lr 5.0000e-01\n");
  CHECK_STR(/* steps 6 and 7 come too soon; a log line takes the line away and brings it back */
            bar_text,
            "\r\033[K\033[36mstep 5/10 [############------------]  loss 1.0000  ETA 0:00\033[0m"
            "\r\033[K\r\033[K\033[36mstep 8/10 [###################-----]  loss 1.0000  ETA 0:00"
            "\033[0m\r\033[K\r\033[K\033[36mstep 10/10 [########################]  loss 1.0000  "
            "ETA 0:00\033[0m\r\033[K");
  free(bar_text);
  free(plain_text);
}

static void test_start(void) {
  setenv("TERM", "xterm", 1);
  setenv("NO_COLOR", "1", 1);
  CHECK(!tsr_progress_start(stdout, false, 1, 0, 0).bar);
  setenv("NO_COLOR", "", 1);
  setenv("TERM", "dumb", 1);
  tsr_progress progress = tsr_progress_start(stdout, false, 1, 0, 0);
  CHECK(progress.bar == NULL && progress.plain == stdout);
  setenv("TERM", "xterm", 1);
  progress = tsr_progress_start(stdout, false, 1, 0, 0);
  CHECK((progress.bar == stderr) == (isatty(STDERR_FILENO) != 0));
  progress = tsr_progress_start(stdout, true, 1, 0, 0);
  CHECK(progress.bar == NULL && progress.plain == NULL);
  tsr_progress_show(&progress, state(), 1); /* prints nothing */
}

int main(void) {
  test_bar();
  test_time();
  test_step();
  test_show();
  test_start();
  return check_done("progress");
}
