// SPDX-License-Identifier: Apache-2.0
/* Goes through all ranks' waits as the executor does: a receive waits until its value was sent, a
 * wait until what was sent was received, a collective (or the wait for its bucket) until every
 * member of the group has come to it. Where all of them end, none closes a circle.
 *
 * Ranks of a stage that deal with others in the same order are at the same place at the same time,
 * so where all stages are like that, one rank of each stands for the others. */
#include "schedule/verify_checks.h"

typedef struct {
  int axis;
  int64_t number; /* of its last collective */
} bucket;

typedef struct {
  tsr_verify_walk walk;
  bool waits, done;              /* at the walk's task; at the end */
  bool counted;                  /* the collective that it waits in */
  int64_t collectives[TSR_AXES]; /* begun */
  bucket *buckets;
} actor;

/* The members of a group over an axis: all have begun so many collectives, `last` of them no more.
 */
typedef struct {
  int64_t all;
  int last;
} group;

enum { SENT = 1, RECEIVED = 2 };
typedef struct {
  tsr_verify *v;
  tsr_verify_mesh mesh; /* of the actors */
  actor *actors;
  group *groups[TSR_AXES]; /* by the first member */
  unsigned char *moved;    /* per column of the pipeline, transfer and microbatch */
} waiting;

/* ---- actors ---- */

static bool
same_order(const tsr_verify *v, const tsr_verify_subject *a, const tsr_verify_subject *b) {
  tsr_verify_walk x = {.v = v, .s = a}, y = {.v = v, .s = b};
  for (;;) {
    bool more = tsr_verify_walk_next(&x);
    if (more != tsr_verify_walk_next(&y)) return false;
    if (!more) return true;
    const tsr_task *t = &a->p->tasks[x.task], *u = &b->p->tasks[y.task];
    if (t->op != u->op || t->node != u->node || t->lag != u->lag || t->bucket != u->bucket ||
        t->axis != u->axis || x.microbatch != y.microbatch)
      return false;
  }
}

/* A mesh of one rank of each stage, if they stand for all. */
static bool find_few(waiting *w, int *ret_rank_of) {
  const tsr_verify_mesh *m = w->v->mesh;
  int stages = m->size[TSR_PP];
  int *first = tsr_arena_array(w->v->arena, int, stages); /* its subject, from 1 */
  bool *like = tsr_arena_array(w->v->arena, bool, w->v->subjects_count + 1);
  for (int r = 0; r < m->ranks; r++) {
    int stage = tsr_verify_coord(m, r, TSR_PP), subject = w->v->subject_of[r];
    if (!first[stage]) {
      first[stage] = subject + 1;
      ret_rank_of[stage] = r;
    } else if (first[stage] != subject + 1 && !like[subject]) {
      like[subject] = true;
      if (!same_order(w->v, &w->v->subjects[first[stage] - 1], &w->v->subjects[subject]))
        return false;
    }
  }
  w->mesh = (tsr_verify_mesh){.ranks = stages};
  for (int a = 0; a < TSR_AXES; a++) w->mesh.size[a] = 1;
  w->mesh.size[TSR_PP] = stages;
  w->mesh.stride[TSR_PP] = 1;
  return true;
}

static int buckets_of(const tsr_program *p) {
  int most = 0;
  for (int i = 0; i < p->tasks_count; i++)
    if (p->tasks[i].bucket > most) most = p->tasks[i].bucket;
  return most + 1;
}

