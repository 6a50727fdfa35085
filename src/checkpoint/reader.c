// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/reader.h"
#include "base/command_progress.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PORTION = 1 << 20 };

struct tsr_checkpoint_reader {
  tsr_arena *arena;
  const tsr_manifest *manifest;
  bool verify;
  int *fds; /* per file; they are closed by tsr_checkpoint_reader_close */
  char *portion;
  tsr_hasher *hasher;
};

static const char *path_of(const tsr_checkpoint_reader *in, int file) {
  return tsr_path_join(in->arena, in->manifest->folder, in->manifest->files[file].name);
}

static tsr_location place_of(const tsr_checkpoint_reader *in, int file) {
  return (tsr_location){.file = path_of(in, file)};
}

/* All bytes, or an error. */
static bool read_at(
    const tsr_checkpoint_reader *in, int file, int64_t offset, char *bytes, int64_t length,
    tsr_diags *diags) {
  while (length) {
    ptrdiff_t got = tsr_disk_read_at(in->fds[file], bytes, (size_t)length, offset);
    if (got <= 0)
      return tsr_diag_failure(
          diags, place_of(in, file), "cannot read byte %" PRId64 ": %s", offset,
          got ? tsr_file_reason(errno) : "the file ends there");
    bytes += got;
    offset += got;
    length -= got;
  }
  return true;
}

static bool check_length(const tsr_checkpoint_reader *in, int file, tsr_diags *diags) {
  const tsr_stored_file *f = &in->manifest->files[file];
  struct stat info;
  if (!fstat(in->fds[file], &info) && info.st_size == f->bytes) return true;
  return tsr_diag_failure(
      diags, place_of(in, file), "the file has %lld bytes, not %" PRId64 " as when it was written",
      (long long)info.st_size, f->bytes);
}

static bool check_header(const tsr_checkpoint_reader *in, int file, tsr_diags *diags) {
  const tsr_stored_file *f = &in->manifest->files[file];
  char hash[TSR_HASH_TEXT];
  tsr_hasher_begin(in->hasher);
  for (int64_t at = 0; at < f->header; at += PORTION) {
    int64_t part = f->header - at < PORTION ? f->header - at : PORTION;
    if (!read_at(in, file, at, in->portion, part, diags)) return false;
    tsr_hasher_add(in->hasher, in->portion, (size_t)part);
  }
  tsr_hasher_end(in->hasher, hash);
  if (!strcmp(hash, f->hash)) return true;
  return tsr_diag_failure(
      diags, place_of(in, file),
      "the file is damaged in its first %" PRId64 " bytes: hash %s, not %s", f->header, hash,
      f->hash);
}

static tsr_checkpoint_reader *new_input(tsr_arena *arena, const tsr_manifest *m, bool verify) {
  tsr_checkpoint_reader *in = tsr_arena_alloc(arena, sizeof *in);
  *in = (tsr_checkpoint_reader){.arena = arena, .manifest = m, .verify = verify};
  in->fds = tsr_arena_array(arena, int, m->files_count + 1);
  in->portion = tsr_arena_alloc(arena, PORTION);
  in->hasher = tsr_hasher_new(arena);
  for (int i = 0; i < m->files_count; i++) in->fds[i] = -1;
  return in;
}

static bool open_file(tsr_checkpoint_reader *in, int file, tsr_diags *diags) {
  in->fds[file] = tsr_file_open(path_of(in, file), TSR_FILE_NOFOLLOW);
  if (in->fds[file] < 0)
    return tsr_diag_failure(
        diags, place_of(in, file), "cannot read the checkpoint's file: %s", tsr_file_reason(errno));
  return check_length(in, file, diags) && (!in->verify || check_header(in, file, diags));
}

bool tsr_checkpoint_reader_open(
    tsr_arena *arena, const tsr_manifest *m, bool verify, tsr_checkpoint_reader **ret,
    tsr_diags *diags) {
  tsr_checkpoint_reader *in = *ret = new_input(arena, m, verify);
  bool ok = true;
  for (int i = 0; i < m->files_count; i++) ok &= open_file(in, i, diags);
  if (!ok) tsr_checkpoint_reader_close(in);
  return ok;
}

bool tsr_checkpoint_reader_check_sides(tsr_arena *arena, const tsr_manifest *m, tsr_diags *diags) {
  tsr_checkpoint_reader *in = new_input(arena, m, true);
  bool ok = true;
  for (int i = 0; i < m->files_count; i++)
    if (m->files[i].header == m->files[i].bytes) ok &= open_file(in, i, diags);
  tsr_checkpoint_reader_close(in);
  return ok;
}

