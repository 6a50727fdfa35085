// SPDX-License-Identifier: Apache-2.0
/* schedule.all_reduce_overlap: auto. */
#ifndef TSR_CLI_OVERLAP_CHOICE_H
#define TSR_CLI_OVERLAP_CHOICE_H
#include "cli/run_compile.h"

/* Decides what `auto` comes to (schedule.auto_overlaps). It is true where collectives over dp go
 * between processes, a step takes less time with overlap than without it by the plan for the
 * machine, and the program fits the memory or does not fit without overlap either.
 *
 * The machine is plan's, else the one that plan would take for the mesh without --machine. One with
 * `threads` is a host that computes all tasks one after another, so nothing is hidden. A command
 * that only describes a run, in one process, describes one with a process for each device, as plan
 * does. The memory is device_config.memory_limit of each process, else the machine's. A way to
 * recompute that is not chosen yet counts as cheap.
 *
 * All of that is the same on all processes, so they choose the same without asking each other; the
 * comparison of their programs (cli/job_consistency.h) checks it. The choice changes no bits, so a
 * run that resumes may choose otherwise. A note tells the choice and its reason where two plans
 * were compared, or where train, profile, check or plan have been given the word `auto`. `compile`
 * makes the programs of *p. */
void overlap_choose(
    app *a, setup *s, const prepared *p, bool (*compile)(app *a, const setup *s, prepared *p));

#endif
