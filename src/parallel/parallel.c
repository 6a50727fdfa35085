// SPDX-License-Identifier: Apache-2.0
#include "parallel/rules.h"

/* Gives every strategy its dimension. ddp and fsdp stand side by side, and share dp. */
static void axes_assign(tsr_parallel *p, const tsr_mesh_layout *layout) {
  int dim_size[TSR_AXES];
  for (int i = 0; i < layout->strategies_count; i++) {
    const tsr_strategy *strategy = &layout->strategies[i];
    int axis = strategy->axis;
    if (strategy->fsdp) p->fsdp = true, p->fsdp_size = layout->shape[i];
    p->size[axis] *= layout->shape[i];
    if (!p->enabled[axis]) p->axis_of_dim[p->ndim++] = axis;
    p->enabled[axis] = true;
    dim_size[p->ndim - 1] = p->size[axis];
  }
  int stride = 1;
  for (int dim = p->ndim - 1; dim >= 0; dim--) {
    p->stride[p->axis_of_dim[dim]] = stride;
    stride *= dim_size[dim];
  }
}

/* tt-train's pipeline over processes: each has the mesh that device_config describes, and is a
 * stage. */
static void processes_add(tsr_parallel *p, int processes) {
  for (int dim = p->ndim++; dim > 0; dim--) p->axis_of_dim[dim] = p->axis_of_dim[dim - 1];
  p->axis_of_dim[0] = TSR_PP;
  p->enabled[TSR_PP] = true;
  p->size[TSR_PP] = processes;
  p->stride[TSR_PP] = p->ranks;
  p->ranks *= processes;
  p->device_ids = NULL; /* every process's own */
}

static tsr_parallel *
parallel_new(tsr_arena *arena, const tsr_config *config, const tsr_mesh_layout *layout) {
  tsr_parallel *p = tsr_arena_array(arena, tsr_parallel, 1);
  p->ranks = (int)layout->ranks;
  p->fsdp_size = 1;
  for (int axis = 0; axis < TSR_AXES; axis++) p->size[axis] = 1;
  if (config->device.device_ids_count) p->device_ids = config->device.device_ids;
  axes_assign(p, layout);
  if (config->pipeline.workers > 1) processes_add(p, (int)config->pipeline.workers);
  return p;
}

bool tsr_parallel_make(
    tsr_arena *arena, const tsr_config *config, const tsr_mesh *mesh, tsr_parallel **ret_parallel,
    tsr_diags *diags) {
  if (!tsr_mesh_rule_kind(config, mesh, diags)) return false;
  tsr_mesh_layout layout = tsr_mesh_layout_make(config, mesh);
  bool good = tsr_mesh_rule_axis_names(config, diags);
  good &= tsr_mesh_rule_device_ids(config, &layout, diags);
  good &= tsr_mesh_rule_descriptor(config, &layout, diags);
  if (!tsr_mesh_rule_axes(config, &layout, diags) || !good) return false;
  *ret_parallel = parallel_new(arena, config, &layout);
  (*ret_parallel)->mesh = mesh;
  tsr_mesh_rule_idle_devices(config, &layout, diags);
  return tsr_mesh_rule_batch(config, *ret_parallel, diags);
}

bool tsr_microbatch_first(tsr_tree_shape tree, const tsr_config *config, const int size[TSR_AXES]) {
  bool adds_in_turn = tree == TSR_TREE_FLAT;
  return (config->zero.stage >= 2 || adds_in_turn) && size[TSR_DP] > 1;
}

void tsr_parallel_warn(const tsr_parallel *p, const tsr_config *config, tsr_diags *diags) {
  if (config->device.enable_sp && p->size[TSR_TP] == 1)
    tsr_diag(
        diags, tsr_diag_normative(diags, TSR_WARNING),
        tsr_config_location(config, "device_config.enable_sp"),
        "'enable_sp' has no effect: sequences are split over tp, and there is none");
  if (config->training.validate && p->ranks == p->size[TSR_PP])
    tsr_diag(
        diags, tsr_diag_normative(diags, TSR_WARNING), tsr_config_location(config, "validate"),
        "'validate' has no effect: no two ranks hold the same part of a parameter");
}
