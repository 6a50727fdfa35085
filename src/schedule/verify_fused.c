// SPDX-License-Identifier: Apache-2.0
/* Fused tasks (fuse.h), derived again from the graph. */
#include "schedule/fuse.h"
#include "schedule/geometry.h"
#include "schedule/verify_checks.h"

typedef struct {
  tsr_verify *v;
  const tsr_verify_subject *s;
  const tsr_task *t;
  int task;
} check;

static const int *count_readers(tsr_arena *arena, const tsr_graph *g) {
  int *readers = tsr_arena_array(arena, int, g->values_count + 1);
  for (int i = 0; i < g->nodes_count; i++)
    for (int k = 0; k < g->nodes[i].inputs_count; k++) readers[g->nodes[i].inputs[k]]++;
  for (int i = 0; i < g->outputs_count; i++) readers[g->outputs[i].value]++;
  if (g->loss >= 0) readers[g->loss]++;
  return readers;
}

static const tsr_node *node_at(const check *c, int i) {
  return &c->v->graph->nodes[c->t->nodes[i]];
}

static const char *name_of(const check *c, int value) { return c->v->graph->values[value].name; }

/* ---- the nodes ---- */

static bool is_add(tsr_op op) { return op == TSR_OP_ADD; }
static bool is_norm(tsr_op op) { return op == TSR_OP_LAYERNORM || op == TSR_OP_RMSNORM; }

/* From node `first` on: the gradients of logits and of one or both operands of their GEMM. */
static bool has_gradients(const check *c, int first) {
  int n = c->t->nodes_count, gradients[2] = {0};
  if (n < first + 2 || n > first + 3 || node_at(c, first)->op != TSR_OP_CE_LOSS_DX) return false;
  for (int i = first + 1; i < n; i++) {
    tsr_op op = node_at(c, i)->op;
    if (op != TSR_OP_LINEAR_DX && op != TSR_OP_LINEAR_DW) return false;
    gradients[op == TSR_OP_LINEAR_DW]++;
  }
  return gradients[0] <= 1 && gradients[1] <= 1;
}

/* A linear layer with the statistics of its rows, its loss, or the gradients. */
static bool is_classifier(const check *c) {
  int n = c->t->nodes_count;
  if (node_at(c, 0)->op != TSR_OP_LINEAR) return false;
  if (node_at(c, 1)->op != TSR_OP_CE_STATS) return has_gradients(c, 1);
  return n == 2 || (node_at(c, 2)->op == TSR_OP_CE_LOSS && (n == 3 || has_gradients(c, 3)));
}

/* linear tasks, each with its bias or none, or linear_dw tasks. */
static bool are_gemms(const check *c) {
  int n = c->t->nodes_count, count = c->t->outputs_count, each = count > 0 ? n / count : 0;
  if (count < 2 || count > TSR_GEMMS_MAX || each * count != n || each > 2) return false;
  if (each == 2 && c->t->op != TSR_OP_LINEAR) return false;
  for (int i = 0; i < n; i++)
    if (i % each ? !is_add(node_at(c, i)->op) : node_at(c, i)->op != c->t->op) return false;
  return c->t->op == TSR_OP_LINEAR || c->t->op == TSR_OP_LINEAR_DW;
}

/* The ops that a form may cover, by position; the base's is checked with the task's. */
static bool is_of_form(const check *c) {
  int n = c->t->nodes_count;
  tsr_op first = node_at(c, 0)->op, last = node_at(c, n - 1)->op;
  switch (c->t->fused) {
  case TSR_FUSED_EPILOGUE:
    return first == TSR_OP_LINEAR && n <= 3 && (is_add(last) || last == TSR_OP_GELU) &&
           (n == 2 || is_add(node_at(c, 1)->op));
  case TSR_FUSED_LINEAR_CROSS_ENTROPY:
    return is_classifier(c);
  case TSR_FUSED_LOGITS_GRADIENT:
    return has_gradients(c, 0);
  case TSR_FUSED_SUM_NORM:
    return n <= 3 && is_add(first) && is_norm(last) && (n == 2 || is_add(node_at(c, 1)->op));
  case TSR_FUSED_NORM_DX_SUM:
    return n == 2 && (first == TSR_OP_LAYERNORM_DX || first == TSR_OP_RMSNORM_DX) && is_add(last);
  case TSR_FUSED_EMBEDDING_DW_SUM:
    return n == 2 && first == TSR_OP_EMBEDDING_DW && is_add(last);
  case TSR_FUSED_GEMMS:
    return are_gemms(c);
  case TSR_FUSED_UPDATES:
    for (int i = 0; i < n; i++)
      if (node_at(c, i)->op != c->t->op) return false;
    return c->t->op == TSR_OP_ADAMW || c->t->op == TSR_OP_SGD;
  case TSR_FUSED_NORMS:
  case TSR_FUSED_CASTS:
    first = c->t->fused == TSR_FUSED_NORMS ? TSR_OP_NORM_STATS : TSR_OP_CAST;
    for (int i = 0; i < n; i++)
      if (node_at(c, i)->op != first) return false;
    return c->t->op == first;
  default:
    return false;
  }
}

