// SPDX-License-Identifier: Apache-2.0
#include "html_report/metrics_follow.h"
#include "base/file_ops.h"
#include "base/text.h"
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef tsr_metrics_follow follow;

void tsr_metrics_follow_open(const char *path, follow *ret) {
  *ret = (follow){.path = path};
  ret->reader = tsr_run_metrics_begin(NULL, path, &ret->metrics);
}

void tsr_metrics_follow_close(follow *f) { tsr_arena_free(f->arena); }

/* What was read is gone; `arena`: of what will be. */
static void forget(follow *f, tsr_arena *arena) {
  f->begins++;
  f->returns = 0;
  tsr_arena_free(f->arena);
  f->arena = arena;
  f->reader = tsr_run_metrics_begin(arena, f->path, &f->metrics);
  f->offset = 0;
  f->is_long = false;
}

static int64_t tail_length(const follow *f) {
  return f->offset < TSR_FOLLOW_TAIL ? f->offset : TSR_FOLLOW_TAIL;
}

/* Whether what was read is still where it was: a run that resumes may have written as many bytes
 * as it has cut off. */
static bool is_continued(const follow *f, int fd, const struct stat *info) {
  char now[TSR_FOLLOW_TAIL];
  int64_t length = tail_length(f);
  if (!f->arena || info->st_dev != f->device || info->st_ino != f->inode) return false;
  if (info->st_size < f->offset) return false;
  return tsr_disk_read_at(fd, now, (size_t)length, f->offset - length) == length &&
         !memcmp(now, f->tail, (size_t)length);
}

static void begin(follow *f, const struct stat *info) {
  forget(f, tsr_arena_new());
  f->device = info->st_dev;
  f->inode = info->st_ino;
}

/* Of these bytes, which follow what was read: the whole lines; the number of their bytes. */
static size_t take_lines(follow *f, const char *bytes, size_t length) {
  const char *at = bytes, *end = bytes + length, *newline;
  while ((newline = memchr(at, '\n', (size_t)(end - at)))) {
    size_t line = (size_t)(newline - at);
    if (f->is_long) line = (size_t)TSR_RUN_LINE_MAX + 1;
    if (line) tsr_run_metrics_add(&f->reader, at, line, false);
    f->is_long = false;
    at = newline + 1;
  }
  return (size_t)(at - bytes);
}

/* A last line whose newline is missing is taken as soon as it is whole: no begin of an object is
 * one. */
static size_t take_rest(follow *f, const char *bytes, size_t length) {
  bool may_be_whole = !f->is_long && length && bytes[length - 1] == '}';
  return may_be_whole && tsr_run_metrics_add(&f->reader, bytes, length, true) ? length : 0;
}

static void take(follow *f, tsr_text *text, size_t length) {
  f->offset += (int64_t)length;
  if (!length) return;
  memmove(text->data, text->data + length, text->length - length + 1);
  text->length -= length;
}

static bool take_new_lines(follow *f, int fd) {
  enum { BLOCK = 1 << 16 };
  char block[BLOCK];
  tsr_text text = {0};
  int64_t before = f->offset, at = f->offset;
  for (ptrdiff_t got; (got = tsr_disk_read_at(fd, block, BLOCK, at)) > 0; at += got) {
    tsr_text_add_bytes(&text, block, (size_t)got);
    take(f, &text, take_lines(f, text.data, text.length));
    if (text.length > TSR_RUN_LINE_MAX) f->is_long = true; /* its bytes are not needed */
    if (f->is_long) take(f, &text, text.length);
  }
  take(f, &text, take_rest(f, text.data, text.length));
  tsr_text_free(&text);
  int64_t length = tail_length(f);
  if (f->offset > before)
    if (tsr_disk_read_at(fd, f->tail, (size_t)length, f->offset - length) != length)
      f->inode = 0; /* it was cut meanwhile: the next look reads it anew */
  return f->offset != before;
}

static bool look_at(follow *f, int fd) {
  struct stat info;
  bool begins = false;
  if (fstat(fd, &info) || !S_ISREG(info.st_mode)) return false;
  if (!is_continued(f, fd, &info)) begin(f, &info), begins = true;
  double changed = (double)info.st_mtim.tv_sec + 1e-9 * (double)info.st_mtim.tv_nsec;
  bool is_touched = changed != f->changed;
  f->changed = changed;
  return take_new_lines(f, fd) || begins || is_touched;
}

/* A pipe is not opened: its writer would take this process for its reader. */
static int open_file(const char *path) {
  struct stat info;
  if (stat(path, &info) || !S_ISREG(info.st_mode)) return -1;
  return tsr_disk_open(path, O_RDONLY | O_NONBLOCK);
}

bool tsr_metrics_follow_look(follow *f) {
  int fd = open_file(f->path);
  bool was_there = f->arena != NULL;
  if (fd < 0) {
    if (was_there) forget(f, NULL);
    return was_there;
  }
  bool changed = look_at(f, fd);
  close(fd);
  f->begins += f->metrics.returns - f->returns;
  f->returns = f->metrics.returns;
  return changed;
}
