// SPDX-License-Identifier: Apache-2.0
/* What `inspect` prints: topology, axes, coordinates and groups. */
#include "parallel/parallel.h"

enum { RANKS_SHOWN_MAX = 64, GROUPS_SHOWN_MAX = 16 };

void tsr_parallel_topology(const tsr_parallel *p, tsr_text *text) {
  if (p->ndim == 0) {
    tsr_text_add(text, "single rank");
    return;
  }
  for (int dim = 0; dim < p->ndim; dim++) {
    tsr_text_add(text, "%s%s", dim ? " × " : "", tsr_axis_name(p->axis_of_dim[dim]));
  }
  tsr_text_add(text, " mesh, ");
  for (int dim = 0; dim < p->ndim; dim++) {
    tsr_text_add(text, "%s%d", dim ? " × " : "", p->size[p->axis_of_dim[dim]]);
  }
}

static void axes_print(const tsr_parallel *p, tsr_text *text) {
  for (int dim = 0; dim < p->ndim; dim++) {
    int axis = p->axis_of_dim[dim];
    tsr_text_add(
        text, "  %s: size %d, axis %d, %d group%s", tsr_axis_name(axis), p->size[axis], dim,
        p->ranks / p->size[axis], p->ranks == p->size[axis] ? "" : "s");
    if (axis == TSR_DP && p->fsdp) tsr_text_add(text, ", parameters sharded over %d", p->fsdp_size);
    tsr_text_add(text, "\n");
  }
}

static void ranks_print(const tsr_parallel *p, tsr_text *text) {
  tsr_text_add(text, "coordinates:\n");
  for (int rank = 0; rank < p->ranks && rank < RANKS_SHOWN_MAX; rank++) {
    tsr_text_add(text, "  rank %d", rank);
    for (int dim = 0; dim < p->ndim; dim++) {
      int axis = p->axis_of_dim[dim];
      tsr_text_add(
          text, "%s %s %d", dim ? "," : ":", tsr_axis_name(axis),
          tsr_parallel_coord(p, rank, axis));
    }
    if (p->device_ids) tsr_text_add(text, "%s device %d", p->ndim ? "," : ":", p->device_ids[rank]);
    tsr_text_add(text, "\n");
  }
  if (p->ranks > RANKS_SHOWN_MAX) {
    tsr_text_add(text, "  … and %d more ranks\n", p->ranks - RANKS_SHOWN_MAX);
  }
}

static void group_print(const tsr_parallel *p, int first, int axis, tsr_text *text) {
  tsr_text_add(text, "  [");
  for (int i = 0; i < p->size[axis] && i < RANKS_SHOWN_MAX; i++) {
    tsr_text_add(text, "%s%d", i ? ", " : "", tsr_parallel_member(p, first, axis, i));
  }
  if (p->size[axis] > RANKS_SHOWN_MAX) {
    tsr_text_add(text, ", … %d more", p->size[axis] - RANKS_SHOWN_MAX);
  }
  tsr_text_add(text, "]\n");
}

static void groups_print(const tsr_parallel *p, int axis, tsr_text *text) {
  int groups = p->ranks / p->size[axis], shown = 0;
  tsr_text_add(text, "%s groups: %d of %d\n", tsr_axis_name(axis), groups, p->size[axis]);
  for (int rank = 0; shown < groups && shown < GROUPS_SHOWN_MAX; rank++) {
    if (tsr_parallel_coord(p, rank, axis) != 0) continue;
    group_print(p, rank, axis, text);
    shown++;
  }
  if (groups > shown) tsr_text_add(text, "  … and %d more groups\n", groups - shown);
}

void tsr_parallel_print(const tsr_parallel *p, tsr_text *text) {
  tsr_parallel_topology(p, text);
  tsr_text_add(text, "\nranks: %d\n", p->ranks);
  if (p->ndim) tsr_text_add(text, "axes:\n");
  axes_print(p, text);
  ranks_print(p, text);
  for (int dim = 0; dim < p->ndim; dim++) groups_print(p, p->axis_of_dim[dim], text);
}
