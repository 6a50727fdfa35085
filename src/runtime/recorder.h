// SPDX-License-Identifier: Apache-2.0
/* When each rank did what, by the clock: one event for every task that a rank ran.
 *
 * The ranks of a stage step through its program in lockstep, on the threads of one process. A
 * rank's event spans from the begin of the first of the task's jobs that ran for it to the end of
 * the last: so what a rank steps through never overlaps in time, and what the threads do meanwhile
 * for other ranks is none of it. A collective is an event of the same span on each of its members.
 * A stage that had to wait has a wait event, from when it first asked until what it waited for was
 * there; in it no rank of the stage does anything.
 *
 * Events stand in a ring, allocated before the first step; when it is full the oldest are lost.
 * Only the thread that steps the stages writes to it. */
#ifndef TSR_RUNTIME_RECORDER_H
#define TSR_RUNTIME_RECORDER_H
#include "runtime/process.h"

typedef enum {
  TSR_EVENT_COMPUTE,
  TSR_EVENT_INPUT, /* a microbatch's samples are written into the inputs */
  TSR_EVENT_COMMUNICATION,
  TSR_EVENT_WAIT,
  TSR_EVENT_KINDS
} tsr_event_kind;
const char *tsr_event_kind_name(tsr_event_kind kind);

typedef struct {
  int64_t begin, end; /* nanoseconds since the recorder was made */
  int step;           /* 0: the first that was recorded */
  int rank;
  int task; /* of the program of the rank's stage; -1: its inputs */
  int microbatch;
  tsr_event_kind kind;
  bool background; /* of communication: the rank went on meanwhile */
} tsr_event;

typedef struct {
  int64_t begin, end;
} tsr_span;

/* What was recorded. */
typedef struct {
  const tsr_programs *programs;
  const tsr_parallel *parallel;
  int threads;         /* of all processes whose events these are */
  int processes;       /* 0 stands for 1: this one */
  int64_t origin;      /* what CLOCK_MONOTONIC is, in nanoseconds, where events are at 0 */
  int64_t clock_error; /* nanoseconds by which events of two processes may be apart from what they
                          say; 0: all have one clock */
  const tsr_span *steps;
  int steps_count;
  const tsr_event *events; /* in the order in which they ended, of one rank */
  int64_t events_count;
  int64_t lost; /* older ones that the ring had no room for */
} tsr_record;

typedef struct tsr_recorder tsr_recorder;

/* The most events that one step can have. */
int64_t tsr_recorder_events_of_step(const tsr_programs *programs, const tsr_parallel *parallel);

/* Records up to `steps` steps of a program from step `first_step` on, in a ring of `events`. A
 * program without a recorder pays for it with one look at a pointer a task. */
tsr_recorder *tsr_executable_record(
    tsr_arena *arena, tsr_executable *executable, int64_t first_step, int steps, int64_t events);
/* Copies into `arena` only where the ring has turned over. */
tsr_record tsr_recorder_read(tsr_arena *arena, const tsr_recorder *recorder);
/* `ended` is called after each step that was recorded; it may read the recorder and clear it. */
void tsr_recorder_on_step(
    tsr_recorder *recorder, void (*ended)(void *context, tsr_recorder *recorder), void *context);
/* Forgets the events and steps, so that as many can be recorded again. */
void tsr_recorder_clear(tsr_recorder *recorder);

/* ---- for the executor ---- */

/* Nanoseconds since the recording began; 0 without a recorder (NULL). */
int64_t tsr_recorder_now(const tsr_recorder *r);
/* Around a step; false: this one is not recorded. */
bool tsr_recorder_begin_step(tsr_recorder *r, int64_t step);
void tsr_recorder_end_step(tsr_recorder *r);

/* What it measures goes to the ranks' present event. */
tsr_task_timer tsr_recorder_timer(tsr_recorder *r);
/* tsr_pool_run where jobs [i * each, (i + 1) * each) are for ranks[i]; their spans go to the ranks'
 * present event. */
void tsr_recorder_run(
    tsr_recorder *r, tsr_pool *pool, tsr_pool_job *job, void *context, int jobs, const int *ranks,
    int each);
/* A rank's present event has (also) lasted from `begin` until now. */
void tsr_recorder_extend(tsr_recorder *r, int rank, int64_t begin);
/* The stage waits for what has not arrived. */
void tsr_recorder_wait(tsr_recorder *r, int stage);
/* Adds the present events of a stage's ranks, as what `event` says but for rank and span; and, if
 * the stage had to wait, that, until `begin` or the rank's event. */
void tsr_recorder_end(tsr_recorder *r, int stage, int64_t begin, tsr_event event);
/* An event that was timed by somebody else. */
void tsr_recorder_add(tsr_recorder *r, tsr_event event);

#endif
