// SPDX-License-Identifier: Apache-2.0
#include "base/new_file.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void unlock(tsr_new_file *f) {
  if (f->lock >= 0) close(f->lock);
  f->lock = -1;
}

static bool cannot_write(tsr_new_file *f, int error, tsr_diags *diags) {
  tsr_new_file_drop(f);
  return tsr_file_cannot("write", f->path, error, (tsr_location){.file = f->path}, diags);
}

/* The folder, so that the name survives a power cut. */
static bool sync_name(const char *path) {
  char folder[PATH_MAX];
  size_t length = strlen(path);
  while (length && path[length - 1] == '/') length--; /* of a folder */
  while (length && path[length - 1] != '/') length--;
  if (!length) snprintf(folder, sizeof folder, ".");
  else snprintf(folder, sizeof folder, "%.*s", (int)length, path);
  return tsr_disk_sync_folder(folder) || errno == EINVAL; /* some file systems cannot */
}

bool tsr_new_folder(const char *path) {
  bool there = tsr_file_exists(path);
  return tsr_disk_make_folder(path) && (there || sync_name(path));
}

bool tsr_file_check_output(const char *path, tsr_diags *diags) {
  if (!tsr_file_is_read(path)) return true;
  return tsr_diag_error(
      diags, TSR_NOWHERE, "'%s' would be overwritten, and this command reads it", path);
}

bool tsr_file_check_replaced(
    const char *path, const char *begin, const char *what, tsr_diags *diags) {
  struct stat info;
  bool other = !lstat(path, &info) && S_ISREG(info.st_mode) && info.st_size > 0;
  if (!other || tsr_file_begins(path, begin)) return true;
  return tsr_diag_error(
      diags, TSR_NOWHERE, "'%s' is there and is no %s: it is not overwritten", path, what);
}

/* ---- the file beside the name ---- */

enum { NUMBERS = 1000 };

static bool name_temporary(tsr_new_file *f, int number) {
  int length = snprintf(f->temporary, sizeof f->temporary, "%s.partial-%d.tmp", f->path, number);
  if (length < (int)sizeof f->temporary) return true;
  f->temporary[0] = 0;
  errno = ENAMETOOLONG;
  return false;
}

/* Another process may have removed it, or have put another one there. */
static bool is_current(int fd, const char *path) {
  struct stat mine, there;
  return !fstat(fd, &mine) && !lstat(path, &there) && S_ISREG(there.st_mode) &&
         mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
}

/* Removes what a process has left that was killed: nobody has it locked. */
static void remove_left(const char *path) {
  int fd = tsr_disk_open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
  if (fd < 0) return;
  if (tsr_disk_lock(fd) && is_current(fd, path)) tsr_disk_remove(path);
  close(fd);
}

/* Made and locked; false with errno, EEXIST where another process has it. */
static bool create(tsr_new_file *f) {
  f->fd = tsr_disk_create_new(f->temporary);
  if (f->fd < 0 && errno == EEXIST) {
    remove_left(f->temporary);
    f->fd = tsr_disk_create_new(f->temporary);
  }
  if (f->fd < 0) return false;
  bool locked = tsr_disk_lock(f->fd);
  int error = locked ? 0 : errno;
  f->lock = locked ? fcntl(f->fd, F_DUPFD_CLOEXEC, 0) : -1;
  if (locked && f->lock < 0) error = errno;
  else if (locked && is_current(f->fd, f->temporary)) return true;
  else if (!locked && tsr_disk_has_no_locks(error)) return true;
  else if (locked || error == EWOULDBLOCK) error = EEXIST; /* one that removes what is left */
  if (error != EEXIST) tsr_disk_remove(f->temporary);
  close(f->fd);
  if (f->lock >= 0) close(f->lock);
  f->fd = f->lock = -1;
  errno = error;
  return false;
}

void tsr_new_file_remove_left(const char *path) {
  tsr_new_file left = {.path = path, .fd = -1, .lock = -1};
  for (int number = 0; number < NUMBERS && name_temporary(&left, number); number++)
    remove_left(left.temporary);
}

/* Several processes may write one name at once. */
static bool create_any(tsr_new_file *f) {
  struct stat info;
  bool ok = false;
  int number = 0;
  for (; number < NUMBERS && name_temporary(f, number); number++) {
    ok = create(f);
    if (ok || errno != EEXIST) break;
  }
  if (!ok) return false;
  for (tsr_new_file left = *f; name_temporary(&left, ++number) && !lstat(left.temporary, &info);)
    remove_left(left.temporary);
  return true;
}

bool tsr_new_file_open(const char *path, tsr_new_file *f, tsr_diags *diags) {
  *f = (tsr_new_file){.path = path, .fd = -1, .lock = -1};
  struct stat info;
  if (!tsr_file_check_output(path, diags)) return false;
  if (!lstat(path, &info) && !S_ISREG(info.st_mode)) /* a rename would replace it */
    return cannot_write(
        f,
        S_ISDIR(info.st_mode)   ? EISDIR
        : S_ISLNK(info.st_mode) ? EMLINK
                                : ENXIO,
        diags);
  if (create_any(f)) return true;
  int error = errno;
  f->temporary[0] = 0; /* not this one's */
  return cannot_write(f, error, diags);
}

