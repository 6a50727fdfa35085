// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"
#include "base/file_read.h"
#include "base/json.h"
#include "base/json_scan.h"
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8 }; /* of N, in front of the header */

static const struct {
  const char *name;
  int bytes;
} dtypes[] = {{"F32", 4}, {"BF16", 2}, {"F16", 2},     {"I32", 4},     {"I64", 8},    {"U8", 1},
              {"I8", 1},  {"BOOL", 1}, {"F64", 8},     {"U16", 2},     {"I16", 2},    {"U32", 4},
              {"U64", 8}, {"C64", 8},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}};

int64_t tsr_safetensors_dtype_bytes(const char *dtype) {
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
    if (!strcmp(dtype, dtypes[i].name)) return dtypes[i].bytes;
  return 0;
}

/* A file while it is read; `entry` counts the members of the header's object. */
typedef struct {
  tsr_arena *arena;
  tsr_safetensors *file;
  tsr_location location;
  tsr_diags *diags;
  const char *header; /* in the map */
  size_t header_bytes;
  int entry;
} reader;

static bool fail_at(const reader *r, int64_t offset, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static bool fail_at(const reader *r, int64_t offset, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *message = tsr_arena_vprintf(r->arena, format, args);
  va_end(args);
  return tsr_diag_error(
      r->diags, r->location, "'%s', byte %" PRId64 ": %s", r->file->path, offset, message);
}

/* Where the key of an entry stands in the file: the header is known to be right, so entries are
 * what commas part at the first level. */
static int64_t find_entry(const reader *r, int entry) {
  int depth = 0;
  bool inside = false; /* of a string */
  const char *at = r->header, *end = at + r->header_bytes;
  for (; at < end; at++) {
    if (inside && *at == '\\') at++;
    else if (*at == '"') {
      if (depth == 1 && !inside && entry == 0) break;
      inside = !inside;
    } else if (inside) continue;
    else if (*at == '{' || *at == '[') depth++;
    else if (*at == '}' || *at == ']') depth--;
    else if (*at == ',' && depth == 1) entry--;
  }
  return at - r->header + LENGTH_BYTES;
}

/* An error in the entry that is read. */
static bool fail_entry(const reader *r, const char *name, const char *message) {
  return fail_at(r, find_entry(r, r->entry), "tensor '%s': %s", name, message);
}

static bool read_count(const cJSON *item, int64_t *ret_value) {
  const double limit = 9007199254740992.0; /* 2^53, up to which doubles are whole numbers */
  if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= limit))
    return false;
  *ret_value = (int64_t)item->valuedouble;
  return (double)*ret_value == item->valuedouble;
}

static bool read_shape(const reader *r, const cJSON *shape, tsr_safetensor *tensor) {
  const char *name = tensor->name;
  if (!cJSON_IsArray(shape)) return fail_entry(r, name, "'shape' should be a list");
  const cJSON *item;
  cJSON_ArrayForEach(item, shape) {
    if (tensor->ndim == TSR_SAFETENSORS_DIMS_MAX)
      return fail_entry(
          r, name,
          tsr_arena_printf(
              r->arena, "%d dimensions; at most %d are read", cJSON_GetArraySize(shape),
              TSR_SAFETENSORS_DIMS_MAX));
    if (!read_count(item, &tensor->shape[tensor->ndim]))
      return fail_entry(
          r, name,
          tsr_arena_printf(
              r->arena, "dimension %d of 'shape' should be a whole number from 0 to 2^53",
              tensor->ndim));
    tensor->ndim++;
  }
  return true;
}

static bool
read_offsets(const reader *r, const cJSON *offsets, tsr_safetensor *tensor, int64_t *ret_begin) {
  int64_t begin, end;
  if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 ||
      !read_count(offsets->child, &begin) || !read_count(offsets->child->next, &end))
    return fail_entry(r, tensor->name, "'data_offsets' should be two whole numbers from 0 to 2^53");
  if (end < begin)
    return fail_entry(
        r, tensor->name,
        tsr_arena_printf(
            r->arena, "'data_offsets' end at %" PRId64 ", before their begin at %" PRId64, end,
            begin));
  tensor->bytes = end - begin;
  *ret_begin = begin;
  return true;
}

