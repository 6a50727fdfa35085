#include "train/source.h"
#include "base/file.h"
#include "data/order.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- what a graph takes ---- */

static int64_t least(int64_t a, int64_t b) { return !a || b < a ? b : a; }

/* Tokens are looked up, targets and labels compared with logits: none may lie outside. */
static int64_t token_limit(const tsr_graph *g, int value) {
  int64_t limit = 0;
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    if (n->op == TSR_OP_CE_LOSS && n->inputs[2] == value) limit = least(limit, (int64_t)n->attr[0]);
    if (n->op != TSR_OP_EMBEDDING || n->inputs[0] != value) continue;
    const tsr_value *table = &g->values[n->inputs[1]];
    limit = least(
        limit, table->kind == TSR_VALUE_PARAM ? g->params[table->param].valid0 : table->shape[0]);
  }
  return limit;
}

bool tsr_source_needs_of(const tsr_graph *g, tsr_source_needs *ret, tsr_diags *diags) {
  static const char *const names[] = {"tokens", "targets", "features", "labels", "values"};
  *ret = (tsr_source_needs){0};
  bool ok = true;
  for (int i = 0; i < g->values_count; i++) {
    const tsr_value *v = &g->values[i];
    if (v->kind != TSR_VALUE_INPUT) continue;
    int64_t last = v->ndim > 1 ? v->shape[v->ndim - 1] : 1;
    if (!strcmp(v->name, "tokens") || !strcmp(v->name, "targets")) {
      ret->text = true;
      ret->sequence = last;
      if (token_limit(g, i)) ret->vocab = least(ret->vocab, token_limit(g, i));
    } else if (!strcmp(v->name, "features")) {
      ret->features = last;
    } else if (!strcmp(v->name, "labels")) {
      ret->labels = true;
      ret->classes = token_limit(g, i);
    } else if (!strcmp(v->name, "values")) {
      ret->classes = last;
    } else {
      ok = tsr_diag_error(diags, v->place, "no data is called '%s'", v->name);
      tsr_diag_nearest(diags, v->name, names, 5);
    }
  }
  if (ok && ret->text == (ret->features > 0))
    return tsr_diag_error(
        diags, TSR_NOWHERE,
        "a graph with a loss takes tokens and targets, or features with labels or values");
  return ok;
}

/* ---- opening ---- */

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

