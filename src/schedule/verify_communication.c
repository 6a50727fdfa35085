// SPDX-License-Identifier: Apache-2.0
/* What ranks do together: the members of a group run the same collectives in the same order, and
 * what one stage sends another one receives. */
#include "schedule/verify_checks.h"

/* ---- collectives ---- */

static bool next_collective(tsr_verify_walk *w, int axis) {
  while (tsr_verify_walk_next(w)) {
    const tsr_task *t = &w->s->p->tasks[w->task];
    if (tsr_op_is_collective(t->op) && t->axis == axis) return true;
  }
  return false;
}

static bool same_size(const tsr_tensor *a, const tsr_tensor *b) {
  return a->dtype == b->dtype && tsr_tensor_elements(a) == tsr_tensor_elements(b);
}

static bool same_collective(const tsr_verify_walk *a, const tsr_verify_walk *b) {
  const tsr_task *x = &a->s->p->tasks[a->task], *y = &b->s->p->tasks[b->task];
  return x->op == y->op && x->node == y->node && x->bucket == y->bucket &&
         a->microbatch == b->microbatch && same_size(&x->inputs[0], &y->inputs[0]) &&
         same_size(&x->outputs[0], &y->outputs[0]);
}

static const char *collective_text(tsr_verify *v, const tsr_verify_walk *w) {
  const tsr_task *t = &w->s->p->tasks[w->task];
  const char *bucket = t->bucket ? tsr_arena_printf(v->arena, ", bucket %d", t->bucket) : "";
  return tsr_arena_printf(
      v->arena, "%s to '%s' (%lld %s, microbatch %d%s)", tsr_op_name(t->op),
      v->graph->nodes[t->node].name, (long long)tsr_tensor_elements(&t->inputs[0]),
      tsr_dtype_name(t->inputs[0].dtype), w->microbatch, bucket);
}

/* Two members of a group over an axis. Where one has more than the other, it waits for ever, which
 * verify_waits.c finds. */
static bool check_pair(tsr_verify *v, int axis, int rank, int other) {
  tsr_verify_subject one = v->subjects[v->subject_of[rank]];
  tsr_verify_subject two = v->subjects[v->subject_of[other]];
  one.rank = rank, two.rank = other;
  tsr_verify_walk a = {.v = v, .s = &one}, b = {.v = v, .s = &two};
  const char *over = tsr_axis_name(axis);
  for (int i = 1;; i++) {
    bool more = next_collective(&a, axis), others = next_collective(&b, axis);
    if (!more || !others) return true;
    if (same_collective(&a, &b)) continue;
    if (!tsr_verify_say_task(
            v, &two, b.task, b.microbatch, "its collective %d over %s is %s, that of rank %d %s", i,
            over, collective_text(v, &b), rank, collective_text(v, &a)))
      return false;
  }
}

/* Every member against its group's first one. Ranks that share a program need no second look. */
static bool check_groups(tsr_verify *v, int axis) {
  const tsr_verify_mesh *m = v->mesh;
  int *seen = tsr_arena_array(v->arena, int, v->subjects_count + 1); /* the first one, from 1 */
  bool ok = true;
  for (int r = 0; r < m->ranks; r++) {
    int first = tsr_verify_member(m, r, axis, 0), a = v->subject_of[first], b = v->subject_of[r];
    if (first == r || a == b || seen[b] == a + 1) continue;
    seen[b] = a + 1;
    if (tsr_verify_is_full(v)) return false;
    ok = check_pair(v, axis, first, r) && ok;
  }
  return ok;
}

/* ---- sends and receives ---- */

/* What a program does with a transfer in one microbatch: its first task for it, and how often. */
typedef struct {
  int task, times;
} deed;
typedef struct {
  deed *sends, *receives; /* per transfer and microbatch; NULL before they are asked for */
} deeds;

static void count(deed *d, int task) {
  if (!d->times++) d->task = task;
}

