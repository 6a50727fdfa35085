// SPDX-License-Identifier: Apache-2.0
/* The command `evaluate`. */
#include "cli/evaluate_labels.h"
#include "cli/evaluate_sets.h"
#include "cli/trained_model.h"
#include "train/evaluate.h"
#include <math.h>

/* Names that only the data have could be other classes than those that were trained. */
static bool check_names(const trained_model *m) {
  const app *a = m->a;
  const tsr_config *c = m->setup.config;
  const tsr_dataset *d = &m->data.dataset;
  if (!d->labels.names || c->data.labels.count) return true;
  tsr_diag_error(
      a->diags, tsr_config_location(c, "data.format"),
      "the labels of '%s' are names, and the model's classes have none", d->name);
  tsr_diag_hint(a->diags, "--set data.labels=[NAME, …] names them, in the order of their numbers");
  return false;
}

/* --data is all of it; else what the configuration keeps for validation. */
static bool open_data(trained_model *m, tsr_split *ret_split) {
  app *a = m->a;
  tsr_config_training *t = &m->setup.config->training;
  tsr_run_data_needs needs = {.text = true};
  *ret_split = a->options.data ? TSR_SPLIT_TRAIN : TSR_SPLIT_VALIDATION;
  if (a->options.data) {
    t->validation_path = "";
    t->validation_fraction = 0;
  } else if (!t->validation_path[0] && t->validation_fraction <= 0) {
    return tsr_diag_error(
        a->diags, TSR_NOWHERE,
        "the configuration keeps no data for validation: --data FILE is needed");
  }
  if (!tsr_run_data_open(a->arena, m->setup.config, &needs, &m->data, a->diags) || !check_names(m))
    return false;
  /* characters that were counted in this text are not the model's */
  bool counted = m->data.dataset.tokenizer.kind == TSR_TOKENIZER_CHAR && !*t->tokenizer_path;
  if (!counted) return true;
  tsr_diag_error(
      a->diags, TSR_NOWHERE, "the checkpoint has no tokenizer, and '%s' is a text",
      m->data.dataset.name);
  tsr_diag_hint(
      a->diags,
      "--set training_config.tokenizer_type=byte, or training_config.tokenizer_path=FILE");
  return false;
}

static bool compile_evaluation(trained_model *m, tsr_compiled *ret) {
  app *a = m->a;
  tsr_compile_options o = prepare_compile_options(a, &m->setup, &m->data);
  tsr_run_data_needs needs;
  if (!tsr_compile(a->arena, &o, TSR_COMPILE_EVALUATE, ret, a->diags) ||
      !tsr_run_data_needs_of(ret->graph, &needs, a->diags) ||
      !tsr_run_data_check_end_of_text(m->setup.config, &needs, a->diags))
    return false;
  if (!needs.text)
    return tsr_diag_error(
        a->diags, TSR_NOWHERE, "evaluate is for models of text, and this one is none");
  if (!evaluate_labels_check(m, ret) || !tsr_run_data_check_labels(&m->data, &needs, a->diags))
    return false;
  tsr_run_data_set_sequence(a->arena, &m->data, needs.sequence);
  console_print_dumps(a, &m->setup, ret);
  return trained_model_load(m, ret, &ret->programs, 1);
}

static void print_evaluation(const trained_model *m, const tsr_evaluation *e) {
  printf("checkpoint: %s, step %lld\n", m->weights.folder, (long long)m->weights.state.step);
  printf("data: %s, %s tokens", m->data.dataset.name, tsr_text_count(e->tokens).text);
  if (e->bytes) printf(" of %s bytes", tsr_text_count(e->bytes).text);
  printf("\nloss: %.6f\nperplexity: %.4f\n", e->loss, exp(e->loss));
  if (e->bytes)
    printf("bits per byte: %.6f\n", e->loss * (double)e->tokens / (log(2) * (double)e->bytes));
}

/* The numbers are not of all that was given. */
static void note_dropped(const trained_model *m, const tsr_evaluation *e) {
  if (e->dropped)
    tsr_diag_note(
        m->a->diags, tsr_config_location(m->setup.config, "data.too_long"),
        "%s of %s %s are dropped as longer than %lld tokens", tsr_text_count(e->dropped).text,
        tsr_text_count(e->given).text, e->accuracy.count ? "texts" : "conversations",
        (long long)m->data.sequence);
}

static bool report(app *a, const trained_model *m, const tsr_evaluation *e) {
  bool ok = true;
  note_dropped(m, e);
  if (*a->stop)
    tsr_diag_warning(
        a->diags, TSR_NOWHERE, "ended by a signal: the numbers are those of the tokens before it");
  if (e->accuracy.count) ok = evaluate_labels_report(m, e);
  else if (!a->job.is_silent) print_evaluation(m, e);
  if (!isfinite(e->loss))
    tsr_diag_failure(
        a->diags, TSR_NOWHERE, "the loss is %s: the weights are damaged, or have diverged",
        isnan(e->loss) ? "nan" : "infinite");
  if (!a->options.quiet && e->seconds > 0)
    printf(
        "speed: %.0f %s/s\n", (double)e->tokens / e->seconds,
        e->accuracy.count ? "documents" : "tokens");
  return ok;
}

static bool evaluate_data(trained_model *m) {
  app *a = m->a;
  tsr_compiled evaluation = {0};
  tsr_split split;
  tsr_evaluation e;
  if (!tsr_job_all_succeeded(&a->job, open_data(m, &split)) ||
      !compile_evaluation(m, &evaluation) ||
      !tsr_evaluate(
          a->arena, &m->data, split, &evaluation, m->executable[0],
          m->setup.config->training.validation_batch_size, trained_model_interrupt(m), &e,
          a->diags))
    return false;
  return report(a, m, &e);
}

int app_run_evaluate(app *a) {
  trained_model m = {.a = a};
  bool ok = trained_model_open(&m) &&
            (a->options.eval_sets.count ? evaluate_sets(&m) : evaluate_data(&m));
  return trained_model_finish(&m, ok);
}
