// SPDX-License-Identifier: Apache-2.0
/* The index of Megatron's token files (megatron/core/datasets/indexed_dataset.py):
 *
 *   "MMIDIDX\0\0", u64 version 1, u8 type, u64 sequences S, u64 entries D,
 *   i32 lengths[S], i64 pointers[S], i64 documents[D], optional i8 modes[S]
 *
 * A pointer is the byte in the .bin where a sequence begins; the documents are the numbers of the
 * sequences that they begin with, and behind the last one the number of all sequences. The arrays
 * begin at byte 34, so nothing in them is aligned. */
#include "data/token_files.h"
#include <string.h>

static const int64_t BYTES_MAX = INT64_C(1) << 60; /* more than any file holds */
enum { MAGIC_BYTES = 9, TYPE_AT = 17, SEQUENCES_AT = 18, ENTRIES_AT = 26, HEADER_BYTES = 34 };

typedef struct {
  const char *path;
  tsr_location location;
  tsr_diags *diags;
  const uint8_t *bytes;
  size_t length;
  const uint8_t *lengths;
} reader;

static int64_t get_i64(const uint8_t *at) {
  int64_t value;
  memcpy(&value, at, sizeof value);
  return value;
}

static int32_t get_i32(const uint8_t *at) {
  int32_t value;
  memcpy(&value, at, sizeof value);
  return value;
}

static bool read_type(const reader *r, tsr_token_type *ret_type) {
  static const char *const names[] = {"",      "uint8",   "int8",    "int16", "int32",
                                      "int64", "float64", "float32", "uint16"};
  int code = r->bytes[TYPE_AT];
  *ret_type = code == 8 ? TSR_TOKEN_U16 : TSR_TOKEN_I32;
  if (code == 4 || code == 8) return true;
  bool known = code > 0 && code < 9;
  tsr_diag_error(
      r->diags, r->location, "'%s', byte %d: tokens of type %d%s%s%s are not read", r->path,
      TYPE_AT, code, known ? " (" : "", known ? names[code] : "", known ? ")" : "");
  tsr_diag_hint(r->diags, "read are 8 (uint16) and 4 (int32)");
  return false;
}

static bool read_header(const reader *r, tsr_megatron_index *ret) {
  size_t magic = r->length < MAGIC_BYTES ? r->length : MAGIC_BYTES;
  if (memcmp(r->bytes, "MMIDIDX\0\0", magic) != 0)
    return tsr_diag_error(
        r->diags, r->location, "'%s' is no index of Megatron: it does not begin with MMIDIDX",
        r->path);
  if (r->length < HEADER_BYTES)
    return tsr_diag_error(
        r->diags, r->location, "'%s' is cut off: it ends at byte %zu, in its header of %d bytes",
        r->path, r->length, HEADER_BYTES);
  uint64_t version = (uint64_t)get_i64(r->bytes + MAGIC_BYTES);
  if (version != 1)
    return tsr_diag_error(
        r->diags, r->location, "'%s', byte %d: the index has version %llu; read is version 1",
        r->path, MAGIC_BYTES, (unsigned long long)version);
  if (!read_type(r, &ret->type)) return false;
  ret->sequences = get_i64(r->bytes + SEQUENCES_AT);
  ret->entries = get_i64(r->bytes + ENTRIES_AT);
  return true;
}

/* The header's counts against the file's size. */
static bool check_size(const reader *r, const tsr_megatron_index *index) {
  const int64_t most = BYTES_MAX / 32;
  bool sane = index->sequences >= 0 && index->sequences <= most && index->entries >= 0 &&
              index->entries <= most;
  int64_t end = sane ? HEADER_BYTES + 12 * index->sequences + 8 * index->entries : 0;
  bool fits = sane && ((int64_t)r->length == end || (int64_t)r->length == end + index->sequences);
  if (fits) return true;
  bool cut = !sane || (int64_t)r->length < end;
  tsr_diag_error(
      r->diags, r->location,
      "'%s' %s at byte %zu, but the %llu sequences (byte %d) and %llu document entries (byte %d) "
      "of its header%s",
      r->path, cut ? "is cut off: it ends" : "ends", r->length,
      (unsigned long long)index->sequences, SEQUENCES_AT, (unsigned long long)index->entries,
      ENTRIES_AT, sane ? "" : " are more than a file holds");
  if (sane) tsr_diag_hint(r->diags, "they end at byte %lld", (long long)end);
  return false;
}

