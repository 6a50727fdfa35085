// SPDX-License-Identifier: Apache-2.0
#include "reference_file.h"
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const char *name; /* in the header's JSON */
  bool is_f32;      /* else I64 */
  int ndim;
  int64_t shape[TSR_REFERENCE_DIMS_MAX], elements, begin, end; /* begin, end: bytes in the data */
  int32_t *narrow; /* of tsr_reference_i32, made when asked for */
} entry;

struct tsr_reference {
  char *path;
  unsigned char *bytes; /* the whole file */
  unsigned char *data;  /* its tensors, copied so that they are aligned */
  int64_t data_bytes;
  cJSON *header;
  entry *entries;
  int entries_count;
};

/* A broken reference file is a bug of the tree, so it ends the test like an assertion. */
static void must(bool ok, const char *path, const char *subject, const char *problem) {
  if (ok) return;
  fprintf(stderr, "%s: '%s': %s\n", path, subject, problem);
  abort();
}

static int64_t file_read(const char *path, unsigned char **ret_bytes) {
  FILE *file = fopen(path, "rb");
  must(file != NULL, path, "file", "cannot be opened");
  must(fseek(file, 0, SEEK_END) == 0, path, "file", "cannot be measured");
  long length = ftell(file);
  must(length >= 8 && fseek(file, 0, SEEK_SET) == 0, path, "file", "is shorter than 8 bytes");
  *ret_bytes = malloc((size_t)length);
  must(*ret_bytes != NULL, path, "file", "does not fit in memory");
  must(
      fread(*ret_bytes, 1, (size_t)length, file) == (size_t)length, path, "file", "cannot be read");
  fclose(file);
  return length;
}

static int64_t whole_number(const char *path, const char *name, const cJSON *item) {
  must(cJSON_IsNumber(item), path, name, "a size or an offset is not a number");
  double value = item->valuedouble;
  must(
      value >= 0 && value <= 1e9 && value == floor(value), path, name,
      "a size or an offset is not a whole number from 0 to 1e9");
  return (int64_t)value;
}

static void shape_read(const char *path, const cJSON *shape, entry *e) {
  must(cJSON_IsArray(shape), path, e->name, "has no shape");
  must(
      cJSON_GetArraySize(shape) <= TSR_REFERENCE_DIMS_MAX, path, e->name,
      "has too many dimensions");
  const cJSON *size;
  e->elements = 1;
  cJSON_ArrayForEach(size, shape) {
    e->shape[e->ndim] = whole_number(path, e->name, size);
    must(e->shape[e->ndim] > 0, path, e->name, "has a dimension of size 0");
    e->elements *= e->shape[e->ndim++];
    must(e->elements <= 1000000000, path, e->name, "has more than 1e9 elements");
  }
}

static void entry_read(tsr_reference *ref, const cJSON *item, entry *e) {
  const char *path = ref->path;
  e->name = item->string;
  must(cJSON_IsObject(item) && cJSON_GetArraySize(item) == 3, path, e->name, "is not 3 fields");
  const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(item, "dtype");
  must(cJSON_IsString(dtype), path, e->name, "has no dtype");
  e->is_f32 = !strcmp(dtype->valuestring, "F32");
  must(e->is_f32 || !strcmp(dtype->valuestring, "I64"), path, e->name, "is neither F32 nor I64");
  shape_read(path, cJSON_GetObjectItemCaseSensitive(item, "shape"), e);

  const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(item, "data_offsets");
  must(cJSON_IsArray(offsets) && cJSON_GetArraySize(offsets) == 2, path, e->name, "has no offsets");
  int64_t element_bytes = e->is_f32 ? 4 : 8;
  e->begin = whole_number(path, e->name, cJSON_GetArrayItem(offsets, 0));
  e->end = whole_number(path, e->name, cJSON_GetArrayItem(offsets, 1));
  must(e->begin % element_bytes == 0, path, e->name, "is not aligned");
  must(
      e->end - e->begin == e->elements * element_bytes, path, e->name,
      "has offsets unlike its shape");
  must(e->end <= ref->data_bytes, path, e->name, "goes beyond the end of the file");
}

static void metadata_check(const char *path, const cJSON *metadata) {
  must(cJSON_IsObject(metadata), path, "__metadata__", "is not an object");
  const cJSON *item;
  cJSON_ArrayForEach(item, metadata) {
    must(cJSON_IsString(item), path, "__metadata__", "holds something other than texts");
  }
}

static int entry_compare(const void *a, const void *b) {
  int64_t left = ((const entry *)a)->begin, right = ((const entry *)b)->begin;
  return (left > right) - (left < right);
}

