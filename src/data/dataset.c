// SPDX-License-Identifier: Apache-2.0
#include "data/sources.h"
#include "data/idx_images.h"
#include "data/sample_order.h"
#include <assert.h>
#include <string.h>

static void take_rows(
    tsr_arena *arena, tsr_dataset_kind kind, const char *path, const tsr_table *table,
    tsr_dataset *ret_dataset) {
  *ret_dataset = (tsr_dataset){
      .kind = kind,
      .name = tsr_arena_strdup(arena, path),
      .table = *table,
      .validation_at = table->rows,
  };
}

bool tsr_dataset_table(
    tsr_arena *arena, const char *path, const tsr_table_columns *columns, tsr_location location,
    tsr_dataset *ret_dataset, tsr_diags *diags) {
  tsr_table table;
  if (!tsr_table_read(arena, path, columns, location, &table, diags)) return false;
  take_rows(arena, TSR_DATASET_TABLE, path, &table, ret_dataset);
  return true;
}

bool tsr_dataset_images(
    tsr_arena *arena, const char *images_path, const char *labels_path, tsr_location location,
    tsr_dataset *ret_dataset, tsr_diags *diags) {
  tsr_table table;
  if (!tsr_images_read(arena, images_path, labels_path, location, &table, diags)) return false;
  take_rows(arena, TSR_DATASET_IMAGES, images_path, &table, ret_dataset);
  return true;
}

/* Two arrays (NULL: there is none) one after the other. */
static void *
joined(tsr_arena *arena, const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
  if (!a) return NULL;
  char *both = tsr_arena_alloc(arena, a_bytes + b_bytes);
  memcpy(both, a, a_bytes);
  memcpy(both + a_bytes, b, b_bytes);
  return both;
}

bool tsr_dataset_add_validation(
    tsr_arena *arena, tsr_dataset *dataset, const tsr_dataset *validation, tsr_location location,
    tsr_diags *diags) {
  tsr_table *to = &dataset->table;
  const tsr_table *more = &validation->table;
  bool alike = to->features == more->features && to->targets == more->targets &&
               !to->classes == !more->classes && !to->pixels == !more->pixels;
  if (!alike)
    return tsr_diag_error(
        diags, location,
        "'%s' has %lld features a row and %lld targets, but '%s' has %lld and %lld",
        validation->name, (long long)more->features, (long long)more->targets, dataset->name,
        (long long)to->features, (long long)to->targets);
  size_t rows = (size_t)to->rows, added = (size_t)more->rows, width = (size_t)to->features;
  size_t row = width * sizeof *to->x, targets = (size_t)to->targets * sizeof *to->y;
  to->x = joined(arena, to->x, rows * row, more->x, added * row);
  to->pixels = joined(arena, to->pixels, rows * width, more->pixels, added * width);
  to->y = joined(arena, to->y, rows * targets, more->y, added * targets);
  size_t label = sizeof *to->labels;
  to->labels = joined(arena, to->labels, rows * label, more->labels, added * label);
  if (more->classes > to->classes) to->classes = more->classes;
  dataset->validation_at = to->rows;
  to->rows += more->rows;
  return true;
}

/* ---- parts ---- */

static int64_t first_part(double fraction, int64_t count) {
  return count - (int64_t)((double)count * fraction);
}

void tsr_dataset_split(tsr_dataset *dataset, double fraction) {
  assert(fraction >= 0 && fraction < 1);
  dataset->validation_at = first_part(fraction, dataset->table.rows);
  for (int i = 0; i < dataset->sources_count; i++) {
    tsr_data_source *s = &dataset->sources[i];
    s->validation_at = first_part(fraction, s->documents ? s->documents->count : s->tokens);
  }
}

void tsr_dataset_pack(tsr_arena *arena, tsr_dataset *dataset, int64_t T) {
  int all = dataset->sources_count + (dataset->validation != NULL); /* which is behind them */
  for (int i = 0; i < all; i++) {
    tsr_data_source *s = &dataset->sources[i];
    if (!s->documents) continue;
    int64_t at = i < dataset->sources_count ? s->validation_at : 0, count = s->documents->count;
    tsr_packs_make(arena, s->documents, 0, at, &dataset->packing, T, &s->packs[TSR_SPLIT_TRAIN]);
    tsr_packs_make(
        arena, s->documents, at, count, &dataset->packing, T, &s->packs[TSR_SPLIT_VALIDATION]);
  }
}

/* A part's tokens of a source, its files one after the other: [begin, end). Of conversations: its
 * packs. */
typedef struct {
  const tsr_data_source *source;
  int64_t begin, end;
  const tsr_packs *packs; /* NULL: of files */
} token_range;

static int ranges_of(const tsr_dataset *dataset, tsr_split split) {
  return split == TSR_SPLIT_VALIDATION && dataset->validation ? 1 : dataset->sources_count;
}

