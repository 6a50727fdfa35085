#include "data/dataset.h"
#include "data/images.h"
#include <assert.h>
#include <string.h>

static bool encode_files(
    tsr_arena *arena, const tsr_text_file *files, int count, tsr_dataset *dataset,
    tsr_diags *diags) {
  size_t bytes = 0;
  for (int i = 0; i < count; i++) bytes += files[i].length;
  /* A token comes of at least one byte. */
  int32_t *tokens = tsr_arena_array(arena, int32_t, bytes ? bytes : 1);
  dataset->tokens = tokens;
  for (int i = 0; i < count; i++) {
    int64_t added;
    if (!tsr_tokenizer_encode(
            &dataset->tokenizer, &files[i], tokens + dataset->tokens_count, &added, diags))
      return false;
    dataset->tokens_count += added;
  }
  dataset->validation_at = dataset->tokens_count;
  return true;
}

bool tsr_dataset_text(
    tsr_arena *arena, const char *const *patterns, int count, const tsr_tokenizer *tokenizer,
    tsr_place place, tsr_dataset *ret_dataset, tsr_diags *diags) {
  assert(count > 0);
  *ret_dataset = (tsr_dataset){
      .kind = TSR_DATASET_TEXT,
      .name = count == 1 ? tsr_arena_strdup(arena, patterns[0])
                         : tsr_arena_printf(arena, "%s (and %d more)", patterns[0], count - 1),
      .tokenizer = *tokenizer,
  };
  /* Encoded, the text itself is not needed any more, and it may be large. */
  tsr_arena *scratch = tsr_arena_new();
  tsr_text_file *files;
  int files_count;
  bool ok = tsr_text_files_read(scratch, patterns, count, place, &files, &files_count, diags);
  /* Diagnostics keep the paths. */
  for (int i = 0; ok && i < files_count; i++)
    files[i].path = tsr_arena_strdup(arena, files[i].path);
  if (ok && tokenizer->kind == TSR_TOKENIZER_CHAR && !tokenizer->chars)
    ok = tsr_tokenizer_char(arena, files, files_count, &ret_dataset->tokenizer, diags);
  ok = ok && encode_files(arena, files, files_count, ret_dataset, diags);
  tsr_arena_free(scratch);
  return ok;
}

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
    tsr_arena *arena, const char *path, const tsr_table_columns *columns, tsr_place place,
    tsr_dataset *ret_dataset, tsr_diags *diags) {
  tsr_table table;
  if (!tsr_table_read(arena, path, columns, place, &table, diags)) return false;
  take_rows(arena, TSR_DATASET_TABLE, path, &table, ret_dataset);
  return true;
}

bool tsr_dataset_images(
    tsr_arena *arena, const char *images_path, const char *labels_path, tsr_place place,
    tsr_dataset *ret_dataset, tsr_diags *diags) {
  tsr_table table;
  if (!tsr_images_read(arena, images_path, labels_path, place, &table, diags)) return false;
  take_rows(arena, TSR_DATASET_IMAGES, images_path, &table, ret_dataset);
  return true;
}

/* Tokens or rows. */
static int64_t items_count(const tsr_dataset *dataset) {
  return dataset->kind == TSR_DATASET_TEXT ? dataset->tokens_count : dataset->table.rows;
}

void tsr_dataset_split(tsr_dataset *dataset, double fraction) {
  assert(fraction >= 0 && fraction < 1);
  int64_t items = items_count(dataset);
  dataset->validation_at = items - (int64_t)((double)items * fraction);
}

static int64_t part_begin(const tsr_dataset *dataset, tsr_split split) {
  return split == TSR_SPLIT_TRAIN ? 0 : dataset->validation_at;
}

static int64_t part_items(const tsr_dataset *dataset, tsr_split split) {
  return split == TSR_SPLIT_TRAIN ? dataset->validation_at
                                  : items_count(dataset) - dataset->validation_at;
}

int64_t tsr_dataset_samples(const tsr_dataset *dataset, tsr_split split, int64_t T) {
  int64_t items = part_items(dataset, split);
  if (dataset->kind != TSR_DATASET_TEXT) return items;
  return items > T ? items - T : 0;
}

bool tsr_dataset_check(
    const tsr_dataset *dataset, tsr_split split, int64_t T, tsr_place place, tsr_diags *diags) {
  if (tsr_dataset_samples(dataset, split, T) > 0) return true;
  const char *part = split == TSR_SPLIT_TRAIN ? "training" : "validation";
  if (dataset->kind != TSR_DATASET_TEXT)
    return tsr_diag_error(diags, place, "the %s part of '%s' has no rows", part, dataset->name);
  return tsr_diag_error(
      diags, place,
      "the %s part of '%s' has %lld tokens, too few for a sequence length of %lld: one sample "
      "takes "
      "%lld",
      part, dataset->name, (long long)part_items(dataset, split), (long long)T, (long long)T + 1);
}

void tsr_dataset_fill_tokens(
    const tsr_dataset *dataset, tsr_split split, int64_t index, int64_t T, int32_t *ret_tokens,
    int32_t *ret_targets) {
  assert(dataset->kind == TSR_DATASET_TEXT);
  assert(index >= 0 && index < tsr_dataset_samples(dataset, split, T));
  const int32_t *window = dataset->tokens + part_begin(dataset, split) + index;
  if (ret_tokens) memcpy(ret_tokens, window, sizeof *window * (size_t)T);
  if (ret_targets) memcpy(ret_targets, window + 1, sizeof *window * (size_t)T);
}

static int64_t find_row(const tsr_dataset *dataset, tsr_split split, int64_t index) {
  assert(dataset->kind != TSR_DATASET_TEXT && index >= 0 && index < part_items(dataset, split));
  return part_begin(dataset, split) + index;
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
