// SPDX-License-Identifier: Apache-2.0
#include "data/token_writer.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include "data/overwrite_check.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 20 };

typedef struct {
  tsr_new_file file;
  char *buffer; /* NULL: there is none */
  size_t filled;
} output;

struct tsr_token_writer {
  tsr_arena *arena;
  tsr_tokens_as as;
  bool is_wide;
  output tokens, index;
  int64_t count, document_begin, documents;
};

static bool cannot_write(const output *o, tsr_diags *diags) {
  return tsr_diag_failure(
      diags, TSR_NOWHERE, "cannot write '%s': %s", o->file.path, strerror(errno));
}

static bool open_output(tsr_arena *arena, const char *path, output *ret, tsr_diags *diags) {
  *ret = (output){.buffer = tsr_arena_alloc(arena, BUFFER_BYTES), .file.fd = -1};
  return tsr_new_file_open(path, &ret->file, diags);
}

static bool flush_output(output *o, tsr_diags *diags) {
  if (o->filled && !tsr_new_file_write(&o->file, o->buffer, o->filled, diags)) return false;
  o->filled = 0;
  return true;
}

static bool put(output *o, const void *bytes, size_t length, tsr_diags *diags) {
  const char *from = bytes;
  while (length) {
    size_t room = BUFFER_BYTES - o->filled, part = length < room ? length : room;
    memcpy(o->buffer + o->filled, from, part);
    o->filled += part;
    from += part;
    length -= part;
    if (o->filled == BUFFER_BYTES && !flush_output(o, diags)) return false;
  }
  return true;
}

/* The header, which stands before what was written already. */
static bool put_header(output *o, const void *bytes, size_t length, tsr_diags *diags) {
  if (!flush_output(o, diags)) return false;
  if (lseek(o->file.fd, 0, SEEK_SET) < 0) return cannot_write(o, diags);
  return tsr_new_file_write(&o->file, bytes, length, diags);
}

bool tsr_token_writer_open(
    tsr_arena *arena, const char *path, tsr_tokens_as as, bool is_wide, bool overwrites,
    tsr_token_writer **ret, tsr_diags *diags) {
  static const char zeros[TSR_LLMC_HEADER_BYTES];
  tsr_token_writer *w = tsr_arena_array(arena, tsr_token_writer, 1);
  *w = (tsr_token_writer){.arena = arena, .as = as, .is_wide = is_wide};
  w->tokens.file.fd = w->index.file.fd = -1;
  bool pair = as == TSR_TOKENS_AS_MEGATRON;
  size_t length = strlen(path);
  if (pair && length > 4 &&
      (!strcmp(path + length - 4, ".bin") || !strcmp(path + length - 4, ".idx")))
    length -= 4;
  const char *base = tsr_arena_strndup(arena, path, length);
  const char *bin = pair ? tsr_arena_printf(arena, "%s.bin", base) : base;
  const char *idx = pair ? tsr_arena_printf(arena, "%s.idx", base) : NULL;
  bool ok = (overwrites || tsr_tokens_check_replaced(bin, idx, as, diags)) &&
            open_output(arena, bin, &w->tokens, diags);
  if (ok && as == TSR_TOKENS_AS_LLMC) ok = put(&w->tokens, zeros, sizeof zeros, diags);
  if (ok && pair)
    ok = open_output(arena, idx, &w->index, diags) &&
         put(&w->index, zeros, TSR_MEGATRON_HEADER_BYTES, diags);
  if (!ok) tsr_token_writer_abandon(w);
  *ret = ok ? w : NULL;
  return ok;
}

bool tsr_token_writer_add(
    tsr_token_writer *w, const void *tokens, int64_t count, tsr_diags *diags) {
  w->count += count;
  if (w->as == TSR_TOKENS_AS_LLMC && w->count > INT32_MAX) {
    tsr_diag_error(
        diags, TSR_NOWHERE,
        "'%s' would have more than %d tokens, the most that llm.c's header counts",
        w->tokens.file.path, INT32_MAX);
    tsr_diag_hint(diags, "write several files, or --format nanogpt or megatron");
    return false;
  }
  return put(&w->tokens, tokens, (size_t)count * (w->is_wide ? 4 : 2), diags);
}

