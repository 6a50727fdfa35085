// SPDX-License-Identifier: Apache-2.0
/* One round with all of the tensor at once: the library splits it as it likes. It begins when the
 * collective does, because a group's sums must begin in the same order everywhere. */
#include "base/reduction_tree.h"
#include "comm/algorithm.h"
#include "comm/slices.h"
#include "comm/transport.h"

enum { SUM, COPY, PHASES };

typedef struct {
  tsr_list_builder b;
  const tsr_layout *l;
  tsr_sum_slices slices;
  int in_view, out_view;
  int *own, own_count; /* members of this process */
  int operands;        /* those, in a tree of their own */
} library_sum;

bool tsr_algorithm_has_library_sum(tsr_op op, tsr_dtype dtype, int groups, int64_t elements) {
  bool has = op == TSR_OP_ALL_REDUCE || (op == TSR_OP_REDUCE_SCATTER && groups == 1);
  return has && dtype == TSR_F32 && elements > 0 && elements <= TSR_TRANSPORT_SUM_MAX;
}

bool tsr_algorithm_has_device_library_sum(tsr_op op, int groups, int64_t outer, bool one_each) {
  if (op == TSR_OP_ALL_REDUCE) return true;
  return op == TSR_OP_REDUCE_SCATTER && groups <= 1 && outer == 1 && one_each;
}

static int add_operand(library_sum *s, tsr_buffer buffer, int index) {
  return tsr_list_add_operand(&s->b, (tsr_operand){(uint8_t)buffer, 0, index, -1});
}

static void add_step(library_sum *s, int phase, tsr_step_kind kind, int from, int to) {
  tsr_step step = {.kind = (uint8_t)kind, .whole = true, .end = s->slices.elements};
  step.from_view = kind == TSR_STEP_COPY ? s->out_view : s->in_view;
  step.to_view = s->out_view;
  step.from = from, step.from_count = 1;
  step.to = to, step.to_count = 1;
  tsr_list_add_step(&s->b, phase, step);
}

/* This process's summands of a slice. */
static void add_own(library_sum *s, int slice, int to) {
  tsr_step step = {.kind = TSR_STEP_REDUCE, .whole = true, .end = s->slices.elements};
  step.from_view = s->in_view, step.to_view = s->out_view;
  step.from_at = tsr_sum_slice_at(&s->slices, slice);
  step.from = s->operands, step.from_count = s->own_count;
  step.to = to, step.to_count = 1;
  tsr_list_add_step(&s->b, SUM, step);
}

static void add_all_reduce(library_sum *s) {
  int out = add_operand(s, TSR_BUFFER_OUT, s->own[0]);
  if (s->own_count > 1) add_own(s, 0, out);
  add_step(s, SUM, TSR_STEP_VENDOR_SUM, s->own_count > 1 ? out : s->operands, out);
  for (int i = 1; i < s->own_count; i++)
    add_step(s, COPY, TSR_STEP_COPY, out, add_operand(s, TSR_BUFFER_OUT, s->own[i]));
}

/* Members by their processes, ascending; and what each of these gets. */
static int *find_order(library_sum *s, tsr_arena *arena) {
  const tsr_layout *l = s->l;
  int *order = tsr_arena_array(s->b.scratch, int, l->members),
      *next = tsr_arena_array(s->b.scratch, int, l->processes + 1);
  s->b.list.counts = tsr_arena_array(arena, int, l->processes);
  for (int m = 0; m < l->members; m++) {
    int place = l->ascending[l->process_of[m]];
    s->b.list.counts[place] += (int)s->slices.elements;
    next[place + 1]++;
  }
  for (int p = 0; p < l->processes; p++) next[p + 1] += next[p];
  for (int m = 0; m < l->members; m++) order[next[l->ascending[l->process_of[m]]]++] = m;
  return order;
}

/* Slices are laid out, where those that are sent do not lie so in one tensor. */
static void add_reduce_scatter(library_sum *s, tsr_arena *arena) {
  const int *order = find_order(s, arena);
  int members = s->l->members, source = s->operands;
  bool packs = s->slices.rows > 1 || s->own_count > 1, several = s->own_count > 1;
  for (int m = 0; m < members; m++) packs = packs || order[m] != m;
  for (int i = 0; i < members && packs; i++) {
    int place = add_operand(s, TSR_BUFFER_STAGING, i);
    if (i == 0) source = place;
    add_own(s, order[i], place);
  }
  int came = packs ? members : 0;
  s->b.list.places = came + (several ? s->own_count : 0);
  int target = several ? add_operand(s, TSR_BUFFER_STAGING, came)
                       : add_operand(s, TSR_BUFFER_OUT, s->own[0]);
  add_step(s, SUM, TSR_STEP_VENDOR_SUM_SLICES, source, target);
  for (int i = 0; several && i < s->own_count; i++)
    add_step(
        s, COPY, TSR_STEP_COPY, add_operand(s, TSR_BUFFER_STAGING, came + i),
        add_operand(s, TSR_BUFFER_OUT, s->own[i]));
}

const tsr_step_list *
tsr_algorithm_library_sum(tsr_arena *arena, const tsr_collective_request *request) {
  library_sum s = {.l = request->layout};
  tsr_list_begin(&s.b, request->collective);
  tsr_step_list *l = &s.b.list;
  l->phases_count = PHASES;
  l->phases[COPY] = (tsr_phase){.local = true, .after = TSR_DONE(SUM)};
  l->begins_at_once = true;
  s.slices = tsr_collective_sum_slices(request->collective);
  s.in_view = tsr_list_add_view(&s.b, s.slices.view);
  s.out_view = tsr_list_add_view(&s.b, tsr_view_contiguous(s.slices.elements));
  l->chunk = s.slices.elements;
  l->place_bytes = l->chunk * l->element;
  s.own = tsr_arena_array(s.b.scratch, int, s.l->members);
  for (int m = 0; m < s.l->members; m++)
    if (tsr_layout_is_local(s.l, m)) s.own[s.own_count++] = m;
  s.operands = s.b.operands_count;
  for (int i = 0; i < s.own_count; i++) {
    int operand = add_operand(&s, TSR_BUFFER_IN, s.own[i]);
    l->operands[operand].merges =
        (uint8_t)tsr_tree_of_merges(request->collective->tree, s.own_count, i);
  }
  if (request->collective->op == TSR_OP_ALL_REDUCE) add_all_reduce(&s);
  else add_reduce_scatter(&s, arena);
  return tsr_list_end(&s.b, arena);
}
