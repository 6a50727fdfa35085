// SPDX-License-Identifier: Apache-2.0
/* Makes the named pipeline schedules: gpipe, 1f1b, interleaved, zb_h1, zb_v. */
#include "schedule/pipeline.h"
#include <assert.h>

/* Adds to one stage of a schedule. */
typedef struct {
  tsr_pipeline *pipeline;
  int stage;
  int done[3][2]; /* ZB-V: how many F, B and W of each chunk there are */
} maker;

static void add(const maker *m, tsr_action_kind kind, int microbatch, int chunk) {
  tsr_pipeline *o = m->pipeline;
  o->actions[m->stage][o->counts[m->stage]++] =
      (tsr_action){.kind = kind, .microbatch = microbatch, .chunk = chunk};
}

/* All forward passes, then all backward passes. */
static void make_gpipe(maker *m) {
  int microbatches = m->pipeline->microbatches;
  for (int i = 0; i < microbatches; i++) add(m, TSR_ACTION_FORWARD, i, 0);
  for (int i = 0; i < microbatches; i++) add(m, TSR_ACTION_BACKWARD, i, 0);
}

/* As many F as the first B needs to come back, then a B after every F. With splits_backward it is
 * ZB-H1: stage s leaves s of its W undone until there is no B left, so that its B come earlier and
 * W fill the end. F minus B is at most stages - s as in 1F1B, F minus W at most stages everywhere:
 * what 1F1B keeps alive on its first stage. */
static void make_1f1b(maker *m) {
  int microbatches = m->pipeline->microbatches, forward = 0, weights = 0;
  bool splits = m->pipeline->splits_backward;
  int ahead = m->pipeline->stages - 1 - m->stage;
  while (forward < ahead && forward < microbatches) add(m, TSR_ACTION_FORWARD, forward++, 0);
  for (int i = 0; i < microbatches; i++) {
    if (forward < microbatches) add(m, TSR_ACTION_FORWARD, forward++, 0);
    add(m, TSR_ACTION_BACKWARD, i, 0);
    if (splits && i >= m->stage) add(m, TSR_ACTION_WEIGHTS, weights++, 0);
  }
  while (splits && weights < microbatches) add(m, TSR_ACTION_WEIGHTS, weights++, 0);
}

/* The i-th F or B of Megatron's interleaved schedule: groups of as many microbatches as there are
 * stages go through the chunks one after another, backward from the last chunk on. */
static void add_grouped(const maker *m, tsr_action_kind kind, int i) {
  int stages = m->pipeline->stages, chunks = m->pipeline->chunks;
  int chunk = i / stages % chunks;
  if (kind == TSR_ACTION_BACKWARD) chunk = chunks - 1 - chunk;
  add(m, kind, i / (stages * chunks) * stages + i % stages, chunk);
}

static void make_interleaved(maker *m) {
  int stages = m->pipeline->stages, chunks = m->pipeline->chunks;
  int total = m->pipeline->microbatches * chunks;
  int ahead = 2 * (stages - 1 - m->stage) + (chunks - 1) * stages;
  if (ahead > total) ahead = total;
  for (int i = 0; i < ahead; i++) add_grouped(m, TSR_ACTION_FORWARD, i);
  for (int i = 0; i < total; i++) {
    if (ahead + i < total) add_grouped(m, TSR_ACTION_FORWARD, ahead + i);
    add_grouped(m, TSR_ACTION_BACKWARD, i);
  }
}

/* The next one of a chunk; the schedule is thought of as of 2 * stages - 1 microbatches at least,
 * and those that the step does not have are left out. */
static void add_next(maker *m, tsr_action_kind kind, int chunk) {
  int microbatch = m->done[kind][chunk]++;
  if (microbatch < m->pipeline->microbatches) add(m, kind, microbatch, chunk);
}

static void add_forward(maker *m, int chunk) { add_next(m, TSR_ACTION_FORWARD, chunk); }
static void add_backward(maker *m, int chunk) { add_next(m, TSR_ACTION_BACKWARD, chunk); }
static void add_weights(maker *m, int chunk) { add_next(m, TSR_ACTION_WEIGHTS, chunk); }

/* With F, B and W of the same cost, and 2 * stages - 1 microbatches or more, every stage works
 * without a pause between its first action and its last one. It never keeps more than 2 * stages
 * chunk-microbatches until their W. */
static void make_zb_v(maker *m) {
  int stages = m->pipeline->stages, s = m->stage;
  int microbatches = m->pipeline->microbatches;
  if (microbatches < 2 * stages - 1) microbatches = 2 * stages - 1;
  /* Until the first microbatch has come down to the turn and back up to this stage. */
  for (int i = 0; i < 2 * (stages - s) - 1; i++) add_forward(m, 0);
  for (int i = 0; i < s; i++) add_forward(m, 1), add_forward(m, 0);
  /* The memory is full. A whole F, B, W of the second chunk, until chunk 0 gets its first B. */
  for (int i = 0; i < stages - s; i++) add_forward(m, 1), add_backward(m, 1), add_weights(m, 1);
  while (m->done[TSR_ACTION_FORWARD][1] < microbatches) {
    if (m->done[TSR_ACTION_FORWARD][0] < microbatches) add_forward(m, 0);
    add_backward(m, 0), add_weights(m, 0);
    add_forward(m, 1), add_backward(m, 1), add_weights(m, 1);
  }
  /* The last B come without their W, which fill what then would be a pause. */
  for (int i = 0; i < s; i++) add_backward(m, 0), add_backward(m, 1);
  for (int i = 0; i < stages - s; i++) add_backward(m, 0), add_weights(m, 0);
  while (m->done[TSR_ACTION_WEIGHTS][1] < microbatches) add_weights(m, 1);
  while (m->done[TSR_ACTION_WEIGHTS][0] < microbatches) add_weights(m, 0);
}

