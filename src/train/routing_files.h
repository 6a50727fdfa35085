// SPDX-License-Identifier: Apache-2.0
/* Recorded routing (Megatron-LM's RouterReplay): of each step a safetensors file with a tensor for
 * each choose_experts of the model, named as it is (graph/routing.h): I32 (tokens, k), the chosen
 * experts of each token. Tokens are those of the step's samples in their global order, so a record
 * does not depend on the mesh, the microbatches or the processes of the run that made it. */
#ifndef TSR_TRAIN_ROUTING_FILES_H
#define TSR_TRAIN_ROUTING_FILES_H
#include "runtime/process.h"

typedef struct {
  const char *folder;
  const char *recipe; /* of the run: its hash */
  char *path;         /* room for folder and TSR_STEP_FILE_BYTES; messages keep it */
  int64_t step;       /* its file is routing-00000001.safetensors, … */
  bool writes;        /* this process writes the file */
} tsr_routing_record;

/* Collective, after a step of an executable that records. Failures of the disk are those of the
 * writing process alone. */
bool tsr_routing_record_write(
    const tsr_routing_record *record, tsr_executable *executable, tsr_diags *diags);

typedef struct tsr_routing_replay tsr_routing_replay;

/* Opens a record of at least so many steps, and reads all of it. Errors name the file and the
 * tensor: a step that is missing; a file that is no safetensors file; a choice of the graph's that
 * it lacks, or one that the graph does not have; another type or shape; an expert that does not
 * exist, or that a token has chosen twice. */
bool tsr_routing_replay_open(
    tsr_arena *arena, const char *folder, const tsr_graph *graph, int64_t steps,
    tsr_routing_replay **ret_replay, tsr_diags *diags);
/* SHA-256 of all choices of all these steps. */
const char *tsr_routing_replay_hash(const tsr_routing_replay *replay);
/* Reads the steps [first, last], two at most, which tsr_routing_replay_fill may then be asked for.
 * An error where a file is no longer what it was. */
bool tsr_routing_replay_load(
    tsr_routing_replay *replay, int64_t first, int64_t last, tsr_diags *diags);
/* A row of an input of tsr_graph_replay_routing: index `row` of its dimension 0, over the step.
 * False for an input of another name. Threads may call it together. */
bool tsr_routing_replay_fill(
    const tsr_routing_replay *replay, int64_t step, const char *input, int64_t row, void *to);

#endif
