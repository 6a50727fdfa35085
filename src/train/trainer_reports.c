// SPDX-License-Identifier: Apache-2.0
/* What a run prints and writes: progress, metrics, evaluations, samples, its last line. */
#include "graph/documents.h"
#include "train/evaluate.h"
#include "train/run_hashes.h"
#include "train/score_check.h"
#include "train/trainer_internal.h"
#include "train/validation_monitor.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

void tsr_trainer_print_communication(tsr_trainer *t) {
  tsr_record record = tsr_recorder_read(t->o->arena, t->comm_recorder);
  tsr_text text = {0};
  tsr_comm_trace_print(&t->comm_trace, &record, t->step, &text);
  tsr_recorder_clear(t->comm_recorder);
  tsr_progress_clear(&t->progress);
  tsr_comm_trace_write(&text);
  tsr_text_free(&text);
}

/* ---- evaluation and samples ---- */

enum { EVALUATION_BATCHES = 10 };

/* The mean over all targets of the batches, of which `losses` are the means. */
static double mean_of_batches(const double *losses, const int64_t *targets, int batches) {
  double all = 0, sum = 0;
  for (int i = 0; i < batches; i++) all += (double)targets[i];
  for (int i = 0; i < batches; i++) sum += losses[i] * ((double)targets[i] / (all / batches));
  return all > 0 ? sum / batches : 0;
}

void tsr_trainer_prepare_evaluation(tsr_trainer *t) {
  tsr_arena *arena = t->o->arena;
  t->numbers = tsr_arena_array(arena, float, t->evaluation->batch);
  t->scorer = tsr_label_scorer_new(arena, t->evaluation, t->eval);
  if (t->scorer.logits < 0) return;
  t->labels = tsr_arena_array(arena, int32_t, t->scorer.T);
  t->scores = tsr_arena_array(arena, tsr_label_score, t->scorer.T);
}

static void add_predictions(tsr_trainer *t, tsr_run_data_step *step, tsr_accuracy *accuracy) {
  for (int64_t i = 0; i < step->samples && t->scorer.logits >= 0; i++) {
    tsr_run_data_fill(step, TSR_DOCUMENT_LABELS, i, t->labels);
    int64_t count = tsr_label_scorer_read(&t->scorer, i, t->labels, t->scores);
    tsr_accuracy_add(accuracy, t->scores, count);
  }
}

/* Of `batch`, so many samples from `first` on. Documents with a label are evaluated once each: an
 * accuracy's standard error counts them. */
static int64_t samples_of(const tsr_trainer *t, int64_t first, int64_t batch) {
  if (t->scorer.logits < 0) return batch;
  int64_t left =
      tsr_dataset_samples(&t->o->data->dataset, TSR_SPLIT_VALIDATION, t->o->data->sequence) - first;
  return left < batch ? left : batch;
}

static bool evaluate(tsr_trainer *t, double *ret_loss, tsr_accuracy *ret_accuracy) {
  char when[64];
  int64_t batch = t->o->config->training.validation_batch_size, targets[EVALUATION_BATCHES];
  double losses[EVALUATION_BATCHES];
  int batches = 0;
  snprintf(when, sizeof when, "the evaluation after step %lld", (long long)t->step);
  for (int i = 0; i < EVALUATION_BATCHES && samples_of(t, i * batch, batch) > 0; i++) {
    tsr_run_data_step step = {t->o->data, TSR_SPLIT_VALIDATION, i * batch, batch};
    float step_scalars[TSR_SCALARS] = {0};
    step.samples = samples_of(t, step.first, batch);
    targets[i] = tsr_run_data_targets(&step, step.samples);
    step_scalars[TSR_SCALAR_INV_COUNT] = targets[i] ? (float)(1 / (double)targets[i]) : 0;
    tsr_executable_set_step_scalars(t->eval, step_scalars);
    tsr_executable_run(t->eval, 0, tsr_run_data_fill, &step);
    if (!tsr_check_scores(t->eval, when, t->diags)) return false;
    losses[i] = tsr_evaluation_loss(t->evaluation, t->eval, t->numbers);
    add_predictions(t, &step, ret_accuracy);
    batches++;
  }
  *ret_loss = mean_of_batches(losses, targets, batches);
  return true;
}

static bool is_due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

/* The run's end may be this step. */
static void monitor(tsr_trainer *t, double loss) {
  const tsr_config *c = t->o->config;
  tsr_validation_state *v = &t->validation;
  if (!tsr_validation_is_monitored(c)) return;
  bool due = is_due(c->training.eval_every, t->step);
  t->is_best = tsr_validation_update(c, v, t->step, loss, due);
  if (!due || t->is_repetition || !tsr_validation_is_over(c, v)) return;
  t->ends_early = true;
  t->steps = t->step;
  if (t->o->quiet) return;
  if (!v->improved.step) printf("early stop: no validation loss was a finite number\n");
  else
    printf(
        "early stop: the validation loss has not improved since step %lld (%.4f)\n",
        (long long)v->improved.step, v->improved.loss);
}

