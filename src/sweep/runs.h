// SPDX-License-Identifier: Apache-2.0
/* The runs of a sweep: which values each has. */
#ifndef TSR_SWEEP_RUNS_H
#define TSR_SWEEP_RUNS_H
#include "sweep/definition.h"

enum { TSR_SWEEP_RUNS_MAX = 10000 };

typedef struct {
  const char **values; /* of each parameter, as YAML on one line */
} tsr_sweep_run;

/* Of a grid all combinations, the last parameter's values the fastest; of a random search as many
 * as it asks for, no two of them alike. Errors: more than TSR_SWEEP_RUNS_MAX; a random search of
 * more runs than there are combinations. */
bool tsr_sweep_make_runs(
    tsr_arena *arena, const tsr_sweep *sweep, tsr_sweep_run **ret_runs, int *ret_count,
    tsr_diags *diags);

/* "lr=0.001 seed=2" */
void tsr_sweep_run_print(const tsr_sweep *sweep, const tsr_sweep_run *run, tsr_text *text);

#endif
