// SPDX-License-Identifier: Apache-2.0
/* Norms of gradients: on every rank the pieces are the rank's part of the gradient, each element
 * once, and no rank has a part of a piece; and all pieces are joined. */
#include "schedule/verify_checks.h"
#include <string.h>

typedef struct {
  tsr_verify *v;
  const tsr_verify_subject *s;
  int task;
  const tsr_norm_pieces *n;
  const tsr_value *x;
  const tsr_tensor *in, *out;
} check;

static int64_t part_of(const tsr_lowering *l, const tsr_value *x, int axis, int dim) {
  tsr_placement p = x->placement[axis];
  return p.kind == TSR_SHARD && p.dim == dim ? tsr_placement_blocks(p, (int)l->size[axis]) : 1;
}

/* The dimensions of pieces and of tp's units, against what the axes split. */
static bool check_dims(const check *c) {
  const tsr_norm_pieces *n = c->n;
  const tsr_lowering *l = &c->s->p->lowering;
  const tsr_tensor *x = c->in, *y = c->out;
  bool known = (n->dim == -1 && n->tp_dim <= 0) || (n->dim == 0 && n->tp_dim != 0) ||
               (n->dim == 1 && n->tp_dim <= 0 && n->ndim == 2);
  bool shapes = known && n->ndim == x->ndim && n->tp_dim >= -1 && n->tp_dim < x->ndim &&
                n->parts >= 1 && n->pieces == y->shape[0] &&
                n->units == (y->units > 1 ? y->units : 1);
  for (int d = 0; d < x->ndim && shapes; d++) shapes = n->shape[d] == x->shape[d];
  if ((!shapes || (n->dim >= 0 && n->whole != c->x->shape[n->dim])) &&
      (!tsr_verify_say_task(
           c->v, c->s, c->task, -1, "its pieces are not of '%s', or not '%s'", c->x->name,
           c->v->graph->values[y->value].name) ||
       !shapes))
    return false;
  for (int a = 0; a < TSR_AXES; a++)
    for (int d = 0; d < x->ndim; d++) {
      int want = a == TSR_TP ? n->tp_dim : n->dim;
      bool experts = tsr_routed_is_weights(c->x->routed) && d == 0 && n->dim == 0;
      if (part_of(l, c->x, a, d) > 1 && d != want && !experts &&
          !tsr_verify_say_task(
              c->v, c->s, c->task, -1, "%s splits dimension %d of '%s', its pieces are along %d",
              tsr_axis_name(a), d, c->x->name, want))
        return false;
    }
  int64_t units = c->v->graph->units.tp > 1 ? c->v->graph->units.tp : 1,
          ranks = n->tp_dim < 0 ? 1 : part_of(l, c->x, TSR_TP, n->tp_dim);
  bool divides = n->tp_dim < 0 || x->shape[n->tp_dim] % n->parts == 0;
  if (divides && n->parts * ranks == (n->tp_dim < 0 ? 1 : units)) return true;
  return tsr_verify_say_task(
             c->v, c->s, c->task, -1,
             "it splits '%s' into %lld parts here, the recipe into %lld over all", c->x->name,
             (long long)n->parts, (long long)units) &&
         divides;
}

/* Whether a rectangle is [begin, end) of the pieces' dimension and one part of tp's: as many
 * elements, the first and the last where they must be. */
static bool
is_slice(const tsr_norm_pieces *n, tsr_rectangle r, int64_t begin, int64_t end, int64_t u) {
  int64_t first = 0, last = 0, count = 1;
  for (int d = 0; d < n->ndim; d++) {
    int64_t low = 0, high = n->shape[d];
    if (d == n->dim) low = begin, high = end;
    if (d == n->tp_dim) low = u * (n->shape[d] / n->parts), high = low + n->shape[d] / n->parts;
    first = first * n->shape[d] + low;
    last = last * n->shape[d] + high - 1;
    count *= high - low;
  }
  if (count == 0) return r.rows * r.cols == 0;
  return r.rows * r.cols == count && r.start == first &&
         r.start + (r.rows - 1) * r.stride + r.cols - 1 == last;
}