bool tsr_source_open(
    tsr_arena *arena, const tsr_config *c, const tsr_source_needs *needs, tsr_source *ret,
    tsr_diags *diags) {
  *ret = (tsr_source){.config = c};
  tsr_place place = tsr_config_place(c, "training_config.data_path");
  if (!place.file) place.file = c->file;
  if (!c->training.data_path[0]) {
    tsr_diag_error(diags, place, "no data: training_config.data_path is not given");
    tsr_diag_hint(diags, "a text file or pattern, a .csv table, or a folder of MNIST's IDX files");
    return false;
  }
  const char *path = find_path(arena, c);
  if (!path) path = c->training.data_path; /* the error of a missing file */
  bool ok;
  if (ends_with(path, ".csv") && !needs->text) {
    tsr_table_columns columns = {.is_label = needs->labels};
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

static bool
check_lengths(const tsr_source *s, int64_t sequence, tsr_place place, tsr_diags *diags) {
  const tsr_config_training *c = &s->config->training;
  if (!tsr_dataset_check(&s->dataset, TSR_SPLIT_TRAIN, sequence, place, diags)) return false;
  bool evaluates = c->eval_every && c->validation_fraction > 0;
  if (!evaluates || tsr_dataset_check(&s->dataset, TSR_SPLIT_VALIDATION, sequence, place, diags))
    return true;
  tsr_diag_hint(diags, "training_config.eval_every: 0 switches evaluation off");
  return false;
}

static bool
check_text(const tsr_dataset *d, const tsr_source_needs *needs, tsr_place place, tsr_diags *diags) {
  if (d->tokenizer.vocab_size <= needs->vocab) return true;
  return tsr_diag_error(
      diags, place, "'%s' has a vocabulary of %d, but the model's vocab_size is %lld", d->name,
      d->tokenizer.vocab_size, (long long)needs->vocab);
}

static bool
check_rows(const tsr_dataset *d, const tsr_source_needs *needs, tsr_place place, tsr_diags *diags) {
  if (d->table.features != needs->features)
    return tsr_diag_error(
        diags, place, "'%s' has %lld features a row, but the model takes %lld", d->name,
        (long long)d->table.features, (long long)needs->features);
  int64_t given = d->table.classes ? d->table.classes : d->table.targets;
  if (needs->labels != (d->table.classes > 0))
    return tsr_diag_error(
        diags, place, "'%s' has %s, but the model takes %s", d->name,
        d->table.classes ? "class labels" : "target values",
        needs->labels ? "class labels" : "target values");
  if (needs->labels ? given <= needs->classes : given == needs->classes) return true;
  return tsr_diag_error(
      diags, place, "'%s' has %lld %s, but the model gives %lld outputs", d->name, (long long)given,
      needs->labels ? "classes" : "target columns", (long long)needs->classes);
}

bool tsr_source_check(const tsr_source *s, const tsr_source_needs *needs, tsr_diags *diags) {
  const tsr_dataset *d = &s->dataset;
  tsr_place place = tsr_config_place(s->config, "training_config.data_path");
  bool text = d->kind == TSR_DATASET_TEXT;
  if (text != needs->text)
    return tsr_diag_error(
        diags, place, "'%s' is %s, but the model takes %s", d->name,
        text ? "a text" : "a table of numbers", needs->text ? "a text" : "numbers");
  if (!check_lengths(s, needs->sequence, place, diags)) return false;
  return text ? check_text(d, needs, place, diags) : check_rows(d, needs, place, diags);
}

bool tsr_source_check_prompt(tsr_arena *arena, const tsr_source *s, tsr_diags *diags) {
  const char *prompt = s->config->eval.prompt;
  if (s->dataset.kind != TSR_DATASET_TEXT || !prompt[0]) return true;
  int32_t *tokens = tsr_arena_array(arena, int32_t, strlen(prompt));
  int64_t count;
  tsr_text_file file = {"eval_config.prompt", prompt, strlen(prompt)};
  tsr_diags *unplaced = tsr_diags_new(arena); /* its place would be inside the prompt's text */
  if (tsr_tokenizer_encode(&s->dataset.tokenizer, &file, tokens, &count, unplaced)) return true;
  return tsr_diag_error(
      diags, tsr_config_place(s->config, "eval_config.prompt"),
      "the prompt '%s' has a character that is not in the vocabulary of '%s'", prompt,
      s->dataset.name);
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

static void ignore_all(int32_t *targets, int64_t count) {
  for (int64_t i = 0; i < count; i++) targets[i] = -100;
}

/* A text sample is its tokens and its targets; each input asks for one of them. */
static void fill_text(const tsr_source_step *s, const char *input, int64_t index, int32_t *row) {
  int64_t T = s->source->sequence;
  bool targets = !strcmp(input, "targets");
  tsr_dataset_fill_tokens(
      &s->source->dataset, s->split, index, T, targets ? NULL : row, targets ? row : NULL);
  if (targets) ignore_targets(s->source, row, T);
}

void tsr_source_fill(void *context, const char *input, int64_t sample, void *row) {
  const tsr_source_step *s = context;
  const tsr_dataset *d = &s->source->dataset;
  bool padding = sample >= s->samples;
  int64_t index = sample_index(s, padding ? 0 : sample);
  if (d->kind == TSR_DATASET_TEXT) {
    fill_text(s, input, index, row);
    if (padding && !strcmp(input, "targets")) ignore_all(row, s->source->sequence);
  } else if (!strcmp(input, "features")) {
    tsr_dataset_fill_features(d, s->split, index, row);
  } else if (d->table.classes) {
    tsr_dataset_fill_label(d, s->split, index, row);
    ignore_targets(s->source, row, 1);
    if (padding) ignore_all(row, 1);
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
