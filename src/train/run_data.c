// SPDX-License-Identifier: Apache-2.0
#include "train/run_data.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include "data/sources.h"
#include "graph/documents.h"
#include "train/chat_data.h"
#include "train/data_paths.h"
#include "train/label_data.h"
#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

bool tsr_run_data_exist(tsr_arena *arena, const tsr_config *config) {
  const tsr_config_training *t = &config->training;
  for (int i = 0; i < t->data_sources_count; i++)
    if (!tsr_data_path_find(arena, config, t->data_sources[i].path)) return false;
  return t->data_sources_count || tsr_data_path_find(arena, config, t->data_path);
}

/* ---- tokens ---- */

/* The vocabulary size in the model's file: the graph is not read yet. 0: not found there. */
static int64_t vocab_of_model(const tsr_config *c) {
  int64_t vocab = 0;
  const tsr_yaml *node = c->model.map ? tsr_yaml_get(c->model.map, "vocab_size") : NULL;
  return node && tsr_yaml_int(node, &vocab) && vocab > 0 && vocab <= INT32_MAX ? vocab : 0;
}

static bool is_token_file(tsr_arena *arena, const tsr_data_input *input) {
  if (input->format != TSR_TOKEN_FILE_AUTO) return input->format != TSR_TOKEN_FILE_TEXT;
  return input->tokens || tsr_token_file_is(arena, input->path);
}

static tsr_data_input
input_of(tsr_arena *arena, const tsr_config *c, const tsr_config_data_source *source) {
  tsr_data_format format = source->format ? source->format : c->training.data_format;
  return (tsr_data_input){
      .path = tsr_data_path(arena, c, source->path),
      .format = (tsr_token_format)format,
      .weight = source->weight,
      .location = source->location,
      .tokens = c->data.format == TSR_FILES_TOKENS};
}

static tsr_data_input *
inputs_of(tsr_arena *arena, const tsr_config *c, tsr_location location, int *ret_count) {
  const tsr_config_training *t = &c->training;
  int count = t->data_sources_count ? t->data_sources_count : 1;
  tsr_data_input *inputs = tsr_arena_array(arena, tsr_data_input, count);
  for (int i = 0; i < count; i++) {
    tsr_config_data_source one = {.path = t->data_path, .location = location};
    if (t->data_sources_count) one = t->data_sources[i];
    inputs[i] = input_of(arena, c, &one);
  }
  *ret_count = count;
  return inputs;
}

static bool read_bpe(
    tsr_arena *arena, const tsr_config *c, tsr_tokenizer *ret, const char **ret_file,
    tsr_diags *diags) {
  const tsr_config_training *t = &c->training;
  if (!t->tokenizer_path[0]) {
    tsr_diag_error(
        diags, tsr_config_location(c, "training_config.tokenizer_type"),
        "tokenizer_type bpe needs a tokenizer.json: training_config.tokenizer_path is not given");
    tsr_diag_hint(diags, "other types need no file: char, byte");
    return false;
  }
  tsr_subword *subword;
  const char *path = tsr_data_path(arena, c, t->tokenizer_path);
  tsr_location location = tsr_config_location(c, "training_config.tokenizer_path");
  if (!tsr_subword_read(arena, path, location, &subword, diags)) return false;
  *ret = tsr_tokenizer_subword(subword);
  *ret_file = path;
  return true;
}

/* The characters of a file, such as a checkpoint's vocabulary.txt. */
static bool read_characters(
    tsr_arena *arena, const tsr_config *c, tsr_tokenizer *ret, const char **ret_file,
    tsr_diags *diags) {
  tsr_location location = tsr_config_location(c, "training_config.tokenizer_path");
  const char *path = tsr_data_path(arena, c, c->training.tokenizer_path);
  tsr_text_file *files;
  int count;
  *ret_file = path;
  return tsr_text_files_read(arena, &path, 1, location, &files, &count, diags) &&
         tsr_tokenizer_char(arena, files, count, ret, diags);
}

bool tsr_run_data_open_tokenizer(
    tsr_arena *arena, const tsr_config *c, tsr_run_data *ret, tsr_diags *diags) {
  tsr_tokenizer *tokenizer = &ret->dataset.tokenizer;
  *ret = (tsr_run_data){.config = c, .dataset = {.kind = TSR_DATASET_TEXT}};
  tsr_tokenizer_type type = c->training.tokenizer_type;
  bool has_file = c->training.tokenizer_path[0];
  *tokenizer = tsr_tokenizer_byte();
  if (type == TSR_TOKENS_BYTE) return true;
  if (has_file && type == TSR_TOKENS_CHAR)
    return read_characters(arena, c, tokenizer, &ret->tokenizer_file, diags);
  if (!has_file && vocab_of_model(c)) {
    *tokenizer = tsr_tokenizer_ids((int32_t)vocab_of_model(c));
    return true;
  }
  if (type == TSR_TOKENS_BPE) return read_bpe(arena, c, tokenizer, &ret->tokenizer_file, diags);
  tsr_diag_error(
      diags, tsr_config_location(c, "training_config.tokenizer_type"),
      "which characters are there? training_config.tokenizer_path is not given");
  return false;
}

