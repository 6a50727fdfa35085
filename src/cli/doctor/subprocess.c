// SPDX-License-Identifier: Apache-2.0
/* Asks a layer in a process of its own, so that a library that crashes or hangs is a finding. */
#include "base/diag.h"
#include "cli/doctor/findings.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void write_all(int file, const char *bytes, size_t count) {
  while (count) {
    ssize_t done = write(file, bytes, count);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return;
    bytes += done;
    count -= (size_t)done;
  }
}

/* The first byte is 1 if something is mismatched, the rest is the text. Libraries may print
 * what they like: it is discarded. */
static void answer(tsr_findings *f, tsr_layer *layer, int to) {
  tsr_findings own = {.arena = f->arena, .kernels = f->kernels};
  if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)) _exit(1);
  layer(&own);
  write_all(to, own.mismatched ? "!" : " ", 1);
  write_all(to, own.text.data, own.text.length);
  _exit(0);
}

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Until the other end is closed; false when the time is over. */
static bool read_answer(int from, int seconds, tsr_text *text) {
  int64_t until = now_ms() + 1000 * (int64_t)seconds;
  for (;;) {
    struct pollfd ready = {.fd = from, .events = POLLIN};
    int64_t left = until - now_ms();
    int count = left > 0 ? poll(&ready, 1, (int)left) : 0;
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    char bytes[4096];
    ssize_t length = read(from, bytes, sizeof bytes);
    if (length < 0 && errno == EINTR) continue;
    if (length <= 0) return true;
    tsr_text_add_bytes(text, bytes, (size_t)length);
  }
}

static void say_end(tsr_findings *f, const char *name, bool in_time, int seconds, int status) {
  if (!in_time) {
    tsr_find(f, name, TSR_MISMATCHED, "no answer within %d seconds", seconds);
    tsr_find_remedy(f, "a driver or device that hangs: see the kernel's log (dmesg)");
  } else if (WIFSIGNALED(status)) {
    tsr_find(f, name, TSR_MISMATCHED, "its library crashes: %s", strsignal(WTERMSIG(status)));
    tsr_find_remedy(f, "install that library again, of one version with what it belongs to");
  } else tsr_find(f, name, TSR_MISMATCHED, "it ended the process that asked");
}

void tsr_ask_in_subprocess(tsr_findings *f, const char *name, tsr_layer *layer, int seconds) {
  int ends[2], status = 0;
  tsr_text text = {0};
  pid_t child = pipe(ends) ? -1 : fork();
  if (child < 0) {
    tsr_find(f, name, TSR_MISMATCHED, "cannot start a process to ask in: %s", strerror(errno));
    return;
  }
  if (!child) answer(f, layer, ends[1]);
  close(ends[1]);
  bool in_time = read_answer(ends[0], seconds, &text);
  close(ends[0]);
  if (!in_time) kill(child, SIGKILL);
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time || !WIFEXITED(status) || WEXITSTATUS(status) || !text.length)
    say_end(f, name, in_time, seconds, status);
  else {
    f->mismatched |= text.data[0] == '!';
    tsr_text_add_bytes(&f->text, text.data + 1, text.length - 1);
  }
  tsr_text_free(&text);
}