/* The rectangles of a rank whose part of the pieces' dimension begins at `first`. */
static bool check_rank(const check *c, int64_t first) {
  const tsr_norm_pieces *n = c->n;
  const tsr_norm_grid g = tsr_norm_grid_of(n, first);
  int64_t here = n->dim < 0 ? 1 : n->shape[n->dim], covered = 0;
  bool sound = true;
  /* Pieces are in the order of their indices: where the neighbours of those on the rank have no
   * elements on it, the others have none either. */
  bool whole = n->dim < 0 || n->whole <= 0;
  int64_t low = whole ? 0 : first * n->pieces / n->whole - 2;
  int64_t high = whole ? n->pieces : (first + here) * n->pieces / n->whole + 2;
  if (low < 0) low = 0;
  if (high > n->pieces) high = n->pieces;
  for (int64_t k = low; k < high; k++) {
    int64_t begin = k * n->whole / n->pieces - first, end = (k + 1) * n->whole / n->pieces - first;
    if (n->dim < 0) begin = 0, end = k == 0;
    bool inside = begin >= 0 && end <= here && begin < end;
    /* Without elements in unit 0 a piece has none in the others. */
    for (int64_t u = 0; u < (inside ? n->units : 1); u++) {
      tsr_rectangle r = tsr_norm_grid_rectangle(&g, u, k);
      bool wanted = inside && u < n->parts;
      sound &= wanted ? is_slice(n, r, begin, end, u) : r.rows * r.cols == 0;
    }
    if (inside && sound) covered += end - begin;
  }
  if (sound && covered == here) return true;
  return tsr_verify_say_task(
      c->v, c->s, c->task, -1,
      "its pieces hold %lld of the %lld that the rank from %lld on has of dimension %d of '%s'",
      (long long)covered, (long long)here, (long long)first, n->dim, c->x->name);
}

/* All that the check of a norm depends on. */
typedef struct {
  tsr_op op;
  tsr_norm_pieces n;
  tsr_placement x[TSR_AXES];
  int64_t pieces, units;
} norm_key;

static norm_key key_of(const check *c) {
  norm_key k;
  memset(&k, 0, sizeof k);
  k.op = TSR_OP_NORM_STATS;
  memcpy(&k.n, c->n, sizeof k.n);
  memcpy(k.x, c->x->placement, sizeof k.x);
  k.pieces = c->out->shape[0];
  k.units = c->out->units;
  return k;
}

/* Every gradient's pieces have a row each, and every gradient a column. */
static void check_join(tsr_verify *v, const tsr_verify_subject *s, int task) {
  const tsr_task *t = &s->p->tasks[task];
  const int64_t *out = t->outputs[0].shape;
  for (int i = 0; i < t->inputs_count; i++)
    if (t->inputs[i].shape[0] > out[0] || i >= out[1])
      tsr_verify_say_task(
          v, s, task, -1, "it has %lld rows of %lld for the %lld pieces of gradient %d",
          (long long)out[0], (long long)out[1], (long long)t->inputs[i].shape[0], i);
}

static void check_gradient(const check *c) {
  const tsr_norm_pieces *n = c->n;
  int64_t ranks = 1;
  norm_key key = key_of(c);
  if (!check_dims(c) || tsr_verify_is_proved(c->v, &key, sizeof key)) return;
  for (int a = 0; a < TSR_AXES; a++)
    if (n->dim >= 0) ranks *= part_of(&c->s->p->lowering, c->x, a, n->dim);
  for (int64_t r = 0; r < ranks; r++)
    if (!check_rank(c, n->dim < 0 ? 0 : r * n->shape[n->dim])) return;
  tsr_verify_keep_proved(c->v, &key, sizeof key);
}

void tsr_verify_norm(tsr_verify *v, const tsr_verify_subject *s, int task) {
  const tsr_task *t = &s->p->tasks[task];
  if ((t->op == TSR_OP_NORM_STATS) != (t->norm != NULL))
    tsr_verify_say_task(
        v, s, task, -1, "it %s of a norm", t->norm ? "has pieces" : "lacks the pieces");
  if (t->op == TSR_OP_NORM_JOIN) check_join(v, s, task);
  if (t->op != TSR_OP_NORM_STATS || !t->norm) return;
  for (int i = 0; i < tsr_task_nodes(t); i++) {
    const tsr_value *x = &v->graph->values[t->inputs[i].value];
    check_gradient(&(check){v, s, task, &t->norm[i], x, &t->inputs[i], &t->outputs[i]});
  }
}
