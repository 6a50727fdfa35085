// SPDX-License-Identifier: Apache-2.0
/* The command `data`: what a configuration's samples are, without a model's weights or a device. */
#include "cli/console.h"
#include "data/sample_view.h"
#include "data/statistics.h"
#include "model/model.h"
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { WIDTH_DEFAULT = 100 };

/* The tokens of a sample are those of the model's graph, which is read but not compiled. */
static bool
find_needs(app *a, const setup *s, const tsr_run_data *data, tsr_run_data_needs *ret_needs) {
  tsr_model *model;
  tsr_model_options o = {
      .batch = s->parallel->batch_size,
      .sequence = s->config->training.sequence_length,
      .vocab_detected = data->dataset.tokenizer.vocab_size,
      .training = true,
      .loss = true,
      .units = {1, 1, 1}};
  o.graphs_folder = app_graphs_folder(a);
  return tsr_model_read(a->arena, s->config, &o, &model, a->diags) &&
         tsr_run_data_needs_of(model->graph, ret_needs, a->diags) &&
         tsr_run_data_check_labels(data, ret_needs, a->diags) &&
         tsr_run_data_check_end_of_text(s->config, ret_needs, a->diags) &&
         tsr_run_data_check_sequence(s->config, ret_needs, a->diags);
}

static bool open_data(app *a, setup *s, tsr_run_data *data) {
  tsr_run_data_needs needs = {.text = true};
  if (!setup_load_config(a, s) || !tsr_config_require_model(s->config, a->diags) ||
      !setup_open_mesh(a, s) || !setup_build_context(a, s) ||
      !tsr_run_data_open(a->arena, s->config, &needs, data, a->diags) ||
      !find_needs(a, s, data, &needs))
    return false;
  if (!needs.text)
    return tsr_diag_error(
        a->diags, TSR_NOWHERE, "data show is for models of text, and this one is none");
  tsr_run_data_set_sequence(a->arena, data, needs.sequence);
  return true;
}

/* ---- a sample ---- */

static tsr_sample_style style_of_terminal(void) {
  const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");
  struct winsize size;
  tsr_sample_style style = {.width = WIDTH_DEFAULT};
  if (!isatty(STDOUT_FILENO) || !term || !*term || !strcmp(term, "dumb")) return style;
  style.in_colour = !no_colour || !*no_colour;
  if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col) style.width = size.ws_col;
  return style;
}

static bool print_sample(
    app *a, const setup *s, const tsr_run_data *data, tsr_split split, int64_t samples,
    tsr_text *text) {
  tsr_sample_style style = style_of_terminal();
  int64_t number = a->options.sample, T = data->sequence;
  if (!samples) return true; /* the statistics say why */
  if (number >= samples)
    return tsr_diag_error(
        a->diags, TSR_NOWHERE, "--sample: there is no sample %lld, the %s part has %lld",
        (long long)number, split == TSR_SPLIT_TRAIN ? "training" : "validation",
        (long long)samples);
  tsr_run_data_step step = {data, split, number, 1};
  tsr_text_add(text, "sample %lld of %lld\n", (long long)number, (long long)samples);
  tsr_sample_print(
      &data->dataset, split, tsr_run_data_index(&step, 0), T, s->config->training.ignore_index,
      &style, text);
  tsr_text_add(text, "\n");
  return true;
}

/* ---- statistics ---- */

static double percent(int64_t part, int64_t all) {
  return all ? 100 * (double)part / (double)all : 0;
}

static void print_documents(const tsr_data_statistics *n, tsr_text *text) {
  tsr_text_add(text, "documents  %s\n", tsr_text_count(n->documents).text);
  tsr_text_add(
      text, "lengths    min %lld, median %lld, p95 %lld, max %lld tokens\n", (long long)n->shortest,
      (long long)n->median, (long long)n->p95, (long long)n->longest);
}

static void print_packing(const tsr_data_statistics *n, int64_t T, tsr_text *text) {
  int64_t slots = n->samples * T;
  tsr_text_add(
      text, "too long   %s truncated, %s dropped\nuntrained  %s without a target, left out\n",
      tsr_text_count(n->truncated).text, tsr_text_count(n->dropped).text,
      tsr_text_count(n->untrained).text);
  tsr_text_add(
      text, "packing    %.1f%%: %s tokens in %s slots\n", percent(n->in_samples, slots),
      tsr_text_count(n->in_samples).text, tsr_text_count(slots).text);
}

