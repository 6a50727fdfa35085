// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/folder_writer.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include "base/folder_lock.h"
#include "checkpoint/owned_files.h"
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PORTION = 1 << 20 };

struct tsr_checkpoint_writer {
  tsr_arena *arena;
  const char *path, *partial; /* partial: while it is being written */
  tsr_folder_lock lock;       /* of the path; held by the only writer of a folder */
  tsr_checkpoint_writer_pace *pace;
  void *context;
  tsr_stored_file *files;
  int files_count, files_capacity;
  tsr_stored *tensors;
  int tensors_count, tensors_capacity, next;
  int fd; /* of the file that is open, or -1 */
  const char *file;
  char *buffer;
  size_t buffered;
  int64_t written;
  /* the pieces of the file that is open, and where its data are */
  const tsr_checkpoint_writer_piece *pieces;
  tsr_stored_piece *stored;
  int pieces_count, piece;
  int64_t piece_left;
  tsr_hasher *hasher;
};

/* "cannot write 'path/file': reason", and the file is closed. */
static bool fails(tsr_checkpoint_writer *o, const char *file, int error, tsr_diags *diags) {
  if (o->fd >= 0) tsr_disk_close(o->fd);
  o->fd = -1;
  return tsr_diag_failure(
      diags, TSR_NOWHERE, "cannot write '%s%s%s': %s", o->path, file ? "/" : "", file ? file : "",
      tsr_file_reason(error));
}

void tsr_checkpoint_writer_join(
    tsr_arena *arena, const char *path, tsr_checkpoint_writer_pace *pace, void *context,
    tsr_checkpoint_writer **ret) {
  tsr_checkpoint_writer *o = *ret = tsr_arena_alloc(arena, sizeof *o);
  *o = (tsr_checkpoint_writer){.arena = arena, .pace = pace, .context = context, .fd = -1};
  o->lock = TSR_FOLDER_LOCK_NONE;
  o->path = tsr_arena_strdup(arena, path);
  o->partial = tsr_arena_printf(arena, "%s.partial", path);
  char *memory = tsr_arena_alloc(arena, PORTION + TSR_DISK_BLOCK);
  o->buffer = memory + TSR_DISK_BLOCK - (uintptr_t)memory % TSR_DISK_BLOCK;
  o->hasher = tsr_hasher_new(arena);
}

bool tsr_checkpoint_writer_begin(
    tsr_arena *arena, const char *path, tsr_checkpoint_writer_pace *pace, void *context,
    tsr_checkpoint_writer **ret, tsr_diags *diags) {
  tsr_checkpoint_writer_join(arena, path, pace, context, ret);
  if (!tsr_output_lock_take(arena, path, path, &(*ret)->lock, diags)) return false;
  if (tsr_checkpoint_writer_prepare(arena, path, (*ret)->lock.was_left, diags)) return true;
  tsr_folder_lock_release(&(*ret)->lock);
  return false;
}

static bool
prepare(tsr_arena *arena, const char *path, bool was_left, bool beside, tsr_diags *diags) {
  const char *partial = tsr_arena_printf(arena, "%s.partial", path), *left = NULL;
  if (!access(path, F_OK)) return tsr_diag_error(diags, TSR_NOWHERE, "'%s' is there already", path);
  bool ok = tsr_own_files_remove(arena, partial, was_left, &left) || errno == ENOENT || left;
  if (ok && left && !(beside && *left))
    return tsr_diag_error(diags, TSR_NOWHERE, "'%s' is there, and no command has left it", partial);
  return (ok && tsr_disk_make_folder(partial)) ||
         tsr_file_cannot("write", path, errno, TSR_NOWHERE, diags);
}

bool tsr_checkpoint_writer_prepare(
    tsr_arena *arena, const char *path, bool was_left, tsr_diags *diags) {
  return prepare(arena, path, was_left, false, diags);
}

bool tsr_checkpoint_writer_prepare_beside(tsr_arena *arena, const char *path, tsr_diags *diags) {
  return prepare(arena, path, false, true, diags);
}

