// SPDX-License-Identifier: Apache-2.0
/* Tasks of the gradients' norm have the same operands on all ranks of an axis over which these are
 * replicated. Where one process hosts these ranks on the CPU, the first one computes the task for
 * all: with folded ranks the work of a step does not grow with their number squared. */
#include "base/memory.h"
#include "runtime/executable_internal.h"
#include <stdlib.h>

/* What a task's ranks are computed by: for the i-th of the stage's ranks, `source[i]` is the index
 * of the one that has the same coordinates on all other axes. */
typedef struct {
  unsigned axes; /* over which all operands are replicated */
  int *source, *computing;
  int computing_count; /* that are their own source, by index */
} replica_ranks;

struct tsr_replicated {
  const replica_ranks **of_task; /* per task; NULL: every rank computes it */
  bool *copied;                  /* per value: what other tasks than those of its ranks read */
  replica_ranks sets[1 << TSR_AXES];
  int *ranks; /* room for those that compute a task */
};

/* What such a task writes is small beside what it reads. */
static bool is_kind(tsr_op op) {
  return op == TSR_OP_NORM_STATS || op == TSR_OP_NORM_JOIN || op == TSR_OP_CLIP;
}

static bool has_placement(
    const tsr_program *p, const tsr_task *t, int axis, tsr_placement_kind kind, bool all) {
  for (int i = 0; i < t->inputs_count + t->outputs_count; i++) {
    const tsr_tensor *x = i < t->inputs_count ? &t->inputs[i] : &t->outputs[i - t->inputs_count];
    if ((p->graph->values[x->value].placement[axis].kind == kind) != all) return !all;
  }
  return all;
}

/* The ranks of a program are of one stage. What has an owner is computed by some of them alone. */
static unsigned axes_of(const tsr_program *p, const tsr_task *t) {
  unsigned axes = 0;
  if (!is_kind(t->op)) return 0;
  for (int a = 0; a < TSR_AXES; a++) {
    if (has_placement(p, t, a, TSR_OWNED, false)) return 0;
    if (a != TSR_PP && p->lowering.size[a] > 1 && has_placement(p, t, a, TSR_REPLICATE, true))
      axes |= 1u << a;
  }
  return axes;
}

static int64_t place_without(const tsr_program *p, const int *coord, unsigned axes) {
  int64_t place = 0;
  for (int a = 0; a < TSR_AXES; a++)
    if (!(axes & 1u << a)) place = place * p->lowering.size[a] + coord[a];
  return place;
}

static void find_sources(tsr_arena *arena, tsr_executable *b, int stage, replica_ranks *r) {
  const tsr_program *p = b->programs->of_stage[stage];
  int count = b->ranks_count[stage], *first, ranks = b->process->options.parallel->ranks;
  r->source = tsr_arena_array(arena, int, count);
  r->computing = tsr_arena_array(arena, int, count);
  first = tsr_arena_array(arena, int, ranks);
  for (int i = 0; i < ranks; i++) first[i] = -1;
  for (int i = 0; i < count; i++) {
    int64_t place = place_without(p, b->ranks[b->ranks_of_stage[stage][i]].coord, r->axes);
    if (first[place] < 0) first[place] = r->computing[r->computing_count++] = i;
    r->source[i] = first[place];
  }
}

/* A value is copied to the ranks that have not computed it where a task reads it, or an alias of
 * it, that they run, or the host may. */
static void find_copied(const tsr_program *p, struct tsr_replicated *r) {
  const tsr_graph *g = p->graph;
  const int *root = tsr_program_roots(p, g->arena);
  unsigned *made = tsr_memory_new(sizeof *made * (size_t)(g->values_count + 1));
  for (int i = 0; i < p->tasks_count; i++)
    for (int o = 0; o < p->tasks[i].outputs_count; o++)
      made[p->tasks[i].outputs[o].value] = r->of_task[i] ? r->of_task[i]->axes : 0;
  for (int i = 0; i < p->tasks_count; i++)
    for (int k = 0; k < p->tasks[i].inputs_count; k++) {
      int value = root[p->tasks[i].inputs[k].value];
      if (made[value] != (r->of_task[i] ? r->of_task[i]->axes : 0)) r->copied[value] = true;
    }
  for (int i = 0; i < g->outputs_count; i++) r->copied[root[g->outputs[i].value]] = true;
  free(made);
}

