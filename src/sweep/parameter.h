// SPDX-License-Identifier: Apache-2.0
/* A parameter of a sweep: a key of the configuration and the values that runs give it.
 *
 *   [0.001, 0.0003]          these, of any type; of a key whose value is a list, a list of lists
 *   1..3, 2..10:4            integers from the first to the last, by steps of 1 or of 4
 *   uniform(0, 0.1)          drawn, every number in it as likely
 *   log_uniform(1e-5, 1e-3)  drawn, every logarithm as likely
 *
 * Drawn numbers have six significant digits, more where fewer would leave the range; those of
 * integer keys are whole and have both ends. */
#ifndef TSR_SWEEP_PARAMETER_H
#define TSR_SWEEP_PARAMETER_H
#include "config/fields.h"
#include "config/yaml.h"

typedef enum {
  TSR_SWEEP_LIST,
  TSR_SWEEP_RANGE,
  TSR_SWEEP_UNIFORM,
  TSR_SWEEP_LOG_UNIFORM
} tsr_sweep_space;

typedef struct {
  const char *name, *key; /* as it is written, "lr"; whole, "training_config.optimizer.lr" */
  tsr_location location;  /* of the values */
  tsr_sweep_space space;
  bool is_integer;            /* of what is drawn */
  const char *const *values;  /* of a list: YAML, each on one line */
  int64_t count, first, step; /* of a list or range, count: of its values; of others 0 */
  double low, high;           /* of what is drawn */
  bool from_line;             /* of the command line, not of the section */
} tsr_sweep_parameter;

/* Whether a value of the key gives several ones to a sweep, and not one to every run. `field`: its
 * row, or NULL. */
bool tsr_sweep_is_space(const tsr_field *field, const tsr_yaml *value);

/* Reads the values; a value that is no list, range or distribution is a list of one. Errors at
 * their places: what is no range or distribution of numbers, an end before its begin, nothing, the
 * same value twice. Whether a value is one that the key can have is checked with the runs. */
bool tsr_sweep_parameter_read(
    tsr_arena *arena, const char *name, const char *key, const tsr_field *field,
    const tsr_yaml *value, tsr_sweep_parameter *ret_parameter, tsr_diags *diags);

/* A value of a list or range, index < count; as YAML. */
const char *
tsr_sweep_parameter_value(tsr_arena *arena, const tsr_sweep_parameter *parameter, int64_t index);
/* A value of any parameter for a run of a random search. It depends on the key, the seed and these
 * numbers alone, not on the other parameters. */
const char *tsr_sweep_parameter_draw(
    tsr_arena *arena, const tsr_sweep_parameter *parameter, uint64_t seed, int64_t run,
    int64_t attempt);

/* The values as a user writes them. */
void tsr_sweep_parameter_print(const tsr_sweep_parameter *parameter, tsr_text *text);

#endif
