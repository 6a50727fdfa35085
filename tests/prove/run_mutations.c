// SPDX-License-Identifier: Apache-2.0
/* Mutations of collectives, schedules and units, and the faults of tests/schedule. */
#include "mutations.h"

static tsr_program *some_program(bug *b) {
  const tsr_programs *programs = &b->plan.mesh.compiled.programs;
  return b->m.p = programs->of_stage[mutation_below(b, programs->pipeline->stages)];
}

/* ---- tasks ---- */

bool mutation_apply(const mutation *m, bug *b) {
  if (!m->of) return m->apply(b);
  some_program(b);
  return m->of->apply(&b->m);
}

/* Why a fault may change nothing, by a word of its name. */
static const char *excuse_of(const char *name) {
  static const struct {
    const char *word, *why;
  } excuses[] = {
      {"dropped", "a wait, or a task whose result no other one reads"},
      {"doubled", "a task or a run that writes the same again"},
      {"swapped", "tasks or runs that do not depend on each other"},
      {"moved", "a task that depends on none of those that it passes"},
      {"microbatch", "a run of one microbatch, or what is the same in all of them"},
      {"lag", "in one process a message has arrived when it is sent"},
      {"wait", "in one process a message has arrived when it is sent"},
      {"bucket", "in one process a collective has ended when it has begun"},
      {"size", "the executor copies what the sender has"},
      {"offset", "bytes that nobody else needs at that time"},
      {"place", "bytes that nobody else needs at that time"},
      {"slot", "slots that are not in use together, or their rounding"},
      {"shrunk", "bytes that round a segment up"},
      {"input", "what the op reads for its shape alone, or the same number"},
      {"value", "the executor copies the receive's own input"},
      {"receive", "the executor copies the receive's own input"},
      {"axis", "groups with the same ranks, or the same numbers on all of them"}};
  for (size_t i = 0; i < sizeof excuses / sizeof *excuses; i++)
    if (strstr(name, excuses[i].word)) return excuses[i].why;
  return NULL;
}

mutation_table program_mutations(tsr_arena *arena) {
  mutation *items = tsr_arena_array(arena, mutation, faults_count + 1);
  int count = 0;
  for (int i = 0; i < faults_count; i++) {
    if (faults[i].one_rank || strstr(faults[i].name, "collective")) continue;
    items[count++] =
        (mutation){MUTATE_PROGRAM, faults[i].name, NULL, excuse_of(faults[i].name), &faults[i]};
  }
  return (mutation_table){items, count};
}

/* ---- collectives ---- */

static bool is_collective(const mutant *m, const tsr_task *t) {
  return (void)m, tsr_op_is_collective(t->op) && t->op != TSR_OP_RING_SHIFT;
}
static tsr_task *some_collective(bug *b) {
  some_program(b);
  int t = mutant_pick_task(&b->m, is_collective);
  if (t >= 0) b->node = b->m.p->tasks[t].node;
  return t < 0 ? NULL : &b->m.p->tasks[t];
}

/* On all stages, so that a group is one. */
static void set_axis(bug *b, int node, int axis) {
  const tsr_programs *programs = &b->plan.mesh.compiled.programs;
  for (int s = 0; s < programs->pipeline->stages; s++)
    for (int t = 0; t < programs->of_stage[s]->tasks_count; t++)
      if (programs->of_stage[s]->tasks[t].node == node) programs->of_stage[s]->tasks[t].axis = axis;
}
static bool other_axis(bug *b) {
  const tsr_task *t = some_collective(b);
  int axis = mutation_below(b, TSR_AXES);
  if (!t || t->axis == axis) return false;
  set_axis(b, t->node, axis);
  return true;
}
static bool no_collective(bug *b) {
  const tsr_task *t = some_collective(b);
  if (!t || t->axis == TSR_PP) return false;
  sample_remove_task(b->m.p, (int)(t - b->m.p->tasks));
  return true;
}
static bool collective_twice(bug *b) {
  const tsr_task *t = some_collective(b);
  if (!t || t->axis == TSR_PP) return false;
  int at = (int)(t - b->m.p->tasks);
  sample_insert_task(b->arena, b->m.p, at, *t, sample_part_of(b->m.p, at));
  return true;
}
static bool other_input(bug *b) {
  tsr_task *t = some_collective(b), *other = some_collective(b);
  if (!t || !other || t == other) return false;
  if (tsr_tensor_bytes(&t->inputs[0]) != tsr_tensor_bytes(&other->inputs[0])) return false;
  b->m.p->tensors[t->inputs[0].value] = b->m.p->tensors[other->inputs[0].value];
  t->inputs[0] = other->inputs[0];
  b->node = t->node;
  return true;
}
static bool other_root(bug *b) {
  const tsr_task *t = some_collective(b);
  if (!t || (t->op != TSR_OP_BROADCAST && t->op != TSR_OP_REDUCE)) return false;
  b->g->nodes[t->node].attr.broadcast.root++;
  return true;
}
static bool is_shift(const mutant *m, const tsr_task *t) {
  return (void)m, t->op == TSR_OP_RING_SHIFT;
}
static bool other_way(bug *b) {
  some_program(b);
  int t = mutant_pick_task(&b->m, is_shift);
  if (t < 0) return false;
  b->node = b->m.p->tasks[t].node;
  b->g->nodes[b->node].attr.ring_shift.by += mutation_below(b, 2) ? 1 : -1;
  return true;
}

/* ---- schedules ---- */