static void open_actors(waiting *w) {
  tsr_verify *v = w->v;
  int *rank_of = tsr_arena_array(v->arena, int, v->mesh->ranks);
  if (!find_few(w, rank_of)) {
    w->mesh = *v->mesh;
    for (int r = 0; r < v->mesh->ranks; r++) rank_of[r] = r;
  }
  w->actors = tsr_arena_array(v->arena, actor, w->mesh.ranks);
  for (int i = 0; i < w->mesh.ranks; i++) {
    tsr_verify_subject *s = tsr_arena_alloc(v->arena, sizeof *s);
    *s = v->subjects[v->subject_of[rank_of[i]]];
    s->rank = rank_of[i];
    w->actors[i] = (actor){.walk = {.v = v, .s = s}};
    w->actors[i].buckets = tsr_arena_array(v->arena, bucket, buckets_of(s->p));
  }
  for (int a = 0; a < TSR_AXES; a++) {
    w->groups[a] = tsr_arena_array(v->arena, group, w->mesh.ranks);
    for (int i = 0; i < w->mesh.ranks; i++) w->groups[a][i].last = w->mesh.size[a];
  }
  size_t slots = (size_t)v->transfers_count * (size_t)v->microbatches;
  w->moved = tsr_arena_array(v->arena, unsigned char, slots *(size_t)w->mesh.ranks + 1);
}

/* ---- one step of an actor ---- */

/* Which way a transfer has gone in the actor's column of the pipeline, which its rank of stage 0
 * stands for. */
static unsigned char *find_moved(const waiting *w, int i, int node, int microbatch) {
  int column = tsr_verify_member(&w->mesh, i, TSR_PP, 0);
  int64_t slots = (int64_t)w->v->transfers_count * w->v->microbatches;
  return &w->moved[column * slots + w->v->transfer_of[node] * w->v->microbatches + microbatch];
}

/* Whether what a wait is for has arrived. */
static bool has_arrived(const waiting *w, int i, const tsr_task *t, int microbatch) {
  int from = microbatch - t->lag, to = from;
  if (t->lag == TSR_WAIT_ALL) from = 0, to = w->v->microbatches - 1;
  for (int m = from; m <= to; m++)
    if (m >= 0 && *find_moved(w, i, t->node, m) == SENT) return false;
  return true;
}

static group *group_of(const waiting *w, int i, int axis) {
  return &w->groups[axis][tsr_verify_member(&w->mesh, i, axis, 0)];
}

/* One more collective begun; when the last member comes the group is looked through for the next
 * last ones. */
static void begin_collective(waiting *w, int i, int axis) {
  group *g = group_of(w, i, axis);
  if (w->actors[i].collectives[axis]++ > g->all || --g->last) return;
  g->all = INT64_MAX;
  for (int m = 0; m < w->mesh.size[axis]; m++) {
    int64_t begun = w->actors[tsr_verify_member(&w->mesh, i, axis, m)].collectives[axis];
    if (begun < g->all) g->last = 0, g->all = begun;
    g->last += begun == g->all;
  }
}

static bool run_collective(waiting *w, int i, const tsr_task *t) {
  actor *a = &w->actors[i];
  if (!a->counted) begin_collective(w, i, t->axis);
  a->counted = true;
  int64_t number = a->collectives[t->axis];
  if (t->bucket) a->buckets[t->bucket] = (bucket){t->axis, number};
  return t->bucket || group_of(w, i, t->axis)->all >= number;
}

/* Whether the task could be done. */
static bool run_task(waiting *w, int i) {
  const tsr_verify_walk *at = &w->actors[i].walk;
  const tsr_task *t = &at->s->p->tasks[at->task];
  if (tsr_op_is_collective(t->op)) return run_collective(w, i, t);
  if (t->bucket) {
    const bucket *b = &w->actors[i].buckets[t->bucket];
    return !b->number || group_of(w, i, b->axis)->all >= b->number;
  }
  int microbatch = tsr_verify_transfer_microbatch(w->v->graph, t->node, at->microbatch);
  if (t->op == TSR_OP_WAIT) return has_arrived(w, i, t, microbatch);
  unsigned char *moved = find_moved(w, i, t->node, microbatch);
  if (t->op == TSR_OP_RECEIVE && !(*moved & SENT)) return false;
  *moved |= t->op == TSR_OP_SEND ? SENT : RECEIVED;
  return true;
}

