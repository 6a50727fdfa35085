// SPDX-License-Identifier: Apache-2.0
#include "html_report/plan_json.h"
#include "base/json.h"
#include "html_report/communication_json.h"
#include "html_report/memory_json.h"
#include "html_report/series.h"
#include <inttypes.h>
#include <string.h>

static void add_key_text(const char *key, const char *value, tsr_text *json) {
  tsr_text_add(json, "\"%s\":", key);
  tsr_json_add_text(json, value, strlen(value));
  tsr_text_add(json, ",");
}

static void add_key_number(const char *key, double value, tsr_text *json) {
  tsr_text_add(json, "\"%s\":", key);
  tsr_series_print_number(value, json);
  tsr_text_add(json, ",");
}

static void add_stage(const tsr_report *r, int stage, tsr_text *json) {
  const tsr_estimate_stage *s = &r->estimate->stages[stage];
  tsr_text_add(json, "{");
  add_key_number("flops", s->flops, json);
  add_key_number("compute", s->compute, json);
  add_key_number("waits", s->waits, json);
  add_key_number("idle", s->idle, json);
  tsr_text_add(json, "\"memory\":");
  tsr_memory_json_stage(r, stage, json);
  tsr_text_add(json, "}");
}

static void add_pipeline(tsr_arena *arena, const tsr_report *r, tsr_text *json) {
  enum { ACTIONS_MAX = 4000 };
  const tsr_pipeline *p = r->programs->pipeline;
  tsr_pipeline_times times;
  int count = 0;
  const char *between = "";
  if (p->stages < 2) {
    tsr_text_add(json, "null");
    return;
  }
  tsr_pipeline_time(arena, p, &r->estimate->costs, &times);
  for (int s = 0; s < p->stages; s++) count += p->counts[s];
  tsr_text_add(json, "{");
  add_key_text("name", p->name, json);
  add_key_number("total", times.total, json);
  tsr_text_add(
      json, "\"stages\":%d,\"actions\":%s", p->stages, count > ACTIONS_MAX ? "null}" : "[");
  if (count > ACTIONS_MAX) return;
  for (int s = 0; s < p->stages; s++)
    for (int i = 0; i < p->counts[s]; i++, between = ",") {
      const tsr_action *a = &p->actions[s][i];
      tsr_text_add(
          json, "%s[%d,%d,%d,%d,%.6g,%.6g]", between, s, (int)a->kind, a->microbatch, a->chunk,
          times.start[s][i], times.end[s][i]);
    }
  tsr_text_add(json, "]}");
}

static int fullest_stage(const tsr_report *r) {
  int most = 0;
  int64_t bytes = -1;
  for (int s = 0; s < r->programs->pipeline->stages; s++) {
    tsr_memory m;
    tsr_memory_of(r->programs, r->programs_count, s, &m);
    if (m.total > bytes) bytes = m.total, most = s;
  }
  return most;
}

void tsr_plan_json(tsr_arena *arena, const tsr_report *r, tsr_text *json) {
  const tsr_estimate *e = r->estimate;
  int stages = r->programs->pipeline->stages;
  int64_t ranks = r->parallel->ranks / stages; /* of each */
  tsr_plan plan;
  tsr_plan_make(r->programs->of_stage[0], &plan);
  tsr_text_add(json, "{");
  add_key_text("machine", r->machine->name, json);
  add_key_text("machine_why", r->machine_why, json);
  add_key_number("machine_memory", (double)r->machine->memory, json);
  tsr_text_add(
      json, "\"shared\":%s,\"has_positions\":%s,", r->machine->threads ? "true" : "false",
      r->has_positions ? "true" : "false");
  add_key_number("devices", (double)e->devices, json);
  add_key_number("parameters", (double)plan.parameters, json);
  add_key_number("tokens", (double)r->tokens, json);
  add_key_number("step", e->step, json);
  add_key_number("bubble", stages > 1 ? e->times.bubble : 0, json);
  add_key_number("mfu", e->utilization, json);
  add_key_number("ideal", e->utilization * e->step, json);
  add_key_number("ranks", (double)ranks, json);
  tsr_text_add(json, "\"stages\":[");
  for (int s = 0; s < stages; s++) {
    if (s) tsr_text_add(json, ",");
    add_stage(r, s, json);
  }
  tsr_text_add(json, "],\"communication\":");
  tsr_communication_json(r, json);
  tsr_text_add(json, ",\"memory\":");
  tsr_memory_json_over_step(r, fullest_stage(r), json);
  tsr_text_add(json, ",\"pipeline\":");
  add_pipeline(arena, r, json);
  tsr_text_add(json, "}");
}
