// SPDX-License-Identifier: Apache-2.0
#include "compare/report.h"
#include <inttypes.h>
#include <string.h>

static void
add_count(const char *what, const tsr_compared_count *count, const char *between, tsr_text *text) {
  tsr_text_add(
      text, "%s%s of %s %s", between, tsr_text_count(count->differing).text,
      tsr_text_count(count->compared).text, what);
}

void tsr_compare_report_counts(const tsr_difference *d, int64_t step, tsr_text *text) {
  tsr_text_add(text, "step %" PRId64 ": ", step);
  add_count("tensors", &d->tensors, "", text);
  add_count("unclipped gradients", &d->gradients, ", ", text);
  add_count("weights", &d->weights, ", ", text);
  add_count("tensors of optimizer state differ", &d->state, ", ", text);
  tsr_text_add(text, "\n");
}

/* ---- what differs first ---- */

static void add_index(const tsr_traced_value *v, int64_t element, tsr_text *text) {
  int64_t index[TSR_DIMS_MAX] = {0};
  for (int d = v->ndim; d-- > 0; element /= v->shape[d]) index[d] = element % v->shape[d];
  tsr_text_add(text, "(");
  for (int d = 0; d < v->ndim; d++) tsr_text_add(text, "%s%" PRId64, d ? ", " : "", index[d]);
  tsr_text_add(text, ")");
}

static int64_t index_along(const tsr_traced_value *v, int64_t element, int dim) {
  int64_t inner = 1;
  for (int d = dim + 1; d < v->ndim; d++) inner *= v->shape[d];
  return element / inner % v->shape[dim];
}

/* The recipe's units over an axis: of the whole step's samples over dp. */
static int64_t units_of(const tsr_graph *g, int axis) {
  int64_t units = axis == TSR_DP   ? g->units.batch
                  : axis == TSR_TP ? g->units.tp
                  : axis == TSR_CP ? g->units.sequence
                                   : 0;
  return units > 1 ? units : 0;
}

/* The units and the shards that hold an element. */
static void
add_units(const tsr_compared_run *run, const tsr_traced_value *v, int64_t element, tsr_text *text) {
  const tsr_graph *g = run->compiled->placed;
  const tsr_value *value = &g->values[v->value];
  for (int axis = 0; axis < TSR_AXES; axis++) {
    const tsr_placement *at = &value->placement[axis];
    if (at->kind != TSR_SHARD || at->dim >= v->ndim) continue;
    int64_t along = index_along(v, element, at->dim), size = v->shape[at->dim];
    int64_t units = units_of(g, axis),
            shards = tsr_placement_blocks(*at, run->parallel->size[axis]);
    if (units && size % units == 0)
      tsr_text_add(
          text, ", %s unit %" PRId64 " of %" PRId64, tsr_axis_name(axis), along / (size / units),
          units);
    if (shards > 1 && size % shards == 0)
      tsr_text_add(
          text, ", %s shard %" PRId64 " of %" PRId64, tsr_axis_name(axis), along / (size / shards),
          shards);
  }
}

static void add_task(const tsr_difference *d, const tsr_compared_run *run, tsr_text *text) {
  const tsr_program *p = run->compiled->programs.of_stage[d->stage];
  const tsr_task *t = &p->tasks[d->task];
  const tsr_node *n = &p->graph->nodes[t->node];
  tsr_text_add(
      text, "  computed by task %d (%s) of stage %d, in the %s", d->task,
      tsr_task_op_name(p, t).text, d->stage, tsr_section_name(t->section));
  if (n->location.file) tsr_text_add(text, "  # %s:%d", n->location.file, n->location.line);
  tsr_text_add(text, "\n");
}

static void add_elements(
    const tsr_difference *d, const tsr_compared_run *run, const tsr_element_difference *e,
    tsr_text *text) {
  const tsr_traced_value *v = tsr_run_record_find(run->record, d->name);
  if (!v || e->first < 0) return;
  tsr_text_add(text, "  element ");
  add_index(v, e->first, text);
  tsr_text_add(text, " is %.9g | %.9g", e->values[0], e->values[1]);
  add_units(run, v, e->first, text);
  tsr_text_add(
      text, "\n  %s of %s elements differ, by at most %.3g: %.2g of the largest\n",
      tsr_text_count(e->differing).text, tsr_text_count(e->count).text, e->most,
      tsr_elements_deviation(e));
}

static void add_shapes(
    const tsr_difference *d, const tsr_run_record *a, const tsr_run_record *b, tsr_text *text) {
  const tsr_traced_value *x = tsr_run_record_find(a, d->name), *y = tsr_run_record_find(b, d->name);
  bool same = x && y && tsr_traced_same_shape(x, y);
  if (x && y && !same)
    tsr_text_add(
        text, "  it is %s | %s\n", tsr_shape_text(x->ndim, x->shape).text,
        tsr_shape_text(y->ndim, y->shape).text);
}

void tsr_compare_report_first(
    const tsr_difference *d, const tsr_compared_run *first, const tsr_run_record *second,
    int64_t step, const tsr_element_difference *elements, tsr_text *text) {
  static const char *const kinds[] = {
      [TSR_DIFFERS_STORED_BEFORE] = "before step %" PRId64 " '%s' differs already\n",
      [TSR_DIFFERS_INPUT] = "step %" PRId64 ": the first tensor that differs is the input '%s'\n",
      [TSR_DIFFERS_TENSOR] = "step %" PRId64 ": the first tensor that differs is '%s'\n",
      [TSR_DIFFERS_FORM] =
          "step %" PRId64 ": two copies of '%s' differ: what moves it between ranks is wrong\n",
      [TSR_DIFFERS_STORED_AFTER] =
          "step %" PRId64 ": the first tensor that differs is '%s', after its update\n"};
  if (d->kind == TSR_DIFFERS_NOTHING) {
    tsr_text_add(text, "step %" PRId64 ": no tensor differs that both runs have\n", step);
    return;
  }
  tsr_text_add(text, kinds[d->kind], step, d->name);
  if (d->task >= 0) add_task(d, first, text);
  add_shapes(d, first->record, second, text);
  add_elements(d, first, elements, text);
}
