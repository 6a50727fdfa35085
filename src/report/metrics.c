// SPDX-License-Identifier: Apache-2.0
#include "report/metrics.h"
#include "base/text.h"
#include "report/metrics_internal.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const begins[] = {
    "{\"event\":\"start\",\"config\":", "{\"event\":\"step\",\"step\":",
    "{\"event\":\"eval\",\"step\":",    "{\"event\":\"sample\",\"step\":",
    "{\"event\":\"end\",\"step\":",     NULL};
static const tsr_json_lines_kind kind = {"metrics", begins};

bool tsr_metrics_open(
    tsr_arena *arena, const char *path, const volatile sig_atomic_t *stop,
    tsr_metrics **ret_metrics, tsr_diags *diags) {
  *ret_metrics = tsr_arena_alloc(arena, sizeof **ret_metrics);
  return tsr_json_lines_open(arena, path, &kind, stop, &(*ret_metrics)->lines, diags);
}

bool tsr_metrics_begin(tsr_metrics *metrics, int64_t step, tsr_diags *diags) {
  return tsr_json_lines_begin(metrics->lines, step, diags);
}

void tsr_metrics_close(tsr_metrics *metrics) { tsr_json_lines_close(metrics->lines); }

bool tsr_metrics_finish(tsr_metrics *metrics, tsr_diags *diags) {
  return tsr_json_lines_finish(metrics->lines, diags);
}

static void add_text(cJSON *line, const char *name, const char *text) {
  if (text) cJSON_AddStringToObject(line, name, text);
  else cJSON_AddNullToObject(line, name);
}

/* The text reads back as the same double; cJSON's own text is at times that of a neighbour. */
static void add_double(cJSON *line, const char *name, double value) {
  char text[32];
  snprintf(text, sizeof text, "%.15g", value);
  if (strtod(text, NULL) != value) snprintf(text, sizeof text, "%.17g", value);
  if (isfinite(value)) cJSON_AddRawToObject(line, name, text);
  else cJSON_AddNullToObject(line, name);
}

static void add_unsigned(cJSON *line, const char *name, uint64_t value) {
  char text[24];
  snprintf(text, sizeof text, "%" PRIu64, value);
  cJSON_AddRawToObject(line, name, text);
}

/* NULL when nothing is to be written. */
static cJSON *begin_line(const tsr_metrics *metrics, const char *event) {
  if (!tsr_json_lines_are_written(metrics->lines)) return NULL;
  cJSON *line = cJSON_CreateObject();
  add_text(line, "event", event);
  return line;
}

void tsr_metrics_write_start(
    tsr_metrics *metrics, const tsr_metrics_start *start, tsr_diags *diags) {
  cJSON *line = begin_line(metrics, "start");
  if (!line) return;
  add_text(line, "config", start->config);
  add_text(line, "module", start->module);
  add_text(line, "mesh", start->mesh);
  tsr_json_add_int(line, "ranks", start->ranks);
  tsr_json_add_int(line, "parameters", start->parameters);
  add_unsigned(line, "seed", start->seed);
  add_text(line, "policy", start->policy);
  add_text(line, "isa", start->isa);
  tsr_json_add_int(line, "threads", start->threads);
  add_text(line, "recipe", start->recipe);
  tsr_json_lines_add(metrics->lines, line, 0, diags);
}

double tsr_metrics_imbalance(const tsr_metrics_experts *e) {
  double all = 0, most = 0;
  for (int64_t i = 0; i < e->experts; i++) {
    all += e->counts[i];
    if (e->counts[i] > most) most = e->counts[i];
  }
  return all > 0 ? most * (double)e->experts / all : 1;
}

double tsr_metrics_entropy(const tsr_metrics_experts *e) {
  double all = 0, entropy = 0;
  for (int64_t i = 0; i < e->experts; i++) all += e->counts[i];
  for (int64_t i = 0; i < e->experts; i++) {
    double share = all > 0 ? e->counts[i] / all : 0;
    if (share > 0) entropy -= share * log(share);
  }
  return e->experts > 1 ? entropy / log((double)e->experts) : 1;
}

