// SPDX-License-Identifier: Apache-2.0
/* The shared steps of a sweep's runs (sweep/prefix.h): which are on the disk, and which are needed.
 */
#ifndef TSR_CLI_SWEEP_PREFIXES_H
#define TSR_CLI_SWEEP_PREFIXES_H
#include "cli/app.h"
#include "sweep/prefix.h"

typedef enum {
  PREFIX_IDLE,
  PREFIX_NEEDED,
  PREFIX_RUNNING,
  PREFIX_DONE,
  PREFIX_FAILED
} prefix_state;

typedef struct {
  tsr_arena *arena;
  const char *folder; /* of the sweep */
  tsr_prefix_tree tree;
  prefix_state *states; /* of each node */
} sweep_prefixes;

/* Looks which nodes have their checkpoint. */
void sweep_prefixes_begin(
    tsr_arena *arena, const char *folder, tsr_prefix_tree tree, sweep_prefixes *ret);

/* A run without checkpoints of its own begins: the nodes on its way are needed. */
void sweep_prefixes_need(sweep_prefixes *prefixes, int run);

/* The next node that is needed and that can be trained; -1: none. */
int sweep_prefixes_next(const sweep_prefixes *prefixes);

/* Whether the run waits for none of them. */
bool sweep_prefixes_are_ready(const sweep_prefixes *prefixes, int run);

/* The nearest node on the way of a run, or above a node, that has its checkpoint; -1: none. */
int sweep_prefixes_of_run(const sweep_prefixes *prefixes, int run);
int sweep_prefixes_above(const sweep_prefixes *prefixes, int node);
/* NULL of -1. */
const char *sweep_prefixes_checkpoint(const sweep_prefixes *prefixes, int node);

/* The step of the newest checkpoint that a run has in its folder; -1: it has none. */
int64_t sweep_prefixes_newest(tsr_arena *arena, const char *run_folder);

#endif
