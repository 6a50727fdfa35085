// SPDX-License-Identifier: Apache-2.0
#include "base/file_read.h"
#include "base/file_ops.h"
#include "base/memory.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- what is read ---- */

typedef struct {
  dev_t device;
  ino_t number;
} identity;

static struct {
  pthread_mutex_t mutex;
  identity *items;
  size_t count, capacity;
} inputs = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static size_t find_input(const struct stat *info) {
  size_t i = 0;
  while (i < inputs.count &&
         (inputs.items[i].number != info->st_ino || inputs.items[i].device != info->st_dev))
    i++;
  return i;
}

/* Without memory a file is not remembered: it is not what the user asked for. */
static void remember(const struct stat *info) {
  pthread_mutex_lock(&inputs.mutex);
  bool known = find_input(info) < inputs.count;
  if (!known && inputs.count == inputs.capacity) {
    size_t capacity = 2 * inputs.capacity + 16;
    identity *more = tsr_memory_try_grow(inputs.items, sizeof *more * capacity);
    if (more) inputs.items = more;
    if (more) inputs.capacity = capacity;
  }
  if (!known && inputs.count < inputs.capacity)
    inputs.items[inputs.count++] = (identity){info->st_dev, info->st_ino};
  pthread_mutex_unlock(&inputs.mutex);
}

bool tsr_file_is_read(const char *path) {
  struct stat info;
  if (stat(path, &info) || !S_ISREG(info.st_mode)) return false;
  pthread_mutex_lock(&inputs.mutex);
  bool known = find_input(&info) < inputs.count;
  pthread_mutex_unlock(&inputs.mutex);
  return known;
}

void tsr_file_forget(void) {
  pthread_mutex_lock(&inputs.mutex);
  inputs.count = 0;
  pthread_mutex_unlock(&inputs.mutex);
}

/* ---- reading ---- */

static bool is_users(int error) {
  return error == ENOENT || error == ENOTDIR || error == EISDIR || error == EACCES ||
         error == EPERM || error == ENAMETOOLONG || error == ELOOP || error == EMLINK ||
         error == ENXIO || error == ENOLINK;
}

const char *tsr_file_reason(int error) {
  if (error == EINTR) return "ended by a signal";
  if (error == ENOLINK) return "it is a dangling link"; /* tsr_disk_make_folder's */
  if (error == ENXIO) return "it is a device or a pipe, not a file";
  return error == EMLINK ? "it is a symbolic link" : strerror(error);
}

bool tsr_file_cannot(
    const char *what, const char *path, int error, tsr_location location, tsr_diags *diags) {
  return tsr_diag(
      diags, is_users(error) ? TSR_ERROR : TSR_FAILURE, location, "cannot %s '%s': %s", what, path,
      tsr_file_reason(error));
}

static bool refuses_pipes;

void tsr_file_refuse_pipes(bool refuses) { refuses_pipes = refuses; }

static bool is_file_or_folder(const struct stat *info) {
  return S_ISREG(info->st_mode) || S_ISDIR(info->st_mode);
}

/* Opening a pipe must not wait for somebody to write into it; one that is not wanted is not opened:
 * who waits for a reader would begin to write. */
int tsr_file_open(const char *path, unsigned how) {
  int links = how & TSR_FILE_NOFOLLOW ? O_NOFOLLOW : 0;
  bool pipes = how & TSR_FILE_PIPES && !refuses_pipes;
  struct stat info;
  if (!pipes && !stat(path, &info) && !is_file_or_folder(&info)) return errno = ENXIO, -1;
  int fd = tsr_disk_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | links);
  if (fd < 0 && links && errno == ELOOP) errno = EMLINK;
  if (fd < 0) return -1;
  int error = fstat(fd, &info) ? errno : S_ISDIR(info.st_mode) ? EISDIR : 0;
  if (!error && !S_ISREG(info.st_mode) && !pipes) error = ENXIO;
  if (!error) {
    if (S_ISREG(info.st_mode)) remember(&info);
    return fd;
  }
  close(fd);
  errno = error;
  return -1;
}

bool tsr_file_begins(const char *path, const char *bytes) {
  char text[128] = "";
  size_t length = strlen(bytes);
  assert(length < sizeof text);
  int fd = tsr_disk_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
  if (fd < 0) return false;
  ptrdiff_t got = tsr_disk_read(fd, text, length);
  close(fd);
  return got == (ptrdiff_t)length && !memcmp(text, bytes, length);
}

static const char *volatile waited_for;

const char *tsr_file_waited_for(void) { return waited_for; }