static tsr_pipeline *copy_pipeline(bug *b) {
  const tsr_pipeline *from = b->plan.mesh.compiled.programs.pipeline;
  tsr_pipeline *p = tsr_arena_alloc(b->arena, sizeof *p);
  *p = *from;
  p->counts = tsr_arena_array(b->arena, int, p->stages);
  p->actions = tsr_arena_array(b->arena, tsr_action *, p->stages);
  memcpy(p->counts, from->counts, sizeof *p->counts * (size_t)p->stages);
  for (int s = 0; s < p->stages; s++) {
    p->actions[s] = tsr_arena_array(b->arena, tsr_action, p->counts[s] + 1);
    memcpy(p->actions[s], from->actions[s], sizeof **p->actions * (size_t)p->counts[s]);
  }
  return p;
}
static bool swap_actions(bug *b) {
  tsr_pipeline *p = copy_pipeline(b);
  int s = mutation_below(b, p->stages);
  if (p->counts[s] < 2) return false;
  int i = mutation_below(b, p->counts[s] - 1);
  tsr_action a = p->actions[s][i];
  p->actions[s][i] = p->actions[s][i + 1];
  p->actions[s][i + 1] = a;
  return bug_lower(b, NULL, p), true;
}
static bool repeat_microbatch(bug *b) {
  tsr_pipeline *p = copy_pipeline(b);
  int s = mutation_below(b, p->stages);
  if (p->microbatches < 2) return false;
  tsr_action *a = &p->actions[s][mutation_below(b, p->counts[s])];
  a->microbatch = (a->microbatch + 1) % p->microbatches;
  return bug_lower(b, NULL, p), true;
}
static bool drop_action(bug *b) {
  tsr_pipeline *p = copy_pipeline(b);
  int s = mutation_below(b, p->stages), i = mutation_below(b, p->counts[s]);
  p->counts[s]--;
  memmove(
      p->actions[s] + i, p->actions[s] + i + 1, sizeof(tsr_action) * (size_t)(p->counts[s] - i));
  return bug_lower(b, NULL, p), true;
}
static bool other_schedule(bug *b) {
  const tsr_pipeline *p = b->plan.mesh.compiled.programs.pipeline;
  if (p->stages < 2 || p->chunks > 1) return false;
  tsr_pipeline_kind kind = strcmp(p->name, "gpipe") ? TSR_PIPELINE_GPIPE : TSR_PIPELINE_1F1B;
  return bug_lower(b, NULL, tsr_pipeline_make(b->arena, kind, p->stages, 1, p->microbatches)), true;
}

/* ---- units ---- */

static int64_t another_count(bug *b, int64_t n) {
  return n > 1 && mutation_below(b, 2) ? n / 2 : n * 2;
}
static bool change_units(bug *b) {
  tsr_lowering l = b->plan.mesh.compiled.programs.of_stage[0]->lowering;
  int64_t *units[] = {&l.batch_units, &l.tp_units, &l.sequence_units, &l.expert_leaves};
  int64_t *of = units[mutation_below(b, 4)];
  if (*of < 1) return false;
  *of = another_count(b, *of);
  return bug_lower(b, &l, NULL), true;
}
static bool change_tree(bug *b) {
  tsr_lowering l = b->plan.mesh.compiled.programs.of_stage[0]->lowering;
  l.tree = l.tree == TSR_TREE_FLAT ? TSR_TREE_BINARY : TSR_TREE_FLAT;
  return bug_lower(b, &l, NULL), true;
}
static bool change_order(bug *b) {
  tsr_lowering l = b->plan.mesh.compiled.programs.of_stage[0]->lowering;
  if (mutation_below(b, 2)) l.microbatch_first = !l.microbatch_first;
  else l.zigzag = !l.zigzag;
  return bug_lower(b, &l, NULL), true;
}
static bool sums(const mutant *m, const tsr_task *t) { return (void)m, t->sum.ndim > 0; }
static bool change_sum(bug *b) {
  some_program(b);
  int t = mutant_pick_task(&b->m, sums);
  if (t < 0) return false;
  tsr_reduction *r = &b->m.p->tasks[t].sum;
  int64_t *units[] = {&r->batch, &r->sequence, &r->tp};
  int64_t *of = units[mutation_below(b, 3)];
  *of = another_count(b, *of);
  b->node = b->m.p->tasks[t].node;
  return true;
}

static const mutation table[] = {
    {MUTATE_COLLECTIVE, "over another axis", other_axis,
     "groups with the same ranks, or the same numbers on all of them"},
    {MUTATE_COLLECTIVE, "dropped", no_collective,
     "a gather whose bytes still hold what it gathers"},
    {MUTATE_COLLECTIVE, "twice", collective_twice, "one that only moves, to other bytes"},
    {MUTATE_COLLECTIVE, "of another tensor", other_input, "a gather that is done again"},
    {MUTATE_COLLECTIVE, "from another root", other_root, NULL},
    {MUTATE_COLLECTIVE, "another shift of a ring", other_way, NULL},
    {MUTATE_SCHEDULE, "actions swapped", swap_actions,
     "the sums of microbatches have the same order in each schedule"},
    {MUTATE_SCHEDULE, "another microbatch", repeat_microbatch, NULL},
    {MUTATE_SCHEDULE, "an action dropped", drop_action, NULL},
    {MUTATE_SCHEDULE, "another schedule", other_schedule,
     "the sums of microbatches have the same order in each schedule"},
    {MUTATE_UNITS, "other counts", change_units,
     "units of an axis that no sum of the model is split over, or of one unit a rank"},
    {MUTATE_UNITS, "another tree", change_tree, "a tree over two units or less"},
    {MUTATE_UNITS, "another order of samples or positions", change_order,
     "one microbatch a step, or positions that cp does not split"},
    {MUTATE_UNITS, "other units of one sum", change_sum, "units of one row, or of the other axis"},
};
const mutation_table run_mutations = {table, (int)(sizeof table / sizeof *table)};
