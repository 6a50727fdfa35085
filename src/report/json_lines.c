// SPDX-License-Identifier: Apache-2.0
#include "report/json_lines.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include "base/new_file.h"
#include "base/text.h"
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct tsr_json_lines {
  const char *path;
  const tsr_json_lines_kind *kind;
  int fd; /* -1: nothing is written */
  bool is_made, has_begun;
  bool is_pipe;      /* or a device: what it takes is gone, and it is never waited for */
  tsr_text late;     /* lines that could not be written yet */
  bool is_told;      /* that they could not */
  int64_t late_step; /* of the first of them */
  off_t part_at;     /* where a line begins that was written in part; -1: there is none */
};

int64_t tsr_json_line_step(const char *line) {
  static const char key[] = "\"step\":";
  const char *at = strstr(line, key);
  return at ? strtoll(at + sizeof key - 1, NULL, 10) : -1;
}

bool tsr_json_line_read(int fd, int64_t at, tsr_text *line) {
  char block[TSR_DISK_BLOCK];
  for (ptrdiff_t got; (got = tsr_disk_read_at(fd, block, sizeof block, at)); at += got) {
    if (got < 0) return false;
    const char *newline = memchr(block, '\n', (size_t)got);
    tsr_text_add_bytes(line, block, newline ? (size_t)(newline - block) + 1 : (size_t)got);
    if (newline) break;
  }
  return true;
}

/* The bytes before the first line of a step behind `step`; -1 with errno set. */
static off_t bytes_up_to(int fd, int64_t step) {
  off_t bytes = 0;
  for (bool ends = false; !ends;) {
    tsr_text line = {0};
    if (!tsr_json_line_read(fd, bytes, &line)) bytes = -1;
    ends = bytes < 0 || !line.length || line.data[line.length - 1] != '\n' || line.data[0] != '{' ||
           tsr_json_line_step(line.data) > step;
    if (!ends) bytes += (off_t)line.length;
    tsr_text_free(&line);
  }
  return bytes;
}

/* Also a line that was cut off by a crash, which must not swallow the next one. */
static bool cut_behind(const tsr_json_lines *lines, int64_t step) {
  struct stat info;
  if (fstat(lines->fd, &info)) return false;
  if (!S_ISREG(info.st_mode)) return true;
  off_t bytes = step > 0 ? bytes_up_to(lines->fd, step) : 0;
  return bytes >= 0 && tsr_disk_truncate(lines->fd, bytes);
}

/* Whether these are the first bytes of a line of the kind, as many as there are of them. */
static bool is_of_kind(const tsr_json_lines *lines, const char *text, size_t length) {
  bool found = false;
  for (const char *const *begin = lines->kind->begins; *begin; begin++) {
    size_t wanted = strlen(*begin);
    found |= !memcmp(text, *begin, length < wanted ? length : wanted);
  }
  return found;
}

/* A power cut may leave the length of a file, and zeros where lines were: those that are left, from
 * the first newline behind the zeros on, are of the kind. */
static bool is_lost(const tsr_json_lines *lines) {
  char block[TSR_DISK_BLOCK];
  off_t at = 0;
  ptrdiff_t got, i = 0;
  while ((got = tsr_disk_read_at(lines->fd, block, sizeof block, at)) > 0) {
    for (i = 0; i < got && !block[i]; i++) continue;
    if (i < got) break;
    at += got;
  }
  if (got <= 0) return !got;
  tsr_text line = {0};
  bool ok = at + i > 0 && tsr_json_line_read(lines->fd, at + i, &line);
  at += i + (off_t)line.length;
  tsr_text_free(&line);
  got = ok ? tsr_disk_read_at(lines->fd, block, 32, at) : -1;
  return got >= 0 && is_of_kind(lines, block, (size_t)got);
}

/* A file system without locks is a warning, as for a folder (base/folder_lock.h). */
static bool lock(const tsr_json_lines *lines, tsr_diags *diags) {
  tsr_location location = {.file = lines->path};
  if (tsr_disk_lock(lines->fd)) return true;
  if (errno == EWOULDBLOCK)
    return tsr_diag_error(diags, location, "another run writes its %s here", lines->kind->what);
  if (!tsr_disk_has_no_locks(errno))
    return tsr_file_cannot("lock", lines->path, errno, location, diags);
  tsr_diag_warning(
      diags, location, "it cannot be locked (%s): no other run may use it", strerror(errno));
  return true;
}

