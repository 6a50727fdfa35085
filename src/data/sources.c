// SPDX-License-Identifier: Apache-2.0
#include "data/sources.h"
#include "data/text_check.h"
#include <assert.h>
#include <string.h>

/* An input whose files are known. */
typedef struct {
  const tsr_data_input *input;
  const char **paths;
  int paths_count;
  bool is_text;
  tsr_text_file *texts; /* of a text: its files, until they are encoded */
} opened;

typedef struct {
  tsr_arena *arena, *scratch; /* texts are not needed any more when they are encoded */
  const tsr_data_options *options;
  tsr_dataset *dataset;
  tsr_diags *diags;
} loader;

/* ---- what the inputs are ---- */

static bool
check_kind(const loader *l, const opened *o, const char *path, const char *first, bool is_text) {
  return o->is_text == is_text ||
         tsr_diag_error(
             l->diags, o->input->location,
             "'%s' means '%s', %s, and '%s', %s: a source is one or the other", o->input->path,
             first, o->is_text ? "a text" : "a token file", path,
             is_text ? "a text" : "a token file");
}

/* Both files of a Megatron pair match a pattern such as '*': the pair is taken once. */
static bool is_second_of_pair(const opened *o, const char *path) {
  size_t n = strlen(path);
  if (n < 4 || strcmp(path + n - 4, ".idx") != 0) return false;
  for (int i = 0; i < o->paths_count; i++)
    if (strlen(o->paths[i]) == n && !strncmp(o->paths[i], path, n - 4) &&
        !strcmp(o->paths[i] + n - 4, ".bin"))
      return true;
  return false;
}

static bool find_files(const loader *l, const tsr_data_input *input, opened *ret) {
  *ret = (opened){.input = input};
  const char **paths;
  int count;
  if (!tsr_text_files_find(l->arena, input->path, input->location, &paths, &count, l->diags))
    return false;
  ret->paths = paths;
  ret->paths_count = count;
  int kept = 0;
  for (int i = 0; i < count; i++) {
    bool by_name = input->format == TSR_TOKEN_FILE_AUTO && !input->tokens;
    bool is_text =
        input->format == TSR_TOKEN_FILE_TEXT || (by_name && !tsr_token_file_is(l->arena, paths[i]));
    if (i == 0) ret->is_text = is_text;
    if (!check_kind(l, ret, paths[i], paths[0], is_text)) return false;
  }
  for (int i = 0; i < count; i++)
    if (ret->is_text || !is_second_of_pair(ret, paths[i])) paths[kept++] = paths[i];
  ret->paths_count = kept;
  return true;
}

static bool read_texts(const loader *l, opened *o) {
  int count;
  if (!tsr_text_files_read(
          l->scratch, o->paths, o->paths_count, o->input->location, &o->texts, &count, l->diags))
    return false;
  assert(count == o->paths_count);
  bool ok = true;
  for (int i = 0; i < count; i++) {
    o->texts[i].path = o->paths[i]; /* diagnostics keep them */
    if (o->input->format == TSR_TOKEN_FILE_TEXT ||
        (tsr_content_check_kind(&o->texts[i], o->input->location, l->diags) &&
         tsr_content_check_bytes(&o->texts[i], l->diags)))
      continue;
    tsr_diag_hint(l->diags, "data_format: text trains on the file as it is");
    ok = false;
  }
  return ok;
}

/* ---- texts ---- */

/* Encodes the files of a text one after the other, as one file in memory. */
static bool encode_texts(const loader *l, const opened *o, tsr_token_file *ret) {
  const tsr_tokenizer *tokenizer = &l->dataset->tokenizer;
  int64_t room = 0;
  for (int i = 0; i < o->paths_count; i++)
    room += tsr_tokenizer_room(tokenizer, o->texts[i].text, o->texts[i].length);
  int32_t *tokens = tsr_arena_array(l->arena, int32_t, room ? room : 1);
  int64_t *begins = tsr_arena_array(l->arena, int64_t, o->paths_count), count = 0;
  for (int i = 0; i < o->paths_count; i++) {
    int64_t added;
    begins[i] = count;
    if (!tsr_tokenizer_encode(tokenizer, &o->texts[i], tokens + count, &added, l->diags))
      return false;
    count += added;
  }
  *ret = (tsr_token_file){
      .path = o->paths[0],
      .format = TSR_TOKEN_FILE_TEXT,
      .type = TSR_TOKEN_I32,
      .tokens = tokens,
      .count = count,
      .begins = begins,
      .begins_count = o->paths_count};
  return true;
}