static bool check_nodes(const check *c) {
  const tsr_task *t = c->t;
  bool ok = t->nodes_count > 1 && t->nodes_count <= c->v->graph->nodes_count, has_base = false;
  for (int i = 0; ok && i < t->nodes_count; i++) {
    ok = (!i || t->nodes[i] > t->nodes[i - 1]) && tsr_program_has_node(c->s->p, t->nodes[i]);
    has_base |= ok && t->nodes[i] == t->node;
  }
  if (ok && has_base && is_of_form(c)) return true;
  tsr_verify_say_task(
      c->v, c->s, c->task, -1, "it covers nodes that are no %s",
      t->fused < TSR_FUSED_FORMS ? tsr_fused_name(t->fused) : "fused task");
  return false;
}

/* ---- operands ---- */

/* Whether one of the first `count` nodes makes a value. */
static bool is_made_by(const check *c, int count, int value) {
  for (int i = 0; i < count; i++)
    for (int o = 0; o < node_at(c, i)->outputs_count; o++)
      if (node_at(c, i)->outputs[o] == c->s->owner[value]) return true;
  return false;
}

static int reads_inside(const check *c, int value) {
  int reads = 0;
  for (int i = 0; i < c->t->nodes_count; i++)
    for (int k = 0; k < node_at(c, i)->inputs_count; k++)
      reads += c->s->owner[node_at(c, i)->inputs[k]] == value;
  return reads;
}

/* Under all names of its bytes; a node that only gives them another one is no reader. */
static int readers_of(const check *c, int value) {
  int readers = c->v->readers[value];
  for (int x = 0; x < c->v->graph->values_count; x++)
    if (x != value && c->s->owner[x] == value) readers += c->v->readers[x] - 1;
  return readers;
}

static bool check_operand(
    const check *c, const tsr_tensor *list, int count, int index, int want, const char *what) {
  int value = index < count ? list[index].value : -1;
  bool known = value >= 0 && value < c->v->graph->values_count;
  if (known && c->s->owner[value] == c->s->owner[want]) return true;
  tsr_verify_say_task(
      c->v, c->s, c->task, -1, "its %s %d is '%s', its nodes' is '%s'", what, index,
      known ? name_of(c, value) : "no value", name_of(c, want));
  return false;
}

static bool check_inputs(const check *c) {
  int count = 0;
  for (int i = 0; i < c->t->nodes_count; i++)
    for (int k = 0; k < node_at(c, i)->inputs_count; k++) {
      int value = node_at(c, i)->inputs[k];
      bool shape_only = k == tsr_op_shape_input(node_at(c, i)->op, node_at(c, i)->inputs_count);
      if (shape_only || is_made_by(c, i, value)) continue;
      if (!check_operand(c, c->t->inputs, c->t->inputs_count, count++, value, "input"))
        return false;
    }
  if (count == c->t->inputs_count) return true;
  tsr_verify_say_task(
      c->v, c->s, c->task, -1, "it has %d inputs, its nodes %d", c->t->inputs_count, count);
  return false;
}

/* Nodes outside that have a value for their gradients' sake, and do not read it. */
static int unread_outside(const check *c, int value) {
  int count = 0;
  for (int i = 0; i < c->v->graph->nodes_count; i++) {
    const tsr_node *n = &c->v->graph->nodes[i];
    int input = tsr_op_gradient_input(n->op);
    count += input >= 0 && c->s->owner[n->inputs[input]] == value;
  }
  for (int i = 0; i < c->t->nodes_count; i++) {
    int input = tsr_op_gradient_input(node_at(c, i)->op);
    count -= input >= 0 && c->s->owner[node_at(c, i)->inputs[input]] == value;
  }
  return count;
}

/* Elided is what only the task's own nodes read; nothing else is. */
static bool check_outputs(const check *c) {
  int count = 0;
  for (int i = 0; i < c->t->nodes_count; i++)
    for (int o = 0; o < node_at(c, i)->outputs_count; o++) {
      int value = node_at(c, i)->outputs[o], inside = reads_inside(c, value);
      bool absent = c->s->p->tensors[value].segment == TSR_SEGMENT_ABSENT;
      if (absent && inside && inside < readers_of(c, value) - unread_outside(c, value)) {
        tsr_verify_say_task(
            c->v, c->s, c->task, -1, "it elides '%s', which others read", name_of(c, value));
        return false;
      }
      if (absent && inside) continue;
      if (!check_operand(c, c->t->outputs, c->t->outputs_count, count++, value, "output"))
        return false;
    }
  if (count == c->t->outputs_count) return true;
  tsr_verify_say_task(
      c->v, c->s, c->task, -1, "it has %d outputs, its nodes %d", c->t->outputs_count, count);
  return false;
}