void tsr_checkpoint_writer_abandon(tsr_checkpoint_writer *o) {
  const char *left;
  if (o->fd >= 0) tsr_disk_close(o->fd);
  o->fd = -1;
  tsr_own_files_remove(o->arena, o->partial, true, &left);
  tsr_folder_lock_release(&o->lock);
}

/* ---- a file ---- */

static bool open_file(tsr_checkpoint_writer *o, const char *name, tsr_diags *diags) {
  assert(o->fd < 0);
  o->file = tsr_arena_strdup(o->arena, name);
  o->buffered = 0;
  o->written = 0;
  o->fd = tsr_disk_create(tsr_arena_printf(o->arena, "%s/%s", o->partial, name));
  tsr_arena_grow(
      o->arena, (void **)&o->files, sizeof *o->files, o->files_count, &o->files_capacity);
  if (o->fd < 0) return fails(o, name, errno, diags);
  o->files[o->files_count] = (tsr_stored_file){.name = o->file};
  return true;
}

/* Whole portions, so that all but a file's end goes past the page cache; where it cannot, the
 * kernel is asked to begin at once with what it would else write all at the end. */
static bool flush(tsr_checkpoint_writer *o, tsr_diags *diags) {
  size_t length = o->buffered;
  if (!length) return true;
  o->buffered = 0;
  if (!(length == PORTION ? tsr_disk_write_direct : tsr_disk_write)(o->fd, o->buffer, length))
    return fails(o, o->file, errno, diags);
#ifdef SYNC_FILE_RANGE_WRITE
  sync_file_range(o->fd, o->written, (off_t)length, SYNC_FILE_RANGE_WRITE);
#endif
  o->written += (int64_t)length;
  if (o->pace) o->pace(o->context);
  return true;
}

static bool put(tsr_checkpoint_writer *o, const char *bytes, size_t length, tsr_diags *diags) {
  while (length) {
    size_t room = PORTION - o->buffered, part = length < room ? length : room;
    memcpy(o->buffer + o->buffered, bytes, part);
    o->buffered += part;
    bytes += part;
    length -= part;
    if (o->buffered == PORTION && !flush(o, diags)) return false;
  }
  return true;
}

static bool close_file(tsr_checkpoint_writer *o, tsr_diags *diags) {
  if (!flush(o, diags)) return false;
  if (!tsr_disk_sync(o->fd)) return fails(o, o->file, errno, diags);
  int fd = o->fd;
  o->fd = -1;
  if (!tsr_disk_close(fd)) return fails(o, o->file, errno, diags);
  o->files[o->files_count++].bytes = o->written;
  return true;
}

/* Of the file that is open: its first bytes, under one hash. */
static void hash_header(tsr_checkpoint_writer *o, const void *bytes, size_t length) {
  tsr_stored_file *f = &o->files[o->files_count];
  tsr_hasher_begin(o->hasher);
  tsr_hasher_add(o->hasher, bytes, length);
  tsr_hasher_end(o->hasher, f->hash);
  f->header = (int64_t)length;
}

bool tsr_checkpoint_writer_bytes(
    tsr_checkpoint_writer *o, const char *name, const void *bytes, size_t length,
    tsr_diags *diags) {
  if (!open_file(o, name, diags)) return false;
  hash_header(o, bytes, length);
  return put(o, bytes, length, diags) && close_file(o, diags);
}

bool tsr_checkpoint_writer_copy(
    tsr_checkpoint_writer *o, const char *name, const char *from, unsigned how, tsr_diags *diags) {
  int in = tsr_file_open(from, how);
  if (in < 0) return tsr_file_cannot("read", from, errno, TSR_NOWHERE, diags);
  bool ok = open_file(o, name, diags);
  char *portion = tsr_arena_alloc(o->arena, PORTION);
  tsr_hasher_begin(o->hasher);
  ssize_t got = 0;
  while (ok && (got = tsr_disk_read(in, portion, PORTION)) > 0) {
    tsr_hasher_add(o->hasher, portion, (size_t)got);
    ok = put(o, portion, (size_t)got, diags);
  }
  int error = errno;
  close(in);
  if (got < 0)
    return tsr_diag_failure(
        diags, TSR_NOWHERE, "cannot read '%s': %s", from, tsr_file_reason(error));
  if (!ok || !flush(o, diags)) return false;
  tsr_stored_file *f = &o->files[o->files_count];
  tsr_hasher_end(o->hasher, f->hash);
  f->header = o->written;
  return close_file(o, diags);
}

