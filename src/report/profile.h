// SPDX-License-Identifier: Apache-2.0
/* The report of `profile` on recorded steps: where each rank's time went, which ops took it, what
 * the pipeline schedule makes of it, and what would help. Nothing here reads a clock, so the same
 * record gives the same text. */
#ifndef TSR_REPORT_PROFILE_H
#define TSR_REPORT_PROFILE_H
#include "config/config.h"
#include "runtime/peak_rates.h"
#include "runtime/recorder.h"

/* Seconds of all steps. What a rank does at once counts in each kind and once more in overlapped,
 * so compute + input + communication - overlapped + idle is the time of the steps. Waiting is a
 * part of idle. */
typedef struct {
  double compute, input, communication, overlapped, waiting, idle;
} tsr_profile_rank;

/* Over all ranks. */
typedef struct {
  const char *op;
  int axis; /* of a collective, else -1 */
  tsr_event_kind kind;
  int64_t count;
  double seconds, flops; /* of causal attention the half that is not masked */
  double bytes;          /* read and written by compute; of communication what a member brings */
} tsr_profile_op;

/* Of one virtual stage: seconds of an action, the mean over microbatches, steps and the stage's
 * ranks. What it receives is not in it, nor what runs in the background. */
typedef struct {
  double forward, backward, weights;
} tsr_profile_actions;

typedef struct {
  tsr_record record;
  tsr_peak_rates limits;   /* the caller's; all 0: no shares of them are printed */
  double seconds;          /* of all steps */
  tsr_profile_rank *ranks; /* per rank */
  tsr_profile_rank all;    /* their sum */
  double unused;        /* seconds in which no rank did anything: the process was between tasks */
  double *axis_seconds; /* communication per axis; over pp sends and receives too */
  tsr_profile_op *ops;  /* the longest first */
  int ops_count;
  tsr_profile_actions *actions; /* per virtual stage */
  double send;                  /* seconds: the mean of what a receive takes */
  double *busy;                 /* per stage: seconds of its actions in a step */
  double
      bubble; /* of the schedule, if each action takes what it took here and every stage has devices
                    of its own; 0 without a pipeline */
  double bubble_even; /* the same if all stages were alike and B took twice as long as F (with W: as
                         long) */
} tsr_profile;

/* Of a record with at least one step, in which nothing is lost. */
void tsr_profile_make(tsr_arena *arena, const tsr_record *record, tsr_profile *ret_profile);
/* The share of a schedule's time in which stages idle, if all stages are alike (bubble_even). */
double tsr_profile_even_bubble(const tsr_pipeline *pipeline);

/* The tables: ranks (the first 64), ops (the first 24), pipeline. */
void tsr_profile_print(const tsr_profile *profile, tsr_text *text);
/* What would help, one line "advice: …" each; one line that nothing stands out, else. */
void tsr_profile_advise(const tsr_profile *profile, const tsr_config *config, tsr_text *text);

#endif
