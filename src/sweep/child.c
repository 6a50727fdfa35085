// SPDX-License-Identifier: Apache-2.0
#include "sweep/child.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* In the child, up to the other program. Signals are as a shell leaves them. */
static void begin(char *const *words, int null, int log, int at_end, pid_t parent) {
  static const int usual[] = {SIGUSR1, SIGPIPE, SIGXFSZ, SIGCHLD};
  sigset_t none;
  sigemptyset(&none);
  for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) signal(usual[i], SIG_DFL);
  sigprocmask(SIG_SETMASK, &none, NULL);
  prctl(PR_SET_PDEATHSIG, at_end);
  if (getppid() != parent) _exit(1); /* it had ended before */
  if (dup2(null, STDIN_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0)
    _exit(1);
  execvp(words[0], words);
  dprintf(STDERR_FILENO, "cannot run '%s': %s\n", words[0], strerror(errno));
  _exit(127);
}

bool tsr_child_start(
    char *const *words, const char *log, int at_end, pid_t *ret, tsr_diags *diags) {
  pid_t parent = getpid();
  int to = tsr_disk_open_append(log);
  if (to < 0) return tsr_file_cannot("write", log, errno, TSR_NOWHERE, diags);
  int null = tsr_disk_open("/dev/null", O_RDONLY);
  *ret = null < 0 ? -1 : fork();
  int error = errno;
  if (!*ret) begin(words, null, to, at_end, parent);
  if (null >= 0) tsr_disk_close(null);
  tsr_disk_close(to);
  return *ret > 0 ||
         tsr_diag_failure(diags, TSR_NOWHERE, "cannot start a process: %s", strerror(error));
}

const char *tsr_child_end_text(tsr_arena *arena, int status) {
  if (WIFSIGNALED(status)) return tsr_arena_strdup(arena, strsignal(WTERMSIG(status)));
  return tsr_arena_printf(arena, "exit code %d", WEXITSTATUS(status));
}
