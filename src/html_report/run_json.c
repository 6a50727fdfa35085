// SPDX-License-Identifier: Apache-2.0
#include "html_report/run_json.h"
#include "base/json.h"
#include <inttypes.h>
#include <string.h>

static void add_string(const char *text, tsr_text *json) {
  if (text) tsr_json_add_text(json, text, strlen(text));
  else tsr_text_add(json, "null");
}

static void add_ends(const tsr_run_metrics *m, tsr_text *json) {
  tsr_text_add(
      json, "\"start\":%s,\"end\":%s", m->start ? m->start : "null", m->end ? m->end : "null");
}

static void add_series(const tsr_run_metrics *m, const tsr_run_known *known, tsr_text *json) {
  const char *between = "";
  tsr_text_add(json, "\"series\":[");
  for (int i = 0; i < TSR_SERIES_COUNT; i++) {
    if (!m->series[i].count) continue;
    tsr_text_add(json, "%s", between);
    tsr_series_print(&m->series[i], known ? known->known[i] : 0, json);
    between = ",";
  }
  tsr_text_add(json, "]");
}

static void add_restarts(const tsr_run_metrics *m, tsr_text *json) {
  tsr_text_add(json, "\"restarts\":[");
  for (int i = 0; i < m->restarts_count; i++)
    tsr_text_add(json, "%s%" PRId64, i ? "," : "", m->restarts[i]);
  tsr_text_add(json, "]");
}

/* The bytes of the first TSR_RUN_SAMPLE_MAX characters of a text, which is UTF-8. */
static size_t sample_bytes(const char *text, size_t *ret_characters) {
  size_t bytes = strlen(text), characters = 0, shown = bytes;
  for (size_t i = 0; i < bytes; i++) {
    if (((unsigned char)text[i] & 0xc0) == 0x80) continue;
    if (characters++ == TSR_RUN_SAMPLE_MAX) shown = i;
  }
  *ret_characters = characters;
  return shown;
}

static void add_samples(const tsr_run_metrics *m, tsr_text *json) {
  int first = m->samples_count > TSR_RUN_SAMPLES_MAX ? m->samples_count - TSR_RUN_SAMPLES_MAX : 0;
  tsr_text_add(json, "\"samples_count\":%d,\"samples\":[", m->samples_count);
  for (int i = first; i < m->samples_count; i++) {
    size_t characters, bytes = sample_bytes(m->samples[i].text, &characters);
    tsr_text_add(json, "%s[%" PRId64 ",", i > first ? "," : "", m->samples[i].step);
    tsr_json_add_text(json, m->samples[i].text, bytes);
    if (characters > TSR_RUN_SAMPLE_MAX) tsr_text_add(json, ",%zu", characters);
    tsr_text_add(json, "]");
  }
  tsr_text_add(json, "]");
}

static void add_lines(const tsr_run_metrics *m, tsr_text *json) {
  tsr_text_add(
      json, "\"lines\":%" PRId64 ",\"broken\":%" PRId64 ",\"problems\":[", m->lines, m->broken);
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
  tsr_text_add(json, "\"lock\":");
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

static void add_checkpoints(const tsr_page_run *run, tsr_text *json) {
  tsr_text_add(json, "\"checkpoints\":[");
  for (int i = 0; i < run->checkpoints_count; i++) {
    tsr_text_add(json, "%s[%" PRId64 ",", i ? "," : "", run->checkpoints[i].step);
    add_string(run->checkpoints[i].path, json);
    tsr_text_add(json, "]");
  }
  tsr_text_add(json, "]");
}

static void add_warnings(const char *text, tsr_text *json) {
  const char *between = "";
  tsr_text_add(json, "\"warnings\":[");
  for (const char *at = text ? text : ""; *at; at += strcspn(at, "\n"), at += *at == '\n') {
    size_t length = strcspn(at, "\n");
    if (!length) continue;
    tsr_text_add(json, "%s", between);
    tsr_json_add_text(json, at, length);
    between = ",";
  }
  tsr_text_add(json, "]");
}

static void add_live(const tsr_run_live *live, tsr_text *json) {
  static const char *const uses[] = {
      [TSR_FOLDER_FREE] = "gone",
      [TSR_FOLDER_IN_USE] = "alive",
      [TSR_FOLDER_USE_UNKNOWN] = "unknown"};
  if (!live) return;
  tsr_text_add(
      json, "\"live\":{\"has_metrics\":%s,\"changed\":%.3f,\"process\":\"%s\",\"owner\":",
      live->has_metrics ? "true" : "false", live->changed, uses[live->process]);
  add_string(live->owner, json);
  tsr_text_add(json, "}");
}

static void add_key(const char *key, const char *value, tsr_text *json) {
  tsr_text_add(json, "\"%s\":", key);
  add_string(value, json);
}

void tsr_run_json_part(
    const tsr_page_run *run, tsr_run_part part, const tsr_run_known *known, tsr_text *json) {
  switch (part) {
  case TSR_RUN_PART_NAME:
    add_key("name", run->name, json);
    break;
  case TSR_RUN_PART_ENDS:
    add_ends(run->metrics, json);
    break;
  case TSR_RUN_PART_SERIES:
    add_series(run->metrics, known, json);
    break;
  case TSR_RUN_PART_RESTARTS:
    add_restarts(run->metrics, json);
    break;
  case TSR_RUN_PART_SAMPLES:
    add_samples(run->metrics, json);
    break;
  case TSR_RUN_PART_LINES:
    add_lines(run->metrics, json);
    break;
  case TSR_RUN_PART_CONFIG:
    add_key("config", run->config, json);
    break;
  case TSR_RUN_PART_LOCK:
    add_lock(run->lock, json);
    break;
  case TSR_RUN_PART_CHECKPOINTS:
    add_checkpoints(run, json);
    break;
  case TSR_RUN_PART_WARNINGS:
    add_warnings(run->warnings, json);
    break;
  case TSR_RUN_PART_PLAN:
    tsr_text_add(json, "\"plan\":%s", run->plan ? run->plan : "null");
    break;
  case TSR_RUN_PART_LIVE:
    add_live(run->live, json);
    break;
  case TSR_RUN_PARTS:
    break;
  }
}

void tsr_run_json(const tsr_page_run *run, tsr_text *json) {
  tsr_text_add(json, "{");
  for (tsr_run_part part = 0; part < TSR_RUN_PARTS; part++) {
    if (part == TSR_RUN_PART_LIVE && !run->live) continue;
    if (part) tsr_text_add(json, ",");
    tsr_run_json_part(run, part, NULL, json);
  }
  tsr_text_add(json, "}");
}