bool tsr_token_writer_end_document(tsr_token_writer *w, tsr_diags *diags) {
  int64_t length = w->count - w->document_begin;
  w->document_begin = w->count;
  w->documents++;
  if (w->as != TSR_TOKENS_AS_MEGATRON) return true;
  if (length > INT32_MAX)
    return tsr_diag_error(
        diags, TSR_NOWHERE, "document %lld has %lld tokens; Megatron's index takes at most %d",
        (long long)w->documents, (long long)length, INT32_MAX);
  int32_t number = (int32_t)length;
  return put(&w->index, &number, sizeof number, diags);
}

/* The pointers are the sums of the lengths before them, which are read again from the file: they
 * may be more than memory is meant to hold. */
static bool put_pointers(tsr_token_writer *w, tsr_diags *diags) {
  enum { MOST = 4096 };
  if (!flush_output(&w->index, diags)) return false;
  int fd = tsr_disk_open(w->index.file.temporary, O_RDONLY);
  int32_t lengths[MOST];
  int64_t pointer = 0;
  bool ok = fd >= 0 || cannot_write(&w->index, diags);
  for (int64_t i = 0; ok && i < w->documents;) {
    int64_t count = w->documents - i < MOST ? w->documents - i : MOST;
    ssize_t want = count * (ssize_t)sizeof *lengths;
    ok = tsr_disk_read_at(
             fd, lengths, (size_t)want, TSR_MEGATRON_HEADER_BYTES + i * (int64_t)sizeof *lengths) ==
             want ||
         cannot_write(&w->index, diags);
    for (int64_t k = 0; ok && k < count; k++) {
      ok = put(&w->index, &pointer, sizeof pointer, diags);
      pointer += (int64_t)lengths[k] * (w->is_wide ? 4 : 2);
    }
    i += count;
  }
  if (fd >= 0) close(fd);
  return ok;
}

static bool finish_index(tsr_token_writer *w, tsr_diags *diags) {
  uint8_t header[TSR_MEGATRON_HEADER_BYTES] = "MMIDIDX\0\0";
  uint64_t version = 1, sequences = (uint64_t)w->documents, entries = sequences + 1;
  memcpy(header + 9, &version, 8);
  header[17] = w->is_wide ? 4 : 8;
  memcpy(header + 18, &sequences, 8);
  memcpy(header + 26, &entries, 8);
  bool ok = put_pointers(w, diags);
  for (int64_t i = 0; ok && i <= w->documents; i++) ok = put(&w->index, &i, sizeof i, diags);
  return ok && put_header(&w->index, header, sizeof header, diags);
}

static bool finish_llmc(tsr_token_writer *w, tsr_diags *diags) {
  int32_t header[TSR_LLMC_HEADER_BYTES / 4] = {
      w->is_wide ? TSR_LLMC_MAGIC_U32 : TSR_LLMC_MAGIC_U16, w->is_wide ? 7 : 1, (int32_t)w->count};
  return put_header(&w->tokens, header, sizeof header, diags);
}

bool tsr_token_writer_finish(tsr_token_writer *w, tsr_new_file *beside, tsr_diags *diags) {
  tsr_new_file *files[TSR_NEW_FILES_MAX] = {&w->tokens.file};
  int count = 1;
  bool ok = flush_output(&w->tokens, diags);
  if (ok && w->as == TSR_TOKENS_AS_LLMC) ok = finish_llmc(w, diags);
  if (ok && w->as == TSR_TOKENS_AS_MEGATRON) ok = finish_index(w, diags);
  ok = ok && flush_output(&w->index, diags);
  if (w->index.buffer) files[count++] = &w->index.file;
  if (beside) files[count++] = beside;
  ok = ok && tsr_new_files_commit(files, count, diags);
  if (!ok) tsr_token_writer_abandon(w);
  if (!ok && beside) tsr_new_file_drop(beside);
  return ok;
}

void tsr_token_writer_abandon(tsr_token_writer *w) {
  if (!w) return;
  tsr_new_file_drop(&w->tokens.file);
  tsr_new_file_drop(&w->index.file);
}

int64_t tsr_token_writer_tokens(const tsr_token_writer *w) { return w->count; }
const char *tsr_token_writer_path(const tsr_token_writer *w) { return w->tokens.file.path; }
