// SPDX-License-Identifier: Apache-2.0
#include "base/new_file.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* A number is left over where a process of the same number was killed. */
bool tsr_new_file_open(const char *path, tsr_new_file *f, tsr_diags *diags) {
  static atomic_uint made;
  *f = (tsr_new_file){.path = path, .fd = -1};
  struct stat info;
  if (!tsr_file_check_output(path, diags)) return false;
  if (!lstat(path, &info) && !S_ISREG(info.st_mode)) /* a rename would replace it */
    return cannot_write(
        f,
        S_ISDIR(info.st_mode)   ? EISDIR
        : S_ISLNK(info.st_mode) ? EMLINK
                                : ENXIO,
        diags);
  int length = snprintf(
      f->temporary, sizeof f->temporary, "%s.%ld-%u.tmp", path, (long)getpid(),
      atomic_fetch_add(&made, 1));
  if (length >= (int)sizeof f->temporary) {
    f->temporary[0] = 0;
    return cannot_write(f, ENAMETOOLONG, diags);
  }
  f->fd = tsr_disk_create_new(f->temporary);
  if (f->fd < 0 && errno == EEXIST && tsr_disk_remove(f->temporary))
    f->fd = tsr_disk_create_new(f->temporary);
  if (f->fd >= 0) return true;
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
  size_t length = strlen(p->file->temporary) - strlen("tmp");
  struct stat info;
  if (lstat(path, &info)) return errno == ENOENT;
  snprintf(p->before, sizeof p->before, "%.*sold", (int)length, p->file->temporary);
  if (first && !lstat(p->before, &info) && !tsr_disk_remove(p->before)) return false;
  p->is_link = first && tsr_disk_link(path, p->before);
  p->is_kept = p->is_link || tsr_disk_rename(path, p->before);
  return p->is_kept && sync_name(path);
}

static bool location(placing *p) {
  p->is_placed = tsr_disk_rename(p->file->temporary, p->file->path);
  if (p->is_placed) p->file->temporary[0] = 0;
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
