// SPDX-License-Identifier: Apache-2.0
#include "tensorboard/event_file.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include "base/memory.h"
#include "event.pb-c.h"
#include "tensorboard/crc32c.h"
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HEADER = 12, FOOTER = 4 };

struct tsr_event_file {
  tsr_arena *arena;
  const char *folder;
  char path[PATH_MAX];
  int fd;          /* -1: none is open */
  tsr_text late;   /* records that are not written yet */
  int64_t late_at; /* the step of the first of them that could not be; -1: none */
  off_t part_at;   /* where a write begins that was made in part; -1: there is none */
  bool is_gone;    /* it has no name any more, which the user was told */
};

tsr_event_file *tsr_event_file_new(tsr_arena *arena, const char *folder) {
  tsr_event_file *file = tsr_arena_alloc(arena, sizeof *file);
  *file =
      (tsr_event_file){.arena = arena, .folder = folder, .fd = -1, .late_at = -1, .part_at = -1};
  return file;
}

/* ---- numbers ---- */

static void put(unsigned char *to, uint64_t number, int bytes) {
  for (int i = 0; i < bytes; i++) to[i] = (unsigned char)(number >> 8 * i);
}

static uint64_t take(const unsigned char *from, int bytes) {
  uint64_t number = 0;
  for (int i = 0; i < bytes; i++) number |= (uint64_t)from[i] << 8 * i;
  return number;
}

/* ---- files of earlier starts ---- */

typedef struct {
  int64_t end;     /* of the records that are kept */
  int64_t step;    /* of the last one */
  int64_t read;    /* the bytes of whole records, up to one that is not kept */
  bool is_kept;    /* one of them is more than a record about the file */
  bool is_damaged; /* what follows these bytes is no whole record */
} kept_records;

/* The record's bytes, which the caller frees; NULL: there is no whole record. */
static unsigned char *read_record(int fd, int64_t at, uint64_t *ret_length) {
  enum { LENGTH_MAX = 1 << 30 };
  unsigned char header[HEADER];
  if (tsr_disk_read_at(fd, header, HEADER, at) != HEADER) return NULL;
  *ret_length = take(header, 8);
  if (take(header + 8, 4) != tsr_crc32c_masked(header, 8) || *ret_length > LENGTH_MAX) return NULL;
  size_t length = (size_t)*ret_length, got = 0;
  unsigned char *bytes = tsr_memory_try(length + FOOTER);
  while (bytes && got < length + FOOTER) {
    ptrdiff_t more =
        tsr_disk_read_at(fd, bytes + got, length + FOOTER - got, at + HEADER + (int64_t)got);
    if (more <= 0) break;
    got += (size_t)more;
  }
  bool whole = bytes && got == length + FOOTER &&
               take(bytes + length, 4) == tsr_crc32c_masked(bytes, length);
  if (whole) return bytes;
  free(bytes);
  return NULL;
}

bool tsr_event_file_is_own(const char *path, bool otherwise) {
  int fd = tsr_file_open(path, TSR_FILE_NOFOLLOW);
  uint64_t length;
  unsigned char *bytes = fd < 0 ? NULL : read_record(fd, 0, &length);
  if (fd >= 0) close(fd);
  if (!bytes) return otherwise;
  Tensorboard__Event *event = tensorboard__event__unpack(NULL, (size_t)length, bytes);
  const Tensorboard__SourceMetadata *source = event ? event->source_metadata : NULL;
  bool own = source && source->writer && !strcmp(source->writer, TSR_EVENT_FILE_WRITER);
  if (event) tensorboard__event__free_unpacked(event, NULL);
  free(bytes);
  return own;
}

static bool is_end(const Tensorboard__Event *event) {
  if (event->what_case != TENSORBOARD__EVENT__WHAT_SUMMARY || !event->summary->n_value)
    return false;
  const char *tag = event->summary->value[0]->tag;
  return tag && !strcmp(tag, TSR_EVENT_FILE_END);
}

/* A START has the step behind that of its start, and may be followed by what a crash has left to be
 * made of that step: an evaluation, a sample. It is kept where records behind it are. */
static kept_records find_kept(int fd, int64_t step) {
  kept_records kept = {.is_damaged = true};
  uint64_t length;
  for (unsigned char *bytes; (bytes = read_record(fd, kept.read, &length));) {
    Tensorboard__Event *event = tensorboard__event__unpack(NULL, (size_t)length, bytes);
    bool is_start = event && event->what_case == TENSORBOARD__EVENT__WHAT_SESSION_LOG;
    bool stays = event && event->step <= step && !(event->step == step && is_end(event));
    kept.is_kept |= stays && event->what_case != TENSORBOARD__EVENT__WHAT_FILE_VERSION && !is_start;
    if (stays) kept.step = event->step;
    kept.is_damaged = !event;
    if (event) tensorboard__event__free_unpacked(event, NULL);
    free(bytes);
    if (!stays && !is_start) break;
    kept.is_damaged = true; /* until another one is found */
    kept.read += HEADER + (int64_t)length + FOOTER;
    if (stays) kept.end = kept.read;
  }
  return kept;
}

static bool cut_file(const char *path, int64_t step, bool *kept, tsr_diags *diags) {
  int fd = tsr_disk_open_append(path);
  kept_records records = fd < 0 ? (kept_records){0} : find_kept(fd, step);
  struct stat info;
  if (records.is_damaged && !fstat(fd, &info) && info.st_size > records.read)
    tsr_diag_warning(
        diags, (tsr_location){.file = path},
        "the record at byte %" PRId64 " is damaged: this and what follows it, %lld bytes, are cut "
        "off; the file has no events behind step %" PRId64,
        records.read, (long long)(info.st_size - records.read), records.step);
  bool ok = fd >= 0 && tsr_disk_truncate(fd, records.end);
  int error = errno;
  if (fd >= 0) close(fd);
  *kept |= records.is_kept;
  return ok || tsr_file_cannot("cut", path, error, (tsr_location){.file = path}, diags);
}

