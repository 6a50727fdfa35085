// SPDX-License-Identifier: Apache-2.0
#include "base/folder_lock.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TRIES = 100, TRIES_TO_SEE = 250, REST_NS = 20000000 };

/* "process 123 on host", from the file; its text may be another program's. */
static void read_owner(int fd, char ret[TSR_FOLDER_OWNER_BYTES]) {
  char host[256] = "", text[TSR_FOLDER_OWNER_BYTES] = "";
  long number = 0;
  ptrdiff_t n = tsr_disk_read_at(fd, text, sizeof text - 1, 0);
  bool said = n > 0 && sscanf(text, "%ld %255[A-Za-z0-9._-]", &number, host) == 2 && number > 0;
  if (said) snprintf(ret, TSR_FOLDER_OWNER_BYTES, "process %ld on %s", number, host);
  else snprintf(ret, TSR_FOLDER_OWNER_BYTES, "another process");
}

void tsr_folder_lock_owner(char ret[TSR_FOLDER_OWNER_BYTES]) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  snprintf(ret, TSR_FOLDER_OWNER_BYTES, "%ld %s\n", (long)getpid(), host);
}

static bool write_owner(int fd) {
  char text[TSR_FOLDER_OWNER_BYTES];
  tsr_folder_lock_owner(text);
  return tsr_disk_truncate(fd, 0) && lseek(fd, 0, SEEK_SET) == 0 &&
         tsr_disk_write(fd, text, strlen(text));
}

/* The one before may have removed the file between its opening here and its locking. */
static bool is_current(int fd, const char *path) {
  struct stat mine, there;
  return !fstat(fd, &mine) && !lstat(path, &there) && mine.st_ino == there.st_ino &&
         mine.st_dev == there.st_dev;
}

/* What is locked, for messages. */
typedef struct {
  const char *path, *hint;
  const char *verb, *file; /* what cannot be done to which file, where there is no lock */
} subject;

static bool fail(tsr_folder_lock *lock, const subject *of, tsr_diags *diags) {
  int error = errno;
  if (lock->fd >= 0) close(lock->fd);
  lock->fd = -1;
  return tsr_file_cannot(of->verb, of->file, error, TSR_NOWHERE, diags);
}

static bool refuse(tsr_folder_lock *lock, const subject *of, tsr_diags *diags) {
  char owner[TSR_FOLDER_OWNER_BYTES];
  if (lock->fd >= 0) read_owner(lock->fd, owner);
  else snprintf(owner, sizeof owner, "another process");
  if (lock->fd >= 0) close(lock->fd);
  lock->fd = -1;
  tsr_diag_error(diags, TSR_NOWHERE, "'%s' is in use by %s", of->path, owner);
  tsr_diag_hint(diags, "%s", of->hint);
  return false;
}

/* What somebody has put where the lock is would be written through, or not be locked. */
static bool
check_kind(const subject *of, const char *path, const struct stat *info, tsr_diags *diags) {
  if (S_ISREG(info->st_mode)) return true;
  const char *kind = S_ISLNK(info->st_mode)    ? "a symbolic link"
                     : S_ISFIFO(info->st_mode) ? "a FIFO"
                     : S_ISDIR(info->st_mode)  ? "a folder"
                                               : "a device or a socket";
  tsr_diag_error(diags, TSR_NOWHERE, "'%s' is %s, not a lock file", path, kind);
  tsr_diag_hint(diags, "'%s' can be used when it is removed", of->path);
  return false;
}

/* 1: held; 0: another one's, or removed meanwhile; -1: an error. */
static int try_once(tsr_folder_lock *lock, const subject *of, tsr_diags *diags) {
  if (lock->fd < 0) lock->fd = tsr_disk_open_lock(lock->path);
  if (lock->fd < 0) return -1;
  if (tsr_disk_lock(lock->fd)) {
    if (is_current(lock->fd, lock->path)) return 1;
    close(lock->fd);
    lock->fd = -1;
    return 0;
  }
  if (tsr_disk_has_no_locks(errno)) {
    tsr_diag_warning(
        diags, TSR_NOWHERE, "'%s' cannot be locked (%s): no other run may use it", of->path,
        strerror(errno));
    return 1;
  }
  return errno == EWOULDBLOCK ? 0 : -1;
}

