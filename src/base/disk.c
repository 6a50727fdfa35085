#include "base/disk.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- faults ---- */

typedef enum { NONE, NO_SPACE, IO_ERROR, SHORT, KILL, KILLED, TORN, SLOW, UNREADABLE } fault;
typedef enum { CREATE, WRITE, SYNC, RENAME, OTHER } operation;

static struct {
  fault kind;
  long first, last;
} planned;
static atomic_long operations, reads;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_plan(void) {
  static const char *const names[] = {"",       "ENOSPC", "EIO",  "short",   "kill",
                                      "killed", "torn",   "slow", "EIO-read"};
  const char *text = getenv("TESSERA_FAULT");
  const char *at = text ? strchr(text, '@') : NULL;
  if (!at) return;
  for (size_t i = 1; i < sizeof names / sizeof *names; i++)
    if (strlen(names[i]) == (size_t)(at - text) && !strncmp(names[i], text, (size_t)(at - text)))
      planned.kind = (fault)i;
  char *end;
  planned.first = planned.last = strtol(at + 1, &end, 10);
  if (*end == '-') planned.last = end[1] ? strtol(end + 1, NULL, 10) : LONG_MAX;
}

/* What happens to this operation. */
static fault next_fault(operation what) {
  pthread_once(&once, read_plan);
  long number = atomic_fetch_add(&operations, 1) + 1;
  if (planned.kind == NONE || planned.kind == UNREADABLE) return NONE;
  if (number < planned.first || number > planned.last) return NONE;
  if (planned.kind == SHORT && what != WRITE) return NONE;
  if (planned.kind == TORN && what != RENAME) return NONE;
  return planned.kind;
}

/* Whether this one of the operations that read fails. */
static bool is_unreadable(void) {
  pthread_once(&once, read_plan);
  long number = atomic_fetch_add(&reads, 1) + 1;
  bool fails = planned.kind == UNREADABLE && number >= planned.first && number <= planned.last;
  if (fails) errno = EIO;
  return fails;
}

/* Before anything but a write; false: it fails. */
static bool begin(fault f) {
  if (f == KILL) raise(SIGKILL);
  if (f == SLOW) nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
  if (f == NO_SPACE || f == IO_ERROR) {
    errno = f == NO_SPACE ? ENOSPC : EIO;
    return false;
  }
  return true;
}

static bool end(fault f, bool ok) {
  if (f == KILLED) raise(SIGKILL);
  return ok;
}

/* ---- operations ---- */

long tsr_disk_operations(void) { return atomic_load(&operations); }

int tsr_disk_open(const char *path, int flags) {
  return is_unreadable() ? -1 : open(path, flags | O_CLOEXEC);
}

ptrdiff_t tsr_disk_read(int fd, void *bytes, size_t length) {
  return is_unreadable() ? -1 : read(fd, bytes, length);
}

ptrdiff_t tsr_disk_read_at(int fd, void *bytes, size_t length, int64_t at) {
  return is_unreadable() ? -1 : pread(fd, bytes, length, (off_t)at);
}

void *tsr_disk_map(int fd, size_t length) {
  if (is_unreadable()) return NULL;
  void *bytes = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, 0);
  return bytes == MAP_FAILED ? NULL : bytes;
}

static int open_for(const char *path, int flags) {
  fault f = next_fault(CREATE);
  if (!begin(f)) return -1;
  int fd = open(path, flags | O_CREAT | O_CLOEXEC, 0666);
  int error = errno;
  end(f, true);
  errno = error;
  return fd;
}

int tsr_disk_create(const char *path) { return open_for(path, O_WRONLY | O_TRUNC); }
int tsr_disk_create_new(const char *path) { return open_for(path, O_WRONLY | O_EXCL | O_NOFOLLOW); }
int tsr_disk_open_lock(const char *path) { return open_for(path, O_RDWR | O_NOFOLLOW); }
int tsr_disk_open_append(const char *path) { return open_for(path, O_RDWR | O_APPEND); }