/* ---- tensors ---- */

/* Files have their tensors in one order, so the one behind the last is the likeliest. */
static tsr_stored *stored_of(tsr_checkpoint_writer *o, const tsr_checkpoint_writer_piece *p) {
  for (int n = 0; n < o->tensors_count; n++) {
    int i = (o->next + n) % o->tensors_count;
    if (strcmp(o->tensors[i].name, p->name)) continue;
    o->next = i + 1;
    return &o->tensors[i];
  }
  tsr_arena_grow(
      o->arena, (void **)&o->tensors, sizeof *o->tensors, o->tensors_count, &o->tensors_capacity);
  tsr_stored *t = &o->tensors[o->tensors_count++];
  *t = (tsr_stored){tsr_arena_strdup(o->arena, p->name), p->dtype, p->ndim};
  memcpy(t->shape, p->shape, sizeof t->shape);
  return t;
}

static int64_t bytes_of(const tsr_checkpoint_writer_piece *p) {
  return tsr_stored_elements(p->ndim, p->piece) * tsr_dtype_bytes(p->dtype);
}

static const char *name_in_file(tsr_arena *arena, const tsr_checkpoint_writer_piece *p) {
  if (!memcmp(p->shape, p->piece, sizeof(int64_t) * (size_t)p->ndim)) return p->name;
  tsr_text text = {0};
  tsr_text_add(&text, "%s@", p->name);
  for (int d = 0; d < p->ndim; d++)
    tsr_text_add(&text, "%s%lld", d ? "," : "", (long long)p->begin[d]);
  const char *name = tsr_arena_strdup(arena, text.data);
  tsr_text_free(&text);
  return name;
}

static const char *safetensors_dtype(tsr_dtype dtype) {
  static const char *const names[] = {
      [TSR_F32] = "F32", [TSR_I32] = "I32", [TSR_BF16] = "BF16", [TSR_F16] = "F16"};
  return names[dtype];
}

static bool put_header(tsr_checkpoint_writer *o, tsr_diags *diags) {
  static const char *const metadata[] = {"format", "pt"};
  tsr_safetensor *list = tsr_arena_array(o->arena, tsr_safetensor, o->pieces_count + 1);
  for (int i = 0; i < o->pieces_count; i++) {
    const tsr_checkpoint_writer_piece *p = &o->pieces[i];
    list[i] = (tsr_safetensor){
        name_in_file(o->arena, p), safetensors_dtype(p->dtype), p->ndim, .bytes = bytes_of(p)};
    memcpy(list[i].shape, p->piece, sizeof(int64_t) * (size_t)p->ndim);
  }
  tsr_text text = {0};
  tsr_safetensors_header(list, o->pieces_count, metadata, 1, &text);
  for (int i = 0; i < o->pieces_count; i++) o->stored[i].offset = list[i].offset;
  hash_header(o, text.data, text.length);
  bool ok = put(o, text.data, text.length, diags);
  tsr_text_free(&text);
  return ok;
}

/* Pieces without elements have no data to wait for. */
static void begin_piece(tsr_checkpoint_writer *o) {
  while (o->piece < o->pieces_count) {
    o->piece_left = o->stored[o->piece].bytes;
    tsr_hasher_begin(o->hasher);
    if (o->piece_left) return;
    tsr_hasher_end(o->hasher, o->stored[o->piece++].hash);
  }
}

