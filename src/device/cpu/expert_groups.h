// SPDX-License-Identifier: Apache-2.0
/* How the rounds of the experts' GEMMs are made (expert_matmul.c): groups of experts whose rows are
 * packed together, and the share of a group that a range computes. Groups follow from the plan and
 * the shapes alone. */
#ifndef TSR_DEVICE_CPU_EXPERT_GROUPS_H
#define TSR_DEVICE_CPU_EXPERT_GROUPS_H
#include "device/cpu/ops.h"

/* ---- groups of experts ---- */

/* The rows of a task: those of its experts that tokens [begin, end) chose. A group has room for so
 * many, an expert's number rounded up to a multiple of `strip`. */
typedef struct {
  const int32_t *plan;
  int64_t plan_rows, choices, first_expert, here, begin, end, room, strip;
} cpu_expert_rows;

/* Rows of an expert that are packed in one round: all of them if they fit. */
typedef struct {
  int64_t expert, first, count; /* expert: of the rank's; first: row of the plan */
  bool begins, ends;            /* with the expert's first and last row in the list */
  int64_t done;                 /* rows of the expert before it */
  int64_t before;               /* room that the group's segments before it take */
} cpu_expert_segment;

/* A place in the rows, between two segments. */
typedef struct {
  const cpu_expert_rows *rows;
  int64_t expert, done, used; /* rows that are done of that expert; room that the group uses */
} cpu_expert_cursor;

/* Of the task whose plan is that input; room and strip are the caller's to set. */
cpu_expert_rows cpu_expert_rows_of(const cpu_call *c, int plan, int64_t begin, int64_t end);
/* The first row behind those of all experts. */
int64_t cpu_expert_rows_used(const cpu_expert_rows *rows);
/* The group's next segment, experts without rows included; false at its end. */
bool cpu_expert_next(cpu_expert_cursor *at, cpu_expert_segment *ret);
/* The most groups of so many rows: two neighbours have more than fit into one. */
int64_t cpu_expert_groups_max(int64_t rows, int64_t here, int64_t room, int64_t strip);
/* Where each of `groups` begins; groups behind the last one are empty. */
typedef struct {
  int64_t expert, done;
} cpu_expert_start;
void cpu_expert_find_groups(
    const cpu_expert_rows *rows, int64_t groups, cpu_expert_start *ret_starts);
/* Of the first group nothing is read. */
cpu_expert_cursor
cpu_expert_group(const cpu_expert_rows *rows, const cpu_expert_start *starts, int64_t group);

/* ---- shares of a group ---- */

/* How the work of a group is shared out: its segments lie one after the other on a line, each as
 * long as its work, and each range has a part of the line. */
typedef struct {
  int64_t begin, end; /* of the share, on the line */
  int64_t at;         /* where the next segment begins */
} cpu_expert_share;

typedef int64_t cpu_expert_length(const cpu_expert_segment *s);
cpu_expert_length cpu_expert_run_length, cpu_expert_pack_length;

/* Range [begin, end) of `of` of the group that begins there. */
cpu_expert_share cpu_expert_share_of(
    cpu_expert_cursor group, cpu_expert_length *length, int64_t begin, int64_t end, int64_t of);

typedef struct {
  int64_t begin, end;
} cpu_span;

/* The share's part of the next segment of that length: of `count` rows, or columns, of its GEMM.
 * The parts of all shares are whole strips, and together they are everything. */
cpu_span cpu_expert_next_span(cpu_expert_share *s, int64_t length, int64_t count, bool rows);

#endif
