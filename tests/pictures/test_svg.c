// SPDX-License-Identifier: Apache-2.0
/* The writer of pictures: what it escapes, rounds and cuts. */
#include "pictures/svg.h"
#include "tests/check.h"
#include <math.h>
#include <string.h>

static void check_escaped(const char *text, const char *want) {
  tsr_text svg = {0};
  tsr_svg_add_escaped(&svg, text);
  CHECK_STR(svg.data ? svg.data : "", want);
  tsr_text_free(&svg);
}

static void test_escapes(void) {
  check_escaped("", "");
  check_escaped("block.0.q", "block.0.q");
  check_escaped("a<b>&\"c\"'", "a&lt;b&gt;&amp;&quot;c&quot;'");
  check_escaped("\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80");
  check_escaped("\x01\x1f\x7f\t\n", "?????"); /* control characters */
  check_escaped("\xff \xe2\x82", "? ??");     /* not UTF-8, and cut off */
  check_escaped("\xed\xa0\x80", "???");       /* a surrogate */
  check_escaped("\xef\xbf\xbe", "?");         /* U+FFFE */
}

static void check_number(double value, const char *want) {
  CHECK_STR(tsr_svg_number(value).text, want);
}

static void test_numbers(void) {
  check_number(0, "0");
  check_number(-0.001, "0");
  check_number(12, "12");
  check_number(12.5, "12.5");
  check_number(-3.25, "-3.25");
  check_number(100, "100");
  check_number(1.999, "2");
  check_number(NAN, "0");
  check_number(INFINITY, "0");
}

static void check_cut(const char *text, double width, const char *want) {
  tsr_text svg = {0};
  tsr_svg_text_cut(&svg, "", 1, 2, width, text);
  CHECK_STR(svg.data, want);
  tsr_text_free(&svg);
}

static void test_cuts(void) {
  check_cut("abc", 100, "<text x=\"1\" y=\"2\">abc</text>\n");
  check_cut(
      "abcdefghij", 36.1, "<text x=\"1\" y=\"2\">abcd\xe2\x80\xa6</text>\n"); /* 5 characters */
  check_cut(
      "\xc3\xbc\xc3\xbc\xc3\xbc", 14.5, "<text x=\"1\" y=\"2\">\xc3\xbc\xe2\x80\xa6</text>\n");
}

static void test_elements(void) {
  tsr_text svg = {0};
  tsr_svg_rect(&svg, "c0 cell", 1, 2.5, 3, 4, "a<b");
  tsr_svg_rect(&svg, "idle", 0, 0, NAN, 1, NULL);
  tsr_svg_line(&svg, "grid", 1, 2, 3, 4);
  tsr_svg_textf(&svg, "small", "end", 5, 6, "%d < %s", 7, "eight");
  CHECK_STR(
      svg.data, "<rect class=\"c0 cell\" x=\"1\" y=\"2.5\" width=\"3\" "
                "height=\"4\"><title>a&lt;b</title></rect>\n"
                "<rect class=\"idle\" x=\"0\" y=\"0\" width=\"0\" height=\"1\"/>\n"
                "<line class=\"grid\" x1=\"1\" y1=\"2\" x2=\"3\" y2=\"4\"/>\n"
                "<text class=\"small\" text-anchor=\"end\" x=\"5\" y=\"6\">7 &lt; eight</text>\n");
  tsr_text_free(&svg);
}

static void test_steps_and_classes(void) {
  CHECK_NEAR(tsr_svg_round_step(3), 5, 0);
  CHECK_NEAR(tsr_svg_round_step(0.15), 0.2, 1e-12);
  CHECK_NEAR(tsr_svg_round_step(70), 100, 0);
  CHECK_NEAR(tsr_svg_round_step(0), 1, 0);
  CHECK_STR(tsr_svg_class_of(7, 8), "c7");
  CHECK_STR(tsr_svg_class_of(0, 9), "h0");
  CHECK_STR(tsr_svg_class_of(127, 128), "h9");
}

int main(void) {
  test_escapes();
  test_numbers();
  test_cuts();
  test_elements();
  test_steps_and_classes();
  return check_done("pictures.svg");
}
