// SPDX-License-Identifier: Apache-2.0
#include "html_report/memory_json.h"
#include "base/json.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void tsr_memory_json_stage(const tsr_report *r, int stage, tsr_text *json) {
  static const char *const uses[TSR_USES] = {
      "activations", "gradients", "communication", "scratch"};
  tsr_memory m;
  tsr_memory_of(r->programs, r->programs_count, stage, &m);
  tsr_text_add(
      json,
      "{\"parameters\":%" PRId64 ",\"state\":%" PRId64 ",\"sources\":%" PRId64 ",\"cache\":%" PRId64
      ",\"work\":%" PRId64 ",\"total\":%" PRId64 ",\"uses\":{",
      m.parameters, m.state, m.sources, m.cache, m.work, m.total);
  for (int u = 0; u < TSR_USES; u++)
    tsr_text_add(
        json, "%s\"%s\":%" PRId64, u ? "," : "", uses[u], m.fullest ? m.fullest->peak_bytes[u] : 0);
  tsr_text_add(json, "}}");
}

/* ---- over a step ---- */

static bool is_counted(const tsr_program *p, const tsr_work_piece *piece) {
  return !piece->holders || piece->holders == p->peak_holders;
}

/* Bytes of WORK that are taken in each task of the plan's order. */
static int64_t *add_up(const tsr_program *p, tsr_arena *scratch) {
  int64_t *bytes = tsr_arena_array(scratch, int64_t, p->tasks_count + 1);
  for (int i = 0; i < p->pieces_count; i++) {
    const tsr_work_piece *piece = &p->pieces[i];
    if (!is_counted(p, piece)) continue;
    bytes[piece->first] += piece->bytes * piece->slots;
    bytes[piece->last + 1] -= piece->bytes * piece->slots;
  }
  for (int i = 1; i < p->tasks_count; i++) bytes[i] += bytes[i - 1];
  return bytes;
}

/* ---- JSON ---- */

static void add_name(const char *name, tsr_text *json) {
  tsr_json_add_text(json, name, strlen(name));
}

/* The largest of each of at most 500 runs of tasks: the peak is among them. */
static void print_curve(const int64_t *bytes, int count, tsr_text *json) {
  enum { SHOWN_MAX = 500 };
  int shown = count < SHOWN_MAX ? count : SHOWN_MAX;
  tsr_text work = {0};
  tsr_text_add(json, ",\"x\":[");
  for (int i = 0; i < shown; i++) {
    int begin = (int)((int64_t)count * i / shown), end = (int)((int64_t)count * (i + 1) / shown);
    int most = begin;
    for (int k = begin; k < end; k++)
      if (bytes[k] > bytes[most]) most = k;
    tsr_text_add(json, "%s%d", i ? "," : "", most);
    tsr_text_add(&work, "%s%" PRId64, i ? "," : "", bytes[most]);
  }
  tsr_text_add(json, "],\"work\":[%s]", work.data ? work.data : "");
  tsr_text_free(&work);
}

static int begin_of(const tsr_program *p, const tsr_part *part) {
  int at = 0;
  while (at < p->tasks_count && p->plan_order[at] != part->begin) at++;
  return at;
}

static void print_marks(const tsr_program *p, tsr_text *json) {
  tsr_text_add(json, ",\"marks\":[");
  for (int i = 0; i < p->parts_count; i++) {
    tsr_text_add(json, "%s[%d,", i ? "," : "", begin_of(p, &p->parts[i]));
    add_name(tsr_section_name(p->parts[i].section), json);
    tsr_text_add(json, "]");
  }
  tsr_text_add(json, "]");
}

static int larger_first(const void *a, const void *b) {
  const tsr_work_piece *x = *(const tsr_work_piece *const *)a;
  const tsr_work_piece *y = *(const tsr_work_piece *const *)b;
  int64_t bytes_x = x->bytes * x->slots, bytes_y = y->bytes * y->slots;
  if (bytes_x != bytes_y) return bytes_x < bytes_y ? 1 : -1;
  return x->value - y->value;
}

static void
print_peak(const tsr_program *p, const int64_t *bytes, tsr_arena *scratch, tsr_text *json) {
  enum { SHOWN_MAX = 12 };
  int peak = 0, count = 0;
  while (peak + 1 < p->tasks_count && p->plan_order[peak] != p->peak_task) peak++;
  const tsr_work_piece **live =
      tsr_arena_array(scratch, const tsr_work_piece *, p->pieces_count + 1);
  for (int i = 0; i < p->pieces_count; i++) {
    const tsr_work_piece *x = &p->pieces[i];
    if (is_counted(p, x) && x->value >= 0 && x->first <= peak && peak <= x->last) live[count++] = x;
  }
  qsort(live, (size_t)count, sizeof *live, larger_first);
  int64_t others = p->tasks_count ? bytes[peak] : 0;
  tsr_text_add(json, ",\"peak\":[%d,%" PRId64 ",", peak, others);
  add_name(p->tasks_count ? p->graph->nodes[p->tasks[p->peak_task].node].name : "", json);
  tsr_text_add(json, "],\"tensors\":[");
  for (int i = 0; i < count && i < SHOWN_MAX; i++) {
    int64_t size = live[i]->bytes * live[i]->slots;
    tsr_text_add(json, "%s[", i ? "," : "");
    add_name(p->graph->values[live[i]->value].name, json);
    tsr_text_add(json, ",%" PRId64 ",%d,%d]", size, live[i]->first, live[i]->last);
    others -= size;
  }
  tsr_text_add(json, "],\"others\":%" PRId64, others);
}

void tsr_memory_json_over_step(const tsr_report *r, int stage, tsr_text *json) {
  const tsr_program *p = r->programs->of_stage[stage];
  tsr_arena *scratch = tsr_arena_new();
  const int64_t *bytes = add_up(p, scratch);
  int64_t fixed = 0;
  for (int s = 0; s < TSR_SEGMENTS; s++)
    if (s != TSR_SEGMENT_WORK && s != TSR_SEGMENT_HOST) fixed += p->bytes[s];
  tsr_text_add(json, "{\"stage\":%d,\"tasks\":%d,\"fixed\":%" PRId64, stage, p->tasks_count, fixed);
  print_curve(bytes, p->tasks_count, json);
  print_marks(p, json);
  print_peak(p, bytes, scratch, json);
  tsr_text_add(json, "}");
  tsr_arena_free(scratch);
}
