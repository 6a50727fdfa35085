// SPDX-License-Identifier: Apache-2.0
/* The pictures of a run's dashboard, exactly: sizes, terminals without UTF-8, what is not known. */
#include "tests/check.h"
#include "tui/dashboard.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tsr_screen screen;
static tsr_dashboard dashboard;
static char picture[TSR_SCREEN_BYTES];

static void draw(int rows, int columns, bool is_utf8) {
  size_t at = 0;
  screen.is_utf8 = is_utf8;
  tsr_screen_clear(&screen, rows, columns);
  tsr_dashboard_draw(&dashboard, &screen);
  for (int r = 0; r < screen.rows; r++) {
    int last = screen.columns;
    while (last && screen.cells[r][last - 1].code == ' ') last--;
    for (int c = 0; c < last; c++) {
      unsigned code = screen.cells[r][c].code;
      if (code < 0x80) picture[at++] = (char)code;
      else if (code < 0x800)
        picture[at++] = (char)(0xc0 | code >> 6), picture[at++] = (char)(0x80 | (code & 0x3f));
      else {
        picture[at++] = (char)(0xe0 | code >> 12);
        picture[at++] = (char)(0x80 | (code >> 6 & 0x3f));
        picture[at++] = (char)(0x80 | (code & 0x3f));
      }
    }
    picture[at++] = '\n';
  }
  picture[at] = 0;
}

static void fill(void) {
  tsr_dashboard_init(&dashboard);
  snprintf(dashboard.title, sizeof dashboard.title, "out, gpt2, dp=2");
  dashboard.step = 50;
  dashboard.steps = 200;
  dashboard.lr = 3e-4;
  dashboard.grad_norm = 1.25;
  dashboard.tokens_per_s = 12345.4;
  dashboard.step_ms = 41.5;
  dashboard.mfu = 0.345;
  dashboard.tokens = 25600;
  dashboard.elapsed_s = 75;
  dashboard.eta_s = 3725;
  dashboard.resident_bytes = 1 << 30;
  dashboard.checkpoint_step = 40;
  dashboard.is_saving = true;
  for (int i = 1; i <= 50; i++) tsr_curve_add(&dashboard.losses, i, dashboard.loss = 1 + 4. / i);
  tsr_dashboard_set_validation(&dashboard, 20, 1.5);
  tsr_dashboard_set_validation(&dashboard, 40, 1.75);
  const char sample[] = "the quick\nbrown f\xc3\xb6x \xe7\x8c\xab";
  tsr_dashboard_set_sample(&dashboard, 40, sample, sizeof sample - 1);
  snprintf(
      dashboard.messages, sizeof dashboard.messages,
      "cut line\nwarning: one\nwarning: two, which is long enough to be cut where there are 40\n");
}

static const char large[] =
    "out, gpt2, dp=2                                                      step 50/200\n"
    "[#############---------------------------------------]  25 %  1:15, ETA 1:02:05\n"
    "   5 ⡇\n"
    "     ⢱\n"
    "     ⢸\n"
    "     ⠘⡄\n"
    "      ⡇\n"
    "      ⢣\n"
    "      ⢸\n"
    "       ⢇\n"
    "       ⠘⡄\n"
    "        ⠘⢄\n"
    "          ⠑⠤⣀                                        ⢀⣀⣀⣀⣀⣀⣀⣀⠤⠤⠤⠤\n"
    "             ⠉⠒⠤⠤⠤⣀⣀⣀             ⠤⠤⠤⠤⠒⠒⠒⠒⠒⠒⠒⠊⠉⠉⠉⠉⠉⠉⠉⠁\n"
    "1.08                 ⠉⠉⠉⠉⠉⠒⠒⠒⠒⠒⠒⠒⠒⠒⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⢄⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀\n"
    "     1                                                                        50\n"
    "loss 1.0800                tokens/s 12,345            val 1.7500 @ 40\n"
    "best 1.5000 @ 20           grad norm 1.25             lr 3.000e-04\n"
    "step time 41.5 ms          MFU 34.5 %                 checkpoint @ 40, saving\n"
    "memory 1.0 GiB             tokens 25,600\n"
    "sample @ 40: the quick brown föx ?\n"
    "cut line\n"
    "warning: one\n"
    "warning: two, which is long enough to be cut where there are 40\n";
static const char small[] = "out, gpt2, dp=2              step 50/200\n"
                            "[###---------]  25 %  1:15, ETA 1:02:05\n"
                            "   5 *\n"
                            "      *\n"
                            "1.08   *********************************\n"
                            "     1                                50\n"
                            "loss 1.0800          tokens/s 12,345\n"
                            "val 1.7500 @ 40      best 1.5000 @ 20\n"
                            "grad norm 1.25       lr 3.000e-04\n"
                            "step time 41.5 ms    MFU 34.5 %\n"
                            "sample @ 40: the quick brown f?x ?\n"
                            "warning: two, which is long enough to b>\n";

