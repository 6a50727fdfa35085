// SPDX-License-Identifier: Apache-2.0
#include "base/terminal_line.h"
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool tsr_terminal_line_is_live(void) {
  const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
  bool is_terminal = isatty(STDERR_FILENO) && term && term[0] && strcmp(term, "dumb");
  return is_terminal && !(no_color && no_color[0]);
}

int tsr_terminal_line_columns(void) {
  enum { COLUMNS_USUAL = 80 };
  struct winsize size;
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : COLUMNS_USUAL;
}
