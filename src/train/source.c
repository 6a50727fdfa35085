#include "train/source.h"
#include "base/file.h"
#include "data/order.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool ends_with(const char *text, const char *end) {
  size_t n = strlen(text), m = strlen(end);
  return n >= m && !strcasecmp(text + n - m, end);
}

static bool open_text(
    tsr_arena *arena, const tsr_config *c, const char *path, tsr_dataset *ret, tsr_diags *diags) {
  tsr_tokenizer tokenizer = {.kind = TSR_TOKENIZER_CHAR};
  if (c->training.tokenizer_type == TSR_TOKENS_BYTE) tokenizer = tsr_tokenizer_byte();
  tsr_place place = tsr_config_place(c, "training_config.data_path");
  return tsr_dataset_text(arena, &path, 1, &tokenizer, place, ret, diags);
}

/* Whether a path is there; of a pattern, the folder before its first wildcard. */
static bool is_there(tsr_arena *arena, const char *path) {
  size_t plain = strcspn(path, "*?[");
  if (!path[plain]) return tsr_file_exists(path);
  char *start = tsr_arena_strndup(arena, path, plain);
  char *slash = strrchr(start, '/');
  if (slash) *slash = 0;
  return tsr_file_exists(slash ? (*start ? start : "/") : ".");
}

/* As written, or relative to the configuration's folder or one of its parents; NULL: nowhere. */
static const char *find_path(tsr_arena *arena, const tsr_config *c) {
  const char *path = c->training.data_path;
  if (!path[0]) return NULL;
  if (is_there(arena, path)) return path;
  const char *folder = tsr_path_folder(arena, c->file);
  for (int up = 0; up < 6 && path[0] != '/'; up++) {
    const char *tried = tsr_arena_printf(arena, "%s/%s", folder, path);
    if (is_there(arena, tried)) return tried;
    folder = tsr_arena_printf(arena, "%s/..", folder);
  }
  return NULL;
}

bool tsr_source_exists(tsr_arena *arena, const tsr_config *config) {
  return find_path(arena, config) != NULL;
}

static bool is_folder(const char *path) {
  DIR *d = opendir(path);
  if (d) closedir(d);
  return d != NULL;
}

bool tsr_source_open(tsr_arena *arena, const tsr_config *c, tsr_source *ret, tsr_diags *diags) {
  *ret = (tsr_source){.config = c};
  tsr_place place = tsr_config_place(c, "training_config.data_path");
  if (!c->training.data_path[0]) {
    tsr_diag_error(diags, place, "no data: training_config.data_path is not given");
    tsr_diag_hint(diags, "a text file or pattern, a .csv table, or a folder of MNIST's IDX files");
    return false;
  }
  const char *path = find_path(arena, c);
  if (!path) path = c->training.data_path; /* the error of a missing file */
  bool ok;
  if (ends_with(path, ".csv") && c->model.kind && strcmp(c->model.kind, "transformer")) {
    bool labels = !strcmp(c->model.model_type, "mlp");
    tsr_table_columns columns = {.is_label = labels};
    ok = tsr_dataset_table(arena, path, &columns, place, &ret->dataset, diags);
  } else if (is_folder(path)) {
    const char *images = tsr_path_join(arena, path, "train-images-idx3-ubyte");
    const char *labels = tsr_path_join(arena, path, "train-labels-idx1-ubyte");
    ok = tsr_dataset_images(arena, images, labels, place, &ret->dataset, diags);
  } else {
    if (c->training.tokenizer_type == TSR_TOKENS_BPE) {
      tsr_diag_error(
          diags, tsr_config_place(c, "training_config.tokenizer_type"),
          "tokenizer_type bpe needs tokens made by a tokenizer.json, which this release does not "
          "read");
      tsr_diag_hint(diags, "valid: char, byte");
      return false;
    }
    ok = open_text(arena, c, path, &ret->dataset, diags);
  }
  if (ok) tsr_dataset_split(&ret->dataset, c->training.validation_fraction);
  return ok;
}