/* A char tokenizer without characters takes those of all the texts. */
static bool make_tokenizer(const loader *l, const opened *inputs, int count) {
  const tsr_tokenizer *given = &l->options->tokenizer;
  l->dataset->tokenizer = *given;
  if (given->kind != TSR_TOKENIZER_CHAR || given->chars) return true;
  int files = 0, at = 0;
  for (int i = 0; i < count; i++) files += inputs[i].is_text ? inputs[i].paths_count : 0;
  tsr_text_file *all = tsr_arena_array(l->scratch, tsr_text_file, files + 1);
  for (int i = 0; i < count; i++)
    for (int k = 0; inputs[i].is_text && k < inputs[i].paths_count; k++)
      all[at++] = inputs[i].texts[k];
  return tsr_tokenizer_char(l->arena, all, files, &l->dataset->tokenizer, l->diags);
}

/* ---- token files ---- */

static bool scan_tokens(const loader *l, const tsr_token_file *file, tsr_location location) {
  int64_t most = TSR_DATA_SCAN_BYTES / tsr_token_bytes(file->type);
  int64_t count = file->count < most ? file->count : most, vocab = l->dataset->vocab_size;
  int64_t bad = tsr_token_file_find_outside(file, 0, count, vocab);
  return bad < 0 || tsr_token_file_outside(file, bad, vocab, location, l->diags);
}

static bool check_documents(const loader *l, const tsr_token_file *file, tsr_location location) {
  if (!l->dataset->separate || l->dataset->end_of_text >= 0 || tsr_token_file_has_documents(file))
    return true;
  tsr_diag_error(l->diags, location, "'%s' does not mark where its documents end", file->path);
  tsr_diag_hint(l->diags, "training_config.end_of_text: the token that ends one");
  return false;
}

static bool check_vocab(const loader *l, const tsr_token_file *file, tsr_location location) {
  if (l->dataset->vocab_size) return true;
  tsr_diag_error(
      l->diags, location, "'%s' holds token numbers, but the size of the vocabulary is not known",
      file->path);
  if (file->vocab_size)
    tsr_diag_hint(
        l->diags, "transformer_config.vocab_size: %lld, by its tokenizer_vocab_size",
        (long long)file->vocab_size);
  else tsr_diag_hint(l->diags, "transformer_config.vocab_size sets it");
  return false;
}

static bool open_tokens(const loader *l, const opened *o, tsr_token_file *files) {
  tsr_location location = o->input->location;
  bool ok = true;
  for (int i = 0; i < o->paths_count; i++)
    ok = tsr_token_file_open(
             l->arena, o->paths[i], o->input->format, l->dataset->vocab_size, location, &files[i],
             l->diags) &&
         check_vocab(l, &files[i], location) && scan_tokens(l, &files[i], location) &&
         check_documents(l, &files[i], location) && ok;
  return ok;
}

/* ---- all of it ---- */

static bool open_source(const loader *l, const opened *o, tsr_data_source *ret) {
  const char *path = o->input->path;
  tsr_token_file *files =
      tsr_arena_array(l->arena, tsr_token_file, o->is_text ? 1 : o->paths_count);
  *ret = (tsr_data_source){
      .name = tsr_arena_strdup(l->arena, path),
      .is_text = o->is_text,
      .files = files,
      .files_count = o->is_text ? 1 : o->paths_count,
      .weight = o->input->weight};
  if (!(o->is_text ? encode_texts(l, o, files) : open_tokens(l, o, files))) return false;
  for (int i = 0; i < ret->files_count; i++) ret->tokens += files[i].count;
  ret->validation_at = ret->tokens;
  return true;
}

void tsr_dataset_mix(tsr_arena *arena, tsr_dataset *dataset) {
  const tsr_data_source *sources = dataset->sources;
  double weights[TSR_MIX_SOURCES_MAX];
  for (int i = 0; i < dataset->sources_count; i++) {
    double tokens = sources[i].tokens ? (double)sources[i].tokens : 1;
    weights[i] = sources[i].weight > 0 ? sources[i].weight : tokens;
  }
  tsr_mixture_make(arena, weights, dataset->sources_count, &dataset->mix);
}

