// SPDX-License-Identifier: Apache-2.0
#include "base/file_ops_trace.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int log_fd = -1;

static void open_log(void) {
  const char *path = getenv("TESSERA_DISK_LOG");
  if (path) log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
}

void tsr_disk_log(const char *word, int fd, const char *text, const void *bytes, size_t length) {
  int error = errno;
  char line[PATH_MAX + 64];
  pthread_once(&once, open_log);
  if (log_fd >= 0) {
    int n = snprintf(line, sizeof line, "%s %d %zu %s\n", word, fd, length, text);
    struct iovec parts[] = {{line, (size_t)n}, {(void *)(size_t)bytes, length}};
    if (writev(log_fd, parts, 2) != (ssize_t)((size_t)n + length)) abort(); /* it would be wrong */
  }
  errno = error;
}