static void print_evaluation(const tsr_trainer *t, double loss, const tsr_accuracy *accuracy) {
  printf("Step %lld: Validation loss = %.4f", (long long)t->step, loss);
  if (accuracy->count) {
    printf(", accuracy = ");
    tsr_accuracy_print(accuracy, 4);
  }
  printf("\n");
}

bool tsr_trainer_report_evaluation(tsr_trainer *t) {
  double loss;
  tsr_accuracy accuracy = {0};
  if (t->evaluated == t->step) return true;
  bool ok = evaluate(t, &loss, &accuracy);
  t->evaluated = t->step;
  tsr_progress_clear(&t->progress);
  if (!ok) return false;
  if (!t->o->quiet) print_evaluation(t, loss, &accuracy);
  tsr_metrics_eval metrics = {.step = t->step, .loss = loss};
  metrics.has_accuracy = accuracy.count > 0;
  metrics.accuracy = tsr_accuracy_value(&accuracy);
  metrics.accuracy_error = tsr_accuracy_error(&accuracy);
  tsr_metrics_write_eval(t->o->metrics, &metrics, t->diags);
  tsr_tensorboard_run_eval(t, &metrics);
  tsr_dashboard_run_eval(t, &metrics);
  monitor(t, loss);
  return true;
}

/* Whether a signal or the time limit ends a sample: for all processes, whichever has noticed it. A
 * sample before the first step of this start leaves it half of the time: a job that is started
 * again and again gets on. */
static bool is_sample_over(void *context) {
  tsr_trainer *t = context;
  bool is_first = t->step == t->first_step && t->step < t->steps;
  bool late = t->manager && (is_first ? tsr_checkpoint_manager_is_past_half(t->manager)
                                      : tsr_checkpoint_manager_is_out_of_time(t->manager, t->step));
  return tsr_executable_agree(t->train, *t->o->stop || late);
}

/* A model may write what a terminal takes as its commands. */
static void
print_sample(const tsr_trainer *t, int64_t tokens, bool is_whole, const tsr_text *text) {
  int64_t most = t->o->config->training.sample_tokens;
  tsr_text shown = {0};
  if (text->data) tsr_text_add_shown(&shown, text->data, text->length);
  printf("--- sample after step %lld\n%s\n---\n", (long long)t->step, shown.data ? shown.data : "");
  tsr_text_free(&shown);
  if (is_whole) return;
  const char *why = *t->o->stop ? "signal" : "time limit";
  printf("%s: the sample has %lld of %lld tokens\n", why, (long long)tokens, (long long)most);
}

/* A sample that a signal or the time limit has cut is printed, and is no result of the run: no file
 * has it, so that the run that continues makes it. */
static bool report_sample(tsr_trainer *t) {
  tsr_text text = {0};
  if (t->sampled == t->step) return true;
  tsr_generating how = {.max_new_tokens = t->o->config->training.sample_tokens};
  how.is_over = is_sample_over;
  how.over_context = t;
  int64_t tokens;
  bool is_whole;
  bool ok = tsr_generate(t->o, &t->generator, how, &tokens, &is_whole, &text, t->diags);
  tsr_progress_clear(&t->progress);
  if (ok && !t->o->quiet) print_sample(t, tokens, is_whole, &text);
  const char *data = text.data ? text.data : "";
  if (is_whole) {
    tsr_metrics_write_sample(t->o->metrics, t->step, data, text.length, t->diags);
    tsr_tensorboard_run_sample(t, data, text.length);
    tsr_dashboard_run_sample(t, data, text.length);
    t->sampled = t->step;
  }
  tsr_text_free(&text);
  return ok;
}

/* ---- steps ---- */

void tsr_trainer_report_step(tsr_trainer *t, double seconds, double now) {
  bool text = t->o->data->dataset.kind == TSR_DATASET_TEXT;
  int64_t each = text ? t->o->data->sequence : 1;
  double rate = seconds > 0 ? (double)(t->samples * each) / seconds : 0;
  tsr_metrics_step line = {
      t->step,
      t->loss,
      t->norm,
      t->lr,
      t->step * t->samples * each,
      rate,
      seconds * 1e3,
      t->used_scale,
      t->lost.underflows,
      t->lost.overflows,
      tsr_checkpoint_manager_is_writing(t->manager),
      t->experts.experts,
      t->experts.layers};
  tsr_progress_state state = {
      t->step, t->steps, t->loss,
      t->lr,   t->norm,  rate,
      -1,      !text,    .is_global = tsr_parallel_batch_ranks(t->o->parallel) > 1};
  tsr_progress_show(&t->progress, state, now);
  tsr_metrics_write_step(t->o->metrics, &line, t->diags);
  tsr_tensorboard_run_step(t, &line);
  tsr_dashboard_run_step(t, &line, now);
}

