// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify.h"
#include "schedule/verify_checks.h"
#include <assert.h>

static void find_transfers(tsr_verify *v) {
  const tsr_graph *g = v->graph;
  v->transfer_of = tsr_arena_array(v->arena, int, g->nodes_count + 1);
  v->transfers = tsr_arena_array(v->arena, int, g->nodes_count + 1);
  for (int i = 0; i < g->nodes_count; i++) {
    bool is_receive = g->nodes[i].op == TSR_OP_RECEIVE;
    v->transfer_of[i] = is_receive ? v->transfers_count : -1;
    if (is_receive) v->transfers[v->transfers_count++] = i;
  }
}

/* The subject of a program: most often the one that its stage had last. */
static int find_subject(tsr_verify *v, const tsr_program *p, int rank, int *latest) {
  if (*latest >= 0 && v->subjects[*latest].p == p) return *latest;
  for (int i = 0; i < v->subjects_count; i++)
    if (v->subjects[i].p == p) return *latest = i;
  tsr_arena_grow(
      v->arena, (void **)&v->subjects, sizeof *v->subjects, v->subjects_count,
      &v->subjects_capacity);
  v->subjects[v->subjects_count] = (tsr_verify_subject){.p = p, .rank = rank};
  return *latest = v->subjects_count++;
}

static bool find_subjects(tsr_verify *v) {
  const tsr_verify_mesh *m = v->mesh;
  int stages = v->programs->pipeline->stages, before = v->found;
  int *latest = tsr_arena_array(v->arena, int, stages);
  for (int s = 0; s < stages; s++) latest[s] = -1;
  v->subject_of = tsr_arena_array(v->arena, int, m->ranks);
  for (int r = 0; r < m->ranks; r++) {
    int stage = tsr_verify_coord(m, r, TSR_PP);
    const tsr_program *p = m->of_rank ? m->of_rank[r] : NULL;
    if (!p) p = v->programs->of_stage[stage];
    v->subject_of[r] = find_subject(v, p, r, &latest[stage]);
    tsr_verify_subject at = {.p = p, .rank = r};
    if (p->stage != stage)
      tsr_verify_say(v, &at, "the program is for stage %d, the rank on %d", p->stage, stage);
  }
  return v->found == before;
}

static void find_moves(tsr_verify *v, tsr_verify_subject *s) {
  const tsr_program *p = s->p;
  s->moves = tsr_arena_array(v->arena, int *, p->parts_count);
  s->moves_count = tsr_arena_array(v->arena, int, p->parts_count);
  int *all = tsr_arena_array(v->arena, int, p->tasks_count + 1), count = 0;
  for (int k = 0; k < p->parts_count; k++) {
    s->moves[k] = all + count;
    for (int i = p->parts[k].begin; i < p->parts[k].end; i++) {
      tsr_op op = p->tasks[i].op;
      bool moves = op == TSR_OP_SEND || op == TSR_OP_RECEIVE || op == TSR_OP_WAIT;
      if (moves || tsr_op_is_collective(op)) all[count++] = i;
    }
    s->moves_count[k] = (int)(all + count - s->moves[k]);
  }
}

/* One program by itself; whether the others may rely on it. */
static bool check_subject(tsr_verify *v, tsr_verify_subject *s) {
  v->brief = tsr_arena_new();
  bool sound = tsr_verify_lists(v, s) && tsr_verify_tensors(v, s) && tsr_verify_tasks(v, s);
  if (sound) {
    find_moves(v, s);
    tsr_verify_sums(v, s);
    tsr_verify_memory(v, s);
  }
  tsr_arena_free(v->brief);
  s->owner = NULL;
  return sound;
}

bool tsr_programs_verify(
    tsr_arena *arena, const tsr_programs *programs, const tsr_verify_mesh *mesh, tsr_diags *diags) {
  assert(mesh->size[TSR_PP] == programs->pipeline->stages);
  tsr_verify v = {
      .arena = arena,
      .programs = programs,
      .graph = programs->graph,
      .mesh = mesh,
      .diags = diags,
      .microbatches = programs->pipeline->microbatches};
  find_transfers(&v);
  v.expert_sums = tsr_verify_expert_sums(arena, v.graph);
  if (!find_subjects(&v)) return false;
  bool sound = true;
  for (int i = 0; i < v.subjects_count && !tsr_verify_is_full(&v); i++)
    sound = check_subject(&v, &v.subjects[i]) && sound;
  if (sound && !tsr_verify_is_full(&v) && tsr_verify_moves(&v)) tsr_verify_waits(&v);
  return v.found == 0;
}
