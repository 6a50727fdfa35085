// SPDX-License-Identifier: Apache-2.0
/* Operands in FP8: every task whose node has a recipe quantises its operands in that format, and in
 * units and blocks that are the same elements of the whole tensors on every mesh: along what tp's
 * units split the unit is one of theirs, and of rows that are summed it is a run of the task's
 * record, which verify_reductions.c derives. */
#include "schedule/geometry.h"
#include "schedule/verify_checks.h"

typedef struct {
  tsr_verify *v;
  const tsr_verify_subject *s;
  int task;
  const tsr_task *t;
  const tsr_node *n;
} check;

static tsr_fp8_recipe recipe_of(const tsr_node *n) {
  switch ((int)n->op) {
  case TSR_OP_LINEAR:
  case TSR_OP_LINEAR_DX:
  case TSR_OP_LINEAR_DW:
  case TSR_OP_EXPERT_LINEAR:
  case TSR_OP_EXPERT_LINEAR_DX:
    return n->attr.linear.fp8;
  case TSR_OP_EXPERT_LINEAR_DW:
    return n->attr.expert_linear_dw.fp8;
  default:
    return TSR_FP8_OFF;
  }
}

static bool is_dx(tsr_op op) { return op == TSR_OP_LINEAR_DX || op == TSR_OP_EXPERT_LINEAR_DX; }
static bool is_dw(tsr_op op) { return op == TSR_OP_LINEAR_DW || op == TSR_OP_EXPERT_LINEAR_DW; }

/* Activations or a gradient of them and, but for a weight's gradient, a weight; in pairs. Behind
 * them are a plan of experts, or a weight of which only the shape matters. */
static bool is_quantized(const check *c, int i) { return i < 2 || c->n->op == TSR_OP_LINEAR_DX; }

/* Elements of a dimension in one unit of the recipe. */
static int64_t unit_of(const check *c, int i, int dim) {
  const tsr_value *x = &c->v->graph->values[c->n->inputs[i]];
  tsr_placement tp = x->placement[TSR_TP];
  int64_t units = c->v->graph->units.tp;
  bool split = tp.kind == TSR_SHARD && tp.dim == dim && units > 1;
  return split ? x->shape[dim] / units : c->t->inputs[i].shape[dim];
}

/* Parts of a summed dimension; 0: the record makes no sense, which others report. */
static int64_t parts_of(const tsr_reduction *r, int dim) {
  const tsr_reduced_dim *d = &r->dim[dim];
  const int64_t units[] = {
      d->split[TSR_DP] ? r->batch : 1, d->split[TSR_CP] ? r->sequence : 1,
      d->split[TSR_TP] ? r->tp : 1};
  int64_t parts = 1;
  for (int i = 0; i < 3; i++) {
    if (units[i] < 1 || units[i] > d->size / parts) return 0;
    parts *= units[i];
  }
  return d->size % parts ? 0 : parts;
}

/* Of operands of a weight's gradient, the neighbours that are summed as one: the rows behind the
 * innermost dimension that units split, of one unit. Runs of experts' rows are the plan's. */
static int64_t run_of(const check *c, int64_t rows) {
  const tsr_reduction *r = &c->t->sum;
  int64_t run = 1;
  if (c->n->op == TSR_OP_EXPERT_LINEAR_DW) return rows;
  for (int d = r->ndim - 1; d >= 0; d--) {
    const bool *split = r->dim[d].split;
    int64_t parts = parts_of(r, d);
    if (!parts) return rows;
    run *= r->dim[d].size / parts;
    if (split[TSR_DP] || split[TSR_CP] || split[TSR_TP]) break;
  }
  return run;
}

static tsr_fp8_operand wanted(const check *c, int i) {
  if (!is_quantized(c, i)) return (tsr_fp8_operand){0};
  const tsr_tensor *x = &c->t->inputs[i];
  bool weight = i % 2 && !is_dw(c->n->op);
  tsr_fp8_layout l = {.rows = tsr_tensor_rows(x), .cols = tsr_tensor_last(x)};
  tsr_fp8_recipe recipe = recipe_of(c->n);
  bool sums_rows = is_dw(c->n->op) || (weight && is_dx(c->n->op));
  bool gradient = i % 2 == 0 && c->n->op != TSR_OP_LINEAR && c->n->op != TSR_OP_EXPERT_LINEAR;
  l.block_rows = weight || sums_rows ? TSR_FP8_BLOCK : 1;
  l.block_cols = weight || !sums_rows ? TSR_FP8_BLOCK : 1;
  l.unit_cols = weight || !sums_rows ? unit_of(c, i, x->ndim - 1) : l.cols;
  l.unit_rows = weight ? unit_of(c, i, x->ndim - 2) : sums_rows ? run_of(c, l.rows) : l.rows;
  l.format = gradient && recipe & TSR_FP8_E5M2_GRADIENTS ? TSR_FP8_E5M2 : TSR_FP8_E4M3;
  l.power_of_two = !(recipe & TSR_FP8_F32_SCALES);
  return (tsr_fp8_operand){.layout = l, .sums_rows = sums_rows};
}

static void check_operand(const check *c, int i, int64_t *end) {
  const tsr_fp8_operand *o = &c->t->fp8->inputs[i], want = wanted(c, i);
  const tsr_fp8_layout *l = &o->layout, *w = &want.layout;
  const char *name = c->v->graph->values[c->n->inputs[i]].name;
  bool sizes = l->rows == w->rows && l->cols == w->cols && l->unit_rows == w->unit_rows &&
               l->unit_cols == w->unit_cols && l->block_rows == w->block_rows &&
               l->block_cols == w->block_cols;
  if (!sizes &&
      !tsr_verify_say_task(
          c->v, c->s, c->task, -1,
          "it quantises '%s' (%lld, %lld) in units of (%lld, %lld) and blocks of %d x %d, "
          "the recipe has (%lld, %lld) and %d x %d",
          name, (long long)l->rows, (long long)l->cols, (long long)l->unit_rows,
          (long long)l->unit_cols, l->block_rows, l->block_cols, (long long)w->unit_rows,
          (long long)w->unit_cols, w->block_rows, w->block_cols))
    return;
  if ((l->format != w->format || l->power_of_two != w->power_of_two ||
       o->sums_rows != want.sums_rows) &&
      !tsr_verify_say_task(
          c->v, c->s, c->task, -1,
          "the format of '%s', its scales or the dimension that is summed are not the recipe's",
          name))
    return;
  if (!w->rows) return;
  bool apart = o->codes >= *end && o->scales >= o->codes + w->rows * w->cols;
  *end = o->scales + tsr_fp8_scales(w) * (int64_t)sizeof(float);
  if (!apart || *end > c->t->fp8->bytes)
    tsr_verify_say_task(
        c->v, c->s, c->task, -1,
        "the codes and scales of '%s' share bytes with others, or have none", name);
}

void tsr_verify_fp8(tsr_verify *v, const tsr_verify_subject *s, int task) {
  const tsr_task *t = &s->p->tasks[task];
  check c = {v, s, task, t, &v->graph->nodes[t->node]};
  bool has = t->fp8 && t->fp8->count == t->inputs_count, needs = recipe_of(c.n) && !t->covered;
  int64_t end = 0;
  if (has != needs)
    tsr_verify_say_task(
        v, s, task, -1, "it %s operands in FP8, its node %s", has ? "has" : "lacks",
        needs ? "does" : "does not");
  if (!has || !needs) return;
  for (int i = 0; i < t->inputs_count; i++) check_operand(&c, i, &end);
}
