// SPDX-License-Identifier: Apache-2.0
/* What a sweep is: its parameters, how their values are combined into runs, and by what number the
 * runs are compared. The section `sweep` of a configuration:
 *
 *   sweep:
 *     parameters: {lr: [1e-3, 3e-4], seed: 1..3}
 *     method: grid                # or {random: {runs: 8, seed: 1}},
 *                                 # or {halving: {eta: 3, min_steps: 30, max_steps: 270}}
 *     metric: loss/validation     # or loss/train; the least is best
 *
 * Successive halving takes the runs of a grid, or `runs` of a random search (runs, seed). */
#ifndef TSR_SWEEP_DEFINITION_H
#define TSR_SWEEP_DEFINITION_H
#include "sweep/parameter.h"

enum { TSR_SWEEP_PARAMETERS_MAX = 64, TSR_SWEEP_RUNGS_MAX = 64 };
#define TSR_SWEEP_LOSS_VALIDATION "loss/validation"
#define TSR_SWEEP_LOSS_TRAIN "loss/train"

typedef struct {
  tsr_sweep_parameter parameters[TSR_SWEEP_PARAMETERS_MAX];
  int parameters_count;
  int64_t random_runs; /* 0: the grid of all values */
  uint64_t seed;
  int64_t eta; /* 0: every run is trained to its end */
  int64_t rungs[TSR_SWEEP_RUNGS_MAX];
  int rungs_count;              /* of halving; else 0 */
  tsr_location halving, method; /* where these stand */
  const char *metric;
  tsr_location metric_place;
} tsr_sweep;

/* What is known without the section: a grid without parameters. */
tsr_sweep tsr_sweep_begin(void);

/* Reads the section, NULL: there is none. `config` has the names of the model's keys and max_steps.
 * Errors: keys that it does not have, two parameters of one key, checkpoint_dir,
 * values (parameter.h). */
bool tsr_sweep_read(
    tsr_arena *arena, const tsr_yaml *section, const tsr_config *config, tsr_sweep *sweep,
    tsr_diags *diags);

/* Adds a parameter. One of the command line takes the place of the section's of that key; two of
 * one source are an error. */
bool tsr_sweep_add(
    tsr_arena *arena, const char *name, tsr_location name_place, const tsr_yaml *value,
    const tsr_config *config, bool from_line, tsr_sweep *sweep, tsr_diags *diags);

/* --random and --sweep-seed (0 and NULL: not given) in place of the section's. */
void tsr_sweep_set_random(tsr_sweep *sweep, int64_t runs, const uint64_t *seed);

/* Whether the definition is whole: some parameter has values, and a grid has no distribution. */
bool tsr_sweep_check(const tsr_sweep *sweep, tsr_diags *diags);

/* "grid", "random: 8 runs, seed 1", "halving: eta 3, rungs 30, 90, 270, of a grid" */
void tsr_sweep_print_method(const tsr_sweep *sweep, tsr_text *text);

#endif
