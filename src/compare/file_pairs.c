// SPDX-License-Identifier: Apache-2.0
#include "compare/file_pairs.h"
#include "base/memory.h"
#include "kernels/kernels.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- which is which ---- */

typedef struct {
  tsr_arena *arena;
  const tsr_safetensors *files;
  bool *used[2]; /* per tensor */
  tsr_file_pairs found;
} search;

const char *tsr_file_metadata(const tsr_safetensors *f, const char *prefix, const char *name) {
  size_t length = strlen(prefix);
  for (int i = 0; i < f->metadata_count; i++) {
    const char *key = f->metadata[2 * i];
    if (!strncmp(key, prefix, length) && !strcmp(key + length, name)) return f->metadata[2 * i + 1];
  }
  return NULL;
}

static void add(search *s, const tsr_file_pair *pair, int at, const int *there) {
  s->found.pairs[s->found.count++] = *pair;
  s->used[pair->ours][at] = true;
  for (int64_t i = 0; i < pair->count; i++) s->used[!pair->ours][there[i]] = true;
}

static void pair_by_name(search *s, int at) {
  const tsr_safetensors *other = &s->files[1];
  int there = tsr_safetensors_find(other, s->files[0].tensors[at].name);
  if (there < 0) return;
  tsr_file_pair pair = {.tensor = &s->files[0].tensors[at], .count = 1};
  pair.there = tsr_arena_array(s->arena, const tsr_safetensor *, 1);
  pair.there[0] = &other->tensors[there];
  add(s, &pair, at, &there);
}

/* A tensor of file `ours` whose name in Hugging Face's models that file has. */
static void pair_by_place(search *s, int ours, int at) {
  const tsr_safetensors *file = &s->files[ours], *other = &s->files[!ours];
  const char *name = tsr_file_metadata(file, "hf.", file->tensors[at].name);
  const char *text = name ? tsr_file_metadata(file, "hf_place.", file->tensors[at].name) : NULL;
  tsr_file_pair pair = {.ours = ours, .tensor = &file->tensors[at], .is_placed = text != NULL};
  if (!name || (text && !tsr_foreign_place_read(name, text, &pair.place))) return;
  pair.count = text ? tsr_hf_place_tensors(&pair.place) : 1;
  if (pair.count > other->tensors_count) return;
  pair.there = tsr_arena_array(s->arena, const tsr_safetensor *, pair.count);
  int *there = tsr_arena_array(s->arena, int, pair.count);
  for (int64_t i = 0; i < pair.count; i++) {
    there[i] =
        tsr_safetensors_find(other, text ? tsr_hf_place_name(s->arena, &pair.place, i) : name);
    if (there[i] < 0) return;
    pair.there[i] = &other->tensors[there[i]];
  }
  add(s, &pair, at, there);
}

tsr_file_pairs tsr_file_pairs_find(tsr_arena *arena, const tsr_safetensors files[2]) {
  search s = {.arena = arena, .files = files};
  int most = files[0].tensors_count + files[1].tensors_count;
  s.found.pairs = tsr_arena_array(arena, tsr_file_pair, most + 1);
  for (int f = 0; f < 2; f++) s.used[f] = tsr_arena_array(arena, bool, files[f].tensors_count + 1);
  for (int i = 0; i < files[0].tensors_count; i++) pair_by_name(&s, i);
  for (int f = 0; f < 2; f++)
    for (int i = 0; i < files[f].tensors_count; i++)
      if (!s.used[f][i]) pair_by_place(&s, f, i);
  for (int f = 0; f < 2; f++)
    for (int i = 0; i < files[f].tensors_count; i++) s.found.only[f] += !s.used[f][i];
  return s.found;
}

/* ---- shapes and types ---- */

int64_t tsr_safetensor_elements(const tsr_safetensor *t) {
  int64_t count = 1;
  for (int d = 0; d < t->ndim; d++) count *= t->shape[d];
  return count;
}

bool tsr_dtype_name_is_float(const char *dtype) {
  static const char *const floats[] = {"F32", "BF16", "F16", "F64"};
  for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
    if (!strcmp(dtype, floats[i])) return true;
  return false;
}

bool tsr_dtype_name_is_integer(const char *dtype) {
  return dtype[0] == 'I' || dtype[0] == 'U' || !strcmp(dtype, "BOOL");
}

/* As dimensions of 1 do not matter, neither do those of a scalar. */
static bool same_shape(const tsr_safetensor *a, const tsr_safetensor *b) {
  int i = 0, k = 0;
  for (;; i++, k++) {
    while (i < a->ndim && a->shape[i] == 1) i++;
    while (k < b->ndim && b->shape[k] == 1) k++;
    if (i >= a->ndim || k >= b->ndim) return i >= a->ndim && k >= b->ndim;
    if (a->shape[i] != b->shape[k]) return false;
  }
}

static bool fits(const tsr_file_pair *p, int64_t i) {
  if (!p->is_placed) return same_shape(p->tensor, p->there[i]);
  int64_t each = p->place.experts * p->place.out * p->place.in;
  return tsr_foreign_place_fits(&p->place, p->there[i]) &&
         tsr_safetensor_elements(p->tensor) == each * p->count;
}