static token_range range_of(const tsr_dataset *dataset, tsr_split split, int i) {
  const tsr_data_source *s = &dataset->sources[i];
  bool own = split == TSR_SPLIT_VALIDATION && dataset->validation;
  if (own) s = dataset->validation;
  if (s->documents) return (token_range){.source = s, .packs = &s->packs[split]};
  if (split == TSR_SPLIT_TRAIN) return (token_range){s, 0, s->validation_at, NULL};
  return (token_range){s, own ? 0 : s->validation_at, s->tokens, NULL};
}

static int64_t stride_of(const tsr_dataset *dataset, const tsr_data_source *source, int64_t T) {
  if (dataset->stride) return dataset->stride;
  return source->is_text ? 1 : T;
}

/* The windows in the part of one file, and where the first one begins. */
static int64_t windows_in(
    token_range range, int64_t file_begin, int64_t file_tokens, int64_t T, int64_t stride,
    int64_t *ret_begin) {
  int64_t begin = range.begin > file_begin ? range.begin - file_begin : 0;
  int64_t end = range.end - file_begin < file_tokens ? range.end - file_begin : file_tokens;
  *ret_begin = begin;
  return end - begin > T ? (end - begin - T - 1) / stride + 1 : 0;
}

static int64_t samples_in(const tsr_dataset *dataset, token_range range, int64_t T) {
  int64_t samples = 0, at = 0, begin, stride = stride_of(dataset, range.source, T);
  if (range.packs) {
    assert(range.packs->sequence == T);
    return range.packs->count;
  }
  for (int i = 0; i < range.source->files_count; at += range.source->files[i++].count)
    samples += windows_in(range, at, range.source->files[i].count, T, stride, &begin);
  return samples;
}

static int64_t rows_of(const tsr_dataset *dataset, tsr_split split) {
  return split == TSR_SPLIT_TRAIN ? dataset->validation_at
                                  : dataset->table.rows - dataset->validation_at;
}

int64_t tsr_dataset_samples(const tsr_dataset *dataset, tsr_split split, int64_t T) {
  if (dataset->kind != TSR_DATASET_TEXT) return rows_of(dataset, split);
  int64_t samples = 0;
  for (int i = 0; i < ranges_of(dataset, split); i++)
    samples += samples_in(dataset, range_of(dataset, split, i), T);
  return samples;
}

static bool too_few_tokens(
    token_range range, const char *part, int64_t T, tsr_location location, tsr_diags *diags) {
  tsr_diag_error(
      diags, location,
      "the %s part of '%s' has %lld tokens, too few for a sequence length of %lld: one sample "
      "takes %lld",
      part, range.source->name, (long long)(range.end - range.begin), (long long)T,
      (long long)T + 1);
  if (range.source->files_count > 1)
    tsr_diag_hint(
        diags, "in %d files, of which each must be long enough by itself",
        range.source->files_count);
  return false;
}

static bool no_document(
    token_range range, const char *part, int64_t T, tsr_location location, tsr_diags *diags) {
  const tsr_packs *p = range.packs;
  tsr_diag_error(
      diags, location, "the %s part of '%s' has no %s to %s", part, range.source->name,
      p->from->labels ? "text with a label" : "conversation",
      strcmp(part, "training") ? "evaluate" : "train on");
  if (p->end > p->first)
    tsr_diag_hint(
        diags, "of %lld, %lld are dropped as longer than %lld tokens, and %lld have no target",
        (long long)(p->end - p->first), (long long)p->dropped, (long long)T,
        (long long)p->untrained);
  return false;
}

bool tsr_dataset_check(
    const tsr_dataset *dataset, tsr_split split, int64_t T, tsr_location location,
    tsr_diags *diags) {
  const char *part = split == TSR_SPLIT_TRAIN ? "training" : "validation";
  if (dataset->kind != TSR_DATASET_TEXT)
    return rows_of(dataset, split) > 0 ||
           tsr_diag_error(diags, location, "the %s part of '%s' has no rows", part, dataset->name);
  bool ok = true;
  for (int i = 0; i < ranges_of(dataset, split); i++) {
    token_range range = range_of(dataset, split, i);
    if (samples_in(dataset, range, T) > 0) continue;
    ok = range.packs ? no_document(range, part, T, location, diags)
                     : too_few_tokens(range, part, T, location, diags);
  }
  return ok;
}

int tsr_dataset_ranges(
    tsr_arena *arena, const tsr_dataset *dataset, tsr_split split, tsr_data_range **ret_ranges) {
  int count = 0, most = 0;
  for (int i = 0; i < ranges_of(dataset, split); i++)
    most += range_of(dataset, split, i).source->files_count + 1;
  tsr_data_range *ranges = *ret_ranges = tsr_arena_array(arena, tsr_data_range, most);
  for (int i = 0; i < ranges_of(dataset, split); i++) {
    token_range r = range_of(dataset, split, i);
    int64_t at = 0;
    if (r.packs) ranges[count++] = (tsr_data_range){.source = r.source, .packs = r.packs};
    for (int k = 0; k < r.source->files_count; at += r.source->files[k++].count) {
      const tsr_token_file *file = &r.source->files[k];
      int64_t begin = r.begin > at ? r.begin - at : 0, end = r.end - at;
      if (end > file->count) end = file->count;
      if (begin < end) ranges[count++] = (tsr_data_range){r.source, file, begin, end, NULL};
    }
  }
  return count;
}

