// SPDX-License-Identifier: Apache-2.0
#include "comm/collective_steps.h"
#include <assert.h>
#include <string.h>

/* ---- making a list ---- */

void tsr_list_begin(tsr_list_builder *b, const tsr_collective *c) {
  *b = (tsr_list_builder){.scratch = tsr_arena_new()};
  b->list.element = c->element;
  b->list.dtype = c->dtype;
}

/* Lists have few views, one of them at a time. */
static int find_view(const tsr_list_builder *b, const tsr_view *view) {
  enum { LOOKED_AT = 4 };
  int i = b->views_count - 1;
  while (i >= 0 && i >= b->views_count - LOOKED_AT && memcmp(&b->list.views[i], view, sizeof *view))
    i--;
  return i >= 0 && i >= b->views_count - LOOKED_AT ? i : -1;
}

int tsr_list_add_view(tsr_list_builder *b, tsr_view view) {
  int found = find_view(b, &view);
  if (found >= 0) return found;
  void *views = b->list.views;
  tsr_arena_grow(b->scratch, &views, sizeof view, b->views_count, &b->views_room);
  b->list.views = views;
  b->list.views[b->views_count] = view;
  return b->views_count++;
}

int tsr_list_add_operand(tsr_list_builder *b, tsr_operand operand) {
  void *operands = b->list.operands;
  tsr_arena_grow(b->scratch, &operands, sizeof operand, b->operands_count, &b->operands_room);
  b->list.operands = operands;
  b->list.operands[b->operands_count] = operand;
  return b->operands_count++;
}

void tsr_list_add_step(tsr_list_builder *b, int phase, tsr_step step) {
  if (step.begin >= step.end) return;
  void *steps = b->steps[phase];
  tsr_arena_grow(b->scratch, &steps, sizeof step, b->steps_count[phase], &b->steps_room[phase]);
  b->steps[phase] = steps;
  b->steps[phase][b->steps_count[phase]++] = step;
}

/* The phase's steps by rising `first`, those of one round in the order in which they were added,
 * which is the order of messages. */
static void sort_steps(const tsr_list_builder *b, int phase, int *room, tsr_step *ret) {
  const tsr_step *steps = b->steps[phase];
  int count = b->steps_count[phase];
  memset(room, 0, sizeof *room * (size_t)(b->list.rounds + 1));
  for (int i = 0; i < count; i++) room[steps[i].first + 1]++;
  for (int r = 0; r < b->list.rounds; r++) room[r + 1] += room[r];
  for (int i = 0; i < count; i++) ret[room[steps[i].first]++] = steps[i];
}

static bool is_message(const tsr_step *s) {
  return s->kind != TSR_STEP_REDUCE && s->kind != TSR_STEP_COPY;
}

/* Of one round, at most. */
static int count_messages(const tsr_list_builder *b, int phase, int *change) {
  int count = 0, most = 0;
  memset(change, 0, sizeof *change * (size_t)(b->list.rounds + 1));
  for (int i = 0; i < b->steps_count[phase]; i++) {
    const tsr_step *s = &b->steps[phase][i];
    if (!is_message(s)) continue;
    change[s->first]++;
    change[s->first + tsr_step_rounds(&b->list, s)]--;
  }
  for (int r = 0; r < b->list.rounds; r++) {
    count += change[r];
    if (count > most) most = count;
  }
  return most;
}

static void count_rounds(tsr_list_builder *b) {
  b->list.rounds = 1;
  for (int p = 0; p < b->list.phases_count; p++)
    for (int i = 0; i < b->steps_count[p]; i++) {
      const tsr_step *s = &b->steps[p][i];
      int end = s->first + tsr_step_rounds(&b->list, s);
      if (end > b->list.rounds) b->list.rounds = end;
    }
}

static void *copy_array(tsr_arena *arena, const void *items, size_t bytes) {
  void *copy = tsr_arena_alloc(arena, bytes + 1);
  if (bytes) memcpy(copy, items, bytes);
  return copy;
}

