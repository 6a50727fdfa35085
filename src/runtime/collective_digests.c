// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective_digests.h"
#include "base/hash.h"
#include "runtime/executable_internal.h"

void tsr_executable_digest(tsr_executable *b, tsr_collective_digests *digests) {
  b->digests = digests;
}

void tsr_executable_add_digests(const tsr_task_at *at) {
  tsr_executable *b = at->executable;
  tsr_collective_digests *d = b->digests;
  const tsr_tensor *out = &at->task->outputs[0];
  int stage = at->program->stage;
  b->process->device->wait(b->process->device->state);
  for (int i = 0; i < b->ranks_count[stage]; i++) {
    const void *bytes = tsr_executable_address(b, out->value, at->ranks[i], at->at.microbatch);
    tsr_arena_grow(d->arena, (void **)&d->items, sizeof *d->items, d->count, &d->capacity);
    d->items[d->count++] = (tsr_collective_digest){
        .step = at->at.step,
        .microbatch = at->at.microbatch,
        .rank = at->ranks[i],
        .stage = stage,
        .task = (int)(at->task - at->program->tasks),
        .hash = tsr_hash_number(bytes, (size_t)tsr_tensor_bytes(out))};
  }
}
