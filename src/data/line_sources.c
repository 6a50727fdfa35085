// SPDX-License-Identifier: Apache-2.0
#include "data/line_sources.h"
#include "base/file_read.h"
#include "data/text_check.h"
#include <assert.h>

typedef struct {
  tsr_arena *arena;
  const tsr_line_sources *options;
  tsr_diags *diags;
} loader;

/* Paths last as long as diagnostics, files until they are encoded. */
static bool map_files(
    const loader *l, const tsr_data_input *input, tsr_text_file *files, tsr_file_map *maps,
    const char *const *paths, int count) {
  for (int i = 0; i < count; i++) {
    if (!tsr_text_file_check(paths[i], input->location, l->diags) ||
        !tsr_file_map_open(paths[i], 0, input->location, &maps[i], l->diags))
      return false;
    files[i] = (tsr_text_file){paths[i], maps[i].bytes, maps[i].length};
    if (!tsr_content_check_lines(&files[i], input->location, l->diags)) return false;
  }
  return true;
}

static bool open_source(const loader *l, const tsr_data_input *input, tsr_data_source *ret) {
  const tsr_line_sources *o = l->options;
  tsr_masked_documents *documents = tsr_arena_alloc(l->arena, sizeof *documents);
  const char **paths;
  int count;
  if (!tsr_text_files_find(l->arena, input->path, input->location, &paths, &count, l->diags))
    return false;
  tsr_text_file *files = tsr_arena_array(l->arena, tsr_text_file, count);
  tsr_file_map *maps = tsr_arena_array(l->arena, tsr_file_map, count);
  bool ok = map_files(l, input, files, maps, paths, count) &&
            tsr_masked_documents_read(
                l->arena, files, count, &o->encoder, o->threads, 0, documents, l->diags) &&
            tsr_file_maps_check(l->diags);
  for (int i = 0; i < count; i++) tsr_file_map_close(&maps[i]);
  *ret = (tsr_data_source){.name = tsr_arena_strdup(l->arena, input->path)};
  ret->weight = input->weight;
  ret->documents = documents;
  if (!ok) return false;
  ret->tokens = documents->begins[documents->count];
  ret->validation_at = documents->count;
  return true;
}

bool tsr_dataset_lines(
    tsr_arena *arena, const tsr_line_sources *o, tsr_dataset *ret, tsr_diags *diags) {
  int count = o->inputs_count, all = count + (o->validation != NULL);
  assert(count >= 1 && count <= TSR_MIX_SOURCES_MAX);
  loader l = {arena, o, diags};
  const char *first = tsr_arena_strdup(arena, o->inputs[0].path);
  *ret = (tsr_dataset){
      .kind = TSR_DATASET_TEXT,
      .name = count == 1 ? first : tsr_arena_printf(arena, "%s (and %d more)", first, count - 1),
      .tokenizer = o->tokenizer,
      .vocab_size = o->tokenizer.vocab_size,
      .separate = true,
      .end_of_text = -1,
      .packing = o->packing,
      .labels = o->labels};
  tsr_data_source *sources = ret->sources = tsr_arena_array(arena, tsr_data_source, all);
  ret->sources_count = count;
  bool ok = true;
  for (int i = 0; i < all; i++)
    ok = open_source(&l, i < count ? &o->inputs[i] : o->validation, &sources[i]) && ok;
  if (o->validation) ret->validation = &sources[count];
  if (ok) tsr_dataset_mix(arena, ret);
  return ok;
}