static bool return_file(const char *path, int64_t step, bool *kept, tsr_diags *diags) {
  if (step > 0) return cut_file(path, step, kept, diags);
  return tsr_disk_remove(path) ||
         tsr_file_cannot("remove", path, errno, (tsr_location){.file = path}, diags);
}

/* `ret_newest`: the time in the name of the newest file; 0: there is none. */
static bool return_files(
    const tsr_event_file *file, int64_t step, int64_t *ret_newest, bool *ret_kept,
    tsr_diags *diags) {
  DIR *opened = tsr_disk_open_folder(file->folder);
  bool ok = opened || tsr_file_cannot("read the folder", file->folder, errno, TSR_NOWHERE, diags);
  size_t prefix = strlen(TSR_EVENT_FILE_PREFIX);
  for (const struct dirent *e; ok && (e = readdir(opened));) {
    if (strncmp(e->d_name, TSR_EVENT_FILE_PREFIX, prefix) != 0) continue;
    int64_t time = strtoll(e->d_name + prefix, NULL, 10);
    if (time > *ret_newest) *ret_newest = time;
    ok = return_file(tsr_path_join(file->arena, file->folder, e->d_name), step, ret_kept, diags);
  }
  if (opened) closedir(opened);
  return ok;
}

/* ---- this start's file ---- */

/* Its name is behind those of earlier starts, also of the same second and where the clock was set
 * back. */
static bool open_file(tsr_event_file *file, int64_t newest, tsr_diags *diags) {
  char host[65] = "localhost";
  gethostname(host, sizeof host - 1);
  int64_t time_s = (int64_t)time(NULL);
  if (time_s <= newest) time_s = newest + 1;
  int length = snprintf(
      file->path, sizeof file->path, "%s/" TSR_EVENT_FILE_PREFIX "%010" PRId64 ".%s.%ld",
      file->folder, time_s, host, (long)getpid());
  errno = ENAMETOOLONG;
  file->fd = length < (int)sizeof file->path ? tsr_disk_create_new(file->path) : -1;
  return file->fd >= 0 ||
         tsr_file_cannot("write", file->path, errno, (tsr_location){.file = file->path}, diags);
}

/* Of what cannot be written whole nothing stays, so that records are whole. Where that cannot be
 * cut off either, nothing is written behind it. */
static bool write_late(tsr_event_file *file) {
  struct stat info;
  if (file->part_at >= 0 && !tsr_disk_truncate(file->fd, file->part_at)) return false;
  if (file->part_at >= 0 && lseek(file->fd, file->part_at, SEEK_SET) < 0) return false;
  file->part_at = -1;
  if (fstat(file->fd, &info)) return false;
  if (tsr_disk_write(file->fd, file->late.data, file->late.length)) return true;
  file->part_at = info.st_size;
  return false;
}

bool tsr_event_file_begin(tsr_event_file *file, int64_t step, bool *ret_kept, tsr_diags *diags) {
  int64_t newest = 0;
  *ret_kept = false;
  if (file->fd >= 0 && file->late.length) write_late(file);
  tsr_event_file_close(file);
  return return_files(file, step, &newest, ret_kept, diags) && open_file(file, newest, diags);
}

void tsr_event_file_add(tsr_event_file *file, const tsr_text *event) {
  unsigned char header[HEADER], footer[FOOTER];
  put(header, event->length, 8);
  put(header + 8, tsr_crc32c_masked(header, 8), 4);
  put(footer, tsr_crc32c_masked(event->data, event->length), 4);
  tsr_text_add_bytes(&file->late, header, HEADER);
  tsr_text_add_bytes(&file->late, event->data, event->length);
  tsr_text_add_bytes(&file->late, footer, FOOTER);
}

/* Writing does not fail then. */
static void warn_gone(tsr_event_file *file, tsr_diags *diags) {
  struct stat info;
  if (file->is_gone || fstat(file->fd, &info) || info.st_nlink) return;
  file->is_gone = true;
  tsr_diag_warning(
      diags, (tsr_location){.file = file->path}, "the file was removed: its events are lost");
}

void tsr_event_file_flush(tsr_event_file *file, int64_t step, tsr_diags *diags) {
  if (!file->late.length) return;
  if (write_late(file)) {
    file->late.length = 0;
    file->late_at = -1;
    warn_gone(file, diags);
    return;
  }
  if (file->late_at >= 0) return;
  file->late_at = step;
  tsr_diag_warning(
      diags, (tsr_location){.file = file->path},
      "cannot write the events of step %" PRId64 ", which is tried again: %s", step,
      strerror(errno));
}

bool tsr_event_file_finish(tsr_event_file *file, tsr_diags *diags) {
  if (!file->late.length || write_late(file)) {
    file->late.length = 0;
    warn_gone(file, diags);
    return true;
  }
  return tsr_diag_failure(
      diags, (tsr_location){.file = file->path},
      "cannot write the events from step %" PRId64 " on: %s", file->late_at, strerror(errno));
}

void tsr_event_file_close(tsr_event_file *file) {
  tsr_text_free(&file->late);
  if (file->fd >= 0) close(file->fd);
  file->fd = -1;
  file->late_at = file->part_at = -1;
  file->is_gone = false;
}
