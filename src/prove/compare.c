// SPDX-License-Identifier: Apache-2.0
#include "prove/compare.h"
#include <math.h>
#include <string.h>

static bool same(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

static bool same_numbers(const tsr_state *a, const tsr_state *b) {
  bool ok = true;
  for (int i = 0; i < TSR_PROVE_STEPS; i++)
    ok &= same(a->loss[i], b->loss[i]) && same(a->norm[i], b->norm[i]);
  return ok;
}

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

static const tsr_state_tensor *
find_tensor(const tsr_state *s, const tsr_state_tensor *like, int at) {
  if (at < s->tensors_count && !strcmp(s->tensors[at].name, like->name)) return &s->tensors[at];
  for (int i = 0; i < s->tensors_count; i++)
    if (!strcmp(s->tensors[i].name, like->name)) return &s->tensors[i];
  return NULL;
}

bool tsr_state_compare(const tsr_state *mesh, const tsr_state *single, tsr_state_difference *ret) {
  *ret = (tsr_state_difference){.task = -1};
  for (int i = 0; i < mesh->tensors_count; i++) {
    const tsr_state_tensor *t = &mesh->tensors[i], *other = find_tensor(single, t, i);
    if (!other || other->count != t->count) continue;
    if (!find_element(t->data, other->data, t->count, ret)) continue;
    const tsr_value *v = &mesh->graph->values[t->value];
    describe(mesh, t->value, mesh->graph->params[v->param].location, ret);
    return false;
  }
  return same_numbers(mesh, single) && mesh->tensors_count == single->tensors_count;
}

bool tsr_state_compare_values(
    const tsr_state *mesh, const tsr_state *single, const tsr_graph *g, tsr_state_difference *ret) {
  *ret = (tsr_state_difference){.task = -1};
  for (int n = 0; n < g->nodes_count; n++) {
    int v = g->nodes[n].outputs_count ? g->nodes[n].outputs[0] : -1;
    if (v < 0 || v >= mesh->values_count || v >= single->values_count) continue;
    /* a rank has the rows of its own experts, in places of its own */
    if (tsr_routed_is_rows(g->values[v].routed)) continue;
    const float *a = mesh->values[v], *b = single->values[v];
    if (!a || !b || !find_element(a, b, tsr_value_elements(&g->values[v]), ret)) continue;
    describe(mesh, mesh->placed[v], g->nodes[n].location, ret);
    ret->name = g->values[v].name;
    return false;
  }
  return true;
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

void tsr_state_explain(
    const tsr_state_difference *d, const tsr_state *mesh, const tsr_parallel *p, const char *when,
    tsr_diags *diags) {
  tsr_text index = {0}, units = {0}, task = {0};
  add_index(&index, d);
  tsr_diag_failure(
      diags, d->location,
      "'%s' differs %s: element (%s) is %.9g on the mesh and %.9g on one rank; %lld of %lld differ",
      d->name, when, index.data ? index.data : "", (double)d->mesh, (double)d->single,
      (long long)d->differing, (long long)d->count);
  tsr_text_free(&index);
  add_units(&units, d, mesh->graph, p);
  hint(&units, diags);
  if (d->task >= 0) add_task(&task, d, mesh->programs);
  hint(&task, diags);
}

double tsr_state_distance(const tsr_state *a, const tsr_state *b) {
  double most = 0;
  for (int i = 0; i < TSR_PROVE_STEPS; i++) {
    double loss = fabs(a->loss[i] - b->loss[i]) / fmax(fabs(b->loss[i]), 1e-6);
    double norm = fabs(a->norm[i] - b->norm[i]) / fmax(fabs(b->norm[i]), 1e-6);
    if (!same(a->loss[i], b->loss[i])) most = fmax(most, isnan(loss) ? INFINITY : loss);
    if (!same(a->norm[i], b->norm[i])) most = fmax(most, isnan(norm) ? INFINITY : norm);
  }
  return most;
}
