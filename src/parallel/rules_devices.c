// SPDX-License-Identifier: Apache-2.0
/* The rules of a mesh and its devices: descriptor, ids, idle devices. */
#include "parallel/rules.h"

enum { SHAPES_SHOWN_MAX = 8 };

bool tsr_mesh_rule_kind(const tsr_config *config, const tsr_mesh *mesh, tsr_diags *diags) {
  tsr_location location = {.file = mesh->file};
  if (mesh->is_switch_only) {
    return tsr_diag_error(
        diags, location, "the descriptor has switches only, so no rank has a device");
  }
  if (mesh->is_uniform || config->device.device_ids_count) return true;
  tsr_diag_error(
      diags, location, "the descriptor's %d meshes differ in shape, so they are no one mesh",
      mesh->meshes);
  tsr_diag_hint(diags, "name the devices to use with device_ids");
  return false;
}

/* Adds the shapes of `ndim` dimensions that a line of `devices` may be laid out as. */
static void shapes_add(int devices, int ndim, tsr_text *text) {
  int divisors[TSR_DIVISORS_MAX], shape[TSR_AXES];
  if (ndim == 2) {
    int count = tsr_divisors(devices, divisors);
    for (int i = 0; i < count && i < SHAPES_SHOWN_MAX; i++) {
      shape[0] = divisors[i], shape[1] = devices / divisors[i];
      tsr_text_add(text, "%s%s", i ? ", " : "", tsr_mesh_layout_text(shape, 2).text);
    }
    if (count > SHAPES_SHOWN_MAX) tsr_text_add(text, ", …");
    return;
  }
  tsr_parallel_factorize(devices, ndim, shape);
  tsr_text_add(text, "%s", tsr_mesh_layout_text(shape, ndim).text);
  if (ndim > 1) tsr_text_add(text, " and any other shape of %d devices", devices);
}

static bool line_fits(const tsr_config *config, const tsr_mesh_layout *layout, tsr_diags *diags) {
  if (layout->ranks == layout->devices) return true;
  tsr_diag_error(
      diags, tsr_mesh_layout_place(config),
      "mesh_shape %s needs %lld device%s, but the descriptor's mesh %s has %d",
      tsr_mesh_layout_text(layout->asked, layout->asked_ndim).text, (long long)layout->ranks,
      layout->ranks == 1 ? "" : "s", tsr_mesh_layout_text(layout->have, layout->have_ndim).text,
      layout->devices);
  tsr_text shapes = {0};
  shapes_add(layout->devices, layout->asked_ndim, &shapes);
  tsr_diag_hint(
      diags, "shapes that fit: %s%s", shapes.data,
      layout->ranks < layout->devices ? "; or name the devices to use with device_ids" : "");
  tsr_text_free(&shapes);
  return false;
}

/* Copies a shape without its dimensions of size 1. */
static int shape_core(const int *shape, int ndim, int *ret_core) {
  int count = 0;
  for (int i = 0; i < ndim; i++) {
    if (shape[i] != 1) ret_core[count++] = shape[i];
  }
  return count;
}

static bool grid_fits(const tsr_config *config, const tsr_mesh_layout *layout, tsr_diags *diags) {
  int asked[TSR_MESH_NDIM_MAX], have[TSR_MESH_DIMS_MAX + 1];
  int asked_ndim = shape_core(layout->asked, layout->asked_ndim, asked);
  int have_ndim = shape_core(layout->have, layout->have_ndim, have);
  bool equal = asked_ndim == have_ndim;
  for (int i = 0; equal && i < have_ndim; i++) equal = asked[i] == have[i];
  if (equal) return true;
  const tsr_short_text have_text = tsr_mesh_layout_text(layout->have, layout->have_ndim);
  tsr_diag_error(
      diags, tsr_mesh_layout_place(config),
      "mesh_shape %s (%lld device%s) is not the descriptor's mesh %s (%d devices)",
      tsr_mesh_layout_text(layout->asked, layout->asked_ndim).text, (long long)layout->ranks,
      layout->ranks == 1 ? "" : "s", have_text.text, layout->devices);
  tsr_diag_hint(
      diags, "the shape that fits: %s; other shapes need a descriptor of one line, [1, %lld]%s",
      have_text.text, (long long)layout->ranks,
      layout->ranks < layout->devices ? ", or device_ids for a part of this one" : "");
  return false;
}

bool tsr_mesh_rule_descriptor(
    const tsr_config *config, const tsr_mesh_layout *layout, tsr_diags *diags) {
  bool part =
      config->device.device_ids_count > 0 && config->device.device_ids_count < layout->devices;
  if (part || !layout->whole) return true;
  return layout->line ? line_fits(config, layout, diags) : grid_fits(config, layout, diags);
}

/* Where one of the ids stands, or at least the list. */
static tsr_location id_place(const tsr_config *config, int index) {
  const tsr_yaml *section = config->root ? tsr_yaml_get(config->root, "device_config") : NULL;
  const tsr_yaml *ids = section ? tsr_yaml_get(section, "device_ids") : NULL;
  if (ids && ids->kind == TSR_YAML_LIST && index < ids->count) return ids->items[index]->location;
  tsr_location location = tsr_config_location(config, "device_config.device_ids");
  return location.line ? location : tsr_mesh_layout_place(config);
}

bool tsr_mesh_rule_device_ids(
    const tsr_config *config, const tsr_mesh_layout *layout, tsr_diags *diags) {
  const tsr_config_device *device = &config->device;
  bool good = true;
  for (int i = 0; i < device->device_ids_count; i++) {
    int id = device->device_ids[i];
    if (id < 0 || id >= layout->devices) {
      good = tsr_diag_error(
          diags, id_place(config, i),
          "Physical chip id %d not found in control plane chip mapping. The descriptor's mesh %s "
          "has devices 0 to %d",
          id, tsr_mesh_layout_text(layout->have, layout->have_ndim).text, layout->devices - 1);
      tsr_diag_hint(diags, "check device_ids against the descriptor's device_topology");
    }
  }
  if (device->device_ids_count && device->device_ids_count != layout->ranks) {
    good = tsr_diag_error(
        diags, tsr_config_location(config, "device_config.device_ids"),
        "device_ids names %d device%s, but mesh_shape %s needs %lld", device->device_ids_count,
        device->device_ids_count == 1 ? "" : "s",
        tsr_mesh_layout_text(layout->asked, layout->asked_ndim).text, (long long)layout->ranks);
  }
  return good;
}

bool tsr_mesh_rule_idle_devices(
    const tsr_config *config, const tsr_mesh_layout *layout, tsr_diags *diags) {
  if (layout->ranks >= layout->devices) return true;
  tsr_diag_warning(
      diags, tsr_mesh_layout_place(config), "the mesh uses %lld of the descriptor's %d devices",
      (long long)layout->ranks, layout->devices);
  return true;
}