/* Goes on until the actor waits or is done; whether it got anywhere. */
static bool run_actor(waiting *w, int i) {
  actor *a = &w->actors[i];
  for (bool moved = false;; moved = true) {
    if (!a->waits && !tsr_verify_walk_next(&a->walk)) return a->done = true;
    a->waits = !run_task(w, i);
    if (a->waits) return moved;
    a->counted = false;
  }
}

/* ---- circles ---- */

/* The actor that one waits for. */
static int whom(const waiting *w, int i) {
  const actor *a = &w->actors[i];
  const tsr_task *t = &a->walk.s->p->tasks[a->walk.task];
  bool together = tsr_op_is_collective(t->op);
  if (!together && !t->bucket) {
    int stage = t->op == TSR_OP_RECEIVE ? tsr_verify_source(w->v, t->node)
                                        : tsr_verify_target(w->v, t->node);
    return tsr_verify_member(&w->mesh, i, TSR_PP, stage);
  }
  bucket until = together ? (bucket){t->axis, a->collectives[t->axis]} : a->buckets[t->bucket];
  for (int m = 0; m < w->mesh.size[until.axis]; m++) {
    int member = tsr_verify_member(&w->mesh, i, until.axis, m);
    if (w->actors[member].collectives[until.axis] < until.number) return member;
  }
  return i;
}

static const char *wait_text(tsr_verify *v, const tsr_verify_walk *at) {
  const tsr_task *t = &at->s->p->tasks[at->task];
  const char *what = tsr_op_name(t->op), *name = v->graph->nodes[t->node].name;
  bool body = tsr_verify_is_body(at->s->p->parts[at->s->part_of[at->task]].section);
  const char *text = tsr_arena_printf(v->arena, "task %d (%s) of '%s'", at->task, what, name);
  if (!body) return text;
  return tsr_arena_printf(v->arena, "%s, microbatch %d,", text, at->microbatch);
}

/* Whom an actor waits for, whom that one waits for, and so on, until `end` is reached. */
static const char *chain_text(const waiting *w, int begin, int end) {
  tsr_verify *v = w->v;
  int i = whom(w, begin);
  const char *text = tsr_arena_printf(v->arena, "rank %d", w->actors[i].walk.s->rank);
  while (i != end) {
    const char *in = wait_text(v, &w->actors[i].walk);
    i = whom(w, i);
    text = tsr_arena_printf(
        v->arena, "%s, which waits in %s for rank %d", text, in, w->actors[i].walk.s->rank);
  }
  return text;
}

/* Following who waits for whom ends in a circle, which is said from its lowest rank on, or at a
 * rank that has ended. */
static void say_circle(const waiting *w, int begin) {
  const actor *actors = w->actors;
  bool *seen = tsr_arena_array(w->v->arena, bool, w->mesh.ranks);
  int end = begin;
  for (; !seen[end] && !actors[end].done; end = whom(w, end)) seen[end] = true;
  bool circle = !actors[end].done;
  if (circle) {
    begin = end;
    for (int i = whom(w, end); i != end; i = whom(w, i))
      if (i < begin) begin = i;
    end = begin;
  }
  const tsr_verify_walk *at = &actors[begin].walk;
  tsr_verify_say_task(
      w->v, at->s, at->task, at->microbatch, "no step can end: this waits for %s%s",
      chain_text(w, begin, end), circle ? "" : ", which has ended");
}

void tsr_verify_waits(tsr_verify *v) {
  waiting w = {.v = v};
  open_actors(&w);
  for (bool moved = true; moved;) {
    moved = false;
    for (int i = 0; i < w.mesh.ranks; i++) moved = (!w.actors[i].done && run_actor(&w, i)) || moved;
  }
  for (int i = 0; i < w.mesh.ranks; i++)
    if (!w.actors[i].done) {
      say_circle(&w, i);
      return;
    }
}
