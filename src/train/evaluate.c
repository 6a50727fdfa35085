// SPDX-License-Identifier: Apache-2.0
#include "train/evaluate.h"
#include "base/command_progress.h"
#include "data/sources.h"
#include "graph/documents.h"
#include "train/score_check.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A window of which the first `real` tokens have targets. */
typedef struct {
  tsr_window tokens;
  int64_t real;
} window;

typedef struct {
  const tsr_run_data *data;
  tsr_data_range *ranges;
  int ranges_count;
  int64_t T;
  int at_range; /* the next batch's first window */
  int64_t at_window;
  window *windows; /* the batch that is under way */
  int64_t windows_count;
  tsr_label_scorer scorer; /* of labels, where documents have any: */
  tsr_label_score *scores; /* (T) */
  int64_t documents_capacity;
} walk;

/* A range's window of that number; false behind the last one. */
static bool window_of(const walk *w, const tsr_data_range *r, int64_t number, window *ret) {
  const tsr_dataset *d = &w->data->dataset;
  if (r->packs) {
    *ret = (window){{.packs = r->packs, .pack = number}, w->T};
    return number < r->packs->count;
  }
  int64_t begin = r->begin + number * w->T, left = r->end - 1 - begin;
  *ret = (window){tsr_dataset_window(d, r->file, begin), left < w->T ? left : w->T};
  return left > 0;
}

/* The next `batch` windows, or as many as are left. */
static bool next_batch(walk *w, int64_t batch) {
  w->windows_count = 0;
  while (w->windows_count < batch && w->at_range < w->ranges_count) {
    const tsr_data_range *r = &w->ranges[w->at_range];
    if (window_of(w, r, w->at_window, &w->windows[w->windows_count])) {
      w->windows_count++;
      w->at_window++;
    } else {
      w->at_range++;
      w->at_window = 0;
    }
  }
  return w->windows_count > 0;
}

/* Rows without a window, and what is behind a short one, count for nothing: each token there is a
 * document of its own. */
static void fill(void *context, const char *input, int64_t sample, void *row) {
  const walk *w = context;
  bool targets = tsr_input_is_target(input);
  int32_t *out = row;
  int64_t real = 0;
  if (sample < w->windows_count) {
    const tsr_window *at = &w->windows[sample].tokens;
    real = w->windows[sample].real;
    if (targets) tsr_window_fill_targets(at, real, TSR_TARGET_IGNORED, out);
    else if (!strcmp(input, TSR_DOCUMENT_POSITIONS)) tsr_window_fill_positions(at, real, out);
    else tsr_window_fill_tokens(at, real, out);
  }
  for (int64_t t = real; t < w->T; t++) out[t] = targets ? TSR_TARGET_IGNORED : 0;
  int64_t ignored = w->data->config->training.ignore_index;
  for (int64_t t = 0; targets && t < real; t++)
    if (out[t] == ignored) out[t] = TSR_TARGET_IGNORED;
}

static bool check_tokens(const walk *w, tsr_diags *diags) {
  int64_t vocab = w->data->dataset.vocab_size;
  for (int64_t i = 0; i < w->windows_count; i++) {
    const tsr_window *at = &w->windows[i].tokens;
    if (at->packs) continue;
    int64_t bad = tsr_token_file_find_outside(at->file, at->begin, w->windows[i].real + 1, vocab);
    if (bad >= 0) return tsr_token_file_outside(at->file, bad, vocab, TSR_NOWHERE, diags);
  }
  return true;
}

/* ---- documents in packs ---- */

static void count_documents(const walk *w, tsr_evaluation *ret) {
  for (int i = 0; i < w->ranges_count; i++) {
    const tsr_packs *p = w->ranges[i].packs;
    if (!p) continue;
    ret->given += p->end - p->first;
    ret->dropped += p->dropped;
  }
}

static bool nothing_to_predict(const walk *w, const tsr_evaluation *e, tsr_diags *diags) {
  const char *name = w->data->dataset.name;
  const tsr_packs *p = w->ranges_count ? w->ranges[0].packs : NULL;
  if (!p) return tsr_diag_error(diags, TSR_NOWHERE, "'%s' has no token to predict", name);
  tsr_diag_error(
      diags, TSR_NOWHERE, "'%s' has no %s", name,
      p->from->labels ? "text with a label" : "conversation with a token to predict");
  if (e->dropped)
    tsr_diag_hint(
        diags, "of %lld, %lld are dropped as longer than %lld tokens", (long long)e->given,
        (long long)e->dropped, (long long)w->T);
  return false;
}

/* Targets that count, and the bytes that they stand for. */
static int64_t count_targets(walk *w, int32_t *row, int64_t *bytes) {
  const tsr_tokenizer *tokenizer = &w->data->dataset.tokenizer;
  int64_t count = 0;
  for (int64_t i = 0; i < w->windows_count; i++) {
    fill(w, "targets", i, row);
    int64_t kept = 0;
    for (int64_t t = 0; t < w->windows[i].real; t++)
      if (row[t] >= 0) row[kept++] = row[t];
    count += kept;
    if (tokenizer->kind == TSR_TOKENIZER_IDS || w->scorer.logits >= 0) continue;
    tsr_text text = {0};
    tsr_tokenizer_decode(tokenizer, row, kept, &text);
    *bytes += (int64_t)text.length;
    tsr_text_free(&text);
  }
  return count;
}

