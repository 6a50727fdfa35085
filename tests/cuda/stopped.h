// SPDX-License-Identifier: Apache-2.0
/* For tests of the emulator: what it says of a wrong kernel. */
#ifndef TSR_TESTS_CUDA_STOPPED_H
#define TSR_TESTS_CUDA_STOPPED_H
#include "../check.h"
#include <string>
#include <sys/wait.h>
#include <unistd.h>

/* What the emulator says as it stops the program; a sanitizer may say something before it. */
template <typename CALL> static inline std::string stopped(CALL call) {
  int ends[2];
  char piece[256];
  std::string text;
  if (pipe(ends)) return "no pipe";
  pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    call();
    _exit(0);
  }
  close(ends[1]);
  for (ssize_t n; (n = read(ends[0], piece, sizeof piece)) > 0;) text.append(piece, (size_t)n);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  size_t from = text.find("emulator: ");
  if (!WIFSIGNALED(status) || from == std::string::npos) return "it went on";
  return text.substr(from, text.find(':', from + 10) - from);
}

static inline void check_stopped(const std::string &said, const char *want) {
  CHECK_AT(said == std::string("emulator: ") + want, "%s, not %s", said.c_str(), want);
}

#endif