bool tsr_trainer_report_texts(tsr_trainer *t, bool last) {
  const tsr_config_training *c = &t->o->config->training;
  bool evaluated = t->eval && (is_due(c->eval_every, t->step) || last);
  if (evaluated && !tsr_trainer_report_evaluation(t)) return false;
  bool sampled = t->generation && (is_due(c->sample_every, t->step) || last);
  return !sampled || report_sample(t);
}

/* ---- what the run that is continued has not made ---- */

/* A monitored evaluation is made before its checkpoint. */
static bool lacks_evaluation(const tsr_trainer *t) {
  return t->eval && t->step == t->steps && !t->ends_early &&
         !tsr_validation_is_monitored(t->o->config) &&
         !tsr_metrics_have(t->o->metrics, "eval", t->step);
}

/* Of a step that the metrics have: they may begin behind it. */
static bool lacks_sample(const tsr_trainer *t) {
  const tsr_metrics *metrics = t->o->metrics;
  bool wanted = t->step == t->steps || (is_due(t->o->config->training.sample_every, t->step) &&
                                        tsr_metrics_have(metrics, "step", t->step));
  return t->generation && wanted && !tsr_metrics_have(metrics, "sample", t->step);
}

bool tsr_trainer_report_lacking(tsr_trainer *t) {
  enum { EVALUATION = 1, SAMPLE = 2 };
  if (t->is_repetition || t->o->recording) return true;
  uint64_t lacks = (lacks_evaluation(t) ? EVALUATION : 0) | (lacks_sample(t) ? SAMPLE : 0);
  lacks = tsr_executable_agree(t->train, lacks);
  return (!(lacks & EVALUATION) || tsr_trainer_report_evaluation(t)) &&
         (!(lacks & SAMPLE) || report_sample(t));
}

/* ---- the first and the last line ---- */

void tsr_trainer_write_start(const tsr_trainer *t) {
  const tsr_config *c = t->o->config;
  int64_t parameters = 0;
  for (int i = 0; i < t->training->graph->params_count; i++)
    parameters += tsr_param_real_elements(&t->training->graph->params[i]);
  tsr_metrics_start start = {
      c->file,
      t->training->graph->name,
      t->o->mesh_text,
      t->o->parallel->ranks,
      parameters,
      c->training.seed,
      c->numerics.policy == TSR_NUMERICS_FAST ? "fast" : "deterministic",
      tsr_executable_arch(t->train),
      t->o->threads,
      t->recipe};
  tsr_metrics_write_start(t->o->metrics, &start, t->diags);
}

/* Why no more steps follow: what the metrics' last line says. */
static const char *end_reason(const tsr_trainer *t, int ended_by) {
  if (ended_by == TSR_ENDED_BY_LIMIT) return "time_limit";
  if (ended_by == TSR_ENDED_BY_STEP) return "stop_at";
  if (ended_by) return "signal";
  if (t->o->recording) return "profile";
  if (t->ends_early) return "early_stop";
  return t->curve.total_steps < t->o->config->training.max_steps ? "num_epochs" : "max_steps";
}

static void print_replicas(const tsr_trainer *t) {
  const tsr_replica_checks *c = &t->replicas;
  if (t->o->quiet || !t->o->config->training.validate || !c->count) return;
  if (!tsr_replica_check_compares(c->check))
    printf("replicas: none to compare, no two ranks hold the same part\n");
  else if (c->differing)
    printf(
        "replicas: different at %lld of %lld checks\n", (long long)c->differing,
        (long long)c->count);
  else printf("replicas: equal at %lld check%s\n", (long long)c->count, c->count == 1 ? "" : "s");
}

bool tsr_trainer_write_end(tsr_trainer *t, int ended_by) {
  char sha[65];
  if (!tsr_weights_sha256(t->o->arena, t->train, t->training->placed, sha, t->diags)) return false;
  if (t->o->determinism) memcpy(t->o->determinism->sha256, sha, sizeof sha);
  tsr_progress_clear(&t->progress);
  print_replicas(t);
  if (!t->o->quiet && t->lost_in_all)
    printf(
        "fp16: %s scaled numbers under- or overflowed: another loss scale changes the bits\n",
        tsr_text_count(t->lost_in_all).text);
  if (!t->o->quiet && t->validation.best_count)
    printf(
        "best: step %lld, validation loss %.4f\n", (long long)t->validation.best[0].step,
        t->validation.best[0].loss);
  if (!t->o->quiet)
    printf(
        "%s: step %lld, loss %.4f, weights sha256 %s, recipe %s\n",
        t->step < t->steps ? "stopped" : "done", (long long)t->step, t->loss, sha, t->recipe);
  tsr_metrics_end end = {t->step, t->loss, end_reason(t, ended_by), sha, t->recipe};
  tsr_metrics_write_end(t->o->metrics, &end, t->diags);
  return tsr_metrics_finish(t->o->metrics, t->diags) & tsr_run_hashes_finish(t, t->diags) &
         tsr_tensorboard_run_end(t, !ended_by);
}