/* All rows, in the order of the weight's gradient. */
static bool check_tiles(const check *c) {
  const tsr_task *t = c->t;
  if (t->fused != TSR_FUSED_LINEAR_CROSS_ENTROPY) return true;
  tsr_linear_cross_entropy of = tsr_linear_cross_entropy_of(t);
  const tsr_tensor *x = &c->s->p->tensors[of.linear->inputs[0].value];
  tsr_row_tiles want = {0};
  const tsr_row_tiles *have = &t->tiles;
  int64_t runs = of.linear->calls.rows ? tsr_tensor_row_runs(c->s->p, x) : 0;
  bool ok = have->rows > 0;
  if (ok)
    ok =
        tsr_row_tiles_make(of.dw ? &of.dw->sum : NULL, tsr_tensor_rows(x), runs, have->rows, &want);
  if (ok && want.rows == have->rows && want.period == have->period &&
      want.periods == have->periods && want.runs == have->runs)
    return true;
  tsr_verify_say_task(
      c->v, c->s, c->task, -1, "its tiles of %lld rows do not divide the %lld of '%s' as its sums",
      (long long)have->rows, (long long)tsr_tensor_rows(x), name_of(c, x->value));
  return false;
}

/* The tasks of the nodes, whose sums are checked as those of tasks of their own. */
static bool check_covered(const check *c) {
  const tsr_task *t = c->t;
  bool has = t->fused == TSR_FUSED_LINEAR_CROSS_ENTROPY || t->fused == TSR_FUSED_LOGITS_GRADIENT;
  bool ok = has == (t->covered != NULL);
  for (int i = 0; ok && has && i < t->nodes_count; i++) {
    const tsr_task *of = &t->covered[i];
    const tsr_node *n = node_at(c, i);
    ok = of->node == t->nodes[i] && of->op == n->op && of->inputs_count == n->inputs_count &&
         of->outputs_count == n->outputs_count;
    for (int k = 0; ok && k < n->inputs_count; k++) ok = of->inputs[k].value == n->inputs[k];
    for (int k = 0; ok && k < n->outputs_count; k++) ok = of->outputs[k].value == n->outputs[k];
  }
  if (ok) return true;
  tsr_verify_say_task(c->v, c->s, c->task, -1, "it covers tasks that are not those of its nodes");
  return false;
}

/* ---- batches of GEMMs ---- */

/* Whether two operands of a program are alike in all that a GEMM's calls depend on. */
static bool are_alike(const check *c, const tsr_tensor *x, const tsr_tensor *y) {
  const tsr_value *v = &c->v->graph->values[x->value], *w = &c->v->graph->values[y->value];
  bool alike = x->dtype == y->dtype && x->ndim == y->ndim && x->units == y->units && x->ndim >= 0 &&
               x->ndim <= TSR_DIMS_MAX;
  for (int i = 0; alike && i < x->ndim; i++) alike = x->shape[i] == y->shape[i];
  for (int a = 0; alike && a < TSR_AXES; a++)
    alike = tsr_placement_equal(v->placement[a], w->placement[a]);
  return alike;
}

/* In what a GEMM of a batch differs from the first one; NULL: in nothing. */
static const char *find_difference(const check *c, int i, int each) {
  const tsr_task *t = c->t;
  const tsr_tensor *first = t->inputs, *in = &t->inputs[i * each];
  int shared = t->op == TSR_OP_LINEAR_DW;
  if (c->s->owner[in[shared].value] != c->s->owner[first[shared].value]) return "inputs";
  for (int k = 0; k < each; k++)
    if (!are_alike(c, &first[k], &in[k])) return "operands";
  if (!are_alike(c, &t->outputs[0], &t->outputs[i])) return "results";
  if (t->op != TSR_OP_LINEAR_DW) return NULL;
  /* The calls of a gradient are split as tp splits the weight. */
  const tsr_tensor *tensors = c->s->p->tensors;
  const tsr_node *a = node_at(c, 0), *b = node_at(c, i);
  return are_alike(c, &tensors[a->inputs[2]], &tensors[b->inputs[2]]) ? NULL : "weights";
}

/* The GEMMs are of one shape and of one input. None reads what another one makes: then the task
 * would not have as many inputs for each of them. */
static bool check_gemms(const check *c) {
  const tsr_task *t = c->t;
  if (t->fused != TSR_FUSED_GEMMS) return true;
  int each = t->inputs_count / t->outputs_count;
  const char *what = each * t->outputs_count != t->inputs_count ? "inputs" : NULL;
  if (each > 2 && (t->inputs[2].ndim != 1 || t->outputs[0].ndim < 2)) what = "biases";
  for (int i = 1; !what && i < t->outputs_count; i++) what = find_difference(c, i, each);
  if (!what) return true;
  tsr_verify_say_task(c->v, c->s, c->task, -1, "the %s of its GEMMs are not alike", what);
  return false;
}

bool tsr_verify_fused(tsr_verify *v, const tsr_verify_subject *s, int task) {
  check c = {v, s, &s->p->tasks[task], task};
  if (!v->readers) v->readers = count_readers(v->arena, v->graph);
  return check_nodes(&c) && check_covered(&c) && check_tiles(&c) && check_inputs(&c) &&
         check_outputs(&c) && check_gemms(&c);
}
