// SPDX-License-Identifier: Apache-2.0
/* What a process prints while it draws on a terminal: all of it comes when the terminal is left, or
 * the newest of much, and memory holds no more than that. */
#include "base/terminal.h"
#include "tests/check.h"
#include <pty.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROOM = 8 << 20 };

/* Prints so many numbered lines to both streams, and leaves. 0: memory was bounded meanwhile. */
static int print_lines(int lines) {
  struct stat info;
  bool bounded = true;
  if (!tsr_terminal_open()) return 2;
  for (int i = 1; i <= lines; i++) {
    printf("out %07d %040d\n", i, i);
    fprintf(stderr, "err %07d\n", i);
    if (i % 1000) continue;
    fflush(stdout);
    tsr_terminal_trim();
    for (int stream = 1; stream <= 2; stream++)
      bounded &= !fstat(stream, &info) && info.st_blocks * 512 <= 3 * (off_t)TSR_TERMINAL_KEPT;
  }
  fflush(stdout);
  char newest[13] = "";
  bool read = tsr_terminal_read_errors(newest, 12) == 12;
  char want[16];
  snprintf(want, sizeof want, "err %07d\n", lines);
  read = read && !strcmp(newest, want);
  tsr_terminal_leave();
  return bounded && read ? 0 : 1;
}

/* What the terminal got; the exit code. */
static int run(int lines, char *ret_text) {
  int terminal, status = 0;
  size_t length = 0;
  pid_t child = forkpty(&terminal, NULL, NULL, NULL);
  if (!child) _exit(print_lines(lines));
  for (ssize_t n; (n = read(terminal, ret_text + length, ROOM - 1 - length)) > 0;)
    length += (size_t)n;
  ret_text[length] = 0;
  close(terminal);
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Whether the lines of a stream from the first that is there to `last` are there, each once. */
static void check_lines(const char *text, const char *stream, int last, int *ret_first) {
  int next = 0;
  bool in_order = true;
  for (const char *at = strstr(text, stream); at; at = strstr(at + 1, stream)) {
    int number = atoi(at + strlen(stream));
    if (!next) *ret_first = next = number;
    in_order &= number == next;
    next = number + 1;
  }
  CHECK(in_order && next == last + 1);
}

int main(void) {
  char *text = malloc(ROOM);
  int first = 0;
  setenv("TERM", "xterm", 1);
  CHECK(run(200, text) == 0);
  CHECK(!strstr(text, "left out"));
  check_lines(text, "out ", 200, &first);
  CHECK(first == 1);
  check_lines(text, "err ", 200, &first);
  CHECK(first == 1);
  enum { MANY = 60000, LINE = 53 }; /* 3 MiB, and 0.7 MiB */
  CHECK(run(MANY, text) == 0);
  check_lines(text, "err ", MANY, &first);
  CHECK(first == 1);
  check_lines(text, "out ", MANY, &first);
  CHECK((MANY - first) * LINE >= TSR_TERMINAL_KEPT - LINE && first > MANY / 4);
  char *left = strstr(text, " bytes that were printed before are left out\r\nout ");
  CHECK(left != NULL);
  while (left && left > text && left[-1] >= '0' && left[-1] <= '9') left--;
  CHECK(left && atoi(left) == (first - 1) * LINE);
  free(text);
  return check_done("base.terminal");
}