static bool same_kind(const char *a, const char *b) {
  return !strcmp(a, b) || (tsr_dtype_name_is_float(a) && tsr_dtype_name_is_float(b)) ||
         (tsr_dtype_name_is_integer(a) && tsr_dtype_name_is_integer(b));
}

bool tsr_file_pair_check(const tsr_file_pair *p, const tsr_safetensors files[2], tsr_diags *diags) {
  tsr_location location = {.file = files[!p->ours].path};
  const tsr_safetensor *a = p->tensor;
  bool ok = true;
  for (int64_t i = 0; i < p->count && ok; i++) {
    const tsr_safetensor *b = p->there[i];
    if (!fits(p, i))
      ok = tsr_diag_error(
          diags, location, "'%s' is %s, and '%s' in '%s' %s", b->name,
          tsr_shape_text(b->ndim, b->shape).text, a->name, files[p->ours].path,
          tsr_shape_text(a->ndim, a->shape).text);
    else if (!same_kind(a->dtype, b->dtype))
      ok = tsr_diag_error(
          diags, location, "'%s' has the type %s, and '%s' in '%s' %s", b->name, b->dtype, a->name,
          files[p->ours].path, a->dtype);
  }
  return ok;
}

bool tsr_file_pair_same_bits(const tsr_file_pair *p, const tsr_safetensors files[2]) {
  const tsr_safetensor *a = p->tensor, *b = p->there[0];
  return !p->is_placed && !strcmp(a->dtype, b->dtype) && a->bytes == b->bytes &&
         !memcmp(files[p->ours].map + a->offset, files[!p->ours].map + b->offset, (size_t)a->bytes);
}

/* ---- numbers ---- */

/* A foreign file may have its numbers at any offset. */
static void read_halves(const char *from, bool is_bf16, int64_t count, float *out) {
  enum { PIECE = 512 };
  const tsr_kernels *k = tsr_kernels_get(NULL);
  uint16_t halves[PIECE];
  for (int64_t i = 0; i < count; i += PIECE) {
    int64_t n = count - i < PIECE ? count - i : PIECE;
    memcpy(halves, from + 2 * i, sizeof *halves * (size_t)n);
    (is_bf16 ? k->bf16_to_f32 : k->fp16_to_f32)(out + i, halves, 0, n);
  }
}

static void read_floats(const tsr_safetensors *f, const tsr_safetensor *t, float *out) {
  const char *from = f->map + t->offset;
  int64_t count = tsr_safetensor_elements(t), bytes = tsr_safetensors_dtype_bytes(t->dtype);
  double number;
  if (bytes == 2) return read_halves(from, *t->dtype == 'B', count, out);
  if (bytes == 4) memcpy(out, from, sizeof *out * (size_t)count);
  for (int64_t i = 0; bytes == 8 && i < count; i++) {
    memcpy(&number, from + i * 8, sizeof number);
    out[i] = (float)number;
  }
}

static float *take_floats(const tsr_safetensors *f, const tsr_file_pair *p, float *ours) {
  int64_t each = tsr_safetensor_elements(p->tensor) / p->count;
  float *whole = tsr_memory_try(sizeof *whole * ((size_t)tsr_safetensor_elements(p->there[0]) + 1));
  for (int64_t i = 0; whole && i < p->count; i++) {
    read_floats(f, p->there[i], whole);
    tsr_foreign_place_take(&p->place, whole, ours + i * each);
  }
  if (!whole) free(ours), ours = NULL;
  free(whole);
  return ours;
}

float *tsr_file_pair_floats(const tsr_file_pair *p, const tsr_safetensors files[2], int file) {
  size_t count = (size_t)tsr_safetensor_elements(p->tensor);
  float *numbers = tsr_memory_try(sizeof *numbers * (count + 1));
  if (!numbers) return NULL;
  if (file != p->ours && p->is_placed) return take_floats(&files[file], p, numbers);
  read_floats(&files[file], file == p->ours ? p->tensor : p->there[0], numbers);
  return numbers;
}

/* Little-endian, as this machine has them. */
static int64_t integer_at(const char *from, int64_t bytes, bool is_signed) {
  uint64_t bits = 0;
  memcpy(&bits, from, (size_t)bytes);
  int unused = (int)(64 - 8 * bytes);
  return is_signed ? (int64_t)(bits << unused) >> unused : (int64_t)bits;
}

int64_t *tsr_file_pair_integers(const tsr_file_pair *p, const tsr_safetensors files[2], int file) {
  const tsr_safetensor *t = file == p->ours ? p->tensor : p->there[0];
  int64_t count = tsr_safetensor_elements(t), bytes = tsr_safetensors_dtype_bytes(t->dtype);
  int64_t *numbers = tsr_memory_try(sizeof *numbers * ((size_t)count + 1));
  for (int64_t i = 0; numbers && i < count; i++)
    numbers[i] = integer_at(files[file].map + t->offset + i * bytes, bytes, t->dtype[0] == 'I');
  return numbers;
}
