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

/* Bytes of WORK that are taken from one task to another one. */
typedef struct {
  const char *name;
  int64_t bytes;
  int first, last; /* first -1: no task has it */
} piece;

/* By value; those that are another one's bytes are counted there. */
static int *find_roots(const tsr_program *p, tsr_arena *scratch) {
  const tsr_graph *g = p->graph;
  int *root = tsr_arena_array(scratch, int, g->values_count + 1);
  for (int v = 0; v < g->values_count; v++) root[v] = v;
  for (int n = 0; n < g->nodes_count; n++) {
    const tsr_node *node = &g->nodes[n];
    if (!tsr_program_has_node(p, n) || !node->outputs_count) continue;
    int of = tsr_program_is_alias(p, n) ? node->inputs[0] : tsr_program_in_place(p, n);
    if (of >= 0) root[node->outputs[0]] = root[of];
  }
  return root;
}

static void extend(piece *of, int task) {
  if (of->first < 0) of->first = task;
  of->last = task;
}

/* Of a step with several microbatches: what the parts that run for each of them share with others
 * is alive while any of them runs. */
static void extend_over_microbatches(const tsr_program *p, const int *root, piece *pieces) {
  int begin = p->tasks_count, end = 0;
  for (int i = 0; i < p->parts_count; i++) {
    const tsr_part *part = &p->parts[i];
    if (part->section == TSR_PROLOGUE || part->section == TSR_UPDATE || part->begin == part->end)
      continue;
    if (part->begin < begin) begin = part->begin;
    if (part->end > end) end = part->end;
  }
  if (p->lowering.microbatches < 2) return;
  for (int i = begin; i < end; i++) { /* sums over microbatches */
    const tsr_task *t = &p->tasks[i];
    if (!t->outputs_count || !tsr_node_accumulates(&p->graph->nodes[t->node])) continue;
    piece *of = &pieces[root[tsr_task_output(p, t, 0)]];
    of->first = begin;
    if (of->last < end - 1) of->last = end - 1;
  }
  for (int v = 0; v < p->graph->values_count; v++) {
    piece *of = &pieces[v];
    if (of->first < 0) continue;
    if (of->first < begin && of->last >= begin && of->last < end) of->last = end - 1;
    if (of->last >= end && of->first >= begin && of->first < end) of->first = begin;
  }
}

static int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

static void find_lifetimes(const tsr_program *p, const int *root, piece *pieces) {
  const tsr_graph *g = p->graph;
  for (int v = 0; v < g->values_count; v++) {
    const tsr_tensor *t = &p->tensors[v];
    bool is_work = t->segment == TSR_SEGMENT_WORK && t->slot_group < 0;
    pieces[v] = (piece){
        g->values[v].name,
        is_work ? aligned(tsr_tensor_bytes(t)) * tsr_program_stack_entries(p, v) : 0, -1, -1};
  }
  for (int i = 0; i < p->tasks_count; i++) {
    const tsr_task *t = &p->tasks[i];
    for (int k = 0; k < t->inputs_count; k++) extend(&pieces[root[tsr_task_input(p, t, k)]], i);
    for (int k = 0; k < t->outputs_count; k++) extend(&pieces[root[tsr_task_output(p, t, k)]], i);
  }
  for (int i = 0; i < g->outputs_count; i++) { /* they are read behind the step */
    piece *of = &pieces[root[g->outputs[i].value]];
    if (of->first >= 0) of->last = p->tasks_count - 1;
  }
  extend_over_microbatches(p, root, pieces);
}

/* Where a task's output takes over the bytes of an input that is not read any more, these count for
 * the output alone. */
static void hand_over(const tsr_program *p, const int *root, piece *pieces) {
  for (int i = 0; i < p->tasks_count; i++) {
    const tsr_task *t = &p->tasks[i];
    for (int o = 0; o < t->outputs_count; o++)
      for (int k = 0; k < t->inputs_count; k++) {
        int to = root[tsr_task_output(p, t, o)], from = root[tsr_task_input(p, t, k)];
        bool same = to != from && p->tensors[to].offset == p->tensors[from].offset;
        bool now = pieces[to].first == i && pieces[from].last == i && pieces[from].first < i;
        if (same && now && pieces[to].bytes == pieces[from].bytes) pieces[from].last = i - 1;
      }
  }
}