bool tsr_new_file_write(tsr_new_file *f, const void *bytes, size_t length, tsr_diags *diags) {
  return tsr_disk_write(f->fd, bytes, length) || cannot_write(f, errno, diags);
}

bool tsr_new_file_commit(tsr_new_file *f, tsr_diags *diags) {
  if (!tsr_disk_sync(f->fd)) return cannot_write(f, errno, diags);
  int fd = f->fd;
  f->fd = -1;
  if (!tsr_disk_close(fd) || !tsr_disk_rename(f->temporary, f->path))
    return cannot_write(f, errno, diags);
  f->temporary[0] = 0;
  unlock(f);
  if (sync_name(f->path)) return true;
  int error = errno;
  tsr_disk_remove(f->path); /* the previous file is gone */
  return cannot_write(f, error, diags);
}

void tsr_new_file_drop(tsr_new_file *f) {
  if (f->fd >= 0) tsr_disk_close(f->fd);
  f->fd = -1;
  if (f->temporary[0]) tsr_disk_remove(f->temporary);
  f->temporary[0] = 0;
  unlock(f);
}

/* ---- several files ---- */

/* Where the file is that had the name before. */
typedef struct {
  tsr_new_file *file;
  char before[PATH_MAX];
  bool is_kept;   /* it exists */
  bool is_link;   /* and has its own name, too, until the new one is placed */
  bool is_placed; /* the new one has the name */
} placing;

/* A file of that name is left over of a killed process of the same number. The first file keeps its
 * name until it is replaced, where the file system can do that. */
static bool keep_before(placing *p, bool first) {
  const char *path = p->file->path;
  struct stat info;
  if (lstat(path, &info)) return errno == ENOENT;
  if (snprintf(p->before, sizeof p->before, "%s.%ld.old", path, (long)getpid()) >=
      (int)sizeof p->before)
    return errno = ENAMETOOLONG, false;
  if (first && !lstat(p->before, &info) && !tsr_disk_remove(p->before)) return false;
  p->is_link = first && tsr_disk_link(path, p->before);
  p->is_kept = p->is_link || tsr_disk_rename(path, p->before);
  return p->is_kept && sync_name(path);
}

static bool location(placing *p) {
  p->is_placed = tsr_disk_rename(p->file->temporary, p->file->path);
  if (p->is_placed) p->file->temporary[0] = 0;
  if (p->is_placed) unlock(p->file);
  return p->is_placed && sync_name(p->file->path);
}

static void put_back(placing *p) {
  if (p->is_kept && p->is_link && !p->is_placed) tsr_disk_remove(p->before);
  else if (p->is_kept) tsr_disk_rename(p->before, p->file->path);
  else if (p->is_placed) tsr_disk_remove(p->file->path);
  p->is_kept = p->is_placed = false;
}

/* The first file is never beside one of the other kind, here either. */
static void put_all_back(placing *list, int count) {
  for (int i = 1; i < count; i++) {
    if (list[i].is_placed) tsr_disk_remove(list[i].file->path);
    list[i].is_placed = false;
  }
  for (int i = 0; i < count; i++) put_back(&list[i]);
  sync_name(list[0].file->path);
}

static bool flush_new(tsr_new_file *f) {
  if (!tsr_disk_sync(f->fd)) return false;
  int fd = f->fd;
  f->fd = -1;
  return tsr_disk_close(fd);
}

/* -1, or the file that cannot be written, with errno. */
static int place_all(placing *list, int count) {
  for (int i = 0; i < count; i++)
    if (!flush_new(list[i].file)) return i;
  for (int i = count - 1; i >= 0; i--)
    if (!keep_before(&list[i], i == 0)) return i;
  for (int i = 0; i < count; i++)
    if (!location(&list[i])) return i;
  return -1;
}

bool tsr_new_files_commit(tsr_new_file *const *files, int count, tsr_diags *diags) {
  placing list[TSR_NEW_FILES_MAX] = {{0}};
  for (int i = 0; i < count; i++) list[i].file = files[i];
  int failed = place_all(list, count), error = errno;
  if (failed >= 0) put_all_back(list, count);
  for (int i = 0; failed >= 0 && i < count; i++) tsr_new_file_drop(files[i]);
  if (failed >= 0) return cannot_write(files[failed], error, diags);
  for (int i = 0; i < count; i++)
    if (list[i].is_kept && !tsr_disk_remove(list[i].before))
      tsr_diag_warning(
          diags, TSR_NOWHERE, "cannot remove '%s', the old file: %s", list[i].before,
          strerror(errno));
  return true;
}

bool tsr_file_write(const char *path, const void *bytes, size_t length, tsr_diags *diags) {
  tsr_new_file file;
  return tsr_new_file_open(path, &file, diags) && tsr_new_file_write(&file, bytes, length, diags) &&
         tsr_new_file_commit(&file, diags);
}