/* That the file is of the kind, and no other process writes it. */
static bool check_file(const tsr_json_lines *lines, tsr_diags *diags) {
  tsr_location location = {.file = lines->path};
  char text[32];
  struct stat info;
  if (fstat(lines->fd, &info) || !S_ISREG(info.st_mode)) return true;
  if (!lock(lines, diags)) return false;
  size_t length = (size_t)info.st_size < sizeof text ? (size_t)info.st_size : sizeof text;
  if (tsr_disk_read_at(lines->fd, text, length, 0) != (ptrdiff_t)length)
    return tsr_file_cannot("read", lines->path, errno, location, diags);
  return is_of_kind(lines, text, length) || is_lost(lines) ||
         tsr_diag_error(
             diags, location, "the file has no %s, and would be emptied for them",
             lines->kind->what);
}

/* Not through a descriptor for reading: the run would be its own reader, and wait for itself. A
 * reader that is started beside the run may come a little later. */
static int open_pipe(const char *path, const volatile sig_atomic_t *stop) {
  enum { TRIES = 500, REST_NS = 20000000 };
  for (int i = 0;; i++) {
    int fd = tsr_disk_open_pipe(path);
    if (fd >= 0 || errno != ENXIO || i == TRIES) return fd;
    if (stop && *stop) return errno = EINTR, -1; /* a signal may have come before the rest */
    if (nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL)) return -1;
  }
}

static bool cannot_open(const tsr_json_lines *lines, int error, tsr_diags *diags) {
  tsr_location location = {.file = lines->path};
  if (lines->is_pipe && error == ENXIO)
    return tsr_diag_error(diags, location, "nobody reads this pipe");
  if (error == EINTR)
    tsr_diag_warning(diags, location, "ended by a signal: nobody reads this pipe");
  if (error == EINTR) return false;
  return tsr_file_cannot("write", lines->path, error, location, diags);
}

bool tsr_json_lines_open(
    tsr_arena *arena, const char *path, const tsr_json_lines_kind *kind,
    const volatile sig_atomic_t *stop, tsr_json_lines **ret, tsr_diags *diags) {
  tsr_json_lines *lines = *ret = tsr_arena_alloc(arena, sizeof *lines);
  *lines = (tsr_json_lines){.path = path, .kind = kind, .fd = -1, .part_at = -1};
  if (!path) return true;
  if (!tsr_file_check_output(path, diags)) return false;
  lines->is_made = !tsr_file_exists(path);
  struct stat info;
  lines->is_pipe = !stat(path, &info) && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
  lines->fd = lines->is_pipe ? open_pipe(path, stop) : tsr_disk_open_append(path);
  if (lines->fd < 0) return cannot_open(lines, errno, diags);
  if (check_file(lines, diags)) return true;
  tsr_json_lines_close(lines);
  return false;
}

/* Lines that are not written yet are whole; but what a pipe has of one cannot be cut. */
static void drop_late(tsr_json_lines *lines, int64_t step) {
  tsr_text kept = {0};
  char *at = lines->late.data;
  if (!at || lines->is_pipe) return;
  while (*at) {
    char *end = strchr(at, '\n');
    *end = 0;
    if (tsr_json_line_step(at) <= step) tsr_text_add(&kept, "%s\n", at);
    at = end + 1;
  }
  tsr_text_free(&lines->late);
  lines->late = kept;
}

static bool cut_part(tsr_json_lines *lines) {
  if (lines->part_at >= 0 && !tsr_disk_truncate(lines->fd, lines->part_at)) return false;
  lines->part_at = -1;
  return true;
}

bool tsr_json_lines_begin(tsr_json_lines *lines, int64_t step, tsr_diags *diags) {
  lines->has_begun = true;
  drop_late(lines, step);
  if (lines->fd < 0 || (cut_part(lines) && cut_behind(lines, step))) return true;
  return tsr_file_cannot("write", lines->path, errno, (tsr_location){.file = lines->path}, diags);
}

void tsr_json_lines_close(tsr_json_lines *lines) {
  tsr_text_free(&lines->late);
  if (lines->fd < 0) return;
  if (lines->is_made && !lines->has_begun) tsr_disk_remove(lines->path);
  close(lines->fd);
  lines->fd = -1;
}

/* Of what cannot be written whole nothing stays, so that readers see whole lines. Where that cannot
 * be cut off either, nothing is written behind it. */