/* Tokens alone are shown as numbers where no tokenizer is named. */
static bool choose_tokenizer(
    tsr_arena *arena, const tsr_config *c, const tsr_data_input *inputs, int count,
    tsr_tokenizer *ret, const char **ret_file, tsr_diags *diags) {
  tsr_tokenizer_type type = c->training.tokenizer_type;
  bool all_tokens = true, has_file = c->training.tokenizer_path[0];
  for (int i = 0; i < count; i++) all_tokens = all_tokens && is_token_file(arena, &inputs[i]);
  *ret = tsr_tokenizer_byte();
  if (type == TSR_TOKENS_BYTE) return true;
  if (has_file && type == TSR_TOKENS_CHAR) return read_characters(arena, c, ret, ret_file, diags);
  if (type == TSR_TOKENS_BPE && (has_file || !all_tokens))
    return read_bpe(arena, c, ret, ret_file, diags);
  if (all_tokens && vocab_of_model(c)) *ret = tsr_tokenizer_ids((int32_t)vocab_of_model(c));
  else *ret = (tsr_tokenizer){.kind = TSR_TOKENIZER_CHAR};
  return true;
}

static bool open_tokens(
    tsr_arena *arena, const tsr_config *c, tsr_location location, tsr_run_data *ret,
    tsr_diags *diags) {
  const tsr_config_training *t = &c->training;
  tsr_data_options options = {
      .vocab_size = vocab_of_model(c),
      .stride = t->sample_stride,
      .separate = t->documents == TSR_DOCUMENTS_SEPARATE,
      .end_of_text = t->end_of_text};
  tsr_data_input *inputs = inputs_of(arena, c, location, &options.inputs_count), validation;
  options.inputs = inputs;
  if (!choose_tokenizer(
          arena, c, inputs, options.inputs_count, &options.tokenizer, &ret->tokenizer_file, diags))
    return false;
  if (t->validation_path[0]) {
    tsr_config_data_source own = {.path = t->validation_path};
    own.location = tsr_config_location(c, "training_config.validation_path");
    validation = input_of(arena, c, &own);
    options.validation = &validation;
  }
  if (c->data.format == TSR_FILES_CHAT)
    return tsr_chat_data_open(arena, c, &options, ret->tokenizer_file, &ret->dataset, diags);
  if (c->data.format == TSR_FILES_LABELS)
    return tsr_label_data_open(arena, c, &options, ret->tokenizer_file, &ret->dataset, diags);
  return tsr_dataset_tokens(arena, &options, &ret->dataset, diags);
}

static bool is_folder(const char *path) {
  DIR *d = tsr_disk_open_folder(path);
  if (d) closedir(d);
  return d != NULL;
}

static tsr_location place_of_data(const tsr_config *c) {
  return tsr_config_location(
      c, c->training.data_sources_count ? "training_config.data_sources"
                                        : "training_config.data_path");
}

static bool no_data(const tsr_config *c, tsr_location location, tsr_diags *diags) {
  if (c->training.data_path[0] || c->training.data_sources_count) return false;
  const char *files =
      "a text file or pattern, a token file, a .csv table, or a folder of MNIST's IDX files";
  if (c->data.format == TSR_FILES_CHAT) files = "a file or pattern of lines with conversations";
  if (c->data.format == TSR_FILES_LABELS)
    files = "a file or pattern of lines of {\"text\": \"…\", \"label\": …}";
  tsr_diag_error(diags, location, "no data: training_config.data_path is not given");
  tsr_diag_hint(diags, "%s", files);
  return true;
}

