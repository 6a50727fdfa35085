// SPDX-License-Identifier: Apache-2.0
#include "base/file_ops.h"
#include "base/file_ops_trace.h"
#include "base/fault.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- faults ---- */

typedef enum { CREATE, WRITE, SYNC, RENAME, LOCK, OTHER } operation;

static atomic_long operations;

/* Counts an operation; what happens to it. */
static tsr_fault next_fault(operation what) {
  atomic_fetch_add(&operations, 1);
  tsr_fault f = tsr_fault_next(TSR_FAULT_OPERATIONS);
  if (f == TSR_FAULT_SHORT && what != WRITE) return TSR_FAULT_NONE;
  if (f == TSR_FAULT_TORN && what != RENAME) return TSR_FAULT_NONE;
  if (f == TSR_FAULT_NO_LOCKS && what != LOCK) return TSR_FAULT_NONE;
  return f;
}

/* Whether this one of the operations that read fails. */
static bool is_unreadable(void) {
  bool fails = tsr_fault_next(TSR_FAULT_READS) != TSR_FAULT_NONE;
  if (fails) errno = EIO;
  return fails;
}

/* Before anything but a write; false: it fails. */
static bool begin(tsr_fault f) {
  if (f == TSR_FAULT_KILL) raise(SIGKILL);
  if (f == TSR_FAULT_SLOW) nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
  int error = f == TSR_FAULT_NO_SPACE   ? ENOSPC
              : f == TSR_FAULT_IO_ERROR ? EIO
              : f == TSR_FAULT_NO_LOCKS ? ENOLCK
                                        : 0;
  if (error) errno = error;
  return !error;
}

static bool end(tsr_fault f, bool ok) {
  if (f == TSR_FAULT_KILLED) raise(SIGKILL);
  return ok;
}

/* ---- signals ---- */

static const volatile sig_atomic_t *stop;

void tsr_disk_stop_on(const volatile sig_atomic_t *number) { stop = number; }

static bool is_stopped(void) {
  if (!stop || !*stop) return false;
  errno = EINTR;
  return true;
}

/* ---- operations ---- */

long tsr_disk_operations(void) { return atomic_load(&operations); }

int tsr_disk_open(const char *path, int flags) {
  return is_unreadable() ? -1 : open(path, flags | O_CLOEXEC);
}

DIR *tsr_disk_open_folder(const char *path) { return is_unreadable() ? NULL : opendir(path); }

ptrdiff_t tsr_disk_read(int fd, void *bytes, size_t length) {
  ptrdiff_t got = -1;
  if (is_stopped() || is_unreadable()) return -1;
  do got = read(fd, bytes, length);
  while (got < 0 && errno == EINTR && !is_stopped());
  return got;
}

ptrdiff_t tsr_disk_read_at(int fd, void *bytes, size_t length, int64_t at) {
  ptrdiff_t got = -1;
  if (is_stopped() || is_unreadable()) return -1;
  do got = pread(fd, bytes, length, (off_t)at);
  while (got < 0 && errno == EINTR && !is_stopped());
  return got;
}

void *tsr_disk_map(int fd, size_t length) {
  if (is_unreadable()) return NULL;
  void *bytes = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, 0);
  return bytes == MAP_FAILED ? NULL : bytes;
}

void *tsr_disk_map_to_write(int fd, size_t length) {
  tsr_fault f = next_fault(OTHER);
  if (!begin(f)) return NULL;
  void *bytes = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  end(f, true);
  return bytes == MAP_FAILED ? NULL : bytes;
}

static int open_for(const char *path, int flags) {
  tsr_fault f = next_fault(CREATE);
  if (!begin(f)) return -1;
  int fd = open(path, flags | O_CREAT | O_CLOEXEC, 0666);
  int error = errno;
  if (fd >= 0) tsr_disk_log(flags & O_TRUNC ? "empty" : "open", fd, path, NULL, 0);
  end(f, true);
  errno = error;
  return fd;
}

int tsr_disk_create(const char *path) { return open_for(path, O_WRONLY | O_TRUNC); }
int tsr_disk_create_new(const char *path) { return open_for(path, O_WRONLY | O_EXCL | O_NOFOLLOW); }
int tsr_disk_open_lock(const char *path) { return open_for(path, O_RDWR | O_NOFOLLOW); }
int tsr_disk_open_append(const char *path) { return open_for(path, O_RDWR | O_APPEND); }

