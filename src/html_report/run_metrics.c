// SPDX-License-Identifier: Apache-2.0
#include "html_report/run_metrics.h"
#include "base/file_read.h"
#include "base/json.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const tags[TSR_SERIES_COUNT] = {
    [TSR_SERIES_LOSS] = "loss/train",
    [TSR_SERIES_VALIDATION] = "loss/validation",
    [TSR_SERIES_ACCURACY] = "accuracy/validation",
    [TSR_SERIES_LR] = "optimizer/learning_rate",
    [TSR_SERIES_GRAD_NORM] = "optimizer/gradient_norm",
    [TSR_SERIES_RATE] = "throughput/tokens_per_s",
    [TSR_SERIES_STEP_MS] = "throughput/step_ms",
    [TSR_SERIES_TOKENS] = "throughput/tokens",
    [TSR_SERIES_SECONDS] = "throughput/seconds",
    [TSR_SERIES_SCALE] = "optimizer/loss_scale",
    [TSR_SERIES_IMBALANCE] = "experts/imbalance",
    [TSR_SERIES_DROPPED] = "experts/dropped"};

typedef tsr_run_metrics_reader reader;

/* ---- numbers ---- */

/* A number, or null, which is NaN. */
static bool is_number(const cJSON *line, const char *key, double *ret_value) {
  const cJSON *item = tsr_json_get(line, key);
  *ret_value = cJSON_IsNumber(item) ? item->valuedouble : NAN;
  return cJSON_IsNumber(item) || cJSON_IsNull(item);
}

static void add(reader *r, tsr_series_kind kind, int64_t step, double value) {
  tsr_series_add(r->arena, &r->metrics->series[kind], step, value);
}

static void
add_key(reader *r, tsr_series_kind kind, int64_t step, const cJSON *line, const char *key) {
  double value;
  if (is_number(line, key, &value)) add(r, kind, step, value);
}

static bool read_step(const cJSON *line, int64_t *ret_step) {
  static const double limit = 9007199254740992.; /* 2^53 */
  const cJSON *item = tsr_json_get(line, "step");
  double step = cJSON_IsNumber(item) ? item->valuedouble : -1;
  bool valid = step >= 0 && step < limit && step == floor(step);
  if (valid) *ret_step = (int64_t)step;
  return valid;
}

/* ---- restarts ---- */

static void add_restart(reader *r, int64_t step) {
  tsr_run_metrics *m = r->metrics;
  if (m->restarts_count && m->restarts[m->restarts_count - 1] == step) return;
  tsr_arena_grow(
      r->arena, (void **)&m->restarts, sizeof *m->restarts, m->restarts_count,
      &m->restarts_capacity);
  m->restarts[m->restarts_count++] = step;
}

/* The run has gone back to before `step`: what it had from there on is gone. */
static void go_back(reader *r, int64_t step) {
  tsr_run_metrics *m = r->metrics;
  for (int i = 0; i < TSR_SERIES_COUNT; i++) tsr_series_cut(&m->series[i], step);
  while (m->samples_count && m->samples[m->samples_count - 1].step >= step) m->samples_count--;
  while (m->restarts_count && m->restarts[m->restarts_count - 1] >= step) m->restarts_count--;
  const tsr_series *seconds = &m->series[TSR_SERIES_SECONDS];
  r->seconds = seconds->count ? seconds->points[seconds->count - 1].value : 0;
  m->end = NULL;
  m->returns++;
  if (step > 1) add_restart(r, step - 1);
}

/* ---- lines ---- */

static void read_experts(reader *r, int64_t step, const cJSON *line) {
  const cJSON *layers = tsr_json_get(line, "experts"), *layer;
  double largest = NAN, dropped = 0, value;
  if (!cJSON_IsArray(layers)) return;
  cJSON_ArrayForEach(layer, layers) {
    if (is_number(layer, "imbalance", &value) && !(value <= largest)) largest = value;
    if (is_number(layer, "dropped", &value) && isfinite(value)) dropped += value;
  }
  add(r, TSR_SERIES_IMBALANCE, step, largest);
  add(r, TSR_SERIES_DROPPED, step, dropped);
}

static bool read_step_line(reader *r, const cJSON *line) {
  static const struct {
    const char *key;
    tsr_series_kind kind;
  } keys[] = {{"loss", TSR_SERIES_LOSS},         {"lr", TSR_SERIES_LR},
              {"tokens_per_s", TSR_SERIES_RATE}, {"ms", TSR_SERIES_STEP_MS},
              {"tokens", TSR_SERIES_TOKENS},     {"loss_scale", TSR_SERIES_SCALE}};
  int64_t step;
  double value;
  if (!read_step(line, &step) || !is_number(line, "loss", &value)) return false;
  if (step <= r->step) go_back(r, step);
  r->step = step;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    add_key(r, keys[i].kind, step, line, keys[i].key);
  /* null where it is not computed, which is no missing value */
  if (is_number(line, "grad_norm", &value) && isfinite(value))
    add(r, TSR_SERIES_GRAD_NORM, step, value);
  if (is_number(line, "ms", &value) && isfinite(value)) r->seconds += value / 1e3;
  add(r, TSR_SERIES_SECONDS, step, r->seconds);
  read_experts(r, step, line);
  return true;
}

