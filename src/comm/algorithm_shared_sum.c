// SPDX-License-Identifier: Apache-2.0
/* Each process adds a piece of the tensor for all: it reads all members' summands where they lie,
 * and writes the sum to all that get it. Every element of every tensor crosses the memory bus once,
 * whatever the number of processes, and nothing is staged. Two empty messages to each process order
 * this: one when a process's tensors may be read and written, one when its piece is complete. A
 * piece is read and written by its owner alone, so the sum may be where a summand is. */
#include "comm/algorithm.h"
#include "comm/slices.h"

enum { LEAVE, ENTER, ADD, PHASES };
enum { ALIGNMENT = 1024 }; /* elements: pieces share no cache line, and no page of 4 KiB */

/* Messages have no content. */
enum { PLACE_OUT, PLACE_IN, PLACES };

static void add_messages(tsr_list_builder *b, const tsr_layout *l, int phase, int view) {
  for (int sends = 0; sends < 2; sends++) /* receives first */
    for (int i = 1; i < l->processes; i++) {
      int process = (l->me + i) % l->processes;
      int place = sends ? PLACE_OUT : PLACE_IN + (process < l->me ? process : process - 1);
      tsr_step step = {.kind = sends ? TSR_STEP_SEND : TSR_STEP_RECEIVE, .peer = process, .end = 1};
      step.from_view = step.to_view = view;
      step.from = step.to = tsr_list_add_operand(
          b, (tsr_operand){.buffer = TSR_BUFFER_STAGING, .index = place, .via = -1});
      step.from_count = step.to_count = 1;
      tsr_list_add_step(b, phase, step);
    }
}

/* The first target is this process's own, in whose memory the first summand of a sum `onto` it is
 * as well as elsewhere. */
static void add_targets(tsr_list_builder *b, const tsr_layout *l, tsr_step *step) {
  step->to = b->operands_count;
  for (int others = 0; others < 2; others++)
    for (int m = 0; m < l->members; m++)
      if (tsr_layout_is_local(l, m) != others)
        tsr_list_add_operand(b, (tsr_operand){.buffer = TSR_BUFFER_OUT, .index = m, .via = -1});
  step->to_count = b->operands_count - step->to;
}

static int64_t piece_begin(const tsr_layout *l, int64_t elements, int process) {
  int64_t begin = elements * process / l->processes;
  return process < l->processes ? begin / ALIGNMENT * ALIGNMENT : elements;
}

const tsr_step_list *
tsr_algorithm_shared_sum(tsr_arena *arena, const tsr_collective_request *request) {
  const tsr_collective *c = request->collective;
  const tsr_layout *l = request->layout;
  tsr_list_builder b;
  tsr_list_begin(&b, c);
  b.list.phases_count = PHASES;
  b.list.phases[LEAVE] = (tsr_phase){.lag = 1, .after = TSR_DONE(ADD)};
  b.list.phases[ADD] = (tsr_phase){.local = true, .after = TSR_RECEIVED(ENTER)};
  b.list.chunk = 1;
  b.list.places = PLACES + l->processes - 2;
  tsr_sum_slices s = tsr_collective_sum_slices(c);
  int view = tsr_list_add_view(&b, tsr_view_contiguous(s.elements));
  add_messages(&b, l, ENTER, view);
  add_messages(&b, l, LEAVE, view);
  tsr_step add = {.kind = TSR_STEP_REDUCE, .whole = true, .onto = c->onto};
  add.begin = piece_begin(l, s.elements, l->me);
  add.end = piece_begin(l, s.elements, l->me + 1);
  add.from_view = add.to_view = view;
  add.from = b.operands_count;
  add.from_count = c->members;
  for (int m = 0; m < c->members; m++) {
    tsr_operand summand = {.buffer = TSR_BUFFER_IN, .index = m, .via = -1};
    summand.merges = (uint8_t)tsr_collective_merges(c, m);
    tsr_list_add_operand(&b, summand);
  }
  add_targets(&b, l, &add);
  tsr_list_add_step(&b, ADD, add);
  return tsr_list_end(&b, arena);
}