/* All entries, sorted by offset, which is also the order in which the writer lists them. */
static void entries_read(tsr_reference *ref) {
  ref->entries = calloc((size_t)cJSON_GetArraySize(ref->header) + 1, sizeof *ref->entries);
  must(ref->entries != NULL, ref->path, "header", "does not fit in memory");
  const cJSON *item;
  cJSON_ArrayForEach(item, ref->header) {
    if (!strcmp(item->string, "__metadata__")) {
      metadata_check(ref->path, item);
      continue;
    }
    must(!tsr_reference_has(ref, item->string), ref->path, item->string, "is there twice");
    entry_read(ref, item, &ref->entries[ref->entries_count]);
    ref->entries_count++;
  }
  qsort(ref->entries, (size_t)ref->entries_count, sizeof *ref->entries, entry_compare);
  int64_t covered = 0;
  for (int i = 0; i < ref->entries_count; i++) {
    const entry *e = &ref->entries[i];
    must(e->begin == covered, ref->path, e->name, "leaves a hole or overlaps the tensor before it");
    covered = e->end;
  }
  must(covered == ref->data_bytes, ref->path, "file", "has bytes after the last tensor");
}

tsr_reference *tsr_reference_open(const char *path) {
  tsr_reference *ref = calloc(1, sizeof *ref);
  must(ref != NULL, path, "file", "does not fit in memory");
  ref->path = strdup(path);
  must(ref->path != NULL, path, "file", "does not fit in memory");
  int64_t file_bytes = file_read(path, &ref->bytes);
  uint64_t header_bytes = 0;
  for (int i = 7; i >= 0; i--) header_bytes = header_bytes << 8 | ref->bytes[i];
  must(header_bytes <= (uint64_t)file_bytes - 8, path, "header", "is longer than the file");

  const char *header = (const char *)ref->bytes + 8, *header_end = NULL;
  must(header_bytes > 0 && header[0] == '{', path, "header", "does not start with '{'");
  ref->header = cJSON_ParseWithLengthOpts(header, (size_t)header_bytes, &header_end, false);
  must(cJSON_IsObject(ref->header), path, "header", "is not a JSON object");
  while (header_end < header + header_bytes && *header_end == ' ') header_end++;
  must(header_end == header + header_bytes, path, "header", "has text after its object");

  ref->data_bytes = file_bytes - 8 - (int64_t)header_bytes;
  ref->data = malloc((size_t)ref->data_bytes + 1);
  must(ref->data != NULL, path, "file", "does not fit in memory");
  memcpy(ref->data, header + header_bytes, (size_t)ref->data_bytes);
  entries_read(ref);
  return ref;
}

void tsr_reference_close(tsr_reference *ref) {
  if (!ref) return;
  for (int i = 0; i < ref->entries_count; i++) free(ref->entries[i].narrow);
  free(ref->entries);
  cJSON_Delete(ref->header);
  free(ref->data);
  free(ref->bytes);
  free(ref->path);
  free(ref);
}

int tsr_reference_count(const tsr_reference *ref) { return ref->entries_count; }

const char *tsr_reference_name(const tsr_reference *ref, int i) {
  must(i >= 0 && i < ref->entries_count, ref->path, "tensor number", "is out of range");
  return ref->entries[i].name;
}

static entry *entry_find(const tsr_reference *ref, const char *name) {
  for (int i = 0; i < ref->entries_count; i++)
    if (!strcmp(ref->entries[i].name, name)) return &ref->entries[i];
  return NULL;
}

static entry *
entry_get(const tsr_reference *ref, const char *name, int *ret_ndim, int64_t *ret_shape) {
  entry *e = entry_find(ref, name);
  must(e != NULL, ref->path, name, "is not in the file");
  if (ret_ndim) *ret_ndim = e->ndim;
  if (ret_shape) memcpy(ret_shape, e->shape, sizeof e->shape);
  return e;
}

bool tsr_reference_has(const tsr_reference *ref, const char *name) {
  return entry_find(ref, name) != NULL;
}

int64_t tsr_reference_elements(const tsr_reference *ref, const char *name) {
  return entry_get(ref, name, NULL, NULL)->elements;
}

const float *tsr_reference_f32(
    const tsr_reference *ref, const char *name, int *ret_ndim,
    int64_t ret_shape[TSR_REFERENCE_DIMS_MAX]) {
  const entry *e = entry_get(ref, name, ret_ndim, ret_shape);
  must(e->is_f32, ref->path, name, "is not F32");
  return (const float *)(const void *)(ref->data + e->begin);
}

const int64_t *tsr_reference_i64(
    const tsr_reference *ref, const char *name, int *ret_ndim,
    int64_t ret_shape[TSR_REFERENCE_DIMS_MAX]) {
  const entry *e = entry_get(ref, name, ret_ndim, ret_shape);
  must(!e->is_f32, ref->path, name, "is not I64");
  return (const int64_t *)(const void *)(ref->data + e->begin);
}

const int32_t *tsr_reference_i32(
    tsr_reference *ref, const char *name, int *ret_ndim,
    int64_t ret_shape[TSR_REFERENCE_DIMS_MAX]) {
  const int64_t *wide = tsr_reference_i64(ref, name, ret_ndim, ret_shape);
  entry *e = entry_find(ref, name);
  if (e->narrow) return e->narrow;
  e->narrow = malloc((size_t)e->elements * sizeof *e->narrow);
  must(e->narrow != NULL, ref->path, name, "does not fit in memory");
  for (int64_t i = 0; i < e->elements; i++) {
    must(wide[i] >= INT32_MIN && wide[i] <= INT32_MAX, ref->path, name, "does not fit in 32 bits");
    e->narrow[i] = (int32_t)wide[i];
  }
  return e->narrow;
}