static bool open_all(const loader *l) {
  const tsr_data_options *options = l->options;
  int count = options->inputs_count, all = count + (options->validation != NULL);
  opened *inputs = tsr_arena_array(l->scratch, opened, all);
  bool ok = true;
  for (int i = 0; i < all; i++) {
    ok = find_files(l, i < count ? &options->inputs[i] : options->validation, &inputs[i]) && ok;
    ok = ok && (!inputs[i].is_text || read_texts(l, &inputs[i]));
  }
  if (!ok || !make_tokenizer(l, inputs, count)) return false;
  if (l->dataset->end_of_text < 0)
    l->dataset->end_of_text = tsr_tokenizer_end_of_text(&l->dataset->tokenizer);
  l->dataset->vocab_size =
      options->vocab_size ? options->vocab_size : l->dataset->tokenizer.vocab_size;
  tsr_data_source *sources = tsr_arena_array(l->arena, tsr_data_source, all);
  for (int i = 0; i < all; i++) ok = open_source(l, &inputs[i], &sources[i]) && ok;
  l->dataset->sources = sources;
  l->dataset->sources_count = count;
  l->dataset->validation = options->validation ? &sources[count] : NULL;
  if (ok) tsr_dataset_mix(l->arena, l->dataset);
  return ok;
}

bool tsr_dataset_tokens(
    tsr_arena *arena, const tsr_data_options *options, tsr_dataset *ret_dataset, tsr_diags *diags) {
  assert(options->inputs_count >= 1 && options->inputs_count <= TSR_MIX_SOURCES_MAX);
  const char *first = tsr_arena_strdup(arena, options->inputs[0].path);
  *ret_dataset = (tsr_dataset){
      .kind = TSR_DATASET_TEXT,
      .name = options->inputs_count == 1
                  ? first
                  : tsr_arena_printf(arena, "%s (and %d more)", first, options->inputs_count - 1),
      .stride = options->stride,
      .separate = options->separate,
      .end_of_text = options->end_of_text};
  loader l = {arena, tsr_arena_new(), options, ret_dataset, diags};
  bool ok = open_all(&l);
  tsr_arena_free(l.scratch);
  if (!ok) tsr_dataset_close(ret_dataset);
  return ok;
}

bool tsr_dataset_text(
    tsr_arena *arena, const char *const *patterns, int count, const tsr_tokenizer *tokenizer,
    tsr_location location, tsr_dataset *ret_dataset, tsr_diags *diags) {
  assert(count > 0);
  tsr_data_input input = {.path = patterns[0], .format = TSR_TOKEN_FILE_TEXT, .location = location};
  tsr_data_options options = {
      .inputs = &input, .inputs_count = 1, .tokenizer = *tokenizer, .end_of_text = -1};
  *ret_dataset = (tsr_dataset){.kind = TSR_DATASET_TEXT, .end_of_text = -1};
  loader l = {arena, tsr_arena_new(), &options, ret_dataset, diags};
  opened text = {.input = &input, .is_text = true};
  bool ok = tsr_text_files_read(
      l.scratch, patterns, count, location, &text.texts, &text.paths_count, diags);
  text.paths = tsr_arena_array(arena, const char *, text.paths_count + 1);
  for (int i = 0; i < text.paths_count && ok; i++) /* diagnostics keep the paths */
    text.paths[i] = text.texts[i].path = tsr_arena_strdup(arena, text.texts[i].path);
  ret_dataset->sources = tsr_arena_array(arena, tsr_data_source, 1);
  ret_dataset->sources_count = 1;
  ok = ok && make_tokenizer(&l, &text, 1) && open_source(&l, &text, ret_dataset->sources);
  if (ok && count > 1)
    ret_dataset->sources->name =
        tsr_arena_printf(arena, "%s (and %d more)", patterns[0], count - 1);
  if (ok) tsr_dataset_mix(arena, ret_dataset);
  ret_dataset->name = ret_dataset->sources->name;
  ret_dataset->vocab_size = ret_dataset->tokenizer.vocab_size;
  tsr_arena_free(l.scratch);
  return ok;
}

static void close_source(const tsr_data_source *source) {
  for (int i = 0; source && i < source->files_count; i++) tsr_token_file_close(&source->files[i]);
}

void tsr_dataset_close(tsr_dataset *dataset) {
  for (int i = 0; i < dataset->sources_count; i++) close_source(&dataset->sources[i]);
  close_source(dataset->validation);
}