/* A table, or a folder of MNIST's files, which has another pair for validation. */
static bool open_rows(
    tsr_arena *arena, const char *path, const tsr_run_data_needs *needs, bool validation,
    tsr_location location, tsr_dataset *ret, tsr_diags *diags) {
  if (!is_folder(path)) {
    tsr_table_columns columns = {.is_label = needs->labels};
    return tsr_dataset_table(arena, path, &columns, location, ret, diags);
  }
  const char *images = tsr_path_join(arena, path, "t10k-images-idx3-ubyte");
  bool other = validation && tsr_file_exists(images);
  if (!other) images = tsr_path_join(arena, path, "train-images-idx3-ubyte");
  if (!tsr_file_exists(images)) {
    int length = (int)strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    tsr_diag_error(
        diags, location,
        needs->text ? "'%s' is a folder"
                    : "'%s' is a folder without train-images-idx3-ubyte (MNIST)",
        path);
    tsr_diag_hint(diags, "of files in a folder a pattern: %.*s/*.txt", length, path);
    return false;
  }
  const char *labels =
      tsr_path_join(arena, path, other ? "t10k-labels-idx1-ubyte" : "train-labels-idx1-ubyte");
  return tsr_dataset_images(arena, images, labels, location, ret, diags);
}

static bool add_validation(
    tsr_arena *arena, const tsr_config *c, const tsr_run_data_needs *needs, tsr_dataset *to,
    tsr_diags *diags) {
  tsr_dataset rows;
  tsr_location location = tsr_config_location(c, "training_config.validation_path");
  const char *path = tsr_data_path(arena, c, c->training.validation_path);
  return open_rows(arena, path, needs, true, location, &rows, diags) &&
         tsr_dataset_add_validation(arena, to, &rows, location, diags);
}

bool tsr_run_data_open(
    tsr_arena *arena, const tsr_config *c, const tsr_run_data_needs *needs, tsr_run_data *ret,
    tsr_diags *diags) {
  *ret = (tsr_run_data){.config = c, .fault = tsr_arena_array(arena, tsr_run_data_fault, 1)};
  tsr_location location = place_of_data(c);
  if (!location.file) location.file = c->file;
  if (no_data(c, location, diags)) return false;
  tsr_data_paths_report(arena, c, diags);
  const char *path = tsr_data_path(arena, c, c->training.data_path);
  bool one = !c->training.data_sources_count, own = c->training.validation_path[0];
  bool rows = one && c->data.format == TSR_FILES_AUTO &&
              ((tsr_path_ends(path, ".csv") && !needs->text) || is_folder(path));
  bool ok = rows ? open_rows(arena, path, needs, false, location, &ret->dataset, diags)
                 : open_tokens(arena, c, location, ret, diags);
  if (ok && rows && own) return add_validation(arena, c, needs, &ret->dataset, diags);
  if (ok && !ret->dataset.validation)
    tsr_dataset_split(&ret->dataset, c->training.validation_fraction);
  return ok;
}

void tsr_run_data_set_sequence(tsr_arena *arena, tsr_run_data *data, int64_t sequence) {
  data->sequence = sequence;
  tsr_dataset_pack(arena, &data->dataset, sequence);
}

static bool
check_lengths(const tsr_run_data *s, int64_t sequence, tsr_location location, tsr_diags *diags) {
  const tsr_config_training *c = &s->config->training;
  if (!tsr_dataset_check(&s->dataset, TSR_SPLIT_TRAIN, sequence, location, diags)) return false;
  bool evaluates = c->eval_every && c->validation_fraction > 0;
  if (s->dataset.validation)
    location = tsr_config_location(s->config, "training_config.validation_path");
  if (!evaluates || tsr_dataset_check(&s->dataset, TSR_SPLIT_VALIDATION, sequence, location, diags))
    return true;
  tsr_diag_hint(diags, "training_config.eval_every: 0 switches evaluation off");
  return false;
}

bool tsr_run_data_check_end_of_text(
    const tsr_config *c, const tsr_run_data_needs *needs, tsr_diags *diags) {
  int64_t token = c->training.end_of_text;
  if (!needs->text || !needs->vocab || token < needs->vocab) return true;
  return tsr_diag_error(
      diags, tsr_config_location(c, "training_config.end_of_text"),
      "'end_of_text' is %lld, but the model's vocabulary has %lld", (long long)token,
      (long long)needs->vocab);
}

bool tsr_run_data_check_sequence(
    const tsr_config *c, const tsr_run_data_needs *needs, tsr_diags *diags) {
  int64_t wanted = c->training.sequence_length;
  if (!needs->text || !wanted || wanted == needs->sequence) return true;
  return tsr_diag_error(
      diags, tsr_config_location(c, "training_config.sequence_length"),
      "'sequence_length' is %lld, but the graph's tokens have %lld positions", (long long)wanted,
      (long long)needs->sequence);
}

/* A label that the model has no output for: the classes of a graph of the user's are not known when
 * lines are encoded. */