/* The bytes that the shape and the dtype ask for are those of data_offsets. */
static bool check_bytes(const reader *r, const tsr_safetensor *tensor) {
  int64_t want = tsr_safetensors_dtype_bytes(tensor->dtype);
  bool empty = false; /* then the other dimensions may be anything */
  for (int i = 0; i < tensor->ndim; i++) empty |= tensor->shape[i] == 0;
  for (int i = 0; i < tensor->ndim && !empty; i++)
    if (__builtin_mul_overflow(want, tensor->shape[i], &want))
      return fail_entry(r, tensor->name, "its shape has more than 2^63 bytes");
  if (empty) want = 0;
  if (want == tensor->bytes) return true;
  return fail_entry(
      r, tensor->name,
      tsr_arena_printf(
          r->arena,
          "its shape and dtype %s need %" PRId64 " bytes, its 'data_offsets' span %" PRId64,
          tensor->dtype, want, tensor->bytes));
}

static bool read_tensor(const reader *r, const cJSON *entry, tsr_safetensor *tensor) {
  *tensor = (tsr_safetensor){.name = entry->string};
  if (!cJSON_IsObject(entry)) return fail_entry(r, tensor->name, "should be an object");
  const cJSON *member;
  cJSON_ArrayForEach(member, entry) {
    const char *key = member->string;
    if (strcmp(key, "dtype") && strcmp(key, "shape") && strcmp(key, "data_offsets"))
      return fail_entry(
          r, tensor->name, tsr_arena_printf(r->arena, "key '%s' is not of the format", key));
  }
  const cJSON *dtype = tsr_json_get(entry, "dtype");
  if (!cJSON_IsString(dtype)) return fail_entry(r, tensor->name, "'dtype' should be a string");
  if (!tsr_safetensors_dtype_bytes(dtype->valuestring))
    return fail_entry(
        r, tensor->name, tsr_arena_printf(r->arena, "dtype '%s' is not known", dtype->valuestring));
  tensor->dtype = dtype->valuestring;
  return read_shape(r, tsr_json_get(entry, "shape"), tensor) &&
         read_offsets(r, tsr_json_get(entry, "data_offsets"), tensor, &tensor->offset) &&
         check_bytes(r, tensor);
}

static bool read_metadata(const reader *r, const cJSON *metadata, tsr_safetensors *file) {
  int64_t offset = find_entry(r, r->entry);
  if (!cJSON_IsObject(metadata)) return fail_at(r, offset, "'__metadata__' should be an object");
  file->metadata = tsr_arena_array(r->arena, const char *, 2 * cJSON_GetArraySize(metadata));
  const cJSON *item;
  cJSON_ArrayForEach(item, metadata) {
    if (!cJSON_IsString(item))
      return fail_at(r, offset, "'%s' of '__metadata__' should be a string", item->string);
    const char **pair = file->metadata + 2 * file->metadata_count++;
    pair[0] = item->string;
    pair[1] = item->valuestring;
  }
  return true;
}

static int by_offset(const void *left, const void *right) {
  const tsr_safetensor *a = left, *b = right;
  if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
  if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
  return strcmp(a->name, b->name);
}

/* From offsets within the data to offsets in the file: the tensors follow each other without holes
 * or overlaps, and the last ends where the file does. */
