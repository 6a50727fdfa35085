// SPDX-License-Identifier: Apache-2.0
/* The text of a graph: a line for each value and node. */
#include "graph/graph.h"
#include <string.h>

tsr_short_text tsr_shape_text(int ndim, const int64_t *shape) {
  tsr_short_text text;
  size_t n = (size_t)snprintf(text.text, sizeof text.text, "(");
  for (int i = 0; i < ndim && n < sizeof text.text; i++)
    n += (size_t)snprintf(
        text.text + n, sizeof text.text - n, "%s%lld", i ? ", " : "", (long long)shape[i]);
  if (n < sizeof text.text) snprintf(text.text + n, sizeof text.text - n, ")");
  return text;
}

const char *
tsr_named_shape_text(tsr_arena *arena, int ndim, const int64_t *shape, const char *const *dims) {
  const char *text = "";
  for (int d = 0; d < ndim; d++) {
    const char *name = dims[d] ? dims[d] : "", *between = strchr(name, ' ') ? " = " : " ";
    text = tsr_arena_printf(
        arena, "%s%s%s%s%lld", text, d ? ", " : "", name, *name ? between : "",
        (long long)shape[d]);
  }
  return tsr_arena_printf(arena, "(%s)", text);
}

const char *tsr_value_shape_text(tsr_arena *arena, const tsr_value *v) {
  return tsr_named_shape_text(arena, v->ndim, v->shape, v->dims);
}

static void print_placement(const tsr_value *v, tsr_text *text) {
  for (int a = 0; a < TSR_AXES; a++) {
    tsr_placement p = v->placement[a];
    if (p.kind == TSR_SHARD) tsr_text_add(text, " %s:shard(%d)", tsr_axis_name(a), p.dim);
    if (p.kind == TSR_OWNED) tsr_text_add(text, " %s:owned(%d)", tsr_axis_name(a), p.owner);
    if (p.kind == TSR_PARTIAL) tsr_text_add(text, " %s:partial", tsr_axis_name(a));
    if (p.kind == TSR_ROUTED) tsr_text_add(text, " %s:experts", tsr_axis_name(a));
  }
  if (v->units) tsr_text_add(text, " units:%lld", (long long)v->units);
}

static void print_attrs(const tsr_node *n, tsr_text *text) {
  const tsr_attr_set *set = tsr_op_attrs(n->op);
  for (int i = 0; i < set->count; i++) {
    const tsr_attr_field *f = &set->fields[i];
    double x = tsr_attr_number(f, &n->attr);
    if (f->hidden || (!f->required && x == tsr_attr_number(f, set->defaults))) continue;
    if (f->type == TSR_ATTR_axis) tsr_text_add(text, ", %s: %s", f->name, tsr_axis_name((int)x));
    else if (f->type == TSR_ATTR_transport) tsr_text_add(text, ", %s: nccl", f->name);
    else if (f->type == TSR_ATTR_fp8)
      tsr_text_add(
          text, ", fp8: %s%s", (int)x & TSR_FP8_E5M2_GRADIENTS ? "e5m2 gradients" : "e4m3",
          (int)x & TSR_FP8_F32_SCALES ? " with f32 scales" : "");
    else if (f->type == TSR_ATTR_op)
      tsr_text_add(text, ", %s: %s", f->name, tsr_op_name((tsr_op)x));
    else tsr_text_add(text, ", %s: %.9g", f->name, x);
  }
}

/* What is stored with padding has two shapes. */
static void print_shape(const tsr_graph *g, const tsr_value *v, tsr_text *text) {
  int64_t real[TSR_DIMS_MAX];
  tsr_value_real_shape(g, v, real);
  if (tsr_value_padding(g, v))
    tsr_text_add(text, "%s stored as ", tsr_shape_text(v->ndim, real).text);
  tsr_text_add(text, "%s", tsr_shape_text(v->ndim, v->shape).text);
}

static void print_value(const tsr_graph *g, const tsr_value *v, bool placements, tsr_text *text) {
  tsr_text_add(text, "%s %s ", v->name, tsr_dtype_name(v->dtype));
  print_shape(g, v, text);
  if (placements) print_placement(v, text);
}

static void print_node(const tsr_graph *g, const tsr_node *n, bool placements, tsr_text *text) {
  tsr_text_add(text, "  ");
  for (int i = 0; i < n->outputs_count; i++) {
    if (i) tsr_text_add(text, ", ");
    print_value(g, &g->values[n->outputs[i]], placements, text);
  }
  tsr_text_add(text, "%s%s(", n->outputs_count ? " = " : "", tsr_op_name(n->op));
  for (int i = 0; i < n->inputs_count; i++)
    tsr_text_add(text, "%s%s", i ? ", " : "", g->values[n->inputs[i]].name);
  print_attrs(n, text);
  tsr_text_add(text, ")\n");
}

void tsr_graph_print(const tsr_graph *g, bool placements, tsr_text *text) {
  static const char *const kinds[] = {"input", "step_scalars", "const", "param", "state"};
  bool stages = false;
  for (int i = 0; i < g->nodes_count; i++) stages |= g->nodes[i].stage > 0;
  tsr_text_add(text, "graph %s\n", g->name);
  for (int i = 0; i < g->values_count; i++) {
    const tsr_value *v = &g->values[i];
    if (v->kind == TSR_VALUE_NODE) continue;
    tsr_text_add(text, "  %s ", kinds[v->kind]);
    print_value(g, v, placements, text);
    tsr_text_add(text, "\n");
  }
  for (int i = 0; i < g->nodes_count; i++) {
    const tsr_node *n = &g->nodes[i];
    if (!i || n->section != g->nodes[i - 1].section || n->stage != g->nodes[i - 1].stage) {
      tsr_text_add(text, "%s", tsr_section_name(n->section));
      if (stages && n->stage >= 0) tsr_text_add(text, ", stage %d", n->stage);
      tsr_text_add(text, "\n");
    }
    print_node(g, n, placements, text);
  }
  for (int i = 0; i < g->outputs_count; i++)
    tsr_text_add(text, "output %s = %s\n", g->outputs[i].name, g->values[g->outputs[i].value].name);
}