/* Of a file system that cannot, or of an fd that has gone: nothing. */
static void set_direct(int fd, bool direct) {
#ifdef O_DIRECT
  int flags = fcntl(fd, F_GETFL);
  if (flags >= 0) fcntl(fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT);
#else
  (void)fd, (void)direct;
#endif
}

/* Goes on after interruptions and short writes; behind a short one a direct write may no longer
 * stand at a block's begin, and is refused as EINVAL. */
static bool write_all(int fd, const char *bytes, size_t length, size_t most, bool direct) {
  if (direct) set_direct(fd, true);
  while (length) {
    ssize_t put = write(fd, bytes, length < most ? length : most);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EINVAL && direct) {
      set_direct(fd, direct = false);
      continue;
    }
    if (put < 0) return false;
    bytes += put;
    length -= (size_t)put;
  }
  if (direct) set_direct(fd, false);
  return true;
}

static bool write_or_fail(int fd, const void *bytes, size_t length, bool direct) {
  fault f = next_fault(WRITE);
  bool fails = f == NO_SPACE || f == IO_ERROR || f == KILL;
  if (fails) write_all(fd, bytes, length / 2, SSIZE_MAX, direct);
  if (!begin(f)) return false;
  return end(f, write_all(fd, bytes, length, f == SHORT ? length / 3 + 1 : SSIZE_MAX, direct));
}

bool tsr_disk_write(int fd, const void *bytes, size_t length) {
  return write_or_fail(fd, bytes, length, false);
}

bool tsr_disk_write_direct(int fd, const void *bytes, size_t length) {
  return write_or_fail(fd, bytes, length, true);
}

bool tsr_disk_sync(int fd) {
  fault f = next_fault(SYNC);
  return begin(f) && end(f, fsync(fd) == 0);
}

bool tsr_disk_sync_folder(const char *path) {
  fault f = next_fault(SYNC);
  if (!begin(f)) return false;
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  bool ok = fsync(fd) == 0;
  int error = errno;
  close(fd);
  errno = error;
  return end(f, ok);
}

bool tsr_disk_close(int fd) { return close(fd) == 0; }

static void join(char path[PATH_MAX], const char *folder, const char *name) {
  if (snprintf(path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX) path[0] = 0;
}

/* A file, or the largest one of a folder, loses its second half. */
static void tear(const char *path) {
  struct stat info;
  char largest[PATH_MAX], each[PATH_MAX];
  off_t size = -1;
  snprintf(largest, sizeof largest, "%s", path);
  DIR *folder = opendir(path);
  for (struct dirent *e; folder && (e = readdir(folder));) {
    join(each, path, e->d_name);
    if (stat(each, &info) || !S_ISREG(info.st_mode) || info.st_size <= size) continue;
    size = info.st_size;
    snprintf(largest, sizeof largest, "%s", each);
  }
  if (folder) closedir(folder);
  if (!stat(largest, &info) && S_ISREG(info.st_mode) && truncate(largest, info.st_size / 2)) return;
  raise(SIGKILL);
}

bool tsr_disk_rename(const char *from, const char *to) {
  fault f = next_fault(RENAME);
  if (!begin(f)) return false;
  bool ok = rename(from, to) == 0;
  if (f == TORN) tear(to);
  return end(f, ok);
}

bool tsr_disk_make_folder(const char *path) {
  fault f = next_fault(OTHER);
  if (!begin(f)) return false;
  struct stat info;
  bool ok = mkdir(path, 0777) == 0;
  if (!ok && errno == EEXIST) {
    ok = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    if (!ok) errno = ENOTDIR;
  }
  return end(f, ok);
}

bool tsr_disk_remove(const char *path) {
  fault f = next_fault(OTHER);
  if (!begin(f)) return false;
  if (unlink(path) == 0) return end(f, true);
  if (errno != EISDIR && errno != EPERM) return false;
  char each[PATH_MAX];
  DIR *folder = opendir(path);
  for (struct dirent *e; folder && (e = readdir(folder));) {
    if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
    join(each, path, e->d_name);
    unlink(each);
  }
  if (folder) closedir(folder);
  return end(f, rmdir(path) == 0);
}
