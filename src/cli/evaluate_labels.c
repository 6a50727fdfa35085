// SPDX-License-Identifier: Apache-2.0
#include "cli/evaluate_labels.h"
#include "base/json.h"
#include "base/new_file.h"
#include "cli/evaluate_sets.h"
#include <math.h>
#include <string.h>

bool evaluate_labels_check(const trained_model *m, const tsr_compiled *compiled) {
  const tsr_options *o = &m->a->options;
  const char *word = o->out ? "--out" : o->log_samples ? "--log-samples" : NULL;
  if (!word || compiled->model->num_labels)
    return evaluate_check_output(m->a, o->out) && evaluate_check_output(m->a, o->log_samples);
  return tsr_diag_error(
      m->a->diags, TSR_NOWHERE, "%s goes with --eval-set, or with a model that has num_labels",
      word);
}

static const char *name_of(const trained_model *m, int label) {
  const tsr_label_names *labels = &m->data.dataset.labels;
  return labels->names ? labels->names[label] : NULL;
}

static void print(const trained_model *m, const tsr_evaluation *e) {
  const tsr_accuracy *a = &e->accuracy;
  printf("checkpoint: %s, step %lld\n", m->weights.folder, (long long)m->weights.state.step);
  printf(
      "data: %s, %s document%s\nloss: %.6f\naccuracy: ", m->data.dataset.name,
      tsr_text_count(a->count).text, a->count == 1 ? "" : "s", e->loss);
  tsr_accuracy_print(a, 6);
  printf("\n");
}

static void add_number(tsr_text *text, const char *key, double number) {
  if (isfinite(number)) tsr_text_add(text, "\"%s\": %.17g", key, number);
  else tsr_text_add(text, "\"%s\": null", key);
}

static void add_name(tsr_text *text, const char *key, const char *name) {
  tsr_text_add(text, "\"%s\": ", key);
  tsr_json_add_text(text, name, strlen(name));
}

static bool write_text(app *a, const char *path, tsr_text *text) {
  bool ok = tsr_file_write(path, text->data ? text->data : "", text->length, a->diags);
  tsr_text_free(text);
  return ok;
}

static bool write_results(const trained_model *m, const tsr_evaluation *e) {
  tsr_text text = {0};
  tsr_text_add(&text, "{\n  ");
  add_name(&text, "checkpoint", m->weights.folder);
  tsr_text_add(
      &text, ",\n  \"step\": %lld,\n  \"documents\": %lld,\n  \"dropped\": %lld,\n  ",
      (long long)m->weights.state.step, (long long)e->accuracy.count, (long long)e->dropped);
  add_number(&text, "loss", e->loss);
  tsr_text_add(&text, ",\n  \"accuracy\": {");
  add_number(&text, "value", tsr_accuracy_value(&e->accuracy));
  tsr_text_add(&text, ", ");
  add_number(&text, "stderr", tsr_accuracy_error(&e->accuracy));
  tsr_text_add(&text, "}\n}\n");
  return write_text(m->a, m->a->options.out, &text);
}

static void add_label(const trained_model *m, tsr_text *text, const char *key, int label) {
  const char *name = name_of(m, label);
  tsr_text_add(text, ", ");
  if (name) add_name(text, key, name);
  else tsr_text_add(text, "\"%s\": %d", key, label);
}

static bool write_samples(const trained_model *m, const tsr_evaluation *e) {
  tsr_text text = {0};
  for (int64_t i = 0; i < e->accuracy.count; i++) {
    const tsr_labelled_document *d = &e->documents[i];
    tsr_text_add(&text, "{");
    add_name(&text, "file", d->path);
    tsr_text_add(&text, ", \"line\": %d", d->line);
    add_label(m, &text, "label", d->score.label);
    add_label(m, &text, "predicted", d->score.predicted);
    tsr_text_add(&text, ", \"acc\": %d, ", d->score.label == d->score.predicted);
    add_number(&text, "log_likelihood", d->score.log_likelihood);
    tsr_text_add(&text, "}\n");
  }
  return write_text(m->a, m->a->options.log_samples, &text);
}

bool evaluate_labels_report(const trained_model *m, const tsr_evaluation *e) {
  const app *a = m->a;
  if (a->job.is_silent) return true;
  print(m, e);
  bool ok = !a->options.out || write_results(m, e);
  return (!a->options.log_samples || write_samples(m, e)) && ok;
}