static bool check_classes(
    const tsr_masked_documents *d, int64_t classes, tsr_location location, tsr_diags *diags) {
  for (int64_t i = 0; i < d->count; i++)
    if (d->labels[i] >= classes)
      return tsr_diag_error(
          diags, location, "'%s', line %d: label %d is none of the model's %lld classes",
          d->paths[d->places[i].file], d->places[i].line, d->labels[i], (long long)classes);
  return true;
}

static bool has_labels(const tsr_data_source *s) { return s->documents && s->documents->labels; }

bool tsr_run_data_check_labels(
    const tsr_run_data *s, const tsr_run_data_needs *needs, tsr_diags *diags) {
  const tsr_dataset *d = &s->dataset;
  const tsr_config *c = s->config;
  tsr_location location = place_of_data(c);
  bool labels = d->kind == TSR_DATASET_TEXT && has_labels(&d->sources[0]);
  if (labels && !needs->labels) {
    tsr_diag_error(
        diags, tsr_config_location(c, "data.format"),
        "the data are texts with labels, and the model predicts tokens");
    tsr_diag_hint(
        diags, "num_labels: N in the model's section gives it a score for each of N classes");
    return false;
  }
  if (needs->text && needs->labels && !labels) {
    tsr_diag_error(
        diags, location, "'%s' has no labels, and the model tells %lld classes apart (num_labels)",
        d->name, (long long)needs->classes);
    tsr_diag_hint(diags, "data: {format: labels} reads lines of {\"text\": \"…\", \"label\": …}");
    return false;
  }
  int all = labels ? d->sources_count + (d->validation != NULL) : 0; /* which is behind them */
  for (int i = 0; i < all; i++)
    if (!check_classes(d->sources[i].documents, needs->classes, location, diags)) return false;
  return true;
}

static bool check_text(
    const tsr_run_data *s, const tsr_run_data_needs *needs, tsr_location location,
    tsr_diags *diags) {
  const tsr_dataset *d = &s->dataset;
  if (!tsr_run_data_check_labels(s, needs, diags)) return false;
  if (d->tokenizer.vocab_size <= needs->vocab) return true;
  return tsr_diag_error(
      diags, location, "'%s' has a vocabulary of %d, but the model's vocab_size is %lld", d->name,
      d->tokenizer.vocab_size, (long long)needs->vocab);
}

static bool check_rows(
    const tsr_dataset *d, const tsr_run_data_needs *needs, tsr_location location,
    tsr_diags *diags) {
  if (d->table.features != needs->features)
    return tsr_diag_error(
        diags, location, "'%s' has %lld features a row, but the model takes %lld", d->name,
        (long long)d->table.features, (long long)needs->features);
  int64_t given = d->table.classes ? d->table.classes : d->table.targets;
  if (needs->labels != (d->table.classes > 0))
    return tsr_diag_error(
        diags, location, "'%s' has %s, but the model takes %s", d->name,
        d->table.classes ? "class labels" : "target values",
        needs->labels ? "class labels" : "target values");
  if (needs->labels ? given <= needs->classes : given == needs->classes) return true;
  return tsr_diag_error(
      diags, location, "'%s' has %lld %s, but the model gives %lld outputs", d->name,
      (long long)given, needs->labels ? "classes" : "target columns", (long long)needs->classes);
}

bool tsr_run_data_check(const tsr_run_data *s, const tsr_run_data_needs *needs, tsr_diags *diags) {
  const tsr_dataset *d = &s->dataset;
  tsr_location location = place_of_data(s->config);
  bool text = d->kind == TSR_DATASET_TEXT;
  if (text != needs->text)
    return tsr_diag_error(
        diags, location, "'%s' is %s, but the model takes %s", d->name,
        text ? "a text" : "a table of numbers", needs->text ? "a text" : "numbers");
  if (!check_lengths(s, needs->sequence, location, diags)) return false;
  return text ? check_text(s, needs, location, diags) : check_rows(d, needs, location, diags);
}

bool tsr_run_data_check_prompt(tsr_arena *arena, const tsr_run_data *s, tsr_diags *diags) {
  const char *prompt = s->config->eval.prompt;
  if (s->dataset.kind != TSR_DATASET_TEXT || !prompt[0]) return true;
  int64_t count, room = tsr_tokenizer_room(&s->dataset.tokenizer, prompt, strlen(prompt));
  int32_t *tokens = tsr_arena_array(arena, int32_t, room);
  tsr_text_file file = {"eval_config.prompt", prompt, strlen(prompt)};
  tsr_diags *unplaced = tsr_diags_new(arena); /* its place would be inside the prompt's text */
  if (tsr_tokenizer_encode(&s->dataset.tokenizer, &file, tokens, &count, unplaced)) return true;
  return tsr_diag_error(
      diags, tsr_config_location(s->config, "eval_config.prompt"),
      "the prompt '%s' has a character that is not in the vocabulary of '%s'", prompt,
      s->dataset.name);
}

