// SPDX-License-Identifier: Apache-2.0
/* Two steps of a compiled run on synthetic samples, and all numbers that they leave. */
#ifndef TSR_PROVE_RECORDED_RUN_H
#define TSR_PROVE_RECORDED_RUN_H
#include "prove/reduced_run.h"
#include "prove/synthetic.h"
#include "base/sha256.h"

/* A parameter or a tensor of the optimizer's state, whole, as f32. */
typedef struct {
  const char *name;
  int value; /* of `graph` */
  int ndim;
  int64_t shape[TSR_DIMS_MAX];
  int64_t count;
  float *data;
} tsr_state_tensor;

typedef struct {
  const tsr_graph *graph; /* placed */
  const tsr_programs *programs;
  double loss[TSR_PROVE_STEPS], norm[TSR_PROVE_STEPS]; /* NAN: there is no norm */
  tsr_state_tensor *tensors; /* after the last step, in the graph's order */
  int tensors_count;
  /* Of a run whose gradients are outputs: before the first step, and of it. Per parameter; NULL
   * where the loss does not depend on one. */
  float **initial, **gradients;
  /* Of a run with outputs, after its first step: the complete values, by their indices in the graph
   * before placement; NULL: it is no output. And the placed value that each became. */
  float **values;
  int *placed;
  int values_count;
  float inv_count; /* of the first step */
} tsr_state;

/* Runs `steps` steps, at most TSR_PROVE_STEPS; `data` is the reduced graph's, its step is set. */
bool tsr_state_run(
    tsr_arena *arena, const tsr_prove_run *run, const tsr_cpu_context *cpu, tsr_synthetic *data,
    int steps, tsr_state *ret_state, tsr_diags *diags);

/* SHA-256 over losses and norms of all steps (f32), then all tensors. */
void tsr_state_sha256(tsr_arena *arena, const tsr_state *state, char ret[TSR_SHA256_TEXT_BYTES]);

#endif
