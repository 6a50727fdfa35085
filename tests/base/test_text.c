// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"
#include "tests/check.h"

static void check_shown(const char *bytes, size_t length, const char *want) {
  tsr_text text = {0};
  tsr_text_add_shown(&text, bytes, length);
  CHECK_STR(text.data, want);
  tsr_text_free(&text);
}

/* Control characters of ECMA-48: C0, DEL, and C1 as UTF-8 and as bytes. */
static void test_shown(void) {
  check_shown("a\033[2J\r\n\tb\177\0c", 12, "a\\x1b[2J\\x0d\n\tb\\x7f\\x00c");
  check_shown(
      "\xc2\x9b"
      "1m\xc2\xa0\xc3\xb6",
      8, "\\u009b1m\xc2\xa0\xc3\xb6");
  check_shown("\x9b\xff\xc3", 3, "\\x9b\xff\xc3");
}

int main(void) {
  test_shown();
  return check_done("base.text");
}