bool tsr_source_check(
    const tsr_source *s, int64_t sequence, int64_t vocab_size, int64_t features, int64_t classes,
    tsr_diags *diags) {
  const tsr_dataset *d = &s->dataset;
  tsr_place place = tsr_config_place(s->config, "training_config.data_path");
  if (!tsr_dataset_check(d, TSR_SPLIT_TRAIN, sequence, place, diags)) return false;
  if (s->config->training.eval_every && s->config->training.validation_fraction > 0 &&
      !tsr_dataset_check(d, TSR_SPLIT_VALIDATION, sequence, place, diags)) {
    tsr_diag_hint(diags, "training_config.eval_every: 0 switches evaluation off");
    return false;
  }
  if (d->kind == TSR_DATASET_TEXT && d->tokenizer.vocab_size > vocab_size)
    return tsr_diag_error(
        diags, place, "'%s' has a vocabulary of %d, but the model's vocab_size is %lld", d->name,
        d->tokenizer.vocab_size, (long long)vocab_size);
  if (d->kind != TSR_DATASET_TEXT && d->table.features != features)
    return tsr_diag_error(
        diags, place, "'%s' has %lld features a row, but the model takes %lld", d->name,
        (long long)d->table.features, (long long)features);
  int64_t given = d->table.classes ? d->table.classes : d->table.targets;
  bool fits = d->table.classes ? given <= classes : given == classes;
  if (d->kind == TSR_DATASET_TEXT || fits) return true;
  return tsr_diag_error(
      diags, place, "'%s' has %lld %s, but the model gives %lld outputs", d->name, (long long)given,
      d->table.classes ? "classes" : "target columns", (long long)classes);
}

static int64_t sample_index(const tsr_source_step *s, int64_t sample) {
  int64_t n = tsr_dataset_samples(&s->source->dataset, s->split, s->source->sequence);
  uint64_t seed = s->source->config->training.seed;
  return tsr_order_sample(s->split == TSR_SPLIT_TRAIN ? seed : ~seed, n, s->first + sample);
}

static void ignore_targets(const tsr_source *s, int32_t *targets, int64_t count) {
  int64_t ignored = s->config->training.ignore_index;
  for (int64_t i = 0; i < count; i++)
    if (targets[i] == ignored) targets[i] = -100;
}

/* A text sample is its tokens and its targets; each input asks for one of them. */
static void fill_text(const tsr_source_step *s, bool targets, int64_t index, int32_t *row) {
  const tsr_dataset *d = &s->source->dataset;
  int64_t T = s->source->sequence, start = s->split == TSR_SPLIT_TRAIN ? 0 : d->validation_at;
  memcpy(row, d->tokens + start + index + targets, sizeof *row * (size_t)T);
  if (targets) ignore_targets(s->source, row, T);
}

void tsr_source_fill(void *context, const char *input, int64_t sample, void *row) {
  const tsr_source_step *s = context;
  const tsr_dataset *d = &s->source->dataset;
  int64_t index = sample_index(s, sample);
  if (d->kind == TSR_DATASET_TEXT) {
    fill_text(s, !strcmp(input, "targets"), index, row);
  } else if (!strcmp(input, "features")) {
    tsr_dataset_fill_features(d, s->split, index, row);
  } else if (d->table.classes) {
    tsr_dataset_fill_label(d, s->split, index, row);
    ignore_targets(s->source, row, 1);
  } else {
    tsr_dataset_fill_targets(d, s->split, index, row);
  }
}

int64_t tsr_source_targets(const tsr_source_step *s, int64_t samples) {
  const tsr_dataset *d = &s->source->dataset;
  bool text = d->kind == TSR_DATASET_TEXT;
  int64_t each = text ? s->source->sequence : 1, count = samples * each;
  if (s->source->config->training.ignore_index < 0 || (!text && !d->table.classes)) return count;
  for (int64_t i = 0; i < samples; i++) {
    int64_t index = sample_index(s, i);
    int64_t start = s->split == TSR_SPLIT_TRAIN ? 0 : d->validation_at;
    for (int64_t t = 0; t < each; t++) {
      int32_t target = text ? d->tokens[start + index + 1 + t] : d->table.labels[start + index];
      count -= target == s->source->config->training.ignore_index;
    }
  }
  return count;
}