/* "labels     ham 12, spam 7" */
static void print_labels(app *a, const tsr_run_data *data, tsr_split split, tsr_text *text) {
  enum { SHOWN = 20 };
  int64_t *counts;
  const tsr_dataset *d = &data->dataset;
  int classes = tsr_dataset_label_counts(a->arena, d, split, &counts);
  if (!classes) return;
  tsr_text_add(text, "labels     ");
  for (int i = 0; i < classes && i < SHOWN; i++) {
    const char *name = tsr_arena_printf(a->arena, "%d", i);
    if (d->labels.names) name = d->labels.names[i];
    tsr_text_add(text, "%s%s %s", i ? ", " : "", name, tsr_text_count(counts[i]).text);
  }
  tsr_text_add(text, classes > SHOWN ? ", … (%d classes)\n" : "\n", classes);
}

static void print_statistics(
    app *a, const setup *s, const tsr_run_data *data, tsr_split split, const tsr_data_statistics *n,
    tsr_text *text) {
  int64_t step = s->parallel->batch_size * s->parallel->microbatches, epoch = n->samples / step;
  const tsr_dataset *d = &data->dataset;
  bool trains = split == TSR_SPLIT_TRAIN;
  tsr_text_add(
      text, "%s part of %s\n", trains ? "training" : "validation",
      !trains && d->validation ? d->validation->name : d->name);
  tsr_text_add(text, "tokens     %s\n", tsr_text_count(n->tokens).text);
  if (n->documents) print_documents(n, text);
  print_labels(a, data, split, text);
  if (!n->labels)
    tsr_text_add(
        text, "trained    %.1f%%: %s of %s tokens\n", percent(n->targets, n->in_samples),
        tsr_text_count(n->targets).text, tsr_text_count(n->in_samples).text);
  if (n->packs) print_packing(n, data->sequence, text);
  tsr_text_add(
      text, "samples    %s of %lld tokens", tsr_text_count(n->samples).text,
      (long long)data->sequence);
  if (trains) tsr_text_add(text, ", %s to a step: an epoch ", tsr_text_count(step).text);
  if (trains && !epoch) tsr_text_add(text, "is less than a step");
  else if (trains)
    tsr_text_add(text, "has %s step%s", tsr_text_count(epoch).text, epoch == 1 ? "" : "s");
  tsr_text_add(text, "\n");
}

/* A mask that covers nothing or everything is seldom meant. */
static void warn_of_mask(app *a, const setup *s, const tsr_data_statistics *n) {
  const tsr_config *c = s->config;
  bool all = n->documents && n->packs &&
             n->targets == n->in_samples - (n->documents - n->untrained - n->dropped);
  if (n->labels) return;
  if (!n->targets)
    tsr_diag_warning(
        a->diags, tsr_config_location(c, n->packs ? "data.train_on" : "training_config.data_path"),
        "nothing is trained: no token is a target");
  else if (all && c->data.train_on != TSR_TRAINED_ALL)
    tsr_diag_warning(
        a->diags, tsr_config_location(c, "data.train_on"),
        "everything is trained: each token but a document's first is a target");
}

static bool show(app *a, tsr_text *text) {
  setup s = {0};
  tsr_run_data data = {0};
  tsr_data_statistics n;
  bool validates = a->options.split && !strcmp(a->options.split, "validation");
  tsr_split split = validates ? TSR_SPLIT_VALIDATION : TSR_SPLIT_TRAIN;
  if (!open_data(a, &s, &data)) return false;
  tsr_dataset_statistics(&data.dataset, split, data.sequence, s.config->training.ignore_index, &n);
  if (!print_sample(a, &s, &data, split, n.samples, text)) return false;
  print_statistics(a, &s, &data, split, &n, text);
  warn_of_mask(a, &s, &n);
  return tsr_run_data_check_used(&data, a->diags);
}

int app_run_data(app *a) {
  const char *word = a->options.arguments.items[0], *known = "show";
  tsr_text text = {0};
  bool ok = !strcmp(word, known);
  if (ok) ok = show(a, &text);
  else {
    tsr_diag_error(a->diags, TSR_NOWHERE, "data has nothing called '%s'", word);
    tsr_diag_nearest(a->diags, word, &known, 1);
  }
  console_print(&text);
  return console_finish(a, ok);
}
