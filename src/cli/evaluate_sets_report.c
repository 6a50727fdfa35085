// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"
#include "base/new_file.h"
#include "cli/evaluate_sets.h"
#include <math.h>
#include <string.h>

/* ---- table ---- */

/* Perplexities of a model that has learned nothing would not fit the column. */
static void print_number(double number, const char *end) {
  if (isnan(number)) printf("%10s%s", "-", end);
  else printf(fabs(number) < 1e5 ? "%10.4f%s" : "%10.3e%s", number, end);
}

static void print_table(const trained_model *m, const evaluated_sets *results) {
  int width = 3;
  for (int i = 0; i < results->count; i++) {
    int length = (int)strlen(results->sets[i].set.file.path);
    if (length > width) width = length;
  }
  printf("checkpoint: %s, step %lld\n", m->weights.folder, (long long)m->weights.state.step);
  printf(
      "%-*s  %-10s  %8s  %-15s  %10s  %10s\n", width, "set", "kind", "lines", "metric", "value",
      "stderr");
  for (int i = 0; i < results->count; i++)
    for (int k = 0; k < results->sets[i].metrics_count; k++) {
      const evaluated_set *s = &results->sets[i];
      const tsr_eval_metric *metric = &s->metrics[k];
      printf(
          "%-*s  %-10s  %8d  %-15s  ", width, s->set.file.path, tsr_eval_kind_names[s->set.kind],
          s->set.count, metric->name);
      print_number(metric->value, "  ");
      print_number(metric->error, "\n");
    }
}

/* ---- JSON ---- */

static void add_name(tsr_text *text, const char *before, const char *name) {
  tsr_text_add(text, "%s", before);
  tsr_json_add_text(text, name, strlen(name));
}

/* JSON has no other numbers than finite ones. */
static void add_number(tsr_text *text, double number) {
  if (isfinite(number)) tsr_text_add(text, "%.17g", number);
  else tsr_text_add(text, "null");
}

static void add_set(const app *a, const evaluated_set *s, tsr_text *text) {
  add_name(text, "    {\"set\": ", s->set.file.path);
  tsr_text_add(
      text, ", \"kind\": \"%s\", \"lines\": %d, \"shots\": %lld, \"metrics\": {",
      tsr_eval_kind_names[s->set.kind], s->set.count, (long long)a->options.shots);
  for (int k = 0; k < s->metrics_count; k++) {
    const tsr_eval_metric *metric = &s->metrics[k];
    tsr_text_add(text, "%s\"%s\": {\"value\": ", k ? ", " : "", metric->name);
    add_number(text, metric->value);
    tsr_text_add(text, ", \"stderr\": ");
    add_number(text, metric->error);
    tsr_text_add(text, "}");
  }
  tsr_text_add(text, "}}");
}

static bool write_text(app *a, const char *path, tsr_text *text) {
  bool ok = tsr_file_write(path, text->data ? text->data : "", text->length, a->diags);
  tsr_text_free(text);
  return ok;
}

static bool write_results(const trained_model *m, const evaluated_sets *results) {
  app *a = m->a;
  tsr_text text = {0};
  add_name(&text, "{\n  \"checkpoint\": ", m->weights.folder);
  tsr_text_add(
      &text, ",\n  \"step\": %lld,\n  \"max_length\": %lld,\n  \"seed\": %lld,\n  \"sets\": [\n",
      (long long)m->weights.state.step, (long long)results->max_length,
      (long long)m->setup.config->eval.seed);
  for (int i = 0; i < results->count; i++) {
    add_set(a, &results->sets[i], &text);
    tsr_text_add(&text, "%s\n", i + 1 < results->count ? "," : "");
  }
  tsr_text_add(&text, "  ]\n}\n");
  return write_text(a, a->options.out, &text);
}

static void add_sample(const evaluated_set *s, int number, tsr_text *text) {
  const tsr_eval_item *item = &s->set.items[number];
  const tsr_eval_outcome *o = &s->outcomes[number];
  add_name(text, "{\"set\": ", s->set.file.path);
  tsr_text_add(text, ", \"line\": %d, \"log_likelihoods\": [", item->line);
  for (int c = 0; c < item->choices_count; c++) {
    tsr_text_add(text, "%s", c ? ", " : "");
    add_number(text, o->log_likelihoods[c]);
  }
  tsr_text_add(text, "]");
  if (s->set.kind == TSR_EVAL_CHOICE)
    tsr_text_add(
        text, ", \"answer\": %d, \"acc\": %d, \"acc_norm\": %d, \"acc_bytes\": %d", item->answer,
        o->chosen == item->answer, o->chosen_norm == item->answer, o->chosen_bytes == item->answer);
  else if (s->set.kind == TSR_EVAL_COMPLETION) tsr_text_add(text, ", \"acc\": %d", o->is_right);
  else
    tsr_text_add(
        text, ", \"words\": %lld, \"bytes\": %lld", (long long)o->words, (long long)o->bytes);
  tsr_text_add(text, "}\n");
}

static bool write_samples(const trained_model *m, const evaluated_sets *results) {
  tsr_text text = {0};
  for (int i = 0; i < results->count; i++)
    for (int k = 0; k < results->sets[i].set.count; k++) add_sample(&results->sets[i], k, &text);
  return write_text(m->a, m->a->options.log_samples, &text);
}

bool evaluate_sets_report(const trained_model *m, const evaluated_sets *results) {
  app *a = m->a;
  if (a->job.is_silent) return true;
  print_table(m, results);
  if (!a->options.quiet && results->seconds > 0)
    printf("speed: %.0f tokens/s\n", (double)results->tokens / results->seconds);
  bool ok = !a->options.out || write_results(m, results);
  return (!a->options.log_samples || write_samples(m, results)) && ok;
}