static const deeds *find_deeds(tsr_verify *v, deeds *all, int subject) {
  deeds *d = &all[subject];
  if (d->sends) return d;
  int slots = v->transfers_count * v->microbatches;
  d->sends = tsr_arena_array(v->arena, deed, slots + 1);
  d->receives = tsr_arena_array(v->arena, deed, slots + 1);
  tsr_verify_walk w = {.v = v, .s = &v->subjects[subject]};
  while (tsr_verify_walk_next(&w)) {
    const tsr_task *t = &w.s->p->tasks[w.task];
    if (t->op != TSR_OP_SEND && t->op != TSR_OP_RECEIVE) continue;
    int m = tsr_verify_transfer_microbatch(v->graph, t->node, w.microbatch);
    int slot = v->transfer_of[t->node] * v->microbatches + m;
    count(t->op == TSR_OP_SEND ? &d->sends[slot] : &d->receives[slot], w.task);
  }
  return d;
}

static bool check_sizes(
    tsr_verify *v, const tsr_verify_subject *from, const tsr_verify_subject *to, int microbatch,
    int send, int receive) {
  const tsr_tensor *x = &from->p->tasks[send].inputs[0], *y = &to->p->tasks[receive].inputs[0];
  if (same_size(x, y)) return true;
  return tsr_verify_say_task(
      v, to, receive, microbatch, "receives %lld %s of '%s', stage %d sends %lld %s",
      (long long)tsr_tensor_elements(y), tsr_dtype_name(y->dtype), v->graph->values[y->value].name,
      from->p->stage, (long long)tsr_tensor_elements(x), tsr_dtype_name(x->dtype));
}

static const char *times_text(tsr_verify *v, int times) {
  if (times > 1) return tsr_arena_printf(v->arena, "%d times", times);
  return times ? "once" : "never";
}

/* One transfer between the programs of its two ends. */
static bool check_transfer(tsr_verify *v, deeds *all, int transfer, int source, int target) {
  const tsr_verify_subject *from = &v->subjects[source], *to = &v->subjects[target];
  const deed *sends = find_deeds(v, all, source)->sends + transfer * v->microbatches;
  const deed *receives = find_deeds(v, all, target)->receives + transfer * v->microbatches;
  const tsr_node *n = &v->graph->nodes[v->transfers[transfer]];
  const char *name = v->graph->values[n->inputs[0]].name;
  bool ok = true;
  for (int m = 0; m < v->microbatches && ok; m++) {
    const deed *s = &sends[m], *r = &receives[m];
    bool once = s->times == r->times && s->times <= 1;
    if (!once)
      ok = tsr_verify_say_task(
          v, r->times ? to : from, r->times ? r->task : s->task, m,
          "stage %d sends '%s' %s, stage %d receives it %s", from->p->stage, name,
          times_text(v, s->times), to->p->stage, times_text(v, r->times));
    if (ok && s->times && r->times) ok = check_sizes(v, from, to, m, s->task, r->task);
  }
  return ok;
}

/* Both ends of a transfer are ranks that differ on pp alone. */
static bool check_transfers(tsr_verify *v) {
  const tsr_verify_mesh *mesh = v->mesh;
  deeds *all = tsr_arena_array(v->arena, deeds, v->subjects_count + 1);
  int *seen = tsr_arena_array(v->arena, int, v->subjects_count + 1); /* transfer, then source */
  int *of = tsr_arena_array(v->arena, int, v->subjects_count + 1);
  bool ok = true;
  for (int t = 0; t < v->transfers_count; t++) {
    int from = tsr_verify_source(v, v->transfers[t]), to = tsr_verify_target(v, v->transfers[t]);
    for (int r = 0; r < mesh->ranks; r++) {
      if (tsr_verify_coord(mesh, r, TSR_PP) != to) continue;
      if (v->subjects_count == mesh->size[TSR_PP] && seen[v->subject_of[r]] == t + 1) break;
      int target = v->subject_of[r];
      int source = v->subject_of[tsr_verify_member(mesh, r, TSR_PP, from)];
      if (seen[target] == t + 1 && of[target] == source) continue;
      seen[target] = t + 1, of[target] = source;
      if (tsr_verify_is_full(v)) return false;
      ok = check_transfer(v, all, t, source, target) && ok;
    }
  }
  return ok;
}

bool tsr_verify_moves(tsr_verify *v) {
  bool ok = check_transfers(v);
  for (int a = 0; a < TSR_AXES; a++)
    if (v->mesh->size[a] > 1) ok = check_groups(v, a) && ok;
  return ok;
}
