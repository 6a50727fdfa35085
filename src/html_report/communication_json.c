// SPDX-License-Identifier: Apache-2.0
#include "html_report/communication_json.h"
#include "base/json.h"
#include "html_report/series.h"
#include <inttypes.h>
#include <string.h>

static void add_name(const char *name, tsr_text *json) {
  tsr_json_add_text(json, name, strlen(name));
}

static void add_transfer(const tsr_estimate_transfer *t, tsr_text *json) {
  tsr_text_add(json, "{\"op\":");
  add_name(tsr_op_name(t->op), json);
  tsr_text_add(json, ",\"axis\":");
  add_name(tsr_axis_name(t->axis), json);
  tsr_text_add(json, ",\"path\":");
  add_name(*t->path ? t->path : "none", json);
  tsr_text_add(
      json, ",\"count\":%" PRId64 ",\"bytes\":%.0f,\"sent\":%.0f,\"seconds\":", t->count, t->bytes,
      t->sent);
  tsr_series_print_number(t->seconds, json);
  tsr_text_add(json, "}");
}

/* [name, bytes], behind others. */
static void add_sum(const char *name, double sent, tsr_text *json) {
  if (sent <= 0) return;
  tsr_text_add(json, "%s[", json->data[json->length - 1] == '[' ? "" : ",");
  add_name(name, json);
  tsr_text_add(json, ",%.0f]", sent);
}

void tsr_communication_json(const tsr_report *r, tsr_text *json) {
  int stages = r->programs->pipeline->stages, most = 0;
  for (int s = 1; s < stages; s++)
    if (r->estimate->stages[s].communication > r->estimate->stages[most].communication) most = s;
  const tsr_estimate_stage *s = &r->estimate->stages[most];
  tsr_text_add(json, "{\"stage\":%d,\"transfers\":[", most);
  for (int i = 0; i < s->transfers_count; i++) {
    if (i) tsr_text_add(json, ",");
    add_transfer(&s->transfers[i], json);
  }
  tsr_text_add(json, "],\"axes\":[");
  for (int a = 0; a < TSR_AXES; a++) {
    double sent = 0;
    for (int i = 0; i < s->transfers_count; i++)
      if (s->transfers[i].axis == a) sent += s->transfers[i].sent;
    add_sum(tsr_axis_name(a), sent, json);
  }
  tsr_text_add(json, "],\"links\":[");
  for (int l = 0; l < r->machine->links_count; l++) {
    double sent = 0;
    for (int i = 0; i < s->transfers_count; i++) sent += s->transfers[i].sent_over[l];
    add_sum(r->machine->links[l].name, sent, json);
  }
  tsr_text_add(json, "]}");
}
