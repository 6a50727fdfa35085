// SPDX-License-Identifier: Apache-2.0
/* The lists of the device: the shape of the mesh, the ids of devices, the axes. */
#include "config/config_internal.h"
#include <limits.h>
#include <string.h>

/* A list of integers into a new array. A null is an empty list, as Python's None. */
static bool read_ints(
    tsr_loader *l, const tsr_field *f, const char *key, const tsr_yaml *node, int **ret_items) {
  if (node->kind == TSR_YAML_NULL) return true;
  if (node->kind != TSR_YAML_LIST) return tsr_value_wrong_type(l, f, key, node);
  *ret_items = tsr_arena_array(l->arena, int, node->count + 1);
  bool ok = true;
  tsr_field item = {.type = TSR_FIELD_INT, .range = f->range};
  for (int i = 0; i < node->count; i++) {
    const char *name = tsr_arena_printf(l->arena, "%s[%d]", key, i);
    int64_t value = 0;
    bool read = tsr_scalar_read(l, &item, name, node->items[i]);
    read &= tsr_yaml_int(node->items[i], &value);
    ok &= read;
    if (read && value > 1 << 24)
      ok = tsr_diag_error(
          l->diags, node->items[i]->location, "'%s' must be at most %d, found the integer %lld",
          name, 1 << 24, (long long)value);
    (*ret_items)[i] = (int)value;
  }
  return ok;
}

bool tsr_shape_read(tsr_loader *l, const tsr_field *f, const char *key, const tsr_yaml *node) {
  int *items = NULL;
  if (!read_ints(l, f, key, node, &items)) return false;
  if (node->count > TSR_MESH_NDIM_MAX)
    return tsr_diag_error(
        l->diags, node->location, "'%s' has %d dimensions, a mesh has at most %d", key, node->count,
        TSR_MESH_NDIM_MAX);
  int64_t ranks = 1;
  for (int i = 0; i < node->count; i++) ranks = ranks > INT_MAX ? ranks : ranks * items[i];
  if (ranks > 1 << 24)
    return tsr_diag_error(l->diags, node->location, "'%s' makes more than %d ranks", key, 1 << 24);
  l->config->device.mesh_ndim = node->count;
  for (int i = 0; i < node->count; i++) l->config->device.mesh_shape[i] = items[i];
  return true;
}

bool tsr_ids_read(tsr_loader *l, const tsr_field *f, const char *key, const tsr_yaml *node) {
  int *items = NULL;
  if (!read_ints(l, f, key, node, &items)) return false;
  bool ok = true;
  for (int i = 1; i < node->count; i++)
    for (int k = 0; ok && k < i; k++)
      if (items[k] == items[i])
        ok = tsr_diag_error(
            l->diags, node->items[i]->location, "'%s' names device %d twice", key, items[i]);
  l->config->device.device_ids = node->count ? items : NULL;
  l->config->device.device_ids_count = node->count;
  return ok;
}

bool tsr_axes_read(tsr_loader *l, const tsr_field *f, const char *key, const tsr_yaml *node) {
  if (node->kind == TSR_YAML_NULL) return true;
  if (node->kind != TSR_YAML_LIST) return tsr_value_wrong_type(l, f, key, node);
  if (node->count > TSR_MESH_NDIM_MAX)
    return tsr_diag_error(
        l->diags, node->location, "'%s' names %d axes, a mesh has at most %d dimensions", key,
        node->count, TSR_MESH_NDIM_MAX);
  const char *names[TSR_AXES];
  for (int a = 0; a < TSR_AXES; a++) names[a] = tsr_axis_name(a);
  bool ok = true;
  tsr_config_device *device = &l->config->device;
  for (int i = 0; i < node->count; i++) {
    const tsr_yaml *item = node->items[i];
    int axis = 0;
    while (axis < TSR_AXES && strcmp(item->text, names[axis])) axis++;
    if (axis == TSR_AXES) {
      ok = tsr_diag_error(
          l->diags, item->location, "unknown axis: %s", tsr_yaml_describe(l->arena, item));
      tsr_diag_nearest(l->diags, item->text, names, TSR_AXES);
    }
    for (int k = 0; k < i; k++)
      if (axis < TSR_AXES && device->axes[k] == axis)
        ok = tsr_diag_error(l->diags, item->location, "axis '%s' is named twice", item->text);
    device->axes[i] = axis;
  }
  device->axes_count = ok ? node->count : 0;
  return ok;
}