static void make_forward(maker *m) {
  for (int chunk = 0; chunk < m->pipeline->chunks; chunk++)
    for (int i = 0; i < m->pipeline->microbatches; i++) add(m, TSR_ACTION_FORWARD, i, chunk);
}

static const struct {
  void (*make)(maker *m);
  int chunks_min, chunks_max; /* 0: any number */
  bool v_shaped, splits_backward, forward_only;
} facts[TSR_ORDERS] = {
    [TSR_PIPELINE_GPIPE] = {make_gpipe, 1, 1},
    [TSR_PIPELINE_1F1B] = {make_1f1b, 1, 1},
    [TSR_PIPELINE_INTERLEAVED] = {make_interleaved, 2, 0},
    [TSR_PIPELINE_ZB_H1] = {make_1f1b, 1, 1, .splits_backward = true},
    [TSR_PIPELINE_ZB_V] = {make_zb_v, 2, 2, .splits_backward = true, .v_shaped = true},
    [TSR_PIPELINE_FORWARD] = {make_forward, 1, 0, .forward_only = true},
};

static bool
chunks_possible(tsr_pipeline_kind kind, int chunks, tsr_location location, tsr_diags *diags) {
  int min = facts[kind].chunks_min, max = facts[kind].chunks_max;
  if (chunks >= min && (!max || chunks <= max)) return true;
  tsr_diag_error(
      diags, location, "pipeline schedule '%s' needs %s%d chunk%s a stage, not %d",
      tsr_pipeline_name(kind), min == max ? "" : "at least ", min, min == 1 ? "" : "s", chunks);
  if (max == 1) tsr_diag_hint(diags, "'interleaved' takes 2 chunks or more, 'zb_v' takes 2");
  else if (chunks == 1)
    tsr_diag_hint(diags, "with 1 chunk a stage there are 'gpipe', '1f1b' and 'zb_h1'");
  else tsr_diag_hint(diags, "'interleaved' takes 2 chunks or more");
  return false;
}

static bool
microbatches_possible(int stages, int microbatches, tsr_location location, tsr_diags *diags) {
  int low = microbatches / stages * stages;
  if (low == microbatches) return true;
  tsr_diag_error(
      diags, location,
      "pipeline schedule 'interleaved' needs a multiple of its %d stages as microbatches, not %d",
      stages, microbatches);
  if (low) tsr_diag_hint(diags, "%d and %d microbatches are possible", low, low + stages);
  else tsr_diag_hint(diags, "%d microbatches are possible", stages);
  return false;
}

bool tsr_pipeline_possible(
    tsr_pipeline_kind kind, int stages, int chunks, int microbatches, tsr_location location,
    tsr_diags *diags) {
  assert(kind >= 0 && kind < TSR_ORDERS && stages > 0 && chunks > 0 && microbatches > 0);
  bool ok = chunks_possible(kind, chunks, location, diags);
  if (kind == TSR_PIPELINE_INTERLEAVED)
    ok = microbatches_possible(stages, microbatches, location, diags) && ok;
  return ok;
}

tsr_pipeline *tsr_pipeline_make(
    tsr_arena *arena, tsr_pipeline_kind kind, int stages, int chunks, int microbatches) {
  assert(kind >= 0 && kind < TSR_ORDERS && stages > 0 && microbatches > 0);
  assert(chunks >= facts[kind].chunks_min);
  assert(!facts[kind].chunks_max || chunks <= facts[kind].chunks_max);
  assert(kind != TSR_PIPELINE_INTERLEAVED || microbatches % stages == 0);
  tsr_pipeline *o = tsr_arena_alloc(arena, sizeof *o);
  *o = (tsr_pipeline){
      .name = tsr_pipeline_name(kind),
      .stages = stages,
      .chunks = chunks,
      .microbatches = microbatches,
      .v_shaped = facts[kind].v_shaped,
      .splits_backward = facts[kind].splits_backward,
      .forward_only = facts[kind].forward_only,
  };
  o->counts = tsr_arena_array(arena, int, stages);
  o->actions = tsr_arena_array(arena, tsr_action *, stages);
  int kinds = o->forward_only ? 1 : o->splits_backward ? 3 : 2;
  for (int s = 0; s < stages; s++) {
    o->actions[s] = tsr_arena_array(arena, tsr_action, (size_t)kinds * chunks * microbatches);
    facts[kind].make(&(maker){.pipeline = o, .stage = s});
    assert(o->counts[s] == kinds * chunks * microbatches);
  }
  return o;
}
