/* Goes through all ranks' waits as the executor does: a receive waits until its value was sent, a
 * wait until what was sent was received, a collective (or the wait for its bucket) until every
 * member of the group has come to it. Where all of them end, none closes a circle.
 *
 * Ranks of a stage that deal with others in the same order are at the same place at the same time, so
 * where all stages are like that, one rank of each stands for the others. */
#include "schedule/verify_checks.h"

typedef struct {
  int axis;
  int64_t number; /* of its last collective */
} bucket;

typedef struct {
  tsr_verify_walk walk;
  bool waits, done;    /* at the walk's task; at the end */
  bool counted;        /* the collective that it waits in */
  int for_whom;        /* the actor that it waits for */
  int64_t *collectives; /* per axis: begun */
  bucket *buckets;
} actor;

enum { SENT = 1, RECEIVED = 2 };
typedef struct {
  tsr_verify *v;
  tsr_verify_mesh mesh; /* of the actors */
  actor *actors;
  unsigned char *moved; /* per column of the pipeline, transfer and microbatch */
} waiting;

/* ---- actors ---- */

static bool same_order(const tsr_verify *v, const tsr_verify_subject *a, const tsr_verify_subject *b) {
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
    w->actors[i] = (actor){.walk = {.v = v, .s = s}, .for_whom = -1};
    w->actors[i].collectives = tsr_arena_array(v->arena, int64_t, TSR_AXES);
    w->actors[i].buckets = tsr_arena_array(v->arena, bucket, buckets_of(s->p));
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

static int peer(const waiting *w, int i, int stage) {
  return tsr_verify_member(&w->mesh, i, TSR_PP, stage);
}

/* -1, or who has to receive first. */
static int wait_for_sent(const waiting *w, int i, const tsr_task *t, int microbatch) {
  int from = microbatch - t->lag, to = from;
  if (t->lag == TSR_WAIT_ALL) from = 0, to = w->v->microbatches - 1;
  for (int m = from; m <= to; m++)
    if (m >= 0 && *find_moved(w, i, t->node, m) == SENT)
      return peer(w, i, tsr_verify_target(w->v, t->node));
  return -1;
}

static int wait_for_members(const waiting *w, int i, int axis, int64_t number) {
  for (int m = 0; m < w->mesh.size[axis]; m++) {
    int member = tsr_verify_member(&w->mesh, i, axis, m);
    if (w->actors[member].collectives[axis] < number) return member;
  }
  return -1;
}

static int run_collective(waiting *w, int i, const tsr_task *t) {
  actor *a = &w->actors[i];
  int64_t number = a->counted ? a->collectives[t->axis] : ++a->collectives[t->axis];
  a->counted = true;
  if (!t->bucket) return wait_for_members(w, i, t->axis, number);
  a->buckets[t->bucket] = (bucket){t->axis, number};
  return -1;
}

/* -1 when the task is done, else the actor that it waits for. */
static int run_task(waiting *w, int i) {
  const tsr_verify_walk *at = &w->actors[i].walk;
  const tsr_task *t = &at->s->p->tasks[at->task];
  if (tsr_op_is_collective(t->op)) return run_collective(w, i, t);
  if (t->bucket) {
    const bucket *b = &w->actors[i].buckets[t->bucket];
    return b->number ? wait_for_members(w, i, b->axis, b->number) : -1;
  }
  int microbatch = tsr_verify_transfer_microbatch(w->v->graph, t->node, at->microbatch);
  if (t->op == TSR_OP_WAIT) return wait_for_sent(w, i, t, microbatch);
  unsigned char *moved = find_moved(w, i, t->node, microbatch);
  if (t->op == TSR_OP_SEND) return *moved |= SENT, -1;
  if (!(*moved & SENT)) return peer(w, i, tsr_verify_source(w->v, t->node));
  return *moved |= RECEIVED, -1;
}

/* Goes on until the actor waits or is done; whether it got anywhere. */
static bool run_actor(waiting *w, int i) {
  actor *a = &w->actors[i];
  bool moved = false;
  while (!a->done) {
    if (!a->waits && !tsr_verify_walk_next(&a->walk)) a->done = true;
    if (a->done) return true;
    a->for_whom = run_task(w, i);
    a->waits = a->for_whom >= 0;
    if (a->waits) return moved;
    a->counted = false;
    moved = true;
  }
  return moved;
}

/* ---- circles ---- */

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
  int i = w->actors[begin].for_whom;
  const char *text = tsr_arena_printf(v->arena, "rank %d", w->actors[i].walk.s->rank);
  while (i != end) {
    const char *in = wait_text(v, &w->actors[i].walk);
    i = w->actors[i].for_whom;
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
  for (; !seen[end] && !actors[end].done; end = actors[end].for_whom) seen[end] = true;
  bool circle = !actors[end].done;
  if (circle) {
    begin = end;
    for (int i = actors[end].for_whom; i != end; i = actors[i].for_whom)
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
