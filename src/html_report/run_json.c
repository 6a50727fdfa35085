// SPDX-License-Identifier: Apache-2.0
#include "html_report/run_json.h"
#include "base/json.h"
#include <inttypes.h>
#include <string.h>

static void add_string(const char *text, tsr_text *json) {
  if (text) tsr_json_add_text(json, text, strlen(text));
  else tsr_text_add(json, "null");
}

static void add_metrics(const tsr_run_metrics *m, tsr_text *json) {
  const char *between = "";
  tsr_text_add(
      json, ",\"start\":%s,\"end\":%s", m->start ? m->start : "null", m->end ? m->end : "null");
  tsr_text_add(json, ",\"series\":[");
  for (int i = 0; i < TSR_SERIES_COUNT; i++) {
    if (!m->series[i].count) continue;
    tsr_text_add(json, "%s", between);
    tsr_series_print(&m->series[i], json);
    between = ",";
  }
  tsr_text_add(json, "],\"restarts\":[");
  for (int i = 0; i < m->restarts_count; i++)
    tsr_text_add(json, "%s%" PRId64, i ? "," : "", m->restarts[i]);
  int first = m->samples_count > TSR_RUN_SAMPLES_MAX ? m->samples_count - TSR_RUN_SAMPLES_MAX : 0;
  tsr_text_add(json, "],\"samples_count\":%d,\"samples\":[", m->samples_count);
  for (int i = first; i < m->samples_count; i++) {
    tsr_text_add(json, "%s[%" PRId64 ",", i > first ? "," : "", m->samples[i].step);
    add_string(m->samples[i].text, json);
    tsr_text_add(json, "]");
  }
  tsr_text_add(
      json, "],\"lines\":%" PRId64 ",\"broken\":%" PRId64 ",\"problems\":[", m->lines, m->broken);
  for (int i = 0; i < TSR_RUN_PROBLEMS_MAX && i < m->broken; i++) {
    if (i) tsr_text_add(json, ",");
    add_string(m->problems[i], json);
  }
  tsr_text_add(json, "]");
}

static void add_lock_start(const tsr_lock_start *s, tsr_text *json) {
  const struct {
    const char *key, *value;
  } texts[] = {{"mesh", s->mesh}, {"isa", s->isa}, {"cpu", s->cpu}, {"version", s->version}};
  tsr_text_add(
      json,
      "{\"step\":%" PRId64 ",\"ranks\":%" PRId64 ",\"processes\":%" PRId64 ",\"threads\":%" PRId64,
      s->step, s->ranks, s->processes, s->threads);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    tsr_text_add(json, ",\"%s\":", texts[i].key);
    add_string(texts[i].value, json);
  }
  tsr_text_add(json, "}");
}

static void add_lock(const tsr_run_lock *lock, tsr_text *json) {
  tsr_text_add(json, ",\"lock\":");
  if (!lock) {
    tsr_text_add(json, "null");
    return;
  }
  tsr_text_add(json, "{\"policy\":");
  add_string(lock->policy, json);
  tsr_text_add(json, ",\"starts\":[");
  for (int i = 0; i < lock->starts_count; i++) {
    if (i) tsr_text_add(json, ",");
    add_lock_start(&lock->starts[i], json);
  }
  tsr_text_add(json, "]}");
}

static void add_lines(const char *text, tsr_text *json) {
  const char *between = "";
  tsr_text_add(json, ",\"warnings\":[");
  for (const char *at = text ? text : ""; *at; at += strcspn(at, "\n"), at += *at == '\n') {
    size_t length = strcspn(at, "\n");
    if (!length) continue;
    tsr_text_add(json, "%s", between);
    tsr_json_add_text(json, at, length);
    between = ",";
  }
  tsr_text_add(json, "]");
}

void tsr_run_json(const tsr_page_run *run, tsr_text *json) {
  tsr_text_add(json, "{\"name\":");
  add_string(run->name, json);
  add_metrics(&run->metrics, json);
  tsr_text_add(json, ",\"config\":");
  add_string(run->config, json);
  add_lock(run->lock, json);
  tsr_text_add(json, ",\"checkpoints\":[");
  for (int i = 0; i < run->checkpoints_count; i++) {
    tsr_text_add(json, "%s[%" PRId64 ",", i ? "," : "", run->checkpoints[i].step);
    add_string(run->checkpoints[i].path, json);
    tsr_text_add(json, "]");
  }
  tsr_text_add(json, "]");
  add_lines(run->warnings, json);
  tsr_text_add(json, ",\"plan\":%s}", run->plan ? run->plan : "null");
}
