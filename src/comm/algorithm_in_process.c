// SPDX-License-Identifier: Apache-2.0
/* Collectives of which one process has all members: reductions and copies without messages. */
#include "comm/algorithm.h"
#include "comm/slices.h"

/* Each slice's sum, for all members that get it. */
static void add_sums(tsr_list_builder *b, const tsr_collective *c) {
  tsr_sum_slices s = tsr_collective_sum_slices(c);
  tsr_step step = {
      .kind = TSR_STEP_REDUCE, .end = s.elements, .from_count = c->members, .onto = c->onto};
  step.from_view = tsr_list_add_view(b, s.view);
  step.to_view = tsr_list_add_view(b, tsr_view_contiguous(s.elements));
  step.from = b->operands_count;
  for (int m = 0; m < c->members; m++) {
    tsr_operand summand = {.buffer = TSR_BUFFER_IN, .index = m, .via = -1};
    summand.merges = (uint8_t)tsr_collective_merges(c, m);
    tsr_list_add_operand(b, summand);
  }
  for (int slice = s.begin; slice < s.end; slice++) {
    step.to = b->operands_count;
    for (int m = slice; m < c->members; m += s.step)
      tsr_list_add_operand(b, (tsr_operand){.buffer = TSR_BUFFER_OUT, .index = m, .via = -1});
    step.to_count = b->operands_count - step.to;
    step.from_at = tsr_sum_slice_at(&s, slice);
    tsr_list_add_step(b, 0, step);
  }
  b->list.chunk = s.elements;
}

/* What `from` has for members [begin, end), the same for all. */
static void add_copy(tsr_list_builder *b, const tsr_collective *c, int from, int begin, int end) {
  tsr_slice source = tsr_collective_source_slice(c, begin),
            target = tsr_collective_target_slice(c, from);
  tsr_step step = {.kind = TSR_STEP_COPY, .end = tsr_collective_moved(c), .from_count = 1};
  step.from_view = tsr_list_add_view(b, source.view);
  step.to_view = tsr_list_add_view(b, target.view);
  step.from_at = source.at, step.to_at = target.at;
  step.from =
      tsr_list_add_operand(b, (tsr_operand){.buffer = TSR_BUFFER_IN, .index = from, .via = -1});
  step.to = b->operands_count;
  step.to_count = end - begin;
  for (int m = begin; m < end; m++)
    tsr_list_add_operand(b, (tsr_operand){.buffer = TSR_BUFFER_OUT, .index = m, .via = -1});
  tsr_list_add_step(b, 0, step);
}

static void add_copies(tsr_list_builder *b, const tsr_collective *c) {
  int each = tsr_collective_sharers(c);
  for (int from = 0; from < c->members; from++)
    for (int to = 0; to < c->members; to += each)
      if (tsr_collective_moves(c, from, to)) add_copy(b, c, from, to, to + each);
  b->list.chunk = tsr_collective_moved(c);
}

const tsr_step_list *
tsr_algorithm_in_process(tsr_arena *arena, const tsr_collective_request *request) {
  const tsr_collective *c = request->collective;
  tsr_list_builder b;
  tsr_list_begin(&b, c);
  b.list.phases_count = 1;
  b.list.phases[0].local = true;
  if (tsr_collective_adds(c)) add_sums(&b, c);
  else add_copies(&b, c);
  if (b.list.chunk == 0) b.list.chunk = 1;
  return tsr_list_end(&b, arena);
}
