// SPDX-License-Identifier: Apache-2.0
/* Runs the steps of a list that only add and copy, where the members' buffers are at hand: on the
 * CPU any part of a chunk, so that threads can share it; on a device a whole chunk, which the
 * device begins. */
#ifndef TSR_COMM_CHUNK_OPS_H
#define TSR_COMM_CHUNK_OPS_H
#include "comm/collective_steps.h"

typedef struct {
  const tsr_step_list *list;
  float *const *in, *const *out; /* per member; NULL: another process's */
  char *staging;                 /* tsr_step_list_staging_bytes */
} tsr_step_buffers;

/* One round of a step. */
typedef struct {
  const tsr_step *step;
  int round;
  int64_t begin, end; /* of the chunk */
} tsr_chunk;

/* Where the operand's element i, of the chunk's, lies. `receives`: it is a target. */
void *tsr_chunk_address(
    const tsr_step_buffers *buffers, const tsr_chunk *chunk, const tsr_operand *operand,
    bool receives, int64_t i);
/* Whether the operand's elements of the chunk are in several pieces, and so in its `via`. */
bool tsr_chunk_is_staged(
    const tsr_step_buffers *buffers, const tsr_chunk *chunk, const tsr_operand *operand,
    bool receives);
/* A message's only operand, and where its bytes are. */
const tsr_operand *tsr_chunk_message(const tsr_step_buffers *buffers, const tsr_chunk *chunk);
void *tsr_chunk_message_address(const tsr_step_buffers *buffers, const tsr_chunk *chunk);

/* Elements [begin, end) of the chunk of a reduction or a copy. */
void tsr_chunk_run(
    const tsr_kernels *kernels, const tsr_step_buffers *buffers, const tsr_chunk *chunk,
    int64_t begin, int64_t end);
/* The same of an operand with pieces, to where it is sent from. */
void tsr_chunk_pack(
    const tsr_step_buffers *buffers, const tsr_chunk *chunk, int64_t begin, int64_t end);

void tsr_chunk_run_on(
    const tsr_device *device, const tsr_step_buffers *buffers, const tsr_chunk *chunk);
void tsr_chunk_pack_on(
    const tsr_device *device, const tsr_step_buffers *buffers, const tsr_chunk *chunk);

#endif