static cJSON *experts_object(const tsr_metrics_experts *e) {
  cJSON *object = cJSON_CreateObject(), *load = cJSON_AddArrayToObject(object, "load");
  for (int64_t i = 0; i < e->experts; i++)
    cJSON_AddItemToArray(load, cJSON_CreateNumber(e->counts[i]));
  add_text(object, "layer", e->layer);
  add_double(object, "imbalance", tsr_metrics_imbalance(e));
  add_double(object, "entropy", tsr_metrics_entropy(e));
  add_double(object, "dropped", e->dropped);
  return object;
}

void tsr_metrics_write_step(tsr_metrics *metrics, const tsr_metrics_step *step, tsr_diags *diags) {
  cJSON *line = begin_line(metrics, "step");
  if (!line) return;
  tsr_json_add_int(line, "step", step->step);
  add_double(line, "loss", step->loss);
  add_double(line, "grad_norm", step->grad_norm);
  add_double(line, "lr", step->lr);
  tsr_json_add_int(line, "tokens", step->tokens);
  add_double(line, "tokens_per_s", step->tokens_per_s);
  add_double(line, "ms", step->ms);
  if (step->loss_scale > 0) add_double(line, "loss_scale", step->loss_scale);
  if (step->loss_scale > 0 && step->underflows >= 0) {
    tsr_json_add_int(line, "underflows", step->underflows);
    tsr_json_add_int(line, "overflows", step->overflows);
  }
  cJSON *experts = step->layers ? cJSON_AddArrayToObject(line, "experts") : NULL;
  for (int i = 0; i < step->layers; i++)
    cJSON_AddItemToArray(experts, experts_object(&step->experts[i]));
  if (step->saving) cJSON_AddBoolToObject(line, "saving", true);
  tsr_json_lines_add(metrics->lines, line, step->step, diags);
}

bool tsr_metrics_have(const tsr_metrics *metrics, const char *event, int64_t step) {
  char line[64];
  snprintf(line, sizeof line, "{\"event\":\"%s\",\"step\":%" PRId64 ",", event, step);
  return tsr_json_lines_have(metrics->lines, line);
}

void tsr_metrics_write_eval(tsr_metrics *metrics, const tsr_metrics_eval *e, tsr_diags *diags) {
  cJSON *line = begin_line(metrics, "eval");
  if (!line) return;
  tsr_json_add_int(line, "step", e->step);
  add_double(line, "loss", e->loss);
  if (!e->has_accuracy) add_double(line, "perplexity", exp(e->loss));
  if (e->has_accuracy) add_double(line, "accuracy", e->accuracy);
  if (e->has_accuracy) add_double(line, "accuracy_stderr", e->accuracy_error);
  tsr_json_lines_add(metrics->lines, line, e->step, diags);
}

void tsr_metrics_write_sample(
    tsr_metrics *metrics, int64_t step, const char *text, size_t length, tsr_diags *diags) {
  cJSON *line = begin_line(metrics, "sample");
  if (!line) return;
  tsr_text clean = {0};
  tsr_text_add_clean(&clean, text, length);
  tsr_json_add_int(line, "step", step);
  add_text(line, "text", clean.data ? clean.data : "");
  tsr_text_free(&clean);
  tsr_json_lines_add(metrics->lines, line, step, diags);
}

void tsr_metrics_write_end(tsr_metrics *metrics, const tsr_metrics_end *end, tsr_diags *diags) {
  cJSON *line = begin_line(metrics, "end");
  if (!line) return;
  tsr_json_add_int(line, "step", end->step);
  add_double(line, "loss", end->loss);
  add_text(line, "reason", end->reason);
  add_text(line, "weights_sha256", end->weights_sha256);
  add_text(line, "recipe", end->recipe);
  tsr_json_lines_add(metrics->lines, line, end->step, diags);
}
