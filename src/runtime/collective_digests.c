// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective_digests.h"
#include "base/hash.h"
#include "runtime/executable_internal.h"

void tsr_executable_digest(tsr_executable *b, tsr_collective_digests *digests) {
  b->digests = digests;
}

static void add_stage(const tsr_task_at *at) {
  tsr_executable *b = at->executable;
  tsr_collective_digests *d = b->digests;
  const tsr_tensor *out = &at->task->outputs[0];
  int stage = at->program->stage;
  for (int i = 0; i < b->ranks_count[stage]; i++) {
    if (!tsr_executable_holds(b, out->value, at->ranks[i])) continue;
    tsr_device_view view;
    const void *bytes =
        tsr_executable_view(b, out->value, at->ranks[i], at->at.microbatch, TSR_VIEW_READ, &view);
    tsr_arena_grow(d->arena, (void **)&d->items, sizeof *d->items, d->count, &d->capacity);
    d->items[d->count] = (tsr_collective_digest){
        .order = d->count,
        .step = at->at.step,
        .microbatch = at->at.microbatch,
        .rank = at->ranks[i],
        .stage = stage,
        .task = (int)(at->task - at->program->tasks),
        .hash = tsr_hash_number(bytes, (size_t)tsr_tensor_bytes(out))};
    d->count++;
    tsr_device_view_close(&view);
  }
}

/* A collective over pp is run once, by the stage that comes last: it is each stage's all the same.
 * */
void tsr_executable_add_digests(const tsr_task_at *at) {
  const tsr_executable *b = at->executable;
  b->process->device->wait(b->process->device->state);
  if (at->task->axis != TSR_PP) {
    add_stage(at);
    return;
  }
  for (int s = 0; s < b->programs->pipeline->stages; s++) {
    tsr_task_at of = *at;
    of.program = b->programs->of_stage[s];
    of.ranks = b->ranks_of_stage[s];
    of.task = of.program->tasks;
    while (of.task->node != at->task->node) of.task++;
    add_stage(&of);
  }
}
