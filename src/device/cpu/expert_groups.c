// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/expert_groups.h"
#include <assert.h>

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t ratio_up(int64_t count, int64_t each) { return (count + each - 1) / each; }

/* ---- groups of experts ---- */

/* The first row of the plan whose (expert, slot) is not before this one. */
static int64_t first_row(const cpu_expert_rows *rows, int64_t expert, int64_t slot) {
  int64_t low = 0, high = rows->plan_rows;
  while (low < high) {
    int64_t middle = (low + high) / 2, of = rows->plan[2 * middle + 1];
    bool before = of >= 0 && (of < expert || (of == expert && rows->plan[2 * middle] < slot));
    if (before) low = middle + 1;
    else high = middle;
  }
  return low;
}

cpu_expert_rows cpu_expert_rows_of(const cpu_call *c, int plan, int64_t begin, int64_t end) {
  const tsr_expert_rows *r = c->call.task->experts;
  return (cpu_expert_rows){
      .plan = cpu_tokens(c, plan),
      .plan_rows = c->call.task->inputs[plan].shape[0],
      .choices = r->choices,
      .first_expert = tsr_task_first_expert(&c->call),
      .here = r->here,
      .begin = begin,
      .end = end};
}

int64_t cpu_expert_rows_used(const cpu_expert_rows *rows) {
  return first_row(rows, rows->first_expert + rows->here, 0);
}

bool cpu_expert_next(cpu_expert_cursor *at, cpu_expert_segment *ret) {
  const cpu_expert_rows *r = at->rows;
  if (at->expert == r->here) return false;
  int64_t expert = r->first_expert + at->expert,
          first = first_row(r, expert, r->begin * r->choices) + at->done,
          left = first_row(r, expert, r->end * r->choices) - first, count = least(left, r->room);
  if (at->used && at->used + ratio_up(left, r->strip) * r->strip > r->room) return false;
  *ret = (cpu_expert_segment){at->expert,    first,    count,   at->done == 0,
                              count == left, at->done, at->used};
  at->used += ratio_up(count, r->strip) * r->strip;
  at->done += count;
  if (ret->ends) at->expert++, at->done = 0;
  return true;
}

int64_t cpu_expert_groups_max(int64_t rows, int64_t here, int64_t room, int64_t strip) {
  return 2 * (rows + here * (strip - 1)) / room + 1;
}

static void skip_group(cpu_expert_cursor *at) {
  for (cpu_expert_segment s; cpu_expert_next(at, &s);) {
  }
  at->used = 0;
}

void cpu_expert_find_groups(
    const cpu_expert_rows *rows, int64_t groups, cpu_expert_start *ret_starts) {
  cpu_expert_cursor at = {.rows = rows};
  for (int64_t i = 0; i < groups; i++, skip_group(&at))
    ret_starts[i] = (cpu_expert_start){at.expert, at.done};
  assert(at.expert == rows->here);
}

cpu_expert_cursor
cpu_expert_group(const cpu_expert_rows *rows, const cpu_expert_start *starts, int64_t group) {
  cpu_expert_cursor at = {.rows = rows};
  if (group > 0) at.expert = starts[group].expert, at.done = starts[group].done;
  return at;
}

/* ---- shares of a group ---- */

/* Reading or writing an expert's weight takes about as long as so many of its rows. */
enum { WEIGHT_ROWS = 16 };

int64_t cpu_expert_run_length(const cpu_expert_segment *s) { return s->count + WEIGHT_ROWS; }
int64_t cpu_expert_pack_length(const cpu_expert_segment *s) { return s->count; }

cpu_expert_share cpu_expert_share_of(
    cpu_expert_cursor group, cpu_expert_length *length, int64_t begin, int64_t end, int64_t of) {
  int64_t all = 0;
  for (cpu_expert_segment s; cpu_expert_next(&group, &s);) all += length(&s);
  return (cpu_expert_share){all * begin / of, all * end / of, 0};
}

static int64_t cut(int64_t position, int64_t length, int64_t count, int64_t strip) {
  int64_t in = position < 0 ? 0 : least(position, length);
  return least(ratio_up(count, strip) * in / length * strip, count);
}

cpu_span cpu_expert_next_span(cpu_expert_share *s, int64_t length, int64_t count, bool rows) {
  int64_t strip = rows ? TSR_GEMM_ROWS : TSR_GEMM_COLUMNS, begin = s->begin - s->at,
          end = s->end - s->at;
  s->at += length;
  if (!length) return (cpu_span){0, 0};
  return (cpu_span){cut(begin, length, count, strip), cut(end, length, count, strip)};
}
