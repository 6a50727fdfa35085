// SPDX-License-Identifier: Apache-2.0
/* schedule.recompute: auto. */
#ifndef TSR_CLI_RECOMPUTE_CHOICE_H
#define TSR_CLI_RECOMPUTE_CHOICE_H
#include "cli/run_compile.h"

/* Replaces `auto` in the configuration by the way to recompute that adds the least work among those
 * with which all programs of the run fit the memory, and adds a note that says which, and why. The
 * order is none, cheap, then full with recompute_every 8, 4, 3, 2 and 1. Where nothing fits it is
 * what needs the least, and the run is refused later with the sizes; where the memory is not
 * known, cheap.
 *
 * The memory is that of plan's machine, else device_config.memory_limit of each process, else what
 * the processes' GPUs or hosts have available now. The choice changes no bits, so a run that
 * resumes may choose otherwise. `compile` makes the programs of *p. Collective: all processes
 * choose the same. */
bool recompute_choose(
    app *a, setup *s, prepared *p, bool (*compile)(app *a, const setup *s, prepared *p));

#endif
