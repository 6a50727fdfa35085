#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_users(int error) {
  return error == ENOENT || error == ENOTDIR || error == EISDIR || error == EACCES ||
         error == ENAMETOOLONG || error == ELOOP;
}

static bool
cannot(const char *what, const char *path, int error, tsr_place place, tsr_diags *diags) {
  return tsr_diag(
      diags, is_users(error) ? TSR_ERROR : TSR_FAILURE, place, "cannot %s '%s': %s", what, path,
      strerror(error));
}

bool tsr_file_read(
    tsr_arena *arena, const char *path, size_t bytes_max, tsr_place place, char **ret_text,
    size_t *ret_length, tsr_diags *diags) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return cannot("read", path, errno, place, diags);
  struct stat info;
  int error = fstat(fd, &info) ? errno : S_ISDIR(info.st_mode) ? EISDIR : 0;
  if (error) {
    close(fd);
    return cannot("read", path, error, place, diags);
  }
  size_t capacity = info.st_size > 0 ? (size_t)info.st_size + 1 : 65536, length = 0;
  if (capacity > bytes_max + 1) capacity = bytes_max + 1;
  char *text = tsr_arena_alloc(arena, capacity + 1);
  for (;;) {
    if (length == capacity) {
      char *more = tsr_arena_alloc(arena, capacity * 2 + 1);
      memcpy(more, text, length);
      text = more;
      capacity *= 2;
    }
    ssize_t got = read(fd, text + length, capacity - length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      error = errno;
      close(fd);
      return cannot("read", path, error, place, diags);
    }
    if (got == 0) break;
    length += (size_t)got;
    if (length > bytes_max) {
      close(fd);
      return tsr_diag_error(diags, place, "'%s' is longer than %zu bytes", path, bytes_max);
    }
  }
  close(fd);
  text[length] = 0;
  *ret_text = text;
  *ret_length = length;
  return true;
}

bool tsr_file_write_all(int fd, const void *data, size_t length) {
  const char *bytes = data;
  while (length) {
    ssize_t put = write(fd, bytes, length);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    bytes += put;
    length -= (size_t)put;
  }
  return true;
}

bool tsr_file_write(const char *path, const void *bytes, size_t length, tsr_diags *diags) {
  tsr_place place = {.file = path};
  char temporary[4096];
  if (snprintf(temporary, sizeof temporary, "%s.tmp", path) >= (int)sizeof temporary)
    return cannot("write", path, ENAMETOOLONG, place, diags);
  int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return cannot("write", path, errno, place, diags);
  bool ok = tsr_file_write_all(fd, bytes, length) && fsync(fd) == 0;
  int error = errno;
  if (close(fd) != 0 && ok) ok = false, error = errno;
  if (ok && rename(temporary, path) != 0) ok = false, error = errno;
  if (ok) return true;
  unlink(temporary);
  return cannot("write", path, error, place, diags);
}

bool tsr_file_exists(const char *path) { return access(path, F_OK) == 0; }

char *tsr_path_folder(tsr_arena *arena, const char *path) {
  const char *slash = strrchr(path, '/');
  if (!slash) return tsr_arena_strdup(arena, ".");
  return tsr_arena_strndup(arena, path, slash == path ? 1 : (size_t)(slash - path));
}

char *tsr_path_join(tsr_arena *arena, const char *folder, const char *name) {
  if (name[0] == '/' || !strcmp(folder, ".")) return tsr_arena_strdup(arena, name);
  return tsr_arena_printf(arena, "%s/%s", folder, name);
}
