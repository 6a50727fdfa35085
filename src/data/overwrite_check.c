// SPDX-License-Identifier: Apache-2.0
#include "data/overwrite_check.h"
#include "base/file_ops.h"
#include "base/utf8.h"
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A regular file for reading that is not remembered as an input; -1: there is none, or it is empty,
 * or it is no file, which the writing refuses. */
static int open_old(const char *path, int64_t *ret_bytes) {
  struct stat info;
  int fd = tsr_disk_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
  if (fd < 0) return -1;
  if (!fstat(fd, &info) && S_ISREG(info.st_mode) && info.st_size > 0)
    return *ret_bytes = (int64_t)info.st_size, fd;
  close(fd);
  return -1;
}

static bool is_there(const char *path) {
  struct stat info;
  return !lstat(path, &info) && S_ISREG(info.st_mode) && info.st_size > 0;
}

static bool read_at(int fd, int64_t at, void *bytes, size_t length) {
  return tsr_disk_read_at(fd, bytes, length, at) == (ptrdiff_t)length;
}

/* Whether the header's number of tokens is the file's. */
static bool is_llmc(const char *path) {
  int32_t header[3];
  int64_t bytes;
  int fd = open_old(path, &bytes);
  if (fd < 0) return false;
  bool ok = read_at(fd, 0, header, sizeof header);
  close(fd);
  bool narrow = ok && header[0] == TSR_LLMC_MAGIC_U16, wide = ok && header[0] == TSR_LLMC_MAGIC_U32;
  return (narrow || wide) && bytes == TSR_LLMC_HEADER_BYTES + (int64_t)header[2] * (wide ? 4 : 2);
}

/* The bytes of the tokens of an index; -1: it is none. */
static int64_t bytes_of_index(const char *path) {
  enum { TYPE_AT = 17, SEQUENCES_AT = 18, HEADER = TSR_MEGATRON_HEADER_BYTES };
  uint8_t header[HEADER];
  int64_t bytes, sequences, pointer = 0;
  int32_t length = 0;
  int fd = open_old(path, &bytes);
  if (fd < 0) return -1;
  bool ok = read_at(fd, 0, header, HEADER) && !memcmp(header, "MMIDIDX\0\0", 9);
  memcpy(&sequences, header + SEQUENCES_AT, sizeof sequences);
  ok = ok && sequences >= 0 && sequences <= (bytes - HEADER) / 12;
  if (ok && sequences)
    ok = read_at(fd, HEADER + 4 * (sequences - 1), &length, sizeof length) &&
         read_at(fd, HEADER + 12 * sequences - 8, &pointer, sizeof pointer);
  close(fd);
  return ok ? pointer + (int64_t)length * (header[TYPE_AT] == 8 ? 2 : 4) : -1;
}

static bool is_pair(const char *bin, const char *idx) {
  struct stat info;
  return !lstat(bin, &info) && S_ISREG(info.st_mode) && info.st_size == bytes_of_index(idx);
}

static bool refuse(const char *path, const char *why, tsr_diags *diags) {
  tsr_diag_error(diags, TSR_NOWHERE, "'%s' is there and %s: it is not overwritten", path, why);
  tsr_diag_hint(diags, "--overwrite replaces it");
  return false;
}

static bool refuse_raw(const char *path, tsr_diags *diags) {
  tsr_diag_error(
      diags, TSR_NOWHERE,
      "'%s' is there, and tokens without a header cannot be told from other data: it is not "
      "overwritten",
      path);
  tsr_diag_hint(diags, "--overwrite replaces it");
  return false;
}

/* What begins with a line of text. */
static bool is_text(const char *path) {
  char bytes[256];
  int64_t length;
  int fd = open_old(path, &length);
  ptrdiff_t got = fd < 0 ? 0 : tsr_disk_read(fd, bytes, sizeof bytes);
  if (fd >= 0) close(fd);
  if (got <= 0 || memchr(bytes, 0, (size_t)got)) return false;
  return tsr_utf8_valid(bytes, (size_t)got) + 4 > (size_t)got; /* a character may be cut off */
}

bool tsr_tokens_check_replaced(
    const char *bin, const char *idx, tsr_tokens_as as, tsr_diags *diags) {
  static const char other[] = "is no file of tokens";
  bool ok = true;
  bool known = as == TSR_TOKENS_AS_LLMC ? is_llmc(bin) : idx && is_pair(bin, idx);
  if (is_there(bin) && !known)
    ok = as == TSR_TOKENS_AS_LLMC || is_text(bin) ? refuse(bin, other, diags)
                                                  : refuse_raw(bin, diags);
  if (idx && is_there(idx) && bytes_of_index(idx) < 0) ok = refuse(idx, other, diags);
  return ok;
}

/* Whether these are characters that rise. */
static bool are_chars(const char *bytes, size_t length) {
  int64_t before = -1;
  for (size_t at = 0; at < length;) {
    uint32_t code;
    int step = tsr_utf8_next(bytes + at, length - at, &code);
    if (!step || code <= before) return false;
    before = code;
    at += (size_t)step;
  }
  return true;
}

bool tsr_chars_check_replaced(const char *path, tsr_diags *diags) {
  enum { MOST = TSR_UTF8_CODES * 4 };
  int64_t length;
  int fd = open_old(path, &length);
  if (fd < 0) return true;
  tsr_arena *scratch = tsr_arena_new();
  char *bytes = length <= MOST ? tsr_arena_alloc(scratch, (size_t)length) : NULL;
  bool ok = bytes && read_at(fd, 0, bytes, (size_t)length) && are_chars(bytes, (size_t)length);
  close(fd);
  tsr_arena_free(scratch);
  return ok || refuse(path, "is no list of characters", diags);
}
