// SPDX-License-Identifier: Apache-2.0
/* The run at reduced size: sizes of the model, mesh, batch and units, as two configurations, one on
 * the reduced mesh and one on a single rank, which have the same recipe. */
#ifndef TSR_PROVE_REDUCED_RUN_H
#define TSR_PROVE_REDUCED_RUN_H
#include "device/cpu/cpu.h"
#include "prove/reduced_mesh.h"
#include "prove/reduced_sizes.h"
#include "train/compile.h"

/* What `check` has decided for the full run. */
typedef struct {
  tsr_arena *arena;
  const tsr_config *config;
  const tsr_parallel *parallel;
  const tsr_compiled *training;
  int64_t batch_units, tp_units;
  const char *graphs_folder;
  tsr_cpu_context cpu;
  bool full_mesh;
} tsr_prove_request;

/* One of the two configurations, compiled. */
typedef struct {
  tsr_config *config;
  tsr_parallel *parallel;
  int64_t batch_units, tp_units;
  tsr_compile_options options;
  tsr_compiled compiled;
} tsr_prove_run;

typedef struct {
  const char *name;
  int64_t full, reduced;
  const char *why;
} tsr_run_row;

enum { TSR_PROVE_STEPS = 2, TSR_RUN_ROWS_MAX = 8 };
typedef struct {
  tsr_reduced_mesh shape;
  tsr_run_row rows[TSR_RUN_ROWS_MAX]; /* batch, microbatches, units, steps */
  int rows_count;
  tsr_reduced_sizes sizes;
  tsr_prove_run mesh, single;
  const char
      *refused; /* why no single rank can run the recipe, or NULL; then `single` is the mesh */
  /* The units are the mesh's own: no other mesh adds them in the same order. */
  bool own_order;
} tsr_reduced_run;

/* Shrinks, compiles both, and keeps the sizes without which the smaller model is refused.
 * The full run is what remains in the end, so this fails only where that does. */
bool tsr_reduced_run_make(
    const tsr_prove_request *request, tsr_reduced_run *ret_plan, tsr_diags *diags);

/* Compiles one of the configurations. */
bool tsr_prove_compile(
    const tsr_prove_request *request, tsr_config *config, tsr_compile_outputs outputs,
    tsr_prove_run *ret_run, tsr_diags *diags);

#endif
