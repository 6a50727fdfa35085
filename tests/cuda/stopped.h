// SPDX-License-Identifier: Apache-2.0
/* For tests of the emulator: what it says of a wrong kernel. */
#ifndef TSR_TESTS_CUDA_STOPPED_H
#define TSR_TESTS_CUDA_STOPPED_H
#include "../check.h"
#include <string>
#include <sys/wait.h>
#include <unistd.h>

/* What the program says as it is stopped. */
template <typename CALL> static inline std::string stopped(CALL call) {
  int ends[2];
  char text[256] = "";
  if (pipe(ends)) return "no pipe";
  pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    call();
    _exit(0);
  }
  close(ends[1]);
  ssize_t n = read(ends[0], text, sizeof text - 1);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFSIGNALED(status) || n < 0) return "it went on";
  return std::string(text).substr(0, std::string(text).find(':', 10));
}

static inline void check_stopped(const std::string &said, const char *want) {
  CHECK_AT(said == std::string("emulator: ") + want, "%s, not %s", said.c_str(), want);
}

#endif
