// SPDX-License-Identifier: Apache-2.0
/* A configuration in a text, compiled at full size and ready to be reduced. */
#ifndef TSR_TESTS_PROOF_H
#define TSR_TESTS_PROOF_H
#include "prove/compare.h"
#include "prove/reference.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
  tsr_arena *arena;
  tsr_diags *diags;
  tsr_prove_run full;
  tsr_prove_request request;
} proof;

static inline void proof_fail(const proof *p) {
  tsr_diags_print(p->diags, stderr);
  abort();
}

/* Ends the test when the configuration has a mistake. */
static inline void proof_open(proof *p, const char *yaml) {
  *p = (proof){.arena = tsr_arena_new()};
  p->diags = tsr_diags_new(p->arena);
  p->request = (tsr_prove_request){
      .arena = p->arena,
      .graphs_folder = TSR_SOURCE_ROOT "/configs/graphs",
      .cpu = {tsr_kernels_get(NULL), 1}};
  tsr_config *config;
  if (!tsr_config_parse(
          p->arena, "run.yaml", yaml, strlen(yaml), NULL, 0, false, &config, p->diags) ||
      !tsr_prove_compile(&p->request, config, TSR_OUTPUTS_LOSS, &p->full, p->diags))
    proof_fail(p);
  p->request.config = config;
  p->request.parallel = p->full.parallel;
  p->request.training = &p->full.compiled;
  p->request.batch_units = p->full.batch_units;
  p->request.tp_units = p->full.tp_units;
}

static inline tsr_reduced_run proof_reduce(proof *p) {
  tsr_reduced_run plan;
  if (!tsr_reduced_run_make(&p->request, &plan, p->diags)) proof_fail(p);
  return plan;
}

static inline tsr_synthetic proof_data(proof *p, const tsr_prove_run *run) {
  tsr_synthetic data;
  if (!tsr_synthetic_make(run->config, run->compiled.graph, &data, p->diags)) proof_fail(p);
  return data;
}

static inline tsr_state proof_run(proof *p, const tsr_prove_run *run, int steps) {
  tsr_synthetic data = proof_data(p, run);
  tsr_recording how = tsr_recording_of(run->config, &p->request.cpu, &data);
  tsr_state state;
  how.steps = steps;
  how.ends_small = false;
  if (!tsr_state_run(p->arena, run, &how, &state, p->diags)) proof_fail(p);
  return state;
}

/* The row of a size, or NULL. */
static inline const tsr_reduced_size *proof_size(const tsr_reduced_run *plan, const char *name) {
  for (int i = 0; i < plan->sizes.count; i++)
    if (!strcmp(plan->sizes.rows[i].name, name)) return &plan->sizes.rows[i];
  return NULL;
}

static inline void proof_close(proof *p) { tsr_arena_free(p->arena); }

#endif
