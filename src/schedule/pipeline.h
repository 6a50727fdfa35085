// SPDX-License-Identifier: Apache-2.0
/* Pipeline schedules: in which order stages work on the microbatches of a step: data, in one small
 * text format, made by a function or read from a user's file.
 *
 *   # 1F1B
 *   stages: 2
 *   microbatches: 3
 *   stage 0: F0 F1 B0 F2 B1 B2
 *   stage 1: F0 B0 F1 B1 F2 B2
 *
 * F is a microbatch's forward pass, B its backward pass, W the weights' gradients where they are
 * actions of their own (else B makes them too). With `chunks: 2` a stage holds two parts of the
 * model, and F3.1 is microbatch 3 of its second one. `placement: loop` (the default) gives chunk c
 * of stage s the virtual stage c * stages + s, `placement: v` turns every other chunk round:
 * c * stages + stages - 1 - s. Orders: GPipe (Huang et al. 2019), 1F1B (Narayanan et al. 2019),
 * interleaved 1F1B (Narayanan et al. 2021), ZB-H1 and ZB-V (Qi et al. 2023, sections 2.1 and 6).
 * In all that are made here the B, and the W, of a chunk follow the microbatches' numbers. */
#ifndef TSR_SCHEDULE_PIPELINE_H
#define TSR_SCHEDULE_PIPELINE_H
#include "base/arena.h"
#include "base/diag.h"
#include "base/text.h"

typedef enum { TSR_ACTION_FORWARD, TSR_ACTION_BACKWARD, TSR_ACTION_WEIGHTS } tsr_action_kind;
typedef struct {
  tsr_action_kind kind;
  int microbatch, chunk;
  tsr_location location; /* in the user's file */
} tsr_action;

typedef enum {
  TSR_PIPELINE_GPIPE,
  TSR_PIPELINE_1F1B,
  TSR_PIPELINE_INTERLEAVED,
  TSR_PIPELINE_ZB_H1,
  TSR_PIPELINE_ZB_V,
  TSR_PIPELINE_FORWARD, /* evaluation: forward passes only */
  TSR_ORDERS
} tsr_pipeline_kind;

typedef struct {
  const char *name; /* "1f1b", or the file's path */
  int stages, chunks, microbatches;
  bool v_shaped;
  bool splits_backward; /* there are W */
  bool forward_only;
  int *counts; /* per stage */
  tsr_action **actions;
  tsr_location *places; /* per stage: of its line in the user's file; NULL: there is none */
} tsr_pipeline;

/* "F3", or "F3.1" from chunk 1 on. */
tsr_short_text tsr_action_text(tsr_action action);

/* "gpipe", "1f1b", "interleaved", "zb_h1", "zb_v", "forward"; the reverse takes other spellings of
 * them too (1F1B, ZB-H1, zbv, zbvzerobubble, interleaved_1f1b) and returns TSR_ORDERS for an
 * unknown one and for "forward", which nobody may choose for training. */
const char *tsr_pipeline_name(tsr_pipeline_kind kind);
tsr_pipeline_kind tsr_pipeline_find(const char *name);

/* Whether a kind can be made for these counts (all from 1); else errors at `place` that name what
 * would be (interleaved: microbatches a multiple of stages, at least two chunks; zb_v: two chunks;
 * forward: any; the others: one chunk). Fewer microbatches than stages are allowed. */
bool tsr_pipeline_possible(
    tsr_pipeline_kind kind, int stages, int chunks, int microbatches, tsr_location location,
    tsr_diags *diags);
/* Of counts that are possible. TSR_PIPELINE_FORWARD is sound with either placement, and v_shaped
 * may be set to that of the schedule that the model was placed for. */
tsr_pipeline *tsr_pipeline_make(
    tsr_arena *arena, tsr_pipeline_kind kind, int stages, int chunks, int microbatches);

/* A user's file, checked (tsr_pipeline_check). stages and microbatches must be the run's; errors
 * are located in the file, an unreadable file at `place`. It is for training: every F has its B.
 * */
bool tsr_pipeline_read(
    tsr_arena *arena, const char *path, tsr_location location, int stages, int microbatches,
    tsr_pipeline **ret_order, tsr_diags *diags);
/* In the format above; tsr_pipeline_read returns the same schedule. */
void tsr_pipeline_print(const tsr_pipeline *pipeline, tsr_text *text);

/* Every chunk's F, B (and W) of every microbatch stands once, F before B before W, and no circle of
 * stages waits for one another: a stage's F waits for the F of the virtual stage before it, its B
 * for the B of the one behind it (the last one's: for its own F). Sends never block. Errors name
 * the actions of the circle. */
bool tsr_pipeline_check(const tsr_pipeline *pipeline, tsr_diags *diags);

/* The virtual stage (0 .. stages * chunks - 1) of a chunk of a stage, and back. */
int tsr_pipeline_virtual(const tsr_pipeline *pipeline, int stage, int chunk);
void tsr_pipeline_locate(
    const tsr_pipeline *pipeline, int virtual_stage, int *ret_stage, int *ret_chunk);

/* The most chunk-microbatches of a stage whose F has begun and whose last use (B, or W with
 * `until_weights` where there are W) is not done; 1 where there are only F. */
int tsr_pipeline_alive(const tsr_pipeline *pipeline, int stage, bool until_weights);

/* When everything happens if an action takes the time of its virtual stage and what it needs from
 * another stage takes `send` to arrive. */
typedef struct {
  /* Per virtual stage; what the schedule has none of may be NULL. `backward` is with the weights'
   * part unless the schedule splits it. */
  const double *forward, *backward, *weights;
  double send;
} tsr_pipeline_costs;
typedef struct {
  double **start, **end; /* per stage, per action */
  double total;
  double *busy;  /* per stage */
  double bubble; /* 1 - (all busy time) / (stages * total) */
} tsr_pipeline_times;
/* Of a schedule that is sound. */
void tsr_pipeline_time(
    tsr_arena *arena, const tsr_pipeline *pipeline, const tsr_pipeline_costs *costs,
    tsr_pipeline_times *ret_times);

/* When every action begins if each takes one unit (a whole backward pass two): by kind, then by
 * virtual stage * microbatches + microbatch. */
typedef struct {
  int microbatches;
  double *start[TSR_ACTION_WEIGHTS + 1];
} tsr_pipeline_starts;
tsr_pipeline_starts tsr_pipeline_find_starts(tsr_arena *arena, const tsr_pipeline *pipeline);

/* After how many microbatches what one virtual stage sends in its actions of a kind has been taken
 * by another one's, at the earliest times that the schedule allows: a stage that waits so long
 * before it uses the memory again can close no circle, since all waits then point backwards in
 * time. */
int tsr_pipeline_lag(
    const tsr_pipeline_starts *starts, tsr_action_kind kind, int from, tsr_action_kind taken_in,
    int to);

/* The pipeline over time, one line a stage, at most `columns` (at least 40) characters wide: slices
 * that begin with their action's letter, with its microbatch where there is room; where an action
 * has less than a column, columns show the kind that fills most of them. */
void tsr_pipeline_gantt(
    const tsr_pipeline *pipeline, const tsr_pipeline_times *times, int columns, tsr_text *text);

#endif