static bool write_whole(tsr_json_lines *lines, const char *text, size_t length) {
  struct stat info;
  if (!cut_part(lines)) return false;
  bool known = !fstat(lines->fd, &info) && S_ISREG(info.st_mode);
  if (tsr_disk_write(lines->fd, text, length)) return true;
  int error = errno;
  if (known) lines->part_at = info.st_size;
  cut_part(lines);
  errno = error;
  return false;
}

/* As much as the pipe takes. False with errno; EAGAIN: it is full. */
static bool write_pipe(tsr_json_lines *lines) {
  tsr_text *late = &lines->late;
  while (late->length) {
    ptrdiff_t put = tsr_disk_write_some(lines->fd, late->data, late->length);
    if (put < 0) return false;
    late->length -= (size_t)put;
    memmove(late->data, late->data + put, late->length + 1);
    int64_t step = tsr_json_line_step(late->data);
    if (step >= 0) lines->late_step = step;
  }
  return true;
}

/* Writes the lines that are late. False with errno. */
static bool write_late(tsr_json_lines *lines) {
  bool ok =
      lines->is_pipe ? write_pipe(lines) : write_whole(lines, lines->late.data, lines->late.length);
  if (!ok) return false;
  tsr_text_free(&lines->late);
  lines->is_told = false;
  return true;
}

/* At the end the reader of a pipe is given time, but one that takes nothing for 2 s. */
static bool write_last(tsr_json_lines *lines) {
  enum { TIMEOUT_MS = 2000 };
  while (!write_late(lines)) {
    struct pollfd room = {.fd = lines->fd, .events = POLLOUT};
    if (!lines->is_pipe || errno != EAGAIN) return false;
    if (!poll(&room, 1, TIMEOUT_MS)) return errno = EAGAIN, false;
  }
  return true;
}

bool tsr_json_lines_finish(tsr_json_lines *lines, tsr_diags *diags) {
  if (!lines->late.length || write_last(lines)) return true;
  return tsr_diag_failure(
      diags, (tsr_location){.file = lines->path},
      "cannot write the %s from step %" PRId64 " on: %s", lines->kind->what, lines->late_step,
      errno == EAGAIN ? "nobody reads this pipe" : strerror(errno));
}

/* The first line that comes to be late is a warning, but for a pipe that is full. */
static void try_late(tsr_json_lines *lines, tsr_diags *diags) {
  if (write_late(lines) || lines->is_told || (lines->is_pipe && errno == EAGAIN)) return;
  lines->is_told = true;
  tsr_diag_warning(
      diags, (tsr_location){.file = lines->path},
      "cannot write the %s of step %" PRId64 ", which is tried again: %s", lines->kind->what,
      lines->late_step, strerror(errno));
}

void tsr_json_lines_add(tsr_json_lines *lines, cJSON *line, int64_t step, tsr_diags *diags) {
  char *json = cJSON_PrintUnformatted(line);
  cJSON_Delete(line);
  assert(json); /* only without memory */
  tsr_json_lines_put(lines, json, strlen(json), step);
  tsr_json_lines_put(lines, "\n", 1, step);
  cJSON_free(json);
  try_late(lines, diags);
}

void tsr_json_lines_put(tsr_json_lines *lines, const char *text, size_t length, int64_t step) {
  if (!lines->late.length) lines->late_step = step;
  tsr_text_add_bytes(&lines->late, text, length);
}

void tsr_json_lines_flush(tsr_json_lines *lines, tsr_diags *diags) {
  if (lines->late.length) try_late(lines, diags);
}

bool tsr_json_lines_are_written(const tsr_json_lines *lines) { return lines->fd >= 0; }

bool tsr_json_lines_have(const tsr_json_lines *lines, const char *line_begin) {
  struct stat info;
  off_t at = 0;
  bool found = false, ends = false;
  if (lines->fd < 0 || fstat(lines->fd, &info) || !S_ISREG(info.st_mode)) return true;
  while (!found && !ends) {
    tsr_text line = {0};
    ends = !tsr_json_line_read(lines->fd, at, &line) || !line.length;
    found = !ends && !strncmp(line.data, line_begin, strlen(line_begin));
    at += (off_t)line.length;
    tsr_text_free(&line);
  }
  return found;
}

/* cJSON's numbers are doubles, which lose bits above 2^53. */
void tsr_json_add_int(cJSON *line, const char *name, int64_t value) {
  char text[24];
  snprintf(text, sizeof text, "%" PRId64, value);
  cJSON_AddRawToObject(line, name, text);
}