void tsr_checkpoint_reader_close(tsr_checkpoint_reader *in) {
  for (int i = 0; i < in->manifest->files_count; i++) {
    if (in->fds[i] >= 0) close(in->fds[i]);
    in->fds[i] = -1;
  }
}

static bool damaged(
    const tsr_checkpoint_reader *in, const tsr_stored *t, const tsr_stored_piece *p,
    const char *hash, tsr_diags *diags) {
  return tsr_diag_failure(
      diags, place_of(in, p->file),
      "tensor '%s' is damaged: bytes %" PRId64 " to %" PRId64 " have hash %s, not %s", t->name,
      p->offset, p->offset + p->bytes, hash, p->hash);
}

/* One piece through the portion's memory. */
static bool read_piece(
    tsr_checkpoint_reader *in, const tsr_stored *t, const tsr_stored_piece *p,
    tsr_checkpoint_reader_portion *portion, void *context, tsr_diags *diags) {
  int64_t each = tsr_dtype_bytes(t->dtype);
  char hash[TSR_HASH_TEXT];
  tsr_hasher_begin(in->hasher);
  for (int64_t at = 0; at < p->bytes; at += PORTION) {
    int64_t part = p->bytes - at < PORTION ? p->bytes - at : PORTION;
    if (!read_at(in, p->file, p->offset + at, in->portion, part, diags)) return false;
    if (in->verify) tsr_hasher_add(in->hasher, in->portion, (size_t)part);
    if (portion) portion(context, p, at / each, part / each, in->portion);
  }
  if (!in->verify) return true;
  tsr_hasher_end(in->hasher, hash);
  return !strcmp(hash, p->hash) || damaged(in, t, p, hash, diags);
}

bool tsr_checkpoint_reader_read(
    tsr_checkpoint_reader *in, const tsr_stored *t,
    bool (*wanted)(void *, const tsr_stored_piece *), tsr_checkpoint_reader_portion *portion,
    void *context, tsr_diags *diags) {
  for (int i = 0; i < t->pieces_count; i++)
    if ((!wanted || wanted(context, &t->pieces[i])) &&
        !read_piece(in, t, &t->pieces[i], portion, context, diags))
      return false;
  return true;
}

static void count_portion(
    void *context, const tsr_stored_piece *piece, int64_t first, int64_t count,
    const void *elements) {
  const tsr_stored *t = context;
  (void)piece, (void)first, (void)elements;
  tsr_command_progress_add(count * tsr_dtype_bytes(t->dtype));
}

bool tsr_checkpoint_reader_verify(tsr_checkpoint_reader *in, tsr_diags *diags) {
  bool ok = true, verify = in->verify;
  in->verify = true;
  tsr_command_progress_begin("verifying", tsr_manifest_tensor_bytes(in->manifest), NULL);
  for (int i = 0; i < in->manifest->files_count; i++) ok &= check_header(in, i, diags);
  for (int i = 0; i < in->manifest->tensors_count; i++) {
    const tsr_stored *t = &in->manifest->tensors[i];
    for (int k = 0; k < t->pieces_count; k++)
      ok &= read_piece(in, t, &t->pieces[k], count_portion, (void *)(uintptr_t)t, diags);
  }
  tsr_command_progress_end();
  in->verify = verify;
  return ok;
}

/* ---- slices ---- */

/* Row-major place of an index in a slice. */
static int64_t
place_in(int ndim, const int64_t *index, const int64_t *begin, const int64_t *shape) {
  int64_t at = 0;
  for (int d = 0; d < ndim; d++) at = at * shape[d] + index[d] - begin[d];
  return at;
}

/* The whole tensor's index of a slice's element. */
static void
index_of(int ndim, int64_t at, const int64_t *begin, const int64_t *shape, int64_t *ret_index) {
  for (int d = ndim - 1; d >= 0; d--) {
    ret_index[d] = begin[d] + at % shape[d];
    at /= shape[d];
  }
}