/* Each sequence begins where the one before it ends. */
static bool check_sequences(const reader *r, tsr_megatron_index *index) {
  int64_t bytes = 0, width = tsr_token_bytes(index->type);
  for (int64_t i = 0; i < index->sequences; i++) {
    int32_t length = get_i32(r->lengths + 4 * i);
    int64_t pointer = get_i64(index->pointers + 8 * i);
    if (length < 0)
      return tsr_diag_error(
          r->diags, r->location, "'%s', byte %lld: sequence %lld has a length of %d", r->path,
          (long long)(r->lengths + 4 * i - r->bytes), (long long)i, length);
    if (pointer != bytes)
      return tsr_diag_error(
          r->diags, r->location,
          "'%s', byte %lld: sequence %lld begins at byte %lld, but those before it end at byte "
          "%lld",
          r->path, (long long)(index->pointers + 8 * i - r->bytes), (long long)i,
          (long long)pointer, (long long)bytes);
    bytes += length * width;
    if (bytes > BYTES_MAX)
      return tsr_diag_error(
          r->diags, r->location, "'%s': sequences 0 to %lld take more bytes than a file holds",
          r->path, (long long)i);
  }
  index->tokens = bytes / width;
  return true;
}

static bool check_documents(const reader *r, const tsr_megatron_index *index) {
  int64_t before = 0;
  for (int64_t i = 0; i < index->entries; i++) {
    int64_t begin = get_i64(index->documents + 8 * i);
    long long at = (long long)(index->documents + 8 * i - r->bytes);
    if (begin < before)
      return tsr_diag_error(
          r->diags, r->location,
          "'%s', byte %lld: document %lld begins with sequence %lld, but the one before it with "
          "%lld",
          r->path, at, (long long)i, (long long)begin, (long long)before);
    if (begin > index->sequences)
      return tsr_diag_error(
          r->diags, r->location,
          "'%s', byte %lld: document %lld begins with sequence %lld, but there are %lld", r->path,
          at, (long long)i, (long long)begin, (long long)index->sequences);
    before = begin;
  }
  return true;
}

bool tsr_megatron_index_read(
    const char *path, const void *bytes, size_t length, tsr_location location,
    tsr_megatron_index *ret_index, tsr_diags *diags) {
  reader r = {path, location, diags, bytes, length, NULL};
  *ret_index = (tsr_megatron_index){0};
  if (!read_header(&r, ret_index) || !check_size(&r, ret_index)) return false;
  r.lengths = r.bytes + HEADER_BYTES;
  ret_index->pointers = r.lengths + 4 * ret_index->sequences;
  ret_index->documents = ret_index->pointers + 8 * ret_index->sequences;
  return check_sequences(&r, ret_index) && check_documents(&r, ret_index);
}

/* The token that a document begins with. */
static int64_t document_token(const tsr_megatron_index *index, int64_t entry) {
  int64_t sequence = get_i64(index->documents + 8 * entry);
  if (sequence == index->sequences) return index->tokens;
  return get_i64(index->pointers + 8 * sequence) / tsr_token_bytes(index->type);
}

static int64_t document_begin(const tsr_token_file *file, int64_t entry) {
  return file->index ? document_token(file->index, entry) : file->begins[entry];
}

bool tsr_token_file_has_documents(const tsr_token_file *file) {
  return (file->index ? file->index->entries : file->begins_count) > 0;
}

int64_t tsr_token_file_next_document(const tsr_token_file *file, int64_t at) {
  int64_t low = 0, high = file->index ? file->index->entries : file->begins_count;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (document_begin(file, middle) <= at) low = middle + 1;
    else high = middle;
  }
  int64_t count = low < (file->index ? file->index->entries : file->begins_count)
                      ? document_begin(file, low)
                      : file->count;
  return count < file->count ? count : file->count;
}