static bool read_eval(reader *r, const cJSON *line) {
  int64_t step;
  double value;
  if (!read_step(line, &step) || !is_number(line, "loss", &value)) return false;
  if (step < r->step) go_back(r, step);
  add(r, TSR_SERIES_VALIDATION, step, value);
  add_key(r, TSR_SERIES_ACCURACY, step, line, "accuracy");
  return true;
}

static bool read_sample(reader *r, const cJSON *line) {
  tsr_run_metrics *m = r->metrics;
  const cJSON *text = tsr_json_get(line, "text");
  int64_t step;
  if (!read_step(line, &step) || !cJSON_IsString(text)) return false;
  tsr_arena_grow(
      r->arena, (void **)&m->samples, sizeof *m->samples, m->samples_count, &m->samples_capacity);
  m->samples[m->samples_count++] =
      (tsr_run_sample){step, tsr_arena_strdup(r->arena, text->valuestring)};
  return true;
}

/* Of a line that the page is given as it is: its keys are texts and numbers, or null. */
static bool has_types(const cJSON *line, const char *const *texts, const char *const *numbers) {
  for (; *texts; texts++) {
    const cJSON *item = tsr_json_get(line, *texts);
    if (item && !cJSON_IsString(item) && !cJSON_IsNull(item)) return false;
  }
  for (; *numbers; numbers++) {
    const cJSON *item = tsr_json_get(line, *numbers);
    if (item && !cJSON_IsNumber(item) && !cJSON_IsNull(item)) return false;
  }
  return true;
}

static bool read_start(reader *r, const cJSON *line, const char *text, size_t length) {
  static const char *const texts[] = {"config", "module", "mesh", "policy", "isa", "recipe", NULL};
  static const char *const numbers[] = {"ranks", "parameters", "seed", "threads", NULL};
  if (!has_types(line, texts, numbers)) return false;
  if (r->metrics->start && r->step) add_restart(r, r->step);
  r->metrics->end = NULL;
  r->metrics->start = tsr_arena_strndup(r->arena, text, length);
  return true;
}

static bool read_end(reader *r, const cJSON *line, const char *text, size_t length) {
  static const char *const texts[] = {"reason", "weights_sha256", "recipe", NULL};
  static const char *const numbers[] = {"step", "loss", NULL};
  if (!has_types(line, texts, numbers) || !cJSON_IsString(tsr_json_get(line, "reason")))
    return false;
  r->metrics->end = tsr_arena_strndup(r->arena, text, length);
  return true;
}

static bool read_object(reader *r, const cJSON *line, const char *text, size_t length) {
  const cJSON *event = tsr_json_get(line, "event");
  const char *name = cJSON_IsString(event) ? event->valuestring : "";
  if (!strcmp(name, "step")) return read_step_line(r, line);
  if (!strcmp(name, "eval")) return read_eval(r, line);
  if (!strcmp(name, "sample")) return read_sample(r, line);
  if (!strcmp(name, "start")) return read_start(r, line, text, length);
  return !strcmp(name, "end") && read_end(r, line, text, length);
}

static void add_broken(reader *r, const char *why) {
  tsr_run_metrics *m = r->metrics;
  if (m->broken < TSR_RUN_PROBLEMS_MAX)
    m->problems[m->broken] =
        tsr_arena_printf(r->arena, "%s:%" PRId64 ": %s", m->path, m->lines, why);
  m->broken++;
}

bool tsr_run_metrics_add(reader *r, const char *text, size_t length, bool is_cut) {
  tsr_run_metrics *m = r->metrics;
  tsr_arena *scratch = tsr_arena_new();
  tsr_diags *ignored = tsr_diags_new(scratch);
  cJSON *line = NULL;
  bool is_long = length > TSR_RUN_LINE_MAX;
  bool parsed = !is_long && tsr_json_parse(scratch, "metrics", text, length, &line, ignored);
  bool valid = parsed && read_object(r, line, text, length);
  m->lines += valid || !is_cut;
  if (!valid && !is_cut)
    add_broken(
        r, is_long  ? "no line of a run's metrics is as long"
           : parsed ? "this is no line of a run's metrics"
                    : "this is no JSON");
  tsr_arena_free(scratch);
  return valid;
}

tsr_run_metrics_reader
tsr_run_metrics_begin(tsr_arena *arena, const char *path, tsr_run_metrics *ret) {
  *ret = (tsr_run_metrics){.path = path};
  for (int i = 0; i < TSR_SERIES_COUNT; i++) ret->series[i].tag = tags[i];
  return (reader){.arena = arena, .metrics = ret};
}

bool tsr_run_metrics_read(
    tsr_arena *arena, const char *path, tsr_run_metrics *ret, tsr_diags *diags) {
  tsr_file_map map;
  if (!tsr_file_map_open(path, 0, (tsr_location){.file = path}, &map, diags)) return false;
  reader r = tsr_run_metrics_begin(arena, path, ret);
  const char *at = map.bytes, *end = at + map.length;
  while (at < end) {
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    size_t length = (size_t)((newline ? newline : end) - at);
    if (length) tsr_run_metrics_add(&r, at, length, !newline);
    at += length + (newline != NULL);
  }
  bool ok = tsr_file_maps_check(diags);
  tsr_file_map_close(&map);
  return ok;
}