/* Of a pipe: waits for a part. ETIMEDOUT; EINTR: a signal came meanwhile. */
static ssize_t read_part(int fd, char *bytes, size_t length) {
  enum { TIMEOUT_MS = 10000 };
  for (;;) {
    struct pollfd wanted = {.fd = fd, .events = POLLIN};
    int ready = poll(&wanted, 1, TIMEOUT_MS);
    if (!ready) errno = ETIMEDOUT;
    if (ready <= 0) return -1;
    ssize_t got = tsr_disk_read(fd, bytes, length);
    if (got >= 0 || errno != EAGAIN) return got;
  }
}

/* False with errno; EFBIG: more than `most`. */
static bool read_all(tsr_arena *arena, int fd, size_t most, char **ret_text, size_t *ret_length) {
  struct stat info;
  if (fstat(fd, &info)) return false;
  size_t capacity = info.st_size > 0 ? (size_t)info.st_size + 1 : 65536, length = 0;
  if (capacity > most + 1) capacity = most + 1;
  char *text = tsr_arena_alloc(arena, capacity + 1);
  for (ssize_t got; (got = read_part(fd, text + length, capacity - length));
       length += (size_t)got) {
    if (got < 0) return false;
    if (length + (size_t)got > most) return errno = EFBIG, false;
    if (length + (size_t)got < capacity) continue;
    char *more = tsr_arena_alloc(arena, capacity * 2 + 1);
    memcpy(more, text, capacity);
    text = more;
    capacity *= 2;
  }
  text[length] = 0;
  *ret_text = text;
  *ret_length = length;
  return true;
}

static bool read_file(
    tsr_arena *arena, const char *path, unsigned how, size_t bytes_max, tsr_location location,
    char **ret_text, size_t *ret_length, tsr_diags *diags) {
  int fd = tsr_file_open(path, how);
  if (fd < 0) return tsr_file_cannot("read", path, errno, location, diags);
  waited_for = path;
  bool ok = read_all(arena, fd, bytes_max, ret_text, ret_length);
  int error = errno;
  waited_for = NULL;
  close(fd);
  if (ok) return true;
  if (error == EFBIG)
    return tsr_diag_error(diags, location, "'%s' is longer than %zu bytes", path, bytes_max);
  if (error == ETIMEDOUT)
    return tsr_diag_error(
        diags, location, "cannot read '%s': nothing comes out of this pipe", path);
  return tsr_file_cannot("read", path, error, location, diags);
}

bool tsr_file_read(
    tsr_arena *arena, const char *path, size_t bytes_max, tsr_location location, char **ret_text,
    size_t *ret_length, tsr_diags *diags) {
  return read_file(arena, path, TSR_FILE_PIPES, bytes_max, location, ret_text, ret_length, diags);
}

bool tsr_file_read_regular(
    tsr_arena *arena, const char *path, size_t bytes_max, tsr_location location, char **ret_text,
    size_t *ret_length, tsr_diags *diags) {
  return read_file(arena, path, 0, bytes_max, location, ret_text, ret_length, diags);
}

bool tsr_file_read_nofollow(
    tsr_arena *arena, const char *path, size_t bytes_max, tsr_location location, char **ret_text,
    size_t *ret_length, tsr_diags *diags) {
  return read_file(
      arena, path, TSR_FILE_NOFOLLOW, bytes_max, location, ret_text, ret_length, diags);
}

/* ---- paths ---- */

bool tsr_file_exists(const char *path) { return access(path, F_OK) == 0; }

bool tsr_file_is_folder(const char *path) {
  struct stat info;
  return !stat(path, &info) && S_ISDIR(info.st_mode);
}

bool tsr_file_is_same(const char *path, const char *other) {
  struct stat a, b;
  return !stat(path, &a) && !stat(other, &b) && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

bool tsr_path_ends(const char *path, const char *end) {
  size_t n = strlen(path), m = strlen(end);
  return n >= m && !strcasecmp(path + n - m, end);
}

char *tsr_path_folder(tsr_arena *arena, const char *path) {
  const char *slash = strrchr(path, '/');
  if (!slash) return tsr_arena_strdup(arena, ".");
  return tsr_arena_strndup(arena, path, slash == path ? 1 : (size_t)(slash - path));
}

char *tsr_path_parent(tsr_arena *arena, const char *folder) {
  if (!strcmp(folder, ".")) return tsr_arena_strdup(arena, "..");
  size_t length = strlen(folder);
  if (!strcmp(folder, "..") || (length > 2 && !strcmp(folder + length - 3, "/..")))
    return tsr_path_join(arena, folder, "..");
  return tsr_path_folder(arena, folder);
}

char *tsr_path_join(tsr_arena *arena, const char *folder, const char *name) {
  if (name[0] == '/' || !strcmp(folder, ".")) return tsr_arena_strdup(arena, name);
  return tsr_arena_printf(arena, "%s/%s", folder, name);
}