/* Whether a row (an index over all dimensions but the last) crosses a slice. */
static bool row_in(int ndim, const int64_t *index, const int64_t *begin, const int64_t *shape) {
  for (int d = 0; d < ndim - 1; d++)
    if (index[d] < begin[d] || index[d] >= begin[d] + shape[d]) return false;
  return true;
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static void to_f32(const tsr_kernels *k, tsr_dtype from, float *out, const void *x, int64_t n) {
  if (from == TSR_BF16) k->bf16_to_f32(out, x, 0, n);
  else k->fp16_to_f32(out, x, 0, n);
}

/* n elements from one dtype to another one. */
static void
convert(const tsr_kernels *k, tsr_dtype from, const void *x, tsr_dtype to, char *out, int64_t n) {
  enum { PIECE = 1024 };
  float wide[PIECE];
  int64_t in_bytes = tsr_dtype_bytes(from), out_bytes = tsr_dtype_bytes(to);
  if (from == to) {
    memcpy(out, x, (size_t)(n * in_bytes));
    return;
  }
  for (int64_t at = 0; at < n; at += PIECE) {
    int64_t m = smaller(n - at, PIECE);
    const char *in = (const char *)x + at * in_bytes;
    if (from == TSR_F32) memcpy(wide, in, sizeof(float) * (size_t)m);
    else to_f32(k, from, wide, in, m);
    char *into = out + at * out_bytes;
    if (to == TSR_F32) memcpy(into, wide, sizeof(float) * (size_t)m);
    else if (to == TSR_BF16) k->f32_to_bf16((uint16_t *)into, wide, 0, m);
    else k->f32_to_fp16((uint16_t *)into, wide, 0, m);
  }
}

/* Row by row of the piece. */
void tsr_portion_copy(
    const tsr_kernels *kernels, const tsr_stored *t, const tsr_stored_piece *p, int64_t first,
    int64_t count, const void *elements, tsr_dtype dtype, const tsr_part_of_value *part) {
  const tsr_tensor_slice *slice = &part->slice;
  int ndim = t->ndim, last = t->ndim - 1;
  assert(slice->ndim == ndim);
  int64_t cols = p->shape[last], each = tsr_dtype_bytes(t->dtype), index[TSR_DIMS_MAX];
  for (int64_t at = first; at < first + count;) {
    int64_t end = smaller((at / cols + 1) * cols, first + count);
    index_of(ndim, at, p->begin, p->shape, index);
    int64_t from = larger(index[last], slice->offset[last]);
    int64_t to = smaller(index[last] + end - at, slice->offset[last] + slice->shape[last]);
    if (from < to && row_in(ndim, index, slice->offset, slice->shape)) {
      const char *x = (const char *)elements + (at - first + from - index[last]) * each;
      index[last] = from;
      int64_t into = place_in(ndim, index, slice->offset, slice->shape);
      into = into / part->run * part->stride + into % part->run;
      char *memory = (char *)part->address + into * tsr_dtype_bytes(dtype);
      convert(kernels, t->dtype, x, dtype, memory, to - from);
    }
    at = end;
  }
}

/* What a run of a slice's row has in common with a piece. */
static bool read_run(
    tsr_checkpoint_reader *in, const tsr_stored *t, const tsr_stored_piece *p, int64_t *index,
    int64_t length, char *out, tsr_diags *diags) {
  int last = t->ndim - 1;
  int64_t each = tsr_dtype_bytes(t->dtype), start = index[last];
  int64_t from = larger(start, p->begin[last]);
  int64_t to = smaller(start + length, p->begin[last] + p->shape[last]);
  if (from >= to || !row_in(t->ndim, index, p->begin, p->shape)) return true;
  index[last] = from;
  int64_t at = place_in(t->ndim, index, p->begin, p->shape);
  index[last] = start;
  return read_at(
      in, p->file, p->offset + at * each, out + (from - start) * each, (to - from) * each, diags);
}

/* Whether elements that follow each other in a slice follow each other in the piece, too. */
static bool same_rows(
    const tsr_stored *t, const tsr_stored_piece *p, const int64_t *begin, const int64_t *shape) {
  for (int d = 1; d < t->ndim; d++)
    if (p->begin[d] != begin[d] || p->shape[d] != shape[d]) return false;
  return p->begin[0] <= begin[0] && begin[0] + shape[0] <= p->begin[0] + p->shape[0];
}

bool tsr_checkpoint_reader_read_slice(
    tsr_checkpoint_reader *in, const tsr_stored *t, const int64_t *begin, const int64_t *shape,
    int64_t first, int64_t count, void *ret, tsr_diags *diags) {
  int last = t->ndim - 1;
  int64_t each = tsr_dtype_bytes(t->dtype), index[TSR_DIMS_MAX];
  for (int i = 0; i < t->pieces_count; i++) {
    const tsr_stored_piece *p = &t->pieces[i];
    if (!same_rows(t, p, begin, shape)) continue;
    index_of(t->ndim, first, begin, shape, index);
    int64_t at = place_in(t->ndim, index, p->begin, p->shape);
    return read_at(in, p->file, p->offset + at * each, ret, count * each, diags);
  }
  for (int64_t at = first; at < first + count;) {
    int64_t end = smaller((at / shape[last] + 1) * shape[last], first + count);
    index_of(t->ndim, at, begin, shape, index);
    for (int i = 0; i < t->pieces_count; i++)
      if (!read_run(
              in, t, &t->pieces[i], index, end - at, (char *)ret + (at - first) * each, diags))
        return false;
    at = end;
  }
  return true;
}