bool tsr_checkpoint_writer_tensors(
    tsr_checkpoint_writer *o, const char *file, const tsr_checkpoint_writer_piece *pieces,
    int count, tsr_diags *diags) {
  if (!open_file(o, file, diags)) return false;
  o->pieces = pieces;
  o->pieces_count = count;
  o->piece = 0;
  o->stored = tsr_arena_array(o->arena, tsr_stored_piece, count + 1);
  for (int i = 0; i < count; i++) {
    o->stored[i] = (tsr_stored_piece){.file = o->files_count, .bytes = bytes_of(&pieces[i])};
    memcpy(o->stored[i].begin, pieces[i].begin, sizeof pieces[i].begin);
    memcpy(o->stored[i].shape, pieces[i].piece, sizeof pieces[i].piece);
  }
  if (!put_header(o, diags)) return false;
  begin_piece(o);
  return true;
}

bool tsr_checkpoint_writer_data(
    tsr_checkpoint_writer *o, const void *bytes, size_t length, tsr_diags *diags) {
  const char *at = bytes;
  while (length) {
    assert(o->piece < o->pieces_count);
    size_t left = (size_t)o->piece_left, part = length < left ? length : left;
    if (part > PORTION) part = PORTION; /* to be hashed while it is in the cache */
    tsr_hasher_add(o->hasher, at, part);
    if (!put(o, at, part, diags)) return false;
    at += part;
    length -= part;
    o->piece_left -= (int64_t)part;
    if (o->piece_left) continue;
    tsr_hasher_end(o->hasher, o->stored[o->piece++].hash);
    begin_piece(o);
  }
  return true;
}

/* As a list grows that doubles: a tensor may be in as many pieces as it has rows. */
static void add_piece(tsr_checkpoint_writer *o, tsr_stored *t, tsr_stored_piece piece) {
  int count = t->pieces_count;
  if (!(count & (count - 1))) {
    tsr_stored_piece *more = tsr_arena_array(o->arena, tsr_stored_piece, 2 * count + 1);
    if (count) memcpy(more, t->pieces, sizeof *more * (size_t)count);
    t->pieces = more;
  }
  t->pieces[t->pieces_count++] = piece;
}

bool tsr_checkpoint_writer_end_tensors(tsr_checkpoint_writer *o, tsr_diags *diags) {
  assert(o->piece == o->pieces_count);
  for (int i = 0; i < o->pieces_count; i++) add_piece(o, stored_of(o, &o->pieces[i]), o->stored[i]);
  return close_file(o, diags);
}

/* ---- several writers ---- */

static const char *part_path(const tsr_checkpoint_writer *o, int writer, const char *ending) {
  return tsr_arena_printf(o->arena, "%s/part-%05d%s", o->partial, writer, ending);
}

/* It appears under its name when it is whole. */
bool tsr_checkpoint_writer_leave_part(tsr_checkpoint_writer *o, int writer, tsr_diags *diags) {
  tsr_manifest m = {.files = o->files, .files_count = o->files_count, .tensors = o->tensors};
  m.tensors_count = o->tensors_count;
  tsr_text text = {0};
  tsr_manifest_print(&m, &text);
  const char *name = tsr_arena_printf(o->arena, "part-%05d.tmp", writer);
  bool ok = tsr_checkpoint_writer_bytes(o, name, text.data, text.length, diags);
  tsr_text_free(&text);
  return ok && (tsr_disk_rename(part_path(o, writer, ".tmp"), part_path(o, writer, ".json")) ||
                fails(o, NULL, errno, diags));
}

void tsr_checkpoint_writer_leave_failure(tsr_checkpoint_writer *o, int writer) {
  if (o->fd >= 0) tsr_disk_close(o->fd);
  o->fd = -1;
  int fd = tsr_disk_create(part_path(o, writer, ".failed"));
  if (fd >= 0) tsr_disk_close(fd);
}

static void
adopt_piece(tsr_checkpoint_writer *o, tsr_stored *into, tsr_stored_piece piece, int files_before) {
  piece.file += files_before;
  add_piece(o, into, piece);
}

