// SPDX-License-Identifier: Apache-2.0
#include "data/idx_images.h"
#include "data/text_files.h"
#include "base/file_read.h"

enum { MAGIC_LABELS = 0x801, MAGIC_IMAGES = 0x803 }; /* unsigned bytes of 1 and of 3 dimensions */

typedef struct {
  const char *path;
  const uint8_t *bytes; /* after the header */
  int64_t dims[3];
} idx_file;

static uint32_t big_endian(const uint8_t *at) {
  return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* The dimensions' product, or -1 when it is more than any file holds. */
static int64_t product(const int64_t dims[3], int ndim) {
  int64_t size = 1;
  for (int i = 0; i < ndim; i++)
    if (__builtin_mul_overflow(size, dims[i], &size) || size > INT64_C(1) << 48) return -1;
  return size;
}

static bool read_idx(
    tsr_arena *arena, const char *path, uint32_t magic, tsr_location location, idx_file *ret_file,
    tsr_diags *diags) {
  const char *kind = magic == MAGIC_IMAGES ? "images" : "labels";
  int ndim = (int)(magic & 0xff);
  char *text;
  size_t length, header = 4 + 4 * (size_t)ndim;
  if (!tsr_text_file_check(path, location, diags) ||
      !tsr_file_read(arena, path, (size_t)1 << 40, location, &text, &length, diags))
    return false;
  const uint8_t *bytes = (const uint8_t *)text;
  if (length < header || big_endian(bytes) != magic) {
    tsr_diag_error(
        diags, location, "'%s' is not an IDX file of %s: it must start with 0x%08x", path, kind,
        magic);
    if (length > 2 && bytes[0] == 0x1f && bytes[1] == 0x8b)
      tsr_diag_hint(diags, "it is compressed: run gunzip on it first");
    return false;
  }
  idx_file file = {.path = path, .bytes = bytes + header};
  for (int i = 0; i < ndim; i++) file.dims[i] = big_endian(bytes + 4 + 4 * i);
  int64_t size = product(file.dims, ndim);
  if (size < 0 || (uint64_t)size != length - header)
    return tsr_diag_error(
        diags, location, "'%s' holds %zu bytes after its header, which speaks of %s%lld", path,
        length - header, size < 0 ? "more than " : "",
        size < 0 ? (long long)INT64_C(1) << 48 : (long long)size);
  *ret_file = file;
  return true;
}

bool tsr_images_read(
    tsr_arena *arena, const char *images_path, const char *labels_path, tsr_location location,
    tsr_table *ret_table, tsr_diags *diags) {
  idx_file images = {0}, labels = {0};
  bool ok = read_idx(arena, images_path, MAGIC_IMAGES, location, &images, diags);
  ok &= read_idx(arena, labels_path, MAGIC_LABELS, location, &labels, diags);
  if (!ok) return false;
  if (images.dims[0] != labels.dims[0])
    return tsr_diag_error(
        diags, location, "'%s' holds %lld images, but '%s' holds %lld labels", images_path,
        (long long)images.dims[0], labels_path, (long long)labels.dims[0]);
  tsr_table table = {
      .rows = images.dims[0],
      .features = images.dims[1] * images.dims[2],
      .pixels = images.bytes,
  };
  if (!table.rows || !table.features)
    return tsr_diag_error(diags, location, "'%s' holds no images", images_path);
  int32_t *classes = tsr_arena_array(arena, int32_t, table.rows);
  for (int64_t i = 0; i < table.rows; i++) {
    classes[i] = labels.bytes[i];
    if (classes[i] >= table.classes) table.classes = classes[i] + 1;
  }
  table.labels = classes;
  *ret_table = table;
  return true;
}