/* ---- labels ---- */

/* Those of a pack stand at the ends of its documents, in their order. */
static void
add_documents(tsr_arena *arena, walk *w, const tsr_window *at, int64_t count, tsr_evaluation *ret) {
  const tsr_packs *p = at->packs;
  int64_t first = p->begins[at->pack];
  for (int64_t i = 0; i < count; i++) {
    const tsr_document_place *place = &p->from->places[p->members[first + i]];
    int64_t known = ret->accuracy.count + i;
    if (known == w->documents_capacity) {
      w->documents_capacity = 2 * known + 64;
      tsr_labelled_document *more =
          tsr_arena_array(arena, tsr_labelled_document, w->documents_capacity);
      if (known) memcpy(more, ret->documents, sizeof *more * (size_t)known);
      ret->documents = more;
    }
    ret->documents[known] =
        (tsr_labelled_document){w->scores[i], p->from->paths[place->file], place->line};
  }
}

static void add_labels(tsr_arena *arena, walk *w, int32_t *row, tsr_evaluation *ret) {
  for (int64_t i = 0; i < w->windows_count && w->scorer.logits >= 0; i++) {
    fill(w, TSR_DOCUMENT_LABELS, i, row);
    int64_t count = tsr_label_scorer_read(&w->scorer, i, row, w->scores);
    add_documents(arena, w, &w->windows[i].tokens, count, ret);
    tsr_accuracy_add(&ret->accuracy, w->scores, count);
  }
}

static int by_line(const void *a, const void *b) {
  const tsr_labelled_document *x = a, *y = b;
  int order = strcmp(x->path, y->path);
  return order ? order : x->line - y->line;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double tsr_evaluation_loss(
    const tsr_compiled *evaluation, const tsr_executable *executable, float *numbers) {
  double sum = 0;
  tsr_executable_read(executable, evaluation->placed->loss, numbers);
  for (int64_t i = 0; i < evaluation->samples; i++) sum += (double)numbers[i];
  return sum;
}

static int64_t count_windows(const walk *w) {
  int64_t count = 0;
  for (int i = 0; i < w->ranges_count; i++) {
    const tsr_data_range *r = &w->ranges[i];
    int64_t tokens = r->packs ? 0 : r->end - 1 - r->begin;
    count += r->packs ? r->packs->count : tokens > 0 ? (tokens + w->T - 1) / w->T : 0;
  }
  return count;
}

static bool run_batch(
    tsr_arena *arena, walk *w, const tsr_compiled *evaluation, tsr_executable *executable,
    int32_t *row, float *numbers, tsr_evaluation *ret, double *sum, tsr_diags *diags) {
  if (!check_tokens(w, diags)) return false;
  int64_t count = count_targets(w, row, &ret->bytes);
  float step_scalars[TSR_SCALARS] = {0};
  step_scalars[TSR_SCALAR_INV_COUNT] = count ? (float)(1 / (double)count) : 0;
  tsr_executable_set_step_scalars(executable, step_scalars);
  tsr_executable_run(executable, 0, fill, w);
  if (!tsr_check_scores(executable, "the evaluation", diags)) return false;
  *sum += tsr_evaluation_loss(evaluation, executable, numbers) * (double)count;
  add_labels(arena, w, row, ret);
  ret->tokens += count;
  return true;
}

bool tsr_evaluate(
    tsr_arena *arena, const tsr_run_data *data, tsr_split split, const tsr_compiled *evaluation,
    tsr_executable *executable, int64_t batch, const volatile sig_atomic_t *stop,
    tsr_evaluation *ret, tsr_diags *diags) {
  walk w = {.data = data, .T = evaluation->model->sequence};
  double begin = now(), sum = 0;
  *ret = (tsr_evaluation){0};
  w.ranges_count = tsr_dataset_ranges(arena, &data->dataset, split, &w.ranges);
  count_documents(&w, ret);
  w.windows = tsr_arena_array(arena, window, batch);
  int32_t *row = tsr_arena_array(arena, int32_t, w.T);
  float *numbers = tsr_arena_array(arena, float, evaluation->batch);
  w.scorer = tsr_label_scorer_new(arena, evaluation, executable);
  if (w.scorer.logits >= 0) w.scores = tsr_arena_array(arena, tsr_label_score, w.T);
  bool ok = true;
  tsr_command_progress_begin("evaluating", count_windows(&w), "sequences");
  while (ok && !(stop && *stop) && next_batch(&w, batch)) {
    ok = run_batch(arena, &w, evaluation, executable, row, numbers, ret, &sum, diags);
    tsr_command_progress_add(w.windows_count);
  }
  tsr_command_progress_end();
  if (!ok) return false;
  if (!ret->tokens && stop && *stop) return false;
  if (!ret->tokens) return nothing_to_predict(&w, ret, diags);
  if (ret->accuracy.count)
    qsort(ret->documents, (size_t)ret->accuracy.count, sizeof *ret->documents, by_line);
  ret->loss = sum / (double)ret->tokens;
  ret->seconds = now() - begin;
  return true;
}