int tsr_disk_open_pipe(const char *path) {
  tsr_fault f = next_fault(CREATE);
  if (!begin(f)) return -1;
  int fd = open(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  int error = errno;
  end(f, true);
  errno = error;
  return fd;
}

ptrdiff_t tsr_disk_write_some(int fd, const void *bytes, size_t length) {
  tsr_fault f = next_fault(WRITE);
  ptrdiff_t put = -1;
  if (!begin(f)) return -1;
  do put = write(fd, bytes, length);
  while (put < 0 && errno == EINTR);
  int error = errno;
  end(f, true);
  errno = error;
  return put;
}

/* It has no name in the log either: nothing is left of it. */
int tsr_disk_create_unnamed(const char *folder, size_t length) {
  char path[PATH_MAX];
  tsr_fault f = next_fault(CREATE);
  if (!begin(f)) return -1;
  if (snprintf(path, sizeof path, "%s/.tessera-train-XXXXXX", folder) >= PATH_MAX)
    return errno = ENAMETOOLONG, -1;
  int fd = mkstemp(path);
  if (fd < 0) return -1;
  unlink(path);
  end(f, true);
  int error = posix_fallocate(fd, 0, (off_t)length);
  if (!error) return fd;
  close(fd);
  return errno = error, -1;
}

bool tsr_disk_lock(int fd) {
  tsr_fault f = next_fault(LOCK);
  if (!begin(f)) return false;
  bool ok = false;
  do ok = flock(fd, LOCK_EX | LOCK_NB) == 0;
  while (!ok && errno == EINTR);
  return end(f, ok);
}

bool tsr_disk_lock_shared(int fd) {
  bool ok = false;
  do ok = flock(fd, LOCK_SH | LOCK_NB) == 0;
  while (!ok && errno == EINTR);
  return ok;
}

bool tsr_disk_has_no_locks(int error) {
  return error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS;
}

bool tsr_disk_truncate(int fd, int64_t length) {
  tsr_fault f = next_fault(OTHER);
  if (!begin(f)) return false;
  char text[32];
  bool ok = ftruncate(fd, (off_t)length) == 0;
  snprintf(text, sizeof text, "%lld", (long long)length);
  if (ok) tsr_disk_log("cut", fd, text, NULL, 0);
  return end(f, ok);
}

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
    tsr_disk_log("write", fd, "", bytes, (size_t)put);
    bytes += put;
    length -= (size_t)put;
  }
  if (direct) set_direct(fd, false);
  return true;
}

static bool write_or_fail(int fd, const void *bytes, size_t length, bool direct) {
  if (is_stopped()) return false;
  tsr_fault f = next_fault(WRITE);
  bool fails = f == TSR_FAULT_NO_SPACE || f == TSR_FAULT_IO_ERROR || f == TSR_FAULT_KILL;
  if (fails) write_all(fd, bytes, length / 2, SSIZE_MAX, direct);
  if (!begin(f)) return false;
  return end(
      f, write_all(fd, bytes, length, f == TSR_FAULT_SHORT ? length / 3 + 1 : SSIZE_MAX, direct));
}

bool tsr_disk_write(int fd, const void *bytes, size_t length) {
  return write_or_fail(fd, bytes, length, false);
}

bool tsr_disk_write_direct(int fd, const void *bytes, size_t length) {
  return write_or_fail(fd, bytes, length, true);
}

bool tsr_disk_sync(int fd) {
  tsr_fault f = next_fault(SYNC);
  bool ok = begin(f) && fsync(fd) == 0;
  if (ok) tsr_disk_log("sync", fd, "", NULL, 0);
  return end(f, ok);
}

bool tsr_disk_sync_folder(const char *path) {
  tsr_fault f = next_fault(SYNC);
  if (!begin(f)) return false;
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  bool ok = fsync(fd) == 0;
  int error = errno;
  if (ok) tsr_disk_log("sync_folder", -1, path, NULL, 0);
  close(fd);
  errno = error;
  return end(f, ok);
}

bool tsr_disk_close(int fd) {
  tsr_disk_log("close", fd, "", NULL, 0);
  return close(fd) == 0;
}

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
  tsr_fault f = next_fault(RENAME);
  if (!begin(f)) return false;
  bool ok = rename(from, to) == 0;
  if (ok) tsr_disk_log("rename", -1, from, to, strlen(to));
  if (f == TSR_FAULT_TORN) tear(to);
  return end(f, ok);
}

bool tsr_disk_link(const char *file, const char *name) {
  tsr_fault f = next_fault(OTHER);
  if (!begin(f)) return false;
  bool ok = link(file, name) == 0;
  if (ok) tsr_disk_log("link", -1, file, name, strlen(name));
  return end(f, ok);
}

bool tsr_disk_make_folder(const char *path) {
  tsr_fault f = next_fault(OTHER);
  if (!begin(f)) return false;
  struct stat info;
  bool ok = mkdir(path, 0777) == 0;
  if (ok) tsr_disk_log("folder", -1, path, NULL, 0);
  if (!ok && errno == EEXIST) {
    bool found = stat(path, &info) == 0, dangles = !found && errno == ENOENT;
    ok = found && S_ISDIR(info.st_mode);
    if (!ok) errno = dangles ? ENOLINK : ENOTDIR;
  }
  return end(f, ok);
}

bool tsr_disk_make_temporary(char *path) {
  tsr_fault f = next_fault(OTHER);
  if (!begin(f)) return false;
  bool ok = mkdtemp(path) != NULL;
  if (ok) tsr_disk_log("folder", -1, path, NULL, 0);
  return end(f, ok);
}

bool tsr_disk_remove(const char *path) {
  tsr_fault f = next_fault(OTHER);
  if (!begin(f)) return false;
  bool ok = unlink(path) == 0;
  if (ok) tsr_disk_log("remove", -1, path, NULL, 0);
  return end(f, ok);
}

bool tsr_disk_remove_empty(const char *path) {
  tsr_fault f = next_fault(OTHER);
  if (!begin(f)) return false;
  bool ok = rmdir(path) == 0;
  if (ok) tsr_disk_log("remove", -1, path, NULL, 0);
  return end(f, ok);
}
