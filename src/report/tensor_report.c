// SPDX-License-Identifier: Apache-2.0
#include "report/tensor_report.h"
#include <string.h>

enum { RANKS_SHOWN_MAX = 256 };

static int find_value(const tsr_graph *g, const char *name, tsr_diags *diags) {
  const char **names = tsr_arena_array(g->arena, const char *, g->values_count + 1);
  for (int v = 0; v < g->values_count; v++) {
    if (!strcmp(g->values[v].name, name)) return v;
    names[v] = g->values[v].name;
  }
  tsr_diag_error(diags, TSR_NOWHERE, "--tensor: the graph has no tensor '%s'", name);
  tsr_diag_nearest(diags, name, names, g->values_count);
  tsr_diag_hint(diags, "`trace --emit graph-ir` lists them all");
  return -1;
}

static void print_placement(const tsr_parallel *parallel, const tsr_value *v, tsr_text *text) {
  for (int d = 0; d < parallel->ndim; d++) {
    int axis = parallel->axis_of_dim[d];
    tsr_placement p = v->placement[axis];
    tsr_text_add(text, "%s%s: ", d ? ", " : "  ", tsr_axis_name(axis));
    if (p.kind == TSR_SHARD) tsr_text_add(text, "shard(%d)", p.dim);
    else if (p.kind == TSR_ROUTED) tsr_text_add(text, "experts");
    else if (p.kind == TSR_OWNED) tsr_text_add(text, "owned(%d)", p.owner);
    else tsr_text_add(text, "%s", p.kind == TSR_PARTIAL ? "partial" : "replicate");
  }
  if (parallel->ndim) tsr_text_add(text, "\n");
}

/* The real ones of a stored range: blocks follow one another. */
static void find_real(
    const tsr_padding *p, int64_t stored, int64_t first, int64_t size, int64_t *ret_begin,
    int64_t *ret_size) {
  tsr_real_run run = {0};
  *ret_begin = *ret_size = 0;
  while (tsr_padding_next(p, stored, first, size, &run)) {
    if (!*ret_size) *ret_begin = run.begin;
    *ret_size = run.begin + run.size - *ret_begin;
  }
}

/* "[0:4, 8:16]"; of a zigzag sequence both runs: "[0:4+12:16]". */
static void print_slice(
    const tsr_program *p, const tsr_value *v, const tsr_tensor_slice *s, const int *coord,
    tsr_text *text) {
  const tsr_lowering *l = &p->lowering;
  for (int d = 0; d < s->ndim; d++) {
    bool zigzag = tsr_lowering_is_zigzag(l, v, d);
    long long begin = s->offset[d], size = s->shape[d], half = size / 2;
    tsr_text_add(text, "%s", d ? ", " : "[");
    if (zigzag) begin = tsr_lowering_zigzag_position(l, v, d, coord, size, 0);
    if (zigzag && tsr_lowering_inner_ranks(l, v, d) % 2) {
      tsr_text_add(text, "%lld:%lld+", begin, begin + half);
      begin = tsr_lowering_zigzag_position(l, v, d, coord, size, half);
      size = half;
    }
    tsr_text_add(text, "%lld:%lld", begin, begin + size);
  }
  tsr_text_add(text, "]");
}

static void print_rank(
    const tsr_programs *programs, const tsr_parallel *parallel, int value, int rank,
    tsr_text *text) {
  int coord[TSR_AXES];
  for (int a = 0; a < TSR_AXES; a++) coord[a] = tsr_parallel_coord(parallel, rank, a);
  const tsr_program *p = programs->of_stage[coord[TSR_PP]];
  const tsr_value *v = &p->graph->values[value];
  const tsr_tensor *t = &p->tensors[value];
  tsr_text_add(text, "  rank %d", rank);
  for (int d = 0; d < parallel->ndim; d++) {
    int axis = parallel->axis_of_dim[d];
    tsr_text_add(text, "%s %s %d", d ? "," : ":", tsr_axis_name(axis), coord[axis]);
  }
  if (t->segment == TSR_SEGMENT_ABSENT) {
    tsr_text_add(text, "  none: another stage has it\n");
    return;
  }
  if (!tsr_program_holds(p, value, coord)) {
    tsr_text_add(text, "  none: another rank owns it\n");
    return;
  }
  tsr_tensor_slice slice = tsr_program_slice(p, value, coord);
  tsr_text_add(text, "  ");
  const tsr_padding *padding = tsr_value_padding(p->graph, v);
  if (padding)
    find_real(
        padding, v->shape[padding->dim], slice.offset[padding->dim], slice.shape[padding->dim],
        &slice.offset[padding->dim], &slice.shape[padding->dim]);
  print_slice(p, v, &slice, coord, text);
  tsr_text_add(text, " %s ", tsr_dtype_name(t->dtype));
  if (t->units) tsr_text_add(text, "%lld units of ", (long long)t->units);
  tsr_text_add(text, "%s", tsr_shape_text(t->ndim, slice.shape).text);
  if (padding && memcmp(slice.shape, t->shape, sizeof *t->shape * (size_t)t->ndim))
    tsr_text_add(text, " stored as %s", tsr_shape_text(t->ndim, t->shape).text);
  tsr_text_add(text, ", %s bytes\n", tsr_text_count(tsr_tensor_bytes(t)).text);
}

static void print_head(
    const tsr_value *v, const char *kind, const int64_t *shape, int64_t bytes, tsr_text *text) {
  tsr_text_add(
      text, "%s: %s, %s %s, %s bytes\n", v->name, kind, tsr_dtype_name(v->dtype),
      tsr_shape_text(v->ndim, shape).text, tsr_text_count(bytes).text);
}

static void print_more(const tsr_parallel *parallel, tsr_text *text) {
  if (parallel->ranks > RANKS_SHOWN_MAX)
    tsr_text_add(text, "  … and %d more ranks\n", parallel->ranks - RANKS_SHOWN_MAX);
}

bool tsr_tensor_report_print(
    const tsr_programs *programs, const tsr_parallel *parallel, const char *name, tsr_text *text,
    tsr_diags *diags) {
  static const char *const kinds[] = {
      [TSR_VALUE_INPUT] = "input",
      [TSR_VALUE_PARAM] = "parameter",
      [TSR_VALUE_CONST] = "constant",
      [TSR_VALUE_STATE] = "optimizer state",
      [TSR_VALUE_STEP_SCALARS] = "numbers of the step",
      [TSR_VALUE_NODE] = "activation"};
  const tsr_graph *g = programs->graph;
  int value = find_value(g, name, diags);
  if (value < 0) return false;
  const tsr_value *v = &g->values[value];
  const char *kind = kinds[v->kind];
  if (v->kind == TSR_VALUE_NODE && g->nodes[v->node].section > TSR_FORWARD) kind = "result";
  int64_t shape[TSR_DIMS_MAX];
  tsr_value_real_shape(g, v, shape);
  int64_t elements = 1;
  for (int d = 0; d < v->ndim; d++) elements *= shape[d];
  print_head(v, kind, shape, tsr_dtype_size(v->dtype, elements), text);
  print_placement(parallel, v, text);
  for (int rank = 0; rank < parallel->ranks && rank < RANKS_SHOWN_MAX; rank++)
    print_rank(programs, parallel, value, rank, text);
  print_more(parallel, text);
  return true;
}