const tsr_step_list *tsr_list_end(tsr_list_builder *b, tsr_arena *arena) {
  tsr_step_list *l = tsr_arena_alloc(arena, sizeof *l);
  int steps = 0;
  assert(b->list.chunk > 0);
  if (!b->list.place_bytes)
    b->list.place_bytes = (b->list.chunk * b->list.element + 255) / 256 * 256;
  count_rounds(b);
  int *room = tsr_arena_array(b->scratch, int, b->list.rounds + 1);
  for (int p = 0; p < b->list.phases_count; p++) steps += b->steps_count[p];
  b->list.steps = tsr_arena_array(arena, tsr_step, steps + 1);
  for (int p = 0, at = 0; p < b->list.phases_count; p++) {
    int most = count_messages(b, p, room);
    b->list.messages += TSR_ROUNDS_IN_FLIGHT * most;
    if (most > b->list.messages_of_phase) b->list.messages_of_phase = most;
    sort_steps(b, p, room, b->list.steps + at);
    b->list.phases[p].begin = at;
    b->list.phases[p].end = at += b->steps_count[p];
  }
  *l = b->list;
  l->operands =
      copy_array(arena, b->list.operands, sizeof *l->operands * (size_t)b->operands_count);
  l->views = copy_array(arena, b->list.views, sizeof *l->views * (size_t)b->views_count);
  tsr_arena_free(b->scratch);
  return l;
}

/* ---- running a list ---- */

enum { IN_FLIGHT = TSR_ROUNDS_IN_FLIGHT };

void tsr_sequence_begin(tsr_sequence *s, const tsr_step_list *list) {
  *s = (tsr_sequence){.list = list};
  for (int p = 0; p < list->phases_count; p++) s->steps[p] = list->phases[p].begin;
}

/* A round that begins in a slot has waited for the slot's round before. */
static bool has_done(const tsr_sequence *s, uint32_t phases, int round) {
  for (int p = 0; phases && round >= 0; p++, phases >>= 2) {
    if (!(phases & 3)) continue;
    if (s->next[p] <= round) return false;
    if (s->next[p] > round + IN_FLIGHT) continue;
    if (phases & 1 && s->in_flight[p][round % IN_FLIGHT].receiving) return false;
    if (phases & 2 && s->in_flight[p][round % IN_FLIGHT].sending) return false;
  }
  return true;
}

static bool may_begin(const tsr_sequence *s, int phase, int round) {
  const tsr_phase *p = &s->list->phases[phase];
  return has_done(s, p->after, round) && has_done(s, p->after_half, round - IN_FLIGHT / 2) &&
         has_done(s, p->after_earlier | TSR_DONE(phase), round - IN_FLIGHT);
}

static bool next_local(tsr_sequence *s, int *ret_phase, int *ret_round) {
  for (int p = 0; p < s->list->phases_count; p++) {
    if (!s->list->phases[p].local || s->next[p] == s->list->rounds) continue;
    if (!may_begin(s, p, s->next[p])) continue;
    *ret_phase = p;
    *ret_round = s->next[p]++;
    return true;
  }
  return false;
}

static int last_position(const tsr_step_list *l) {
  int lag = 0;
  for (int p = 0; p < l->phases_count; p++)
    if (l->phases[p].lag > lag) lag = l->phases[p].lag;
  return l->phases_count * (l->rounds + lag);
}

bool tsr_sequence_next(tsr_sequence *s, int *ret_phase, int *ret_round) {
  const tsr_step_list *l = s->list;
  if (next_local(s, ret_phase, ret_round)) return true;
  for (int last = last_position(l); s->position < last; s->position++) {
    int phase = s->position % l->phases_count;
    int round = s->position / l->phases_count - l->phases[phase].lag;
    if (l->phases[phase].local || round < 0 || round >= l->rounds) continue;
    if (!may_begin(s, phase, round)) return false;
    s->position++;
    s->next[phase]++;
    *ret_phase = phase;
    *ret_round = round;
    return true;
  }
  return false;
}

const tsr_step *tsr_sequence_step(
    tsr_sequence *s, int phase, int round, int *step, int64_t *ret_begin, int64_t *ret_end) {
  const tsr_step_list *l = s->list;
  int end = l->phases[phase].end;
  if (*step < s->steps[phase]) *step = s->steps[phase];
  for (; *step < end && l->steps[*step].first <= round; ++*step) {
    const tsr_step *found = &l->steps[*step];
    if (tsr_step_range(l, found, round, ret_begin, ret_end)) return ++*step, found;
    if (*step == s->steps[phase]) s->steps[phase]++;
  }
  return NULL;
}

bool tsr_sequence_is_over(const tsr_sequence *s) {
  bool over = s->position == last_position(s->list);
  for (int p = 0; p < s->list->phases_count; p++)
    over = over && (!s->list->phases[p].local || s->next[p] == s->list->rounds);
  return over;
}