static void test_sizes(void) {
  fill();
  draw(24, 80, true);
  CHECK_STR(picture, large);
  draw(12, 40, false);
  CHECK_STR(picture, small);
  draw(3, 24, true);
  CHECK_STR(picture, "out, gpt2, … step 50/200\n 25 %  1:15, ETA 1:02:05\nloss 1.0800\n");
  draw(1, 12, true);
  CHECK_STR(picture, " step 50/200\n");
  for (int rows = 1; rows < 40; rows++)
    for (int columns = 1; columns < 130; columns += 1 + columns / 20) draw(rows, columns, rows % 2);
}

static void test_unknown(void) {
  tsr_dashboard_init(&dashboard);
  draw(4, 30, true);
  CHECK_STR(picture, "                        step 0\n-\n\n\n");
  snprintf(dashboard.state, sizeof dashboard.state, "no run yet");
  snprintf(dashboard.title, sizeof dashboard.title, "out");
  draw(1, 40, true);
  CHECK_STR(picture, "out  no run yet                   step 0\n");
  tsr_curve_add(&dashboard.losses, 1, NAN);
  tsr_curve_add(&dashboard.losses, 2, INFINITY);
  dashboard.step = 2;
  dashboard.loss = INFINITY;
  draw(8, 40, true);
  CHECK(strstr(picture, "loss inf") != NULL);
  tsr_dashboard_set_sample(&dashboard, 2, "\xff\x1b[2Jx", 6);
  CHECK(!*dashboard.sample); /* no more than what is UTF-8 */
  tsr_dashboard_set_sample(&dashboard, 2, "\x1b[2Jx", 5);
  draw(10, 40, true);
  CHECK(strstr(picture, "sample @ 2:  [2Jx") && !strchr(picture, '\x1b'));
}

/* A sample below a head that fills its row; quoted lines and a caret below a message. */
static void test_rows(void) {
  tsr_dashboard_init(&dashboard);
  tsr_dashboard_set_sample(&dashboard, 20, "abcdefgh", 8);
  draw(24, 10, true);
  CHECK(strstr(picture, "\nabcdefgh\n") != NULL);
  snprintf(
      dashboard.messages, sizeof dashboard.messages,
      "run.yaml:2:3: warning: no effect\n   2 |   x: 1\n     |   ^\n     = a hint\n");
  draw(8, 40, true);
  CHECK(strstr(picture, "\nrun.yaml:2:3: warning: no effect\n") && !strchr(picture, '^'));
}

/* Numbers of a file that no run has written. */
static void test_huge(void) {
  tsr_dashboard_init(&dashboard);
  dashboard.tokens = dashboard.tokens_per_s = 1e300;
  dashboard.resident_bytes = -1e300;
  dashboard.step = (int64_t)1 << 53;
  dashboard.steps = 1;
  draw(24, 80, true);
  CHECK(strstr(picture, "100 %") != NULL);
}

/* More steps than there is room for, a run that goes back, and numbers at the ends of a double. */
static void test_curve(void) {
  static tsr_curve c;
  for (int i = 1; i <= 100000; i++) tsr_curve_add(&c, i, i <= 50000 ? 1 : 3);
  CHECK(c.count <= TSR_CURVE_POINTS && c.each == 64 && c.last_step == 100000);
  double sum = 0;
  int count = 0;
  for (int i = 0; i < c.count; i++) sum += c.points[i].sum, count += c.points[i].count;
  CHECK(count == 100000 && sum == 200000);
  tsr_curve_add(&c, 500, 2);
  CHECK(c.points[c.count - 1].step <= 500 && c.last_step == 500 && c.count < 10);
  c = (tsr_curve){0};
  double extremes[] = {1e308, -1e308, 5e-324, 0, NAN, 1e308};
  tsr_dashboard_init(&dashboard);
  for (int i = 0; i < 6; i++) tsr_curve_add(&dashboard.losses, i + 1, extremes[i]);
  draw(20, 80, true);
  draw(20, 80, false);
  CHECK(strstr(picture, "1e+300") != NULL);
}

/* Bytes for a terminal: what has changed alone, and nothing where nothing has. */
static void test_flush(void) {
  static char bytes[TSR_SCREEN_BYTES];
  static tsr_screen s;
  s.is_utf8 = s.has_colours = true;
  tsr_screen_clear(&s, 3, 10);
  tsr_screen_text(&s, 0, 0, 10, "ab", TSR_STYLE_PLAIN);
  tsr_screen_text(&s, 2, 0, 10, "0123456789x", TSR_STYLE_WARNING);
  size_t length = tsr_screen_flush(&s, false, bytes, sizeof bytes);
  const char all[] =
      "\033[0m\033[2J\033[1;1Hab\033[K\033[2;1H\033[K\033[3;1H\033[0;31m012345678…\033[0m";
  CHECK(length == sizeof all - 1 && !memcmp(bytes, all, length));
  CHECK(!tsr_screen_flush(&s, false, bytes, sizeof bytes));
  s.has_colours = false;
  tsr_screen_text(&s, 1, 1, 10, "c", TSR_STYLE_WARNING);
  length = tsr_screen_flush(&s, false, bytes, sizeof bytes);
  CHECK(length == 11 && !memcmp(bytes, "\033[2;1H c\033[K", length));
}

int main(void) {
  test_sizes();
  test_unknown();
  test_rows();
  test_huge();
  test_curve();
  test_flush();
  return check_done("tui.dashboard");
}
