// SPDX-License-Identifier: Apache-2.0
#include "prove/compare.h"
#include <math.h>
#include <string.h>

static bool same(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

/* The first element whose bits differ, and how many do; false: none. */
static bool find_element(const float *a, const float *b, int64_t count, tsr_state_difference *ret) {
  ret->differing = 0;
  ret->count = count;
  for (int64_t i = 0; i < count; i++) {
    if (!memcmp(&a[i], &b[i], sizeof a[i])) continue;
    if (ret->differing++) continue;
    ret->element = i;
    ret->mesh = a[i];
    ret->single = b[i];
  }
  return ret->differing > 0;
}

/* ---- the task ---- */

static bool writes(const tsr_task *t, int value) {
  bool update = tsr_op_facts(t->op) & TSR_FACT_UPDATE;
  for (int i = 0; i < t->outputs_count; i++)
    if (t->outputs[i].value == value) return true;
  for (int i = 0; update && i < t->inputs_count; i++) {
    tsr_segment segment = t->inputs[i].segment;
    bool kept = segment == TSR_SEGMENT_PARAM || segment == TSR_SEGMENT_STATE;
    if (kept && t->inputs[i].value == value) return true;
  }
  return false;
}

/* The last task of a step that writes it: of a parameter its update, not its gathering. */
static void find_task(const tsr_programs *p, int value, tsr_state_difference *ret) {
  ret->task = -1;
  for (int s = 0; s < p->pipeline->stages; s++)
    for (int t = 0; t < p->of_stage[s]->tasks_count; t++)
      if (writes(&p->of_stage[s]->tasks[t], value)) ret->stage = s, ret->task = t;
}

static void
describe(const tsr_state *mesh, int value, tsr_location location, tsr_state_difference *ret) {
  const tsr_value *v = &mesh->graph->values[value];
  ret->value = v;
  ret->name = v->name;
  ret->ndim = v->ndim;
  memcpy(ret->shape, v->shape, sizeof ret->shape);
  ret->location = location;
  find_task(mesh->programs, value, ret);
}

/* ---- kinds and steps ---- */

static const tsr_state_tensor *
find_tensor(const tsr_state_tensors *of, const tsr_state_tensor *like, int at) {
  if (at < of->count && !strcmp(of->items[at].name, like->name)) return &of->items[at];
  for (int i = 0; i < of->count; i++)
    if (!strcmp(of->items[i].name, like->name)) return &of->items[i];
  return NULL;
}

/* The node of the backward pass that makes a gradient, before sums over microbatches and ranks. */
static int made_by(const tsr_graph *g, int value) {
  int node = g->values[value].node;
  while (node >= 0) {
    const tsr_node *n = &g->nodes[node];
    bool sums = n->section == TSR_UPDATE || tsr_op_moves(n->op) || n->op == TSR_OP_SUM_UNITS ||
                n->op == TSR_OP_ACCUMULATE || n->op == TSR_OP_CAST || n->op == TSR_OP_RECEIVE;
    int before = sums ? g->values[n->inputs[0]].node : -1;
    if (before < 0) return node;
    node = before;
  }
  return node;
}

/* When the step makes a tensor, among those of its kind. */
static int64_t
order_of(const tsr_state *mesh, tsr_recorded_kind kind, const tsr_state_tensor *t, int at) {
  bool is_gradient = kind == TSR_RECORDED_GRADIENTS && t->param >= 0;
  return is_gradient ? made_by(mesh->graph, t->value) : mesh->graph->nodes_count + (int64_t)at;
}

/* A loss has the place of its node. A norm has none, and gets that of the first weight that differs
 * with it. */
static tsr_location location_of(const tsr_state *mesh, const tsr_state_tensor *t) {
  const tsr_graph *g = mesh->graph;
  const tsr_value *v = &g->values[t->value];
  if (t->param >= 0) return g->params[t->param].location;
  return v->node >= 0 ? g->nodes[v->node].location : v->location;
}

static bool compare_tensor(
    const tsr_state_tensor *mesh, const tsr_state_tensor *single, tsr_state_difference *ret) {
  ret->is_absent = !single || single->count != mesh->count;
  return !ret->is_absent && !find_element(mesh->data, single->data, mesh->count, ret);
}

/* Both have the same kinds of tensors, so one that only one rank has lacks a name on the mesh. */
static bool compare_kind(
    const tsr_state *mesh, const tsr_state *single, int step, tsr_recorded_kind kind,
    tsr_state_difference *ret) {
  const tsr_state_tensors *a = &mesh->steps[step].of[kind], *b = &single->steps[step].of[kind];
  const tsr_state_tensor *first = NULL;
  int64_t least = INT64_MAX;
  int differing = 0;
  for (int i = 0; i < a->count; i++) {
    tsr_state_difference d = {0};
    const tsr_state_tensor *t = &a->items[i];
    if (compare_tensor(t, find_tensor(b, t, i), &d)) continue;
    differing++;
    int64_t order = order_of(mesh, kind, t, i);
    if (order >= least) continue;
    least = order;
    first = t;
    *ret = d;
  }
  for (int i = 0; i < b->count; i++) {
    if (find_tensor(a, &b->items[i], i)) continue;
    if (!differing++) first = &b->items[i], *ret = (tsr_state_difference){.is_absent = true};
  }
  if (!differing) return true;
  bool absent = ret->is_absent && !find_tensor(a, first, 0);
  tsr_location location = location_of(absent ? single : mesh, first);
  describe(absent ? single : mesh, first->value, location, ret);
  ret->name = first->name;
  ret->is_gradient = kind == TSR_RECORDED_GRADIENTS && first->param >= 0;
  ret->kind = kind;
  ret->step = step;
  ret->tensors = a->count;
  ret->tensors_differing = differing;
  return false;
}

bool tsr_state_compare(const tsr_state *mesh, const tsr_state *single, tsr_state_difference *ret) {
  *ret = (tsr_state_difference){.task = -1};
  for (int step = 0; step < mesh->recorded; step++)
    for (int kind = 0; kind < TSR_RECORDED_KINDS; kind++)
      if (!compare_kind(mesh, single, step, (tsr_recorded_kind)kind, ret)) {
        tsr_state_difference weight;
        bool placed =
            ret->location.file || compare_kind(mesh, single, step, TSR_RECORDED_WEIGHTS, &weight);
        if (!placed) ret->location = weight.location;
        return false;
      }
  return true;
}

/* ---- what tasks compute ---- */

/* Of the same name, which mostly has the same index; NULL: there is none. */
static const tsr_traced_value *
find_traced(const tsr_recorded_step *step, const tsr_traced_value *like, int index) {
  if (index < step->values_count && !strcmp(step->values[index].name, like->name))
    return &step->values[index];
  for (int i = 0; i < step->values_count; i++)
    if (!strcmp(step->values[i].name, like->name)) return &step->values[i];
  return NULL;
}

static bool same_size(const tsr_traced_value *a, const tsr_traced_value *b) {
  return a->dtype == b->dtype && a->ndim == b->ndim && !memcmp(a->shape, b->shape, sizeof a->shape);
}

/* Not what a microbatch makes of all its samples together: one rank has other microbatches. */
static bool is_of_step(const tsr_graph *g, int value) {
  const tsr_value *v = &g->values[value];
  if (g->microbatches <= 1 || v->kind != TSR_VALUE_NODE) return true;
  const tsr_node *n = &g->nodes[v->node];
  bool once = n->section == TSR_PROLOGUE || n->section == TSR_UPDATE;
  return once || v->placement[TSR_DP].kind == TSR_SHARD || tsr_node_accumulates(n);
}

static tsr_location location_of_value(const tsr_graph *g, int value) {
  const tsr_value *v = &g->values[value];
  return v->node >= 0 && v->kind == TSR_VALUE_NODE ? g->nodes[v->node].location : v->location;
}

static void describe_traced(
    const tsr_state *mesh, const tsr_traced_value *v, int step, tsr_state_difference *ret) {
  static const char gradient[] = "grad.";
  const tsr_graph *g = mesh->graph;
  ret->value = &g->values[v->value];
  ret->step = step;
  ret->traced = ret->name = v->name;
  ret->ndim = v->ndim;
  memcpy(ret->shape, v->shape, sizeof ret->shape);
  ret->stage = v->stage;
  ret->task = v->task;
  ret->location = location_of_value(g, v->value);
  if (v->differing >= 0) ret->form = g->values[v->differing].name;
  ret->is_gradient = !strncmp(v->name, gradient, sizeof gradient - 1);
  if (!ret->is_gradient) return;
  ret->name += sizeof gradient - 1;
  for (int p = 0; p < g->params_count; p++)
    if (!strcmp(g->params[p].name, ret->name)) ret->location = g->params[p].location;
}

bool tsr_state_find_value(
    const tsr_state *mesh, const tsr_state *single, int step, tsr_state_difference *ret) {
  const tsr_recorded_step *a = &mesh->steps[step], *b = &single->steps[step];
  *ret = (tsr_state_difference){.task = -1};
  for (int i = 0; i < a->values_count; i++) {
    tsr_traced_value v = a->values[i];
    const tsr_traced_value *other = find_traced(b, &v, i);
    if (!is_of_step(mesh->graph, v.value)) continue;
    bool differs = other && same_size(&v, other) && v.hash != other->hash;
    if (!differs && v.differing < 0) continue;
    if (differs) v.differing = -1;
    describe_traced(mesh, &v, step, ret);
    return true;
  }
  return false;
}

void tsr_state_add_element(
    const tsr_state *mesh, const tsr_state *single, tsr_state_difference *d) {
  if (mesh->captured && single->captured && mesh->captured_count == single->captured_count)
    find_element(mesh->captured, single->captured, mesh->captured_count, d);
}

void tsr_state_add_gradient(
    const tsr_state *mesh, const tsr_state *single, tsr_state_difference *d) {
  const tsr_state_tensors *a = &mesh->steps[d->step].of[TSR_RECORDED_GRADIENTS];
  const tsr_state_tensors *b = &single->steps[d->step].of[TSR_RECORDED_GRADIENTS];
  for (int i = 0; i < a->count; i++) {
    const tsr_state_tensor *t = &a->items[i], *other = find_tensor(b, t, i);
    if (strcmp(t->name, d->name) != 0 || !other || t->count != other->count) continue;
    find_element(t->data, other->data, t->count, d);
  }
}

/* ---- the report ---- */

static void add_index(tsr_text *text, const tsr_state_difference *d) {
  int64_t index[TSR_DIMS_MAX] = {0}, rest = d->element;
  for (int i = d->ndim; i-- > 0; rest /= d->shape[i]) index[i] = rest % d->shape[i];
  for (int i = 0; i < d->ndim; i++)
    tsr_text_add(text, "%s%lld", i ? ", " : "", (long long)index[i]);
}

static int64_t index_along(const tsr_state_difference *d, int dim) {
  int64_t inner = 1;
  for (int i = dim + 1; i < d->ndim; i++) inner *= d->shape[i];
  return d->element / inner % d->shape[dim];
}

static int64_t units_of(const tsr_graph *g, int axis) {
  int64_t units = axis == TSR_DP   ? g->units.batch / (g->microbatches > 1 ? g->microbatches : 1)
                  : axis == TSR_TP ? g->units.tp
                  : axis == TSR_CP ? g->units.sequence
                                   : 0;
  return units > 1 ? units : 0;
}

/* The units and the ranks of a mesh that hold the element, by the value's placement. */
static void add_units(
    tsr_text *text, const tsr_state_difference *d, const tsr_graph *g, const tsr_parallel *p) {
  for (int axis = 0; axis < TSR_AXES; axis++) {
    const tsr_placement *at = &d->value->placement[axis];
    if (d->traced && axis == TSR_DP && g->microbatches > 1) continue; /* samples of a step */
    if (at->kind != TSR_SHARD || at->dim >= d->ndim || p->size[axis] < 2) continue;
    int64_t along = index_along(d, at->dim), size = d->shape[at->dim];
    int64_t units = units_of(g, axis);
    if (units && size % units == 0)
      tsr_text_add(
          text, "%s%s unit %lld of %lld", text->length ? ", " : "", tsr_axis_name(axis),
          (long long)(along / (size / units)), (long long)units);
    int blocks = tsr_placement_blocks(*at, p->size[axis]);
    if (size % blocks == 0)
      tsr_text_add(
          text, "%s%s shard %lld of %d", text->length ? ", " : "", tsr_axis_name(axis),
          (long long)(along / (size / blocks)), blocks);
  }
}

static void add_task(tsr_text *text, const tsr_state_difference *d, const tsr_programs *programs) {
  const tsr_program *p = programs->of_stage[d->stage];
  const tsr_task *t = &p->tasks[d->task];
  tsr_text_add(
      text, "written by task %d (%s, '%s') of stage %d, in the %s", d->task, tsr_op_name(t->op),
      p->graph->nodes[t->node].name, d->stage, tsr_section_name(t->section));
}

static void hint(tsr_text *text, tsr_diags *diags) {
  if (text->length) tsr_diag_hint(diags, "%s", text->data);
  tsr_text_free(text);
}

/* "the gradient of 'w' differs in step 1" */
static void add_subject(tsr_text *text, const tsr_state_difference *d) {
  bool made = d->traced || d->kind <= TSR_RECORDED_GRADIENTS;
  tsr_text_add(text, "%s'%s'", d->is_gradient ? "the gradient of " : "", d->name);
  if (d->form) tsr_text_add(text, " and '%s', which it becomes, differ on the mesh", d->form);
  else tsr_text_add(text, d->is_absent ? " is not of both runs" : " differs");
  tsr_text_add(text, " %s step %d", made ? "in" : "after", d->step + 1);
}

static void add_element(tsr_text *text, const tsr_state_difference *d) {
  if (!d->differing) return;
  tsr_text_add(text, ": element (");
  add_index(text, d);
  tsr_text_add(
      text, ") is %.9g on the mesh and %.9g on one rank; %lld of %lld differ", (double)d->mesh,
      (double)d->single, (long long)d->differing, (long long)d->count);
}

void tsr_state_explain(
    const tsr_state_difference *d, const tsr_state *mesh, const tsr_parallel *p, tsr_diags *diags) {
  tsr_text subject = {0}, units = {0}, task = {0}, others = {0};
  add_subject(&subject, d);
  add_element(&subject, d);
  tsr_diag_failure(diags, d->location, "%s", subject.data);
  tsr_text_free(&subject);
  if (d->differing) add_units(&units, d, mesh->graph, p);
  hint(&units, diags);
  if (d->task >= 0) add_task(&task, d, mesh->programs);
  hint(&task, diags);
  if (d->tensors > 1)
    tsr_text_add(
        &others, "%d of %d tensors of the %s of step %d differ", d->tensors_differing, d->tensors,
        tsr_recorded_kind_name(d->kind), d->step + 1);
  hint(&others, diags);
}

static double relative(double a, double b) {
  double distance = fabs(a - b) / fmax(fabs(b), 1e-6);
  return same(a, b) ? 0 : isnan(distance) ? INFINITY : distance;
}

double tsr_state_distance(const tsr_state *a, const tsr_state *b) {
  double most = 0;
  for (int i = 0; i < a->recorded; i++) {
    most = fmax(most, relative(a->steps[i].loss, b->steps[i].loss));
    most = fmax(most, relative(a->steps[i].norm, b->steps[i].norm));
  }
  return most;
}