static struct tsr_replicated *plan_stage(tsr_arena *arena, tsr_executable *b, int stage) {
  const tsr_program *p = b->programs->of_stage[stage];
  struct tsr_replicated *r = tsr_arena_alloc(arena, sizeof *r);
  *r = (struct tsr_replicated){
      .of_task = tsr_arena_array(arena, const replica_ranks *, p->tasks_count),
      .copied = tsr_arena_array(arena, bool, p->graph->values_count),
      .ranks = tsr_arena_array(arena, int, b->ranks_count[stage])};
  for (int i = 0; i < p->tasks_count; i++) {
    unsigned axes = axes_of(p, &p->tasks[i]);
    replica_ranks *set = &r->sets[axes];
    if (axes && !set->axes) {
      set->axes = axes;
      find_sources(arena, b, stage, set);
    }
    if (axes && set->computing_count < b->ranks_count[stage]) r->of_task[i] = set;
  }
  find_copied(p, r);
  return r;
}

void tsr_executable_plan_replicated(tsr_arena *arena, tsr_executable *b) {
  int stages = b->programs->pipeline->stages;
  b->replicated = tsr_arena_array(arena, struct tsr_replicated *, stages);
  for (int s = 0; s < stages; s++)
    if (b->process->device == b->process->host && b->ranks_count[s] > 1)
      b->replicated[s] = plan_stage(arena, b, s);
}

static const replica_ranks *ranks_of(const tsr_executable *b, const tsr_launch *launch) {
  const tsr_program *p = launch->call.program;
  const struct tsr_replicated *r = b->replicated[p->stage];
  /* A trace has what each rank computes. */
  return r && !b->trace ? r->of_task[launch->call.task - p->tasks] : NULL;
}

void tsr_executable_compute_once(const tsr_executable *b, tsr_launch *launch) {
  const replica_ranks *r = ranks_of(b, launch);
  if (!r) return;
  int *ranks = b->replicated[launch->call.program->stage]->ranks;
  for (int i = 0; i < r->computing_count; i++) ranks[i] = launch->ranks[r->computing[i]];
  launch->ranks = ranks;
  launch->ranks_count = r->computing_count;
}

void tsr_executable_copy_replicas(const tsr_executable *b, const tsr_launch *launch) {
  const tsr_program *p = launch->call.program;
  const replica_ranks *r = ranks_of(b, launch);
  const tsr_device *d = b->process->device;
  if (!r) return;
  int64_t begin = tsr_recorder_now(b->recording);
  const int *ranks = b->ranks_of_stage[p->stage];
  for (int o = 0; o < launch->call.task->outputs_count; o++) {
    const tsr_tensor *out = &launch->call.task->outputs[o];
    int count = 0;
    for (int i = 0; i < b->ranks_count[p->stage]; i++)
      if (r->source[i] != i && b->replicated[p->stage]->copied[out->value])
        b->copies[count++] = (tsr_device_copy){
            .to = tsr_executable_address(b, out->value, ranks[i], launch->call.at.microbatch),
            .from = tsr_executable_address(
                b, out->value, ranks[r->source[i]], launch->call.at.microbatch),
            .bytes = tsr_tensor_bytes(out)};
    d->copy(d->state, b->copies, count);
  }
  for (int i = 0; b->recording && i < b->ranks_count[p->stage]; i++)
    if (r->source[i] != i) tsr_recorder_extend(b->recording, ranks[i], begin);
}
