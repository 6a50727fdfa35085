// SPDX-License-Identifier: Apache-2.0
/* A checkpoint in other pieces. */
#include "checkpoint/checkpoint_commands.h"
#include "base/command_progress.h"
#include "checkpoint/folder_writer.h"
#include "base/file_read.h"
#include <string.h>

enum { PORTION = 1 << 20 };

/* Rows of dimension 0 that shard i of n has: the first ones have one more where it does not
 * divide. */
static void rows_of(int64_t rows, int64_t i, int64_t n, int64_t *ret_begin, int64_t *ret_count) {
  int64_t each = rows / n, more = rows % n;
  *ret_begin = i * each + (i < more ? i : more);
  *ret_count = each + (i < more);
}

static int pieces_of(
    const tsr_manifest *m, int64_t shard, int64_t shards, tsr_checkpoint_writer_piece *pieces,
    const tsr_stored **ret_tensors) {
  int count = 0;
  for (int i = 0; i < m->tensors_count; i++) {
    const tsr_stored *t = &m->tensors[i];
    tsr_checkpoint_writer_piece p = {t->name, t->dtype, t->ndim};
    memcpy(p.shape, t->shape, sizeof p.shape);
    memcpy(p.piece, t->shape, sizeof p.piece);
    rows_of(t->shape[0], shard, shards, &p.begin[0], &p.piece[0]);
    if (!p.piece[0] && (shard || t->shape[0])) continue; /* one without rows is in the first file */
    ret_tensors[count] = t;
    pieces[count++] = p;
  }
  return count;
}

static bool copy_piece(
    tsr_checkpoint_reader *in, const tsr_stored *t, const tsr_checkpoint_writer_piece *p,
    char *portion, tsr_checkpoint_writer *out, tsr_diags *diags) {
  int64_t n = tsr_stored_elements(p->ndim, p->piece), each = tsr_dtype_bytes(p->dtype);
  for (int64_t at = 0; at < n; at += PORTION / each) {
    int64_t count = n - at < PORTION / each ? n - at : PORTION / each;
    if (!tsr_checkpoint_reader_read_slice(in, t, p->begin, p->piece, at, count, portion, diags) ||
        !tsr_checkpoint_writer_data(out, portion, (size_t)(count * each), diags))
      return false;
    tsr_command_progress_add(count * each);
  }
  return true;
}

/* What one shard after the other is copied with. */
typedef struct {
  tsr_checkpoint_writer_piece *pieces;
  const tsr_stored **tensors;
  char *portion;
} room;

static bool copy_shard(
    tsr_arena *arena, tsr_checkpoint_reader *in, const tsr_manifest *m, int64_t shard,
    int64_t shards, room r, tsr_checkpoint_writer *out, tsr_diags *diags) {
  int count = pieces_of(m, shard, shards, r.pieces, r.tensors);
  const char *name = tsr_arena_printf(arena, "rank-%05lld.safetensors", (long long)shard);
  if (!count) return true;
  if (!tsr_checkpoint_writer_tensors(out, name, r.pieces, count, diags)) return false;
  for (int i = 0; i < count; i++)
    if (!copy_piece(in, r.tensors[i], &r.pieces[i], r.portion, out, diags)) return false;
  return tsr_checkpoint_writer_end_tensors(out, diags);
}

/* No more than the tensor with the most rows can be split into. */
static int64_t files_of(const tsr_manifest *m, int64_t shards) {
  int64_t rows = 1;
  for (int i = 0; i < m->tensors_count; i++)
    if (m->tensors[i].shape[0] > rows) rows = m->tensors[i].shape[0];
  return shards < rows ? shards : rows;
}

/* Files without tensors go along as they are. */
static bool
copy_others(tsr_arena *arena, const tsr_manifest *m, tsr_checkpoint_writer *out, tsr_diags *diags) {
  for (int i = 0; i < m->files_count; i++) {
    const tsr_stored_file *f = &m->files[i];
    size_t length = strlen(f->name), ending = strlen(".safetensors");
    if (length > ending && !strcmp(f->name + length - ending, ".safetensors")) continue;
    if (!tsr_checkpoint_writer_copy(
            out, f->name, tsr_path_join(arena, m->folder, f->name), TSR_FILE_NOFOLLOW, diags))
      return false;
  }
  return true;
}

bool tsr_checkpoint_reshard(
    tsr_arena *arena, const tsr_manifest *m, int64_t shards, const char *out_folder,
    int64_t *ret_files, tsr_diags *diags) {
  int64_t files = *ret_files = files_of(m, shards);
  room r = {
      tsr_arena_array(arena, tsr_checkpoint_writer_piece, m->tensors_count + 1),
      tsr_arena_array(arena, const tsr_stored *, m->tensors_count + 1),
      tsr_arena_alloc(arena, PORTION)};
  tsr_checkpoint_reader *in;
  tsr_checkpoint_writer *out;
  if (!tsr_checkpoint_reader_open(arena, m, true, &in, diags)) return false;
  bool ok = tsr_checkpoint_reader_verify(in, diags);
  if (!ok || !tsr_checkpoint_writer_begin(arena, out_folder, NULL, NULL, &out, diags)) {
    tsr_checkpoint_reader_close(in);
    return false;
  }
  tsr_command_progress_begin("writing", tsr_manifest_tensor_bytes(m), NULL);
  for (int64_t i = 0; ok && i < files; i++) ok = copy_shard(arena, in, m, i, files, r, out, diags);
  tsr_command_progress_end();
  ok = ok && copy_others(arena, m, out, diags) && tsr_checkpoint_writer_commit(out, m, diags);
  if (!ok) tsr_checkpoint_writer_abandon(out);
  tsr_checkpoint_reader_close(in);
  return ok;
}