static bool place_tensors(const reader *r) {
  tsr_safetensors *file = r->file;
  qsort(file->tensors, (size_t)file->tensors_count, sizeof *file->tensors, by_offset);
  int64_t data = LENGTH_BYTES + (int64_t)r->header_bytes, at = data;
  const char *before = "the header";
  for (int i = 0; i < file->tensors_count; i++) {
    tsr_safetensor *tensor = &file->tensors[i];
    tensor->offset += data;
    if (tensor->offset != at)
      return fail_at(
          r, tensor->offset, "tensor '%s': %s: its data begin here, but %s ends at byte %" PRId64,
          tensor->name, tensor->offset > at ? "a hole" : "an overlap", before, at);
    if (tensor->bytes > file->size - at)
      return fail_at(
          r, tensor->offset,
          "tensor '%s': its data need %" PRId64 " bytes, the file has %" PRId64 " left",
          tensor->name, tensor->bytes, file->size - at);
    at += tensor->bytes;
    before = tsr_arena_printf(r->arena, "'%s'", tensor->name);
  }
  if (at == file->size) return true;
  return fail_at(r, at, "the data end here, but the file has %" PRId64 " bytes", file->size);
}

static int by_name(const void *left, const void *right, void *tensors) {
  const tsr_safetensor *all = tensors;
  return strcmp(all[*(const int *)left].name, all[*(const int *)right].name);
}

static bool read_entries(reader *r, const cJSON *root) {
  tsr_safetensors *file = r->file;
  int count = cJSON_GetArraySize(root);
  file->tensors = tsr_arena_array(r->arena, tsr_safetensor, count);
  file->by_name = tsr_arena_array(r->arena, int, count);
  const cJSON *entry;
  cJSON_ArrayForEach(entry, root) {
    bool ok = !strcmp(entry->string, "__metadata__")
                  ? read_metadata(r, entry, file)
                  : read_tensor(r, entry, &file->tensors[file->tensors_count++]);
    if (!ok) return false;
    r->entry++;
  }
  if (!place_tensors(r)) return false;
  for (int i = 0; i < file->tensors_count; i++) file->by_name[i] = i;
  qsort_r(
      file->by_name, (size_t)file->tensors_count, sizeof *file->by_name, by_name, file->tensors);
  return true;
}

/* The header's JSON: an object from its first byte, with blanks alone behind it. */
static bool read_header(reader *r) {
  const char *header = r->header;
  size_t length = r->header_bytes;
  tsr_json_fault fault;
  if (length == 0) return fail_at(r, LENGTH_BYTES, "the header is empty");
  if (header[0] != '{')
    return fail_at(
        r, LENGTH_BYTES, "the header begins with byte 0x%02x, not with '{'",
        (unsigned char)header[0]);
  if (!tsr_json_scan(r->arena, header, length, &fault))
    return fail_at(
        r, LENGTH_BYTES + (int64_t)fault.offset, "the header is no JSON: %s", fault.message);
  for (size_t i = length; header[--i] != '}';)
    if (header[i] != ' ')
      return fail_at(
          r, LENGTH_BYTES + (int64_t)i, "the header is padded with byte 0x%02x, not with blanks",
          (unsigned char)header[i]);
  cJSON *root;
  return tsr_json_parse(r->arena, r->file->path, header, length, &root, r->diags) &&
         read_entries(r, root);
}

static bool read_map(reader *r) {
  const tsr_safetensors *file = r->file;
  if (file->size < LENGTH_BYTES)
    return fail_at(
        r, 0, "a file of %" PRId64 " bytes; the header's length alone has %d", file->size,
        LENGTH_BYTES);
  uint64_t length = 0;
  static const char lfs[] = "version https://git-lfs";
  if (file->size >= (int64_t)sizeof lfs && !memcmp(file->map, lfs, sizeof lfs - 1)) {
    tsr_diag_error(
        r->diags, r->location,
        "'%s' is a pointer of Git LFS to weights that are not in this folder", file->path);
    tsr_diag_hint(r->diags, "`git lfs pull` in its folder fetches them");
    return false;
  }
  for (int i = LENGTH_BYTES - 1; i >= 0; i--) length = length << 8 | (unsigned char)file->map[i];
  if (length > TSR_SAFETENSORS_HEADER_MAX)
    return fail_at(
        r, 0, "a header of %" PRIu64 " bytes; at most %d are read", length,
        TSR_SAFETENSORS_HEADER_MAX);
  if (length > (uint64_t)file->size - LENGTH_BYTES)
    return fail_at(
        r, 0, "a header of %" PRIu64 " bytes, but the file has only %" PRId64 " more", length,
        file->size - LENGTH_BYTES);
  r->header = file->map + LENGTH_BYTES;
  r->header_bytes = (size_t)length;
  return read_header(r);
}