/* ---- samples ---- */

int64_t tsr_dataset_sample_at(
    const tsr_dataset *dataset, tsr_split split, int64_t T, uint64_t seed, int64_t position) {
  if (dataset->kind != TSR_DATASET_TEXT || ranges_of(dataset, split) == 1)
    return tsr_sample_order_at(seed, tsr_dataset_samples(dataset, split, T), position);
  int64_t before, first = 0;
  int source = tsr_mixture_at(&dataset->mix, position, &before);
  for (int i = 0; i < source; i++) first += samples_in(dataset, range_of(dataset, split, i), T);
  /* An order of its own for each source: the golden ratio's bits keep the seeds apart. */
  uint64_t own = seed ^ (uint64_t)source * UINT64_C(0x9e3779b97f4a7c15);
  int64_t samples = samples_in(dataset, range_of(dataset, split, source), T);
  return first + tsr_sample_order_at(own, samples, before);
}

tsr_window
tsr_dataset_window(const tsr_dataset *dataset, const tsr_token_file *file, int64_t begin) {
  return (tsr_window){
      .file = file,
      .begin = begin,
      .separate = dataset->separate,
      .end_of_text = dataset->end_of_text};
}

tsr_window
tsr_dataset_find_window(const tsr_dataset *dataset, tsr_split split, int64_t index, int64_t T) {
  assert(dataset->kind == TSR_DATASET_TEXT && index >= 0);
  for (int i = 0; i < ranges_of(dataset, split); i++) {
    token_range range = range_of(dataset, split, i);
    int64_t at = 0, begin, stride = stride_of(dataset, range.source, T);
    if (range.packs && index < range.packs->count)
      return (tsr_window){.separate = true, .packs = range.packs, .pack = index};
    if (range.packs) index -= range.packs->count;
    for (int k = 0; k < range.source->files_count; k++) {
      const tsr_token_file *file = &range.source->files[k];
      int64_t windows = windows_in(range, at, file->count, T, stride, &begin);
      if (index < windows) return tsr_dataset_window(dataset, file, begin + index * stride);
      index -= windows;
      at += file->count;
    }
  }
  assert(!"a sample that the part does not have");
  return (tsr_window){0};
}

void tsr_dataset_fill_tokens(
    const tsr_dataset *dataset, tsr_split split, int64_t index, int64_t T, int32_t *ret_tokens,
    int32_t *ret_targets) {
  tsr_window w = tsr_dataset_find_window(dataset, split, index, T);
  if (ret_targets) tsr_window_fill_targets(&w, T, TSR_TARGET_IGNORED, ret_targets);
  if (ret_tokens) tsr_window_fill_tokens(&w, T, ret_tokens);
}

void tsr_dataset_fill_positions(
    const tsr_dataset *dataset, tsr_split split, int64_t index, int64_t T, int32_t *ret_positions) {
  tsr_window w = tsr_dataset_find_window(dataset, split, index, T);
  tsr_window_fill_positions(&w, T, ret_positions);
}

int64_t tsr_dataset_count_targets(
    const tsr_dataset *dataset, tsr_split split, int64_t index, int64_t T, int64_t ignored) {
  tsr_window w = tsr_dataset_find_window(dataset, split, index, T);
  return tsr_window_fill_targets(&w, T, ignored, NULL);
}

int64_t tsr_dataset_find_outside(
    const tsr_dataset *dataset, tsr_split split, int64_t index, int64_t T,
    const tsr_token_file **ret_file) {
  tsr_window w = tsr_dataset_find_window(dataset, split, index, T);
  *ret_file = w.file;
  if (w.packs) return -1;
  return tsr_token_file_find_outside(w.file, w.begin, T + 1, dataset->vocab_size);
}

static int64_t find_row(const tsr_dataset *dataset, tsr_split split, int64_t index) {
  assert(dataset->kind != TSR_DATASET_TEXT && index >= 0 && index < rows_of(dataset, split));
  return index + (split == TSR_SPLIT_TRAIN ? 0 : dataset->validation_at);
}

void tsr_dataset_fill_features(
    const tsr_dataset *dataset, tsr_split split, int64_t index, float *ret_features) {
  const tsr_table *table = &dataset->table;
  int64_t begin = find_row(dataset, split, index) * table->features;
  for (int64_t i = 0; i < table->features; i++)
    ret_features[i] =
        table->pixels ? (float)table->pixels[begin + i] / 255.0f : table->x[begin + i];
}

void tsr_dataset_fill_label(
    const tsr_dataset *dataset, tsr_split split, int64_t index, int32_t *ret_label) {
  assert(dataset->table.labels);
  *ret_label = dataset->table.labels[find_row(dataset, split, index)];
}

void tsr_dataset_fill_targets(
    const tsr_dataset *dataset, tsr_split split, int64_t index, float *ret_targets) {
  const tsr_table *table = &dataset->table;
  assert(table->targets > 0);
  const float *row = table->y + find_row(dataset, split, index) * table->targets;
  memcpy(ret_targets, row, sizeof *row * (size_t)table->targets);
}