static bool take(tsr_folder_lock *lock, const subject *of, tsr_diags *diags) {
  struct stat info;
  int held = 0;
  bool is_made = lstat(lock->path, &info) != 0;
  if (!is_made && !check_kind(of, lock->path, &info, diags)) return false;
  for (int i = 0; i < TRIES && !held; i++) {
    held = try_once(lock, of, diags);
    if (!held) nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL);
  }
  if (!held) return refuse(lock, of, diags);
  lock->was_left = !is_made;
  if (held > 0 && write_owner(lock->fd)) return true;
  int error = errno;
  if (held > 0 || (is_made && lock->fd >= 0)) tsr_disk_remove(lock->path);
  errno = error;
  return fail(lock, of, diags);
}

bool tsr_folder_lock_take(
    tsr_arena *arena, const char *folder, tsr_folder_lock *ret, tsr_diags *diags) {
  *ret = TSR_FOLDER_LOCK_NONE;
  ret->path = tsr_path_join(arena, folder, TSR_FOLDER_LOCK_NAME);
  const subject of = {
      folder, "it is free when that run has ended; another run needs another folder", "lock",
      ret->path};
  return take(ret, &of, diags);
}

bool tsr_output_lock_take(
    tsr_arena *arena, const char *path, const char *shown, tsr_folder_lock *ret, tsr_diags *diags) {
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') length--;
  const char *bare = tsr_arena_strndup(arena, path, length), *slash = strrchr(bare, '/');
  const char *name = slash ? slash + 1 : bare;
  *ret = TSR_FOLDER_LOCK_NONE;
  ret->path =
      tsr_arena_printf(arena, "%.*s.%s%s", (int)(name - bare), bare, name, TSR_FOLDER_LOCK_NAME);
  const subject of = {
      shown, "it is free when that command has ended; another one needs another --out", "write",
      shown};
  return take(ret, &of, diags);
}

bool tsr_folder_lock_is_of(tsr_arena *arena, const char *folder, const char *owner) {
  const char *path = tsr_path_join(arena, folder, TSR_FOLDER_LOCK_NAME);
  for (int i = 0; i < TRIES_TO_SEE; i++) {
    char text[TSR_FOLDER_OWNER_BYTES] = "";
    int fd = tsr_disk_open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
    ptrdiff_t got = fd < 0 ? -1 : tsr_disk_read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (got > 0 && !strcmp(text, owner)) return true;
    nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL);
  }
  return false;
}

/* A process that begins waits longer for its lock than this one holds it. */
tsr_folder_use tsr_folder_lock_look(const char *folder, char ret_owner[TSR_FOLDER_OWNER_BYTES]) {
  tsr_arena *arena = tsr_arena_new();
  const char *path = tsr_path_join(arena, folder, TSR_FOLDER_LOCK_NAME);
  int fd = tsr_disk_open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
  tsr_folder_use use = errno == ENOENT ? TSR_FOLDER_FREE : TSR_FOLDER_USE_UNKNOWN;
  ret_owner[0] = 0;
  if (fd >= 0) {
    read_owner(fd, ret_owner);
    if (tsr_disk_lock_shared(fd)) use = TSR_FOLDER_FREE;
    else use = errno == EWOULDBLOCK ? TSR_FOLDER_IN_USE : TSR_FOLDER_USE_UNKNOWN;
    close(fd);
  }
  tsr_arena_free(arena);
  return use;
}

void tsr_folder_lock_release(tsr_folder_lock *lock) {
  if (lock->fd < 0) return;
  tsr_disk_remove(lock->path);
  close(lock->fd);
  lock->fd = -1;
}