int64_t tsr_run_data_index(const tsr_run_data_step *s, int64_t sample) {
  uint64_t seed = s->data->config->training.seed;
  return tsr_dataset_sample_at(
      &s->data->dataset, s->split, s->data->sequence, s->split == TSR_SPLIT_TRAIN ? seed : ~seed,
      s->first + sample);
}

static void ignore_targets(const tsr_run_data *s, int32_t *targets, int64_t count) {
  int64_t ignored = s->config->training.ignore_index;
  for (int64_t i = 0; i < count; i++)
    if (targets[i] == ignored) targets[i] = TSR_TARGET_IGNORED;
}

static void ignore_all(int32_t *targets, int64_t count) {
  for (int64_t i = 0; i < count; i++) targets[i] = TSR_TARGET_IGNORED;
}

/* The vocabulary's end is checked where a token is used, for what was not looked at when the file
 * was opened. The first fault of all threads is kept; its sample is made harmless. */
static bool has_fault(const tsr_run_data_step *s, int64_t index, int32_t *row) {
  const tsr_run_data *data = s->data;
  const tsr_token_file *file;
  int64_t at = tsr_dataset_find_outside(&data->dataset, s->split, index, data->sequence, &file);
  if (at < 0) return false;
  const tsr_token_file *none = NULL;
  if (atomic_compare_exchange_strong(&data->fault->file, &none, file))
    atomic_store(&data->fault->token, at);
  memset(row, 0, sizeof *row * (size_t)data->sequence);
  return true;
}

bool tsr_run_data_check_used(const tsr_run_data *data, tsr_diags *diags) {
  const tsr_token_file *file = data->fault ? atomic_load(&data->fault->file) : NULL;
  return tsr_file_maps_check(diags) &&
         (!file || tsr_token_file_outside(
                       file, atomic_load(&data->fault->token), data->dataset.vocab_size,
                       place_of_data(data->config), diags));
}

/* A text sample is its tokens, targets and positions; each input asks for one of them. */
static void fill_text(const tsr_run_data_step *s, const char *input, int64_t index, int32_t *row) {
  int64_t T = s->data->sequence;
  bool targets = tsr_input_is_target(input);
  if (has_fault(s, index, row)) return;
  if (!strcmp(input, TSR_DOCUMENT_POSITIONS)) {
    tsr_dataset_fill_positions(&s->data->dataset, s->split, index, T, row);
    return;
  }
  tsr_dataset_fill_tokens(
      &s->data->dataset, s->split, index, T, targets ? NULL : row, targets ? row : NULL);
  if (targets) ignore_targets(s->data, row, T);
}

void tsr_run_data_fill(void *context, const char *input, int64_t sample, void *row) {
  const tsr_run_data_step *s = context;
  const tsr_dataset *d = &s->data->dataset;
  bool padding = sample >= s->samples;
  int64_t index = tsr_run_data_index(s, padding ? 0 : sample);
  if (d->kind == TSR_DATASET_TEXT) {
    fill_text(s, input, index, row);
    if (padding && tsr_input_is_target(input)) ignore_all(row, s->data->sequence);
  } else if (!strcmp(input, "features")) {
    tsr_dataset_fill_features(d, s->split, index, row);
  } else if (d->table.classes) {
    tsr_dataset_fill_label(d, s->split, index, row);
    ignore_targets(s->data, row, 1);
    if (padding) ignore_all(row, 1);
  } else {
    tsr_dataset_fill_targets(d, s->split, index, row);
  }
}

int64_t tsr_run_data_targets(const tsr_run_data_step *step, int64_t samples) {
  const tsr_dataset *d = &step->data->dataset;
  int64_t ignored = step->data->config->training.ignore_index, T = step->data->sequence;
  bool text = d->kind == TSR_DATASET_TEXT;
  int64_t count = samples * (text ? T : 1);
  if ((ignored < 0 && !d->separate) || (!text && !d->table.classes)) return count;
  count = 0;
  for (int64_t i = 0; i < samples; i++) {
    int64_t index = tsr_run_data_index(step, i);
    int32_t label;
    if (text) {
      count += tsr_dataset_count_targets(d, step->split, index, T, ignored);
    } else {
      tsr_dataset_fill_label(d, step->split, index, &label);
      count += label != ignored;
    }
  }
  return count;
}
