// SPDX-License-Identifier: Apache-2.0
/* requires: the resolved mesh
 * produces: mesh.axes, where device_config names the dimension of mesh_shape over which tt-train
 * distributes experts
 *
 * In tt-train the chips of that dimension have the same tokens, which is tp. Where ddp takes the
 * dimension, it is ep, which splits samples too. A dimension that nothing uses repeats the work of
 * others in tt-train, and is left out here. */
#include "base/axis.h"
#include "config/config_internal.h"
#include <inttypes.h>

static const char *const moe_keys[] = {
    "device_config.moe_axis", "device_config.moe_ep_axis", "device_config.moe_tp_axis"};
enum { MOE_KEYS = sizeof moe_keys / sizeof *moe_keys };

/* The dimension; -1: none, or two that differ. */
static int find_dimension(tsr_loader *l, const char **ret_key) {
  int64_t found = -1;
  for (int i = 0; i < MOE_KEYS; i++) {
    const tsr_yaml *value = tsr_loader_value(l, moe_keys[i]);
    int64_t number;
    if (!value || !tsr_yaml_int(value, &number) || number < 0) continue;
    if (found >= 0 && number != found) {
      tsr_loader_contradict(l, *ret_key, moe_keys[i]);
      return -1;
    }
    found = number;
    *ret_key = moe_keys[i];
  }
  const tsr_config_device *d = &l->config->device;
  if (found < 0 || d->mesh_ndim == 0) return -1;
  if (found < d->mesh_ndim) return (int)found;
  tsr_diag_error(
      l->diags, tsr_loader_value(l, *ret_key)->location,
      "'%s' is dimension %" PRId64 ", but the mesh has %d, counted from 0",
      tsr_loader_key(l, *ret_key)->text, found, d->mesh_ndim);
  return -1;
}

/* The axes of the strategies that are on, in the order in which they take dimensions. */
static int find_strategies(const tsr_config_device *d, int axes[TSR_AXES + 1]) {
  int count = 0;
  if (d->enable_ddp) axes[count++] = TSR_DP;
  if (d->enable_fsdp) axes[count++] = TSR_DP;
  if (d->enable_cp) axes[count++] = TSR_CP;
  if (d->enable_pp) axes[count++] = TSR_PP;
  return count;
}

static bool refuse(tsr_loader *l, const char *key, int dim, const char *axis) {
  tsr_diag_error(
      l->diags, tsr_loader_value(l, key)->location,
      "'%s' is dimension %d, which is %s: experts are distributed over tp, ep or cp",
      tsr_loader_key(l, key)->text, dim, axis);
  return false;
}

/* The dimensions that strategies take, as src/parallel/mesh_layout.c has it: without those of size
 * 1 while there are more than strategies. */
static int find_taken(const tsr_config_device *d, int strategies, int taken[TSR_MESH_NDIM_MAX]) {
  int extra = d->mesh_ndim - strategies, count = 0;
  for (int i = 0; i < d->mesh_ndim; i++)
    if (d->mesh_shape[i] == 1 && extra > 0) extra--;
    else taken[count++] = i;
  return count;
}

/* A dimension that a strategy takes, of `taken` and `axes`, which have `count`: experts lie over cp
 * anyway, and of ddp it makes ep. */
static void share_dimension(
    tsr_loader *l, const char *key, int dim, const int *axes, const int *taken, int count) {
  tsr_config_device *d = &l->config->device;
  int at = 0;
  while (taken[at] != dim) at++;
  if (axes[at] == TSR_CP) return;
  if (axes[at] != TSR_DP || d->enable_fsdp) {
    refuse(l, key, dim, axes[at] == TSR_DP ? "fsdp" : tsr_axis_name(axes[at]));
    return;
  }
  for (int i = 0; i < count; i++) {
    d->axes[i] = i == at ? TSR_EP : axes[i];
    d->mesh_shape[i] = d->mesh_shape[taken[i]];
  }
  d->axes_count = d->mesh_ndim = count;
  d->enable_ddp = false;
  d->enable_ep = true;
  tsr_loader_take_origin(l, "mesh.axes", key);
}

/* Dimensions beside the experts' that no strategy takes: of size 1, or all. */
static bool is_idle(tsr_loader *l, const char *key, int dim, int strategies, int *extra) {
  const tsr_config_device *d = &l->config->device;
  if (*extra < 1 || (d->mesh_shape[dim] > 1 && strategies)) return false;
  (*extra)--;
  if (d->mesh_shape[dim] > 1)
    tsr_diag_warning(
        l->diags, tsr_loader_key(l, "device_config.mesh_shape")->location,
        "dimension %d of the mesh, of %d devices, is left out: beside '%s' no strategy is on, and "
        "tt-train's devices there would all do the same",
        dim, d->mesh_shape[dim], tsr_loader_key(l, key)->text);
  return true;
}

/* A dimension of its own is tp. */
static void add_dimension(tsr_loader *l, const char *key, int dim, const int *axes, int count) {
  tsr_config_device *d = &l->config->device;
  int extra = d->mesh_ndim - 1 - count, kept = 0, taken = 0;
  for (int i = 0; i < d->mesh_ndim; i++) {
    if (i != dim && is_idle(l, key, i, count, &extra)) continue;
    d->axes[kept] = i == dim ? TSR_TP : taken < count ? axes[taken++] : TSR_DP;
    d->mesh_shape[kept++] = d->mesh_shape[i];
  }
  d->axes_count = d->mesh_ndim = kept;
  d->enable_tp = true;
  tsr_loader_take_origin(l, "mesh.axes", key);
  tsr_loader_take_origin(l, "device_config.enable_tp", key);
  if (extra)
    tsr_diag_error(
        l->diags, tsr_loader_value(l, key)->location,
        "beside '%s' the mesh has %d dimension%s without a strategy", tsr_loader_key(l, key)->text,
        extra, extra == 1 ? "" : "s");
}

void tsr_moe_axis_resolve(tsr_loader *l) {
  tsr_config_device *d = &l->config->device;
  const char *key = NULL;
  int axes[TSR_AXES + 1], taken[TSR_MESH_NDIM_MAX];
  int count = find_strategies(d, axes), dim = find_dimension(l, &key);
  if (dim < 0 || d->enable_tp || d->enable_ep) return;
  if (d->axes_count) {
    int axis = d->axes[dim];
    if (axis != TSR_TP && axis != TSR_EP && axis != TSR_CP)
      refuse(l, key, dim, tsr_axis_name(axis));
    return;
  }
  if (d->mesh_shape[dim] == 1) return;
  int dimensions = find_taken(d, count, taken);
  if (d->enable_ddp && d->enable_fsdp) tsr_loader_contradict(l, key, "device_config.enable_fsdp");
  else if (count == dimensions) share_dimension(l, key, dim, axes, taken, count);
  else if (count < dimensions) add_dimension(l, key, dim, axes, count);
}