static int64_t slot_bytes(const tsr_program *p) {
  int64_t bytes = 0;
  for (int i = 0; i < p->slot_groups_count; i++) {
    const tsr_slot_group *s = &p->slot_groups[i];
    if (s->pool == i && s->segment == TSR_SEGMENT_WORK) bytes += s->bytes * s->slots;
  }
  return bytes;
}

static int64_t *add_up(const tsr_program *p, const piece *pieces, tsr_arena *scratch) {
  int64_t *bytes = tsr_arena_array(scratch, int64_t, p->tasks_count + 1), live = slot_bytes(p);
  memset(bytes, 0, sizeof *bytes * (size_t)(p->tasks_count + 1));
  for (int v = 0; v < p->graph->values_count; v++) {
    if (pieces[v].first < 0) continue;
    bytes[pieces[v].first] += pieces[v].bytes;
    bytes[pieces[v].last + 1] -= pieces[v].bytes;
  }
  for (int i = 0; i <= p->tasks_count; i++) bytes[i] = live += bytes[i];
  for (int i = 0; i < p->tasks_count; i++) bytes[i] += p->tasks[i].scratch_bytes;
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

static void print_marks(const tsr_program *p, tsr_text *json) {
  tsr_text_add(json, ",\"marks\":[");
  for (int i = 0; i < p->parts_count; i++) {
    tsr_text_add(json, "%s[%d,", i ? "," : "", p->parts[i].begin);
    add_name(tsr_section_name(p->parts[i].section), json);
    tsr_text_add(json, "]");
  }
  tsr_text_add(json, "]");
}

static int larger_first(const void *a, const void *b) {
  const piece *x = *(const piece *const *)a, *y = *(const piece *const *)b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  return strcmp(x->name, y->name);
}

static void print_peak(
    const tsr_program *p, const piece *pieces, const int64_t *bytes, tsr_arena *scratch,
    tsr_text *json) {
  enum { SHOWN_MAX = 12 };
  int peak = 0, count = 0;
  for (int i = 1; i < p->tasks_count; i++)
    if (bytes[i] > bytes[peak]) peak = i;
  const piece **live = tsr_arena_array(scratch, const piece *, p->graph->values_count + 1);
  for (int v = 0; v < p->graph->values_count; v++)
    if (pieces[v].bytes && pieces[v].first >= 0 && pieces[v].first <= peak &&
        peak <= pieces[v].last)
      live[count++] = &pieces[v];
  qsort(live, (size_t)count, sizeof *live, larger_first);
  int64_t others = p->tasks_count ? bytes[peak] : 0;
  tsr_text_add(json, ",\"peak\":[%d,%" PRId64 ",", peak, others);
  add_name(p->tasks_count ? p->graph->nodes[p->tasks[peak].node].name : "", json);
  tsr_text_add(json, "],\"tensors\":[");
  for (int i = 0; i < count && i < SHOWN_MAX; i++) {
    tsr_text_add(json, "%s[", i ? "," : "");
    add_name(live[i]->name, json);
    tsr_text_add(json, ",%" PRId64 ",%d,%d]", live[i]->bytes, live[i]->first, live[i]->last);
    others -= live[i]->bytes;
  }
  tsr_text_add(json, "],\"others\":%" PRId64, others);
}

void tsr_memory_json_over_step(const tsr_report *r, int stage, tsr_text *json) {
  const tsr_program *p = r->programs->of_stage[stage];
  tsr_arena *scratch = tsr_arena_new();
  piece *pieces = tsr_arena_array(scratch, piece, p->graph->values_count + 1);
  const int *root = find_roots(p, scratch);
  find_lifetimes(p, root, pieces);
  hand_over(p, root, pieces);
  const int64_t *bytes = add_up(p, pieces, scratch);
  int64_t fixed = 0;
  for (int s = 0; s < TSR_SEGMENTS; s++)
    if (s != TSR_SEGMENT_WORK) fixed += p->bytes[s];
  tsr_text_add(
      json, "{\"stage\":%d,\"tasks\":%d,\"fixed\":%" PRId64 ",\"slots\":%" PRId64, stage,
      p->tasks_count, fixed, slot_bytes(p));
  print_curve(bytes, p->tasks_count, json);
  print_marks(p, json);
  print_peak(p, pieces, bytes, scratch, json);
  tsr_text_add(json, "}");
  tsr_arena_free(scratch);
}