static bool map_file(const reader *r) {
  tsr_file_map map;
  if (!tsr_file_map_open(r->file->path, 0, r->location, &map, r->diags)) return false;
  if (map.length) r->file->map = map.bytes;
  r->file->size = (int64_t)map.length;
  return true;
}

bool tsr_safetensors_open(
    tsr_arena *arena, const char *path, tsr_location location, tsr_safetensors *ret_file,
    tsr_diags *diags) {
  *ret_file = (tsr_safetensors){.path = tsr_arena_strdup(arena, path)};
  reader r = {.arena = arena, .file = ret_file, .location = location, .diags = diags};
  if (map_file(&r) && read_map(&r)) return true;
  tsr_safetensors_close(ret_file);
  return false;
}

void tsr_safetensors_close(tsr_safetensors *file) {
  if (file->map) tsr_file_map_close(&(tsr_file_map){file->map, (size_t)file->size});
  file->map = NULL;
}

int tsr_safetensors_find(const tsr_safetensors *file, const char *name) {
  int low = 0, high = file->tensors_count;
  while (low < high) {
    int middle = low + (high - low) / 2;
    int order = strcmp(name, file->tensors[file->by_name[middle]].name);
    if (order == 0) return file->by_name[middle];
    if (order < 0) high = middle;
    else low = middle + 1;
  }
  return -1;
}

static void add_metadata(const char *const *metadata, int count, tsr_text *text) {
  tsr_text_add(text, "\"__metadata__\":{");
  for (int i = 0; i < count; i++) {
    tsr_text_add(text, "%s", i ? "," : "");
    tsr_json_add_text(text, metadata[2 * i], strlen(metadata[2 * i]));
    tsr_text_add(text, ":");
    tsr_json_add_text(text, metadata[2 * i + 1], strlen(metadata[2 * i + 1]));
  }
  tsr_text_add(text, "}");
}

void tsr_safetensors_header(
    tsr_safetensor *tensors, int count, const char *const *metadata, int metadata_count,
    tsr_text *text) {
  size_t begin = text->length;
  tsr_text_add_bytes(text, "\0\0\0\0\0\0\0\0", LENGTH_BYTES);
  tsr_text_add(text, "{");
  if (metadata) add_metadata(metadata, metadata_count, text);
  int64_t at = 0;
  for (int i = 0; i < count; i++) {
    const tsr_safetensor *t = &tensors[i];
    tsr_text_add(text, "%s", i || metadata ? "," : "");
    tsr_json_add_text(text, t->name, strlen(t->name));
    tsr_text_add(text, ":{\"dtype\":\"%s\",\"shape\":[", t->dtype);
    for (int d = 0; d < t->ndim; d++) tsr_text_add(text, d ? ",%" PRId64 : "%" PRId64, t->shape[d]);
    tsr_text_add(text, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", at, at + t->bytes);
    at += t->bytes;
  }
  tsr_text_add(text, "}");
  while ((text->length - begin) % 8) tsr_text_add(text, " ");
  uint64_t length = text->length - begin - LENGTH_BYTES;
  assert(length <= TSR_SAFETENSORS_HEADER_MAX);
  for (int i = 0; i < LENGTH_BYTES; i++) text->data[begin + (size_t)i] = (char)(length >> 8 * i);
  at = (int64_t)length + LENGTH_BYTES;
  for (int i = 0; i < count; at += tensors[i++].bytes) tensors[i].offset = at;
}
