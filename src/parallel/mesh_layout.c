// SPDX-License-Identifier: Apache-2.0
/* Which strategies (ddp, fsdp, cp, tp, pp, ep) take which dimension of the mesh, and the shape
 * where none is given. */
#include "parallel/rules.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

tsr_short_text tsr_mesh_layout_text(const int *shape, int ndim) {
  tsr_short_text text;
  size_t n = (size_t)snprintf(text.text, sizeof text.text, "[");
  for (int i = 0; i < ndim && n < sizeof text.text; i++)
    n += (size_t)snprintf(text.text + n, sizeof text.text - n, "%s%d", i ? ", " : "", shape[i]);
  if (n < sizeof text.text) snprintf(text.text + n, sizeof text.text - n, "]");
  return text;
}

tsr_location tsr_mesh_layout_place(const tsr_config *config) {
  static const char *const keys[] = {"device_config.mesh_shape",
                                     "mesh.shape",
                                     "mesh.devices",
                                     "mesh.axes",
                                     "device_config",
                                     "mesh"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    tsr_location location = tsr_config_location(config, keys[i]);
    if (location.line) return location;
  }
  return (tsr_location){.file = config->file};
}

tsr_location tsr_axis_place(const tsr_config *config, int axis) {
  static const char *const keys[TSR_AXES] = {
      "device_config.enable_ddp", "device_config.enable_pp", "device_config.enable_ep",
      "device_config.enable_cp", "device_config.enable_tp"};
  tsr_location location = tsr_config_location(config, keys[axis]);
  return location.line ? location : tsr_mesh_layout_place(config);
}

static void
strategy_add(tsr_mesh_layout *layout, bool enabled, int axis, bool fsdp, const char *name) {
  if (!enabled) return;
  layout->strategies[layout->strategies_count++] = (tsr_strategy){axis, fsdp, name};
}

static void strategies_find(tsr_mesh_layout *layout, const tsr_config_device *device) {
  if (device->axes_count) {
    for (int i = 0; i < device->axes_count; i++) {
      int axis = device->axes[i];
      bool fsdp = axis == TSR_DP && device->enable_fsdp;
      strategy_add(layout, true, axis, fsdp, tsr_axis_name(axis));
    }
    return;
  }
  strategy_add(layout, device->enable_ddp, TSR_DP, false, "ddp");
  strategy_add(layout, device->enable_fsdp, TSR_DP, true, "fsdp");
  strategy_add(layout, device->enable_cp, TSR_CP, false, "cp");
  strategy_add(layout, device->enable_tp, TSR_TP, false, "tp");
  strategy_add(layout, device->enable_pp, TSR_PP, false, "pp");
  strategy_add(layout, device->enable_ep, TSR_EP, false, "ep");
}

/* A shape for a count of devices: one dimension for every strategy. */
static void shape_choose(tsr_mesh_layout *layout, int devices) {
  int ndim = layout->strategies_count;
  if (ndim < 1) ndim = 1;
  if (ndim > TSR_MESH_NDIM_MAX) ndim = TSR_MESH_NDIM_MAX;
  layout->asked_ndim = ndim;
  int shape[TSR_AXES];
  tsr_parallel_factorize(devices, ndim, shape);
  memcpy(layout->asked, shape, sizeof(int) * (size_t)ndim);
}

static void shape_take(tsr_mesh_layout *layout, const int *shape, int ndim) {
  layout->asked_ndim = ndim;
  memcpy(layout->asked, shape, sizeof(int) * (size_t)ndim);
}

/* Without a shape: what the count, the ids or the descriptor's devices make. */
static void shape_find(tsr_mesh_layout *layout, const tsr_config_device *device) {
  static const int one = 1;
  layout->whole = true;
  if (device->mesh_ndim) {
    shape_take(layout, device->mesh_shape, device->mesh_ndim);
  } else if (device->devices) {
    shape_choose(layout, device->devices);
  } else if (device->device_ids_count) {
    shape_choose(layout, device->device_ids_count);
  } else if (layout->strategies_count == 0 && !device->mesh_auto) {
    shape_take(layout, &one, 1);
    layout->whole = false;
  } else if (
      layout->have_ndim == layout->strategies_count && layout->have_ndim <= TSR_MESH_NDIM_MAX &&
      !layout->line) {
    shape_take(layout, layout->have, layout->have_ndim);
  } else {
    shape_choose(layout, layout->devices);
  }
}

/* Drops dimensions of size 1 while there are more dimensions than strategies. */
static void shape_squeeze(tsr_mesh_layout *layout) {
  int extra = layout->asked_ndim - layout->strategies_count;
  for (int i = 0; i < layout->asked_ndim; i++) {
    if (layout->asked[i] == 1 && extra > 0) extra--;
    else layout->shape[layout->ndim++] = layout->asked[i];
  }
}

/* What the descriptor has: its mesh, or its meshes as one dimension more. */
static void devices_find(tsr_mesh_layout *layout, const tsr_mesh *mesh) {
  if (mesh->meshes > 1) layout->have[layout->have_ndim++] = mesh->meshes;
  for (int i = 0; i < mesh->shape.ndim; i++) {
    layout->have[layout->have_ndim++] = mesh->shape.dims[i];
  }
  layout->devices = mesh->devices < INT_MAX ? (int)mesh->devices : INT_MAX;
  int wide = 0;
  for (int i = 0; i < layout->have_ndim; i++) wide += layout->have[i] > 1;
  layout->line = wide <= 1;
}

tsr_mesh_layout tsr_mesh_layout_make(const tsr_config *config, const tsr_mesh *mesh) {
  tsr_mesh_layout layout = {.ranks = 1};
  strategies_find(&layout, &config->device);
  devices_find(&layout, mesh);
  shape_find(&layout, &config->device);
  shape_squeeze(&layout);
  for (int i = 0; i < layout.asked_ndim && layout.ranks <= INT_MAX; i++) {
    layout.ranks *= layout.asked[i]; /* more than INT_MAX fits no descriptor */
  }
  return layout;
}
