// SPDX-License-Identifier: Apache-2.0
/* Fused tasks (fuse.h), derived again from the graph. */
#include "schedule/fuse.h"
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

/* The ops that a form may cover, by position; the base's is checked with the task's. */
static bool is_of_form(const check *c) {
  int n = c->t->nodes_count;
  tsr_op first = node_at(c, 0)->op, last = node_at(c, n - 1)->op;
  switch (c->t->fused) {
  case TSR_FUSED_EPILOGUE:
    return first == TSR_OP_LINEAR && n <= 3 && (is_add(last) || last == TSR_OP_GELU) &&
           (n == 2 || is_add(node_at(c, 1)->op));
  case TSR_FUSED_SUM_NORM:
    return n <= 3 && is_add(first) && is_norm(last) && (n == 2 || is_add(node_at(c, 1)->op));
  case TSR_FUSED_NORM_DX_SUM:
    return n == 2 && (first == TSR_OP_LAYERNORM_DX || first == TSR_OP_RMSNORM_DX) && is_add(last);
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
      if (node_at(c, i)->outputs[o] == value) return true;
  return false;
}

static int reads_inside(const check *c, int value) {
  int reads = 0;
  for (int i = 0; i < c->t->nodes_count; i++)
    for (int k = 0; k < node_at(c, i)->inputs_count; k++)
      reads += node_at(c, i)->inputs[k] == value;
  return reads;
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
      if (is_made_by(c, i, value)) continue;
      if (!check_operand(c, c->t->inputs, c->t->inputs_count, count++, value, "input"))
        return false;
    }
  if (count == c->t->inputs_count) return true;
  tsr_verify_say_task(
      c->v, c->s, c->task, -1, "it has %d inputs, its nodes %d", c->t->inputs_count, count);
  return false;
}

/* Elided is what only the task's own nodes read; nothing else is. */
static bool check_outputs(const check *c) {
  int count = 0;
  for (int i = 0; i < c->t->nodes_count; i++)
    for (int o = 0; o < node_at(c, i)->outputs_count; o++) {
      int value = node_at(c, i)->outputs[o], inside = reads_inside(c, value);
      bool absent = c->s->p->tensors[value].segment == TSR_SEGMENT_ABSENT;
      if (absent && inside && inside < c->v->readers[value]) {
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

bool tsr_verify_fused(tsr_verify *v, const tsr_verify_subject *s, int task) {
  check c = {v, s, &s->p->tasks[task], task};
  if (!v->readers) v->readers = count_readers(v->arena, v->graph);
  return check_nodes(&c) && check_inputs(&c) && check_outputs(&c);
}
