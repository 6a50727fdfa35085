// SPDX-License-Identifier: Apache-2.0
#include "prove/reduced_mesh.h"
#include "prove/size_rule.h"
#include <string.h>

static tsr_reduced_axis *add_dim(tsr_reduced_mesh *s, int axis, const char *name, int full) {
  tsr_reduced_axis *d = &s->dims[s->count++];
  *d = (tsr_reduced_axis){.name = name, .axis = axis, .full = full, .reduced = full, .why = ""};
  return d;
}

/* The dimensions in the order of the configuration: pipeline.workers is the outermost one, and dp
 * is two where groups of it hold shards. */
static void
find_dims(tsr_reduced_mesh *s, const tsr_parallel *p, const tsr_reduced_limits *limits) {
  bool processes = p->ndim && p->axis_of_dim[0] == TSR_PP && limits->processes;
  for (int d = 0; d < p->ndim; d++) {
    int axis = p->axis_of_dim[d], size = p->size[axis];
    if (axis == TSR_DP && limits->hybrid) {
      add_dim(s, axis, "ddp", size / p->fsdp_size);
      add_dim(s, axis, "fsdp", p->fsdp_size);
    } else {
      add_dim(s, axis, tsr_axis_name(axis), size)->processes = processes && d == 0;
    }
  }
}

static void count_ranks(tsr_reduced_mesh *s) {
  s->ranks = 1;
  for (int a = 0; a < TSR_AXES; a++) s->size[a] = 1;
  for (int i = 0; i < s->count; i++) {
    s->ranks *= s->dims[i].reduced;
    s->size[s->dims[i].axis] *= s->dims[i].reduced;
  }
}

static int next_smaller(int full, int n) {
  do n--;
  while (n > 1 && full % n);
  return n < 1 ? 1 : n;
}

/* The outermost of the largest dimensions that may shrink; -1: none. */
static int find_largest(const tsr_reduced_mesh *s, const tsr_reduced_limits *limits) {
  int largest = -1;
  for (int i = 0; i < s->count; i++) {
    bool fixed = s->dims[i].axis == TSR_PP && limits->fixed_stages;
    if (fixed || s->dims[i].reduced == 1) continue;
    if (largest < 0 || s->dims[i].reduced > s->dims[largest].reduced) largest = i;
  }
  return largest;
}

tsr_reduced_mesh tsr_reduced_mesh_reduce(const tsr_parallel *p, tsr_reduced_limits limits) {
  tsr_reduced_mesh s = {0};
  find_dims(&s, p, &limits);
  for (int i = 0; i < s.count && !limits.full_mesh; i++) {
    tsr_reduced_axis *d = &s.dims[i];
    bool fixed = d->axis == TSR_PP && limits.fixed_stages;
    if (fixed) d->why = "kept: stages or schedule are listed";
    else if (d->axis == TSR_DP && strcmp(d->name, "ddp"))
      d->reduced = (int)tsr_axis_reduce_alike(d->full, limits.zero_sizes, limits.zero_sizes_count);
    else d->reduced = (int)tsr_axis_reduce(d->full);
    if (d->reduced < d->full) d->why = "first, interior and last members";
  }
  count_ranks(&s);
  for (int i; !limits.full_mesh && s.ranks > TSR_PROVE_RANKS_MAX; count_ranks(&s)) {
    if ((i = find_largest(&s, &limits)) < 0) break;
    s.dims[i].reduced = next_smaller(s.dims[i].full, s.dims[i].reduced);
    s.dims[i].why = "at most 64 ranks; --full-mesh keeps all";
  }
  return s;
}

void tsr_reduced_mesh_apply(const tsr_reduced_mesh *s, tsr_config *c) {
  tsr_config_device *d = &c->device;
  d->kind = TSR_DEVICE_CPU;
  d->mesh_ndim = d->devices = d->device_ids_count = 0;
  d->mesh_auto = false;
  d->mesh_graph_descriptor = "";
  for (int i = 0; i < s->count; i++)
    if (s->dims[i].processes) c->pipeline.workers = s->dims[i].reduced;
    else d->mesh_shape[d->mesh_ndim++] = s->dims[i].reduced;
}

void tsr_reduced_mesh_single(tsr_config *c) {
  tsr_config_device *d = &c->device;
  tsr_reduced_mesh none = {0};
  tsr_reduced_mesh_apply(&none, c);
  d->axes_count = 0;
  d->enable_ddp = d->enable_fsdp = d->enable_tp = d->enable_pp = false;
  d->enable_cp = d->enable_ep = d->enable_sp = false;
  c->pipeline.workers = 0;
  c->zero.stage = 0;
}

void tsr_reduced_mesh_print(const tsr_reduced_mesh *s, tsr_text *text) {
  int shown = 0;
  for (int i = 0; i < s->count; i++)
    if (s->dims[i].reduced > 1)
      tsr_text_add(text, "%s%s %d", shown++ ? " × " : "", s->dims[i].name, s->dims[i].reduced);
  if (!shown) tsr_text_add(text, "one rank");
}