static void adopt(tsr_checkpoint_writer *o, const tsr_manifest *m) {
  int before = o->files_count;
  for (int i = 0; i < m->files_count; i++) {
    tsr_arena_grow(
        o->arena, (void **)&o->files, sizeof *o->files, o->files_count, &o->files_capacity);
    o->files[o->files_count++] = m->files[i];
  }
  for (int i = 0; i < m->tensors_count; i++) {
    const tsr_stored *t = &m->tensors[i];
    tsr_checkpoint_writer_piece p = {.name = t->name, .dtype = t->dtype, .ndim = t->ndim};
    memcpy(p.shape, t->shape, sizeof p.shape);
    tsr_stored *into = stored_of(o, &p);
    for (int k = 0; k < t->pieces_count; k++) adopt_piece(o, into, t->pieces[k], before);
  }
}

static bool take_part(tsr_checkpoint_writer *o, int writer, bool *ret_there, tsr_diags *diags) {
  enum { PART_BYTES_MAX = 1 << 30 };
  const char *path = part_path(o, writer, ".json");
  char *text;
  size_t length;
  tsr_manifest m;
  *ret_there = !access(path, F_OK);
  if (!access(part_path(o, writer, ".failed"), F_OK))
    return tsr_diag_failure(diags, TSR_NOWHERE, "process %d cannot write its part", writer);
  if (!*ret_there) return true;
  if (!tsr_file_read_nofollow(o->arena, path, PART_BYTES_MAX, TSR_NOWHERE, &text, &length, diags) ||
      !tsr_manifest_parse_part(o->arena, path, text, length, &m, diags))
    return false;
  adopt(o, &m);
  return tsr_disk_remove(path) || fails(o, NULL, errno, diags);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* In the folder, to see whether somebody still writes. */
static int64_t bytes_there(const tsr_checkpoint_writer *o) {
  DIR *folder = tsr_disk_open_folder(o->partial);
  struct stat info;
  int64_t sum = 0;
  for (struct dirent *e; folder && (e = readdir(folder));)
    if (!fstatat(dirfd(folder), e->d_name, &info, 0)) sum += info.st_size;
  if (folder) closedir(folder);
  return sum;
}

bool tsr_checkpoint_writer_wait_part(
    tsr_checkpoint_writer *o, int writer, double timeout_s, tsr_diags *diags) {
  static const double look_s = 0.25;
  double moved = now(), looked = moved;
  int64_t before = bytes_there(o);
  for (bool there = false; timeout_s <= 0 || looked - moved <= timeout_s;) {
    if (!take_part(o, writer, &there, diags)) return false;
    if (there) return true;
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    if (now() - looked < look_s) continue;
    int64_t bytes = bytes_there(o);
    looked = now();
    if (bytes != before) moved = looked;
    before = bytes;
  }
  return tsr_diag_failure(
      diags, TSR_NOWHERE, "process %d has not written its part: nothing came for %g s", writer,
      timeout_s);
}

/* ---- the end ---- */

bool tsr_checkpoint_writer_commit(
    tsr_checkpoint_writer *o, const tsr_manifest *about, tsr_diags *diags) {
  tsr_manifest m = *about;
  m.files = o->files;
  m.files_count = o->files_count;
  m.tensors = o->tensors;
  m.tensors_count = o->tensors_count;
  tsr_text text = {0};
  tsr_manifest_print(&m, &text);
  int files = o->files_count;
  bool ok = tsr_checkpoint_writer_bytes(o, TSR_MANIFEST_NAME, text.data, text.length, diags);
  o->files_count = files;
  tsr_text_free(&text);
  if (!ok) return false;
  tsr_arena *a = o->arena;
  const char *slash = strrchr(o->path, '/');
  const char *around = !slash ? "."
                       : slash == o->path
                           ? "/"
                           : tsr_arena_strndup(a, o->path, (size_t)(slash - o->path));
  if (!tsr_disk_sync_folder(o->partial) || !tsr_disk_rename(o->partial, o->path) ||
      !tsr_disk_sync_folder(around))
    return fails(o, NULL, errno, diags);
  tsr_folder_lock_release(&o->lock);
  return true;
}
