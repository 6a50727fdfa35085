// SPDX-License-Identifier: Apache-2.0
/* Two or three steps of a compiled run on synthetic samples, and all numbers that they leave. The
 * program is the one that `train` executes: the executor traces what its tasks compute
 * (runtime/value_trace.h), gradients among it, and the program has no outputs for that, which would
 * change what it keeps and fuses. */
#ifndef TSR_PROVE_RECORDED_RUN_H
#define TSR_PROVE_RECORDED_RUN_H
#include "prove/reduced_run.h"
#include "prove/synthetic.h"
#include "base/sha256.h"
#include "runtime/value_trace.h"

/* What two runs are compared by, in the order in which a step makes it. */
typedef enum {
  TSR_RECORDED_LOSS,      /* and how many choices each expert has */
  TSR_RECORDED_GRADIENTS, /* complete, before clipping, with the loss scale; last `clip` */
  TSR_RECORDED_WEIGHTS,
  TSR_RECORDED_STATE, /* the optimizer's */
  TSR_RECORDED_KINDS
} tsr_recorded_kind;
/* "losses", "gradients", "weights", "optimizer state" */
const char *tsr_recorded_kind_name(tsr_recorded_kind kind);

/* A whole tensor as f32; a gradient without padding. */
typedef struct {
  const char *name; /* of a gradient its parameter's */
  int value;        /* of `graph` */
  int param;        /* index; -1: of none */
  int ndim;
  int64_t shape[TSR_DIMS_MAX];
  int64_t count;
  float *data;
} tsr_state_tensor;

typedef struct {
  tsr_state_tensor *items;
  int count;
} tsr_state_tensors;

typedef struct {
  double loss, norm; /* NAN: there is no norm */
  bool updates;      /* gradients do not overflow */
  tsr_state_tensors of[TSR_RECORDED_KINDS];
  tsr_traced_value *values; /* that tasks compute, in the order of the graph */
  int values_count;
} tsr_recorded_step;

/* One of them whose numbers are kept. */
typedef struct {
  const char *name; /* NULL: of none */
  int step;
} tsr_capture_request;

typedef struct {
  const tsr_graph *graph; /* placed */
  const tsr_programs *programs;
  int steps_count; /* one after the other */
  int recorded;    /* steps of all: with the one of a small loss behind them, if there is one */
  tsr_recorded_step steps[TSR_PROVE_STEPS + 1];
  float **initial;   /* per parameter: before the first step */
  float **gradients; /* per parameter: of the first step; NULL: the loss does not depend on it */
  const tsr_value *differing_replica; /* the first of which ranks have other replicas; or NULL */
  int differing_step;                 /* after which */
  const char *missing; /* the first parameter whose gradient is not computed; or NULL */
  float *captured;     /* NULL: there is no such value */
  int64_t captured_count;
  float inv_count; /* of the first step */
} tsr_state;

/* How a run is made. */
typedef struct {
  const tsr_cpu_context *cpu;
  tsr_synthetic *data; /* the reduced graph's; its step is set */
  int steps;           /* at most TSR_PROVE_STEPS */
  double rate;         /* of every step */
  double loss_scale;   /* of the first step; read with fp16 */
  double gain;         /* of linear layers; 0: the model's own (prove/synthetic_weights.h) */
  tsr_capture_request capture;
  bool ends_small; /* one more step, from the first weights and without state, of a loss that is
                          2^-20 times as large */
} tsr_recording;

/* Whether a proof has the step of a small loss: with Adam, whose epsilon changes no bit of a weight
 * beside gradients of the usual size. Not with fp16, which cannot hold such gradients. */
bool tsr_recording_ends_small(const tsr_config *config);
/* The learning rate and loss scale of the configuration; the rate is the schedule's largest: that
 * of a warm-up's first step may be 0. */
tsr_recording
tsr_recording_of(const tsr_config *config, const tsr_cpu_context *cpu, tsr_synthetic *data);

bool tsr_state_run(
    tsr_arena *arena, const tsr_prove_run *run, const tsr_recording *how, tsr_state *ret_state,
    tsr_diags *diags);

/* SHA-256 over all tensors of a kind, of all steps. */
void tsr_state_sha256(
    tsr_arena *arena, const tsr_state *state, tsr_recorded_kind kind,
    char ret[TSR_SHA256_TEXT_BYTES]);

#endif
